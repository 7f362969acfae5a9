//! What is not known, and why: each line is about something that may be wrong without having been found.

use super::measured::{Measured, is_function, is_partial};
use super::rules;
use crate::model::{CollectionsWait, MethodSnapshot, SkipReason, Snapshot};
use crate::render::units;

/// How many functions are named.
const NAMED: usize = 3;

/// The lines.
pub(super) fn lines(measured: &Measured<'_>) -> Vec<String> {
    let jni = measured.jni;
    let mut lines: Vec<String> = partial(&jni.snapshot).into_iter().collect();
    if !jni.unseen.is_empty() {
        lines.push(format!(
            "{} JNI functions ({}, …) are the VM's own code, where no probe can be",
            jni.unseen.len(),
            jni.unseen[0]
        ));
    }
    if !jni.tells_members {
        lines.push("which look-ups of methods and fields are redundant is not known with this collector".to_owned());
    }
    if !jni.has_all_sections() {
        lines.push(
            "critical sections: not all calls that begin and end them were timed, to keep to the budget".to_owned(),
        );
    }
    if jni.collections == CollectionsWait::Perhaps && !jni.critical.is_empty() {
        lines.push("whether collections waited for critical sections is not known of this JVM".to_owned());
    }
    let kinds = rules::unknown_references(jni);
    if !kinds.is_empty() {
        let kinds = kinds.join(", ");
        lines.push(format!(
            "references kept ({kinds}): not all calls that make them and let them go were seen, to keep to the budget"
        ));
    }
    let skipped = not_traced(&jni.snapshot);
    if skipped > 0 {
        lines.push(format!("{} native methods cannot be traced (`nprof methods` says why)", units::count(skipped)));
    }
    if jni.snapshot.downcalls {
        lines.push("calls of native functions by java.lang.foreign: no native method makes them".to_owned());
    }
    lines
}

/// What is left to estimates.
fn partial(snapshot: &Snapshot) -> Option<String> {
    let rows: Vec<&MethodSnapshot> = snapshot.methods.iter().filter(|row| is_partial(row)).collect();
    let named = rows.iter().filter_map(|row| Some((row, &row.methods.first()?.method))).take(NAMED);
    let named: Vec<String> = named
        .map(
            |(row, method)| {
                if is_function(row) { method.name.to_string() } else { format!("{}::{}", method.class, method.name) }
            },
        )
        .collect();
    let more = if rows.len() > named.len() { ", …" } else { "" };
    (!rows.is_empty()).then(|| {
        format!(
            "{} functions ({}{more}) were too expensive to time all calls of within the budget (--max-overhead; off for any cost): \
             what is said of them, and of what they call, is estimated from a part, or missing",
            units::count(rows.len() as u64),
            named.join(", ")
        )
    })
}

/// Methods that are bound, and have no probe.
fn not_traced(snapshot: &Snapshot) -> u64 {
    let harmless = [SkipReason::Unbound, SkipReason::Intrinsic];
    snapshot.skipped.iter().filter(|skipped| !harmless.contains(&skipped.reason)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::lines;
    use crate::diagnose::testing::{NATIVE, Sample};

    /// Check that nothing is unknown of a complete measurement, and that each thing that is gets its line.
    #[test]
    fn each_has_a_line() {
        let mut sample = Sample::seconds(10);
        sample.native("some", 10, 1_000);
        assert_eq!(lines(&sample.measured()), [""; 0]);
        sample.row(NATIVE).counted = 5;
        let function = sample.function("NewGlobalRef", 10);
        sample.row(function).counted = 5;
        sample.jni.tells_members = false;
        sample.jni.unseen = vec!["GetIntField"];
        let lines = lines(&sample.measured());
        assert!(lines[0].starts_with("2 functions (a.N::some, NewGlobalRef) were too expensive"), "{lines:?}");
        assert!(lines[1].starts_with("1 JNI functions (GetIntField, …)"), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("references kept (global): ")), "{lines:?}");
        assert_eq!(lines.len(), 4);
        sample.sections(1, 1, 1);
        assert_eq!(super::lines(&sample.measured()).len(), 5);
    }
}
