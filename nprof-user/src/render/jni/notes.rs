//! What stands below the table of `jni`: sums, what was not seen, what marks mean, losses, and what would be won.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::is_function;
use super::{callbacks, callers, exceptions, held, lost, share};
use crate::model::{BuffersMade, CollectionsWait, JniFamily, JniResource, JniSnapshot, JniSum, Resources};
use crate::render::json::nanoseconds;
use crate::render::marks::Mark;
use crate::render::notes::{cost, own_time, plural, taken_off};
use crate::render::rows::Row;
use crate::render::run::{Run, Scope};
use crate::render::uncertain::Uncertain;
use crate::render::{names, units, words};

const TIME: &str = "ON-CPU is the part of TIME that threads ran. Both are without traced native methods that were called meanwhile; those of \
                    Call… and New… have the Java code in them that they run";

const TIME_BY_STUBS: &str = "ON-CPU is the part of TIME that threads ran. Both are without JNI functions that were called meanwhile; those of Call… and \
                             New… have the Java code in them that they run";
const NOT_BY_STUBS: &str = "not told by stubs: which Java is called, redundant look-ups, references, direct buffers, exceptions, critical \
                            sections (--tier kernel)";

/// The lines below a table that names these rows of the snapshot.
pub(super) fn lines(jni: &JniSnapshot, named: &BTreeSet<usize>) -> Vec<String> {
    if jni.is_by_stubs {
        return by_stubs(jni, named);
    }
    let mut lines = vec![total(jni)];
    lines.extend(families(jni));
    lines.extend(callbacks::line(jni));
    lines.extend(look_ups(jni));
    lines.extend(references(jni));
    lines.extend(held::lines(jni));
    lines.extend(buffers(jni));
    lines.extend(critical(jni));
    lines.extend(exceptions::lines(jni));
    lines.push(TIME.to_owned());
    lines.extend(unseen(jni));
    lines.extend(cost(Run::new(std::slice::from_ref(&jni.snapshot), Scope::One)));
    lines.extend(demoted(jni));
    lines.extend(of_measuring(jni, named));
    lines.push(won(jni));
    lines
}

/// What there is to say where stubs have counted.
fn by_stubs(jni: &JniSnapshot, named: &BTreeSet<usize>) -> Vec<String> {
    let all = jni.sum_of(|_| true);
    let mut lines = vec![format!(
        "total: {} of JNI functions in {}: {} on CPU, {} in all (sum over threads)",
        plural(all.calls, "call"),
        units::duration(nanoseconds(jni.snapshot.elapsed)),
        Uncertain { value: all.on_cpu_ns, error: all.error_ns }.duration(),
        Uncertain { value: all.self_ns, error: all.error_ns }.duration()
    )];
    lines.extend(families(jni));
    lines.push(TIME_BY_STUBS.to_owned());
    lines.push(callers::line(jni));
    lines.push(NOT_BY_STUBS.to_owned());
    lines.extend(cost(Run::new(std::slice::from_ref(&jni.snapshot), Scope::One)));
    if jni.is_partial() {
        let why = "to keep to the budget (--max-overhead; off for any cost), or because another agent's function is behind a stub";
        lines.push(format!("not all calls were timed, {why}: times above are of those that were"));
    }
    lines.extend(of_measuring(jni, named));
    lines
}

/// What probes and stubs have done to the times, what marks mean that stand in the table, and losses.
fn of_measuring(jni: &JniSnapshot, named: &BTreeSet<usize>) -> Vec<String> {
    let row = |row| Row::of(&jni.snapshot, row);
    let all: Vec<Row<'_>> = jni.snapshot.methods.iter().filter_map(row).collect();
    let shown = || named.iter().filter_map(|&place| row(jni.snapshot.methods.get(place)?));
    let mut lines: Vec<String> = taken_off(&all).into_iter().collect();
    lines.extend(Mark::legend(|mark| shown().any(|row| mark.applies_to(&row))));
    lines.extend(words::losses(&jni.snapshot.losses));
    lines
}

