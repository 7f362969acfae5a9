//! What there is to say of calls that held more local references than there was room for.

use super::notes::whose;
use crate::model::{JniSnapshot, LocalsBeyond, LocalsKnown};
use crate::render::notes::plural;
use crate::render::units;

/// How many native methods are named.
const NAMED: usize = 5;

/// The line; nothing where it was not looked for.
pub(super) fn line(jni: &JniSnapshot) -> Option<String> {
    const WHAT: &str = "local references beyond the capacity of their frame";
    let locals = &jni.held.as_ref()?.locals;
    if locals.known == LocalsKnown::Not {
        return Some(format!(
            "{WHAT}: not known, because not all calls were seen of functions that let them go, make room or run Java (--max-overhead off)"
        ));
    }
    let not_exact = if locals.known == LocalsKnown::Partly {
        "; not exact: some calls were only counted or not seen, and what these made is not known (--max-overhead off)"
    } else {
        ""
    };
    let Some(first) = locals.beyond.first() else { return Some(format!("{WHAT}: none{not_exact}")) };
    let calls = locals.beyond.iter().map(|of| of.calls).sum();
    let of = |of: &LocalsBeyond| {
        let method = whose(jni, of.method);
        format!("{} with up to {}{method}", units::count(of.calls), units::count(of.most))
    };
    let named: Vec<String> = locals.beyond.iter().take(NAMED).map(of).collect();
    let more = if locals.beyond.len() > NAMED { ", … (--format json lists all)" } else { "" };
    Some(format!(
        "{WHAT}: in {}, the most {} at once: {}{more}{not_exact}",
        plural(calls, "call"),
        units::count(first.most),
        named.join(", ")
    ))
}