fn total(jni: &JniSnapshot) -> String {
    let all = jni.sum_of(|_| true);
    let outside: u64 = jni.uses.iter().filter(|made| made.method.is_none()).map(|made| made.calls.calls).sum();
    let mut methods: Vec<usize> = jni.uses.iter().filter_map(|made| made.method).collect();
    methods.sort_unstable();
    methods.dedup();
    let others = if outside > 0 { format!(", {} outside of them", units::count(outside)) } else { String::new() };
    format!(
        "total: {} of JNI functions by {} in {}{others}: {} on CPU, {} in all (sum over threads)",
        plural(all.calls, "call"),
        plural(methods.len() as u64, "native method"),
        units::duration(nanoseconds(jni.snapshot.elapsed)),
        Uncertain { value: all.on_cpu_ns, error: all.error_ns }.duration(),
        Uncertain { value: all.self_ns, error: all.error_ns }.duration()
    )
}

fn families(jni: &JniSnapshot) -> Option<String> {
    let mut families: BTreeMap<JniFamily, JniSum> = BTreeMap::new();
    for made in &jni.uses {
        families.entry(JniFamily::of(jni.function(made.function))).or_default().add(&made.into());
    }
    let mut families: Vec<(JniFamily, JniSum)> = families.into_iter().collect();
    families.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.on_cpu_ns));
    let each = families.iter().map(|(family, sum)| {
        let on_cpu = Uncertain { value: sum.on_cpu_ns, error: sum.error_ns }.duration();
        let on_cpu = if sum.timed == 0 { "not timed".to_owned() } else { on_cpu };
        format!("{} {on_cpu} ({})", family.as_str(), units::count(sum.calls))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("by family: {}", each.join(", ")))
}

fn look_ups(jni: &JniSnapshot) -> Option<String> {
    let sum = jni.sum_of(|name| JniFamily::of(name) == JniFamily::LookUps);
    let unknown = if jni.tells_members {
        ""
    } else {
        "; which look-ups of methods and fields were the same is not known in this JVM (always so with ZGC)"
    };
    (sum.calls > 0).then(|| {
        format!(
            "look-ups: {}, of these {} redundant (the same had been found before), which took {}; {} found nothing{unknown}",
            units::count(sum.calls),
            units::count(sum.redundant),
            lost(&sum).duration(),
            units::count(sum.calls - sum.effective),
        )
    })
}

fn references(jni: &JniSnapshot) -> Option<String> {
    let used = jni.resources().into_iter().filter(|(_, sums)| *sums != Resources::default());
    let each: Vec<String> = used
        .map(|(resource, sums)| {
            let name = noun(resource);
            format!("{name} {} made, {} let go", units::count(sums.made), units::count(sums.let_go))
        })
        .collect();
    (!each.is_empty())
        .then(|| format!("references: {} (local ones are also let go when the native method returns)", each.join("; ")))
}

pub(super) fn noun(resource: JniResource) -> &'static str {
    match resource {
        JniResource::Local => "local",
        JniResource::Global => "global",
        JniResource::Weak => "weak",
        JniResource::Chars => "characters of strings",
        JniResource::Elements => "elements of arrays",
        JniResource::Critical => "critical",
    }
}

/// How many native methods are named that make direct buffers.
const NAMED: usize = 3;

fn buffers(jni: &JniSnapshot) -> Option<String> {
    let largest = jni.buffers.iter().map(|of| of.largest_bytes).max()?;
    let (buffers, bytes) = jni
        .buffers
        .iter()
        .fold((0, 0_u64), |(buffers, bytes), more| (buffers + more.buffers, bytes.saturating_add(more.bytes)));
    let of = |made: &BuffersMade| {
        let maker = whose(jni, made.method);
        let maker = if maker.is_empty() { " outside of traced native methods" } else { &maker };
        format!("{} with {}{maker}", units::count(made.buffers), units::bytes(made.bytes))
    };
    let named: Vec<String> = jni.buffers.iter().take(NAMED).map(of).collect();
    let more = if jni.buffers.len() > NAMED { ", …" } else { "" };
    Some(format!(
        "direct buffers: {} made with {}, the largest {}: {}{more}",
        units::count(buffers),
        units::bytes(bytes),
        units::bytes(largest),
        named.join(", ")
    ))
}

fn critical(jni: &JniSnapshot) -> Option<String> {
    if !jni.has_all_sections() {
        let why = "not all calls of the functions that begin and end them were timed (--max-overhead)";
        return Some(format!("critical sections: not known, because {why}"));
    }
    let longest = jni.critical.iter().max_by_key(|sections| sections.longest_ns)?;
    let (sections, total_ns) = jni.critical.iter().fold((0, 0_u64), |(sections, total_ns), more| {
        (sections + more.sections, total_ns.saturating_add(more.total_ns))
    });
    Some(format!(
        "critical sections: {} with {}, the longest {}{}: {}",
        units::count(sections),
        units::duration(total_ns),
        units::duration(longest.longest_ns),
        whose(jni, longest.method),
        waited(jni)
    ))
}

/// How long collections waited for them.
fn waited(jni: &JniSnapshot) -> String {
    let CollectionsWait::For(waits) = &jni.collections else {
        let may = if jni.collections == CollectionsWait::Never {
            "do not wait for their end, as what they are about is pinned"
        } else {
            "may have to wait for their end"
        };
        return format!("collections {may}");
    };
    let longest = waits.iter().max_by_key(|of| of.longest_ns).filter(|of| of.collections > 0);
    let (Some(all), Some(longest)) = (jni.collections.all(), longest) else {
        return "no collection waited for their end".to_owned();
    };
    format!(
        "{} waited {} for their end, the longest {}{}",
        plural(all.collections, "collection"),
        units::duration(all.total_ns),
        units::duration(all.longest_ns),
        whose(jni, longest.method)
    )
}

/// ` in a.A::method`; nothing if it is no method's.
pub(super) fn whose(jni: &JniSnapshot, method: Option<usize>) -> String {
    let known = method.and_then(|place| jni.snapshot.methods.get(place)?.methods.first());
    known.map_or_else(String::new, |known| format!(" in {}", names::printable(&names::qualified(&known.method))))
}

/// The blind spot.
fn unseen(jni: &JniSnapshot) -> Option<String> {
    (!jni.unseen.is_empty()).then(|| {
        format!(
            "not seen: {}: the VM has made them as code of its own, where no probe can be (-XX:-UseFastJNIAccessors)",
            jni.unseen.join(", ")
        )
    })
}

fn demoted(jni: &JniSnapshot) -> Option<String> {
    let demoted = jni.snapshot.states.demoted as u64;
    let estimated = jni.snapshot.methods.iter().filter(|row| is_function(row) && row.unseen.is_some());
    let estimated: Vec<String> = estimated
        .filter_map(|row| Row::of(&jni.snapshot, row))
        .map(|row| format!("{} {}", row.first.method.name, row.all_calls().count()))
        .collect();
    let estimated = if estimated.is_empty() {
        String::new()
    } else {
        format!("; calls of these in all, estimated from short looks: {}", estimated.join(", "))
    };
    jni.is_partial().then(|| {
        format!(
            "not all calls were seen and timed, to keep to the budget (--max-overhead; off for any cost; {} too expensive now): all sums \
             above are of those that were. Of a marked JNI function not all calls are told by caller, a call that was only counted is \
             taken to have had an effect, and what is called in a marked native method is outside of traced ones{estimated}",
            plural(demoted, "function")
        )
    })
}

/// What a cache of ids would win.
fn won(jni: &JniSnapshot) -> String {
    let sum = jni.sum_of(|name| JniFamily::of(name) == JniFamily::LookUps);
    let is_unknown =
        jni.snapshot.losses.counts.iter().any(|(reason, count)| *reason == "unknown-look-up" && *count > 0);
    let is_partial = !jni.tells_members || jni.is_partial() || is_unknown;
    if sum.redundant == 0 {
        let known = if is_partial && sum.calls > 0 { "not known (see above)" } else { "nothing" };
        return format!("would be won by keeping what was looked up: {known}");
    }
    let at_least = if is_partial { "at least " } else { "" };
    let won = lost(&sum);
    let share = own_time(&jni.snapshot)
        .filter(|own| !own.is_zero())
        .map_or_else(String::new, |own| format!(", {} of the JVM's CPU time", share(won, nanoseconds(own))));
    format!("would be won by keeping what was looked up: {at_least}{} of redundant look-ups{share}", won.duration())
}
