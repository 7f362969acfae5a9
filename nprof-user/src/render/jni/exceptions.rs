//! Exceptions that native methods leave or clear: how many, where, and of which classes.

use std::collections::HashMap;

use super::made::Made;
use crate::model::{JniExceptions, JniSnapshot};
use crate::render::{names, units};

/// How many methods are named that return with exceptions.
const THROWING: usize = 3;
/// How many classes are named.
const CLASSES: usize = 5;

/// What there is to say of them.
pub(super) fn lines(jni: &JniSnapshot) -> Vec<String> {
    total(jni).into_iter().chain(classes(jni)).collect()
}

fn total(jni: &JniSnapshot) -> Option<String> {
    let all = by_place(jni);
    let [pending, cleared] = sum(&all);
    let name = |place: Option<usize>| place.and_then(|place| jni.snapshot.methods.get(place)?.methods.first());
    let mut throwing: Vec<(u64, String)> = all
        .iter()
        .filter(|(_, [pending, _])| *pending > 0)
        .filter_map(|(place, [pending, _])| {
            Some((*pending, names::printable(&names::qualified(&name(*place)?.method)).into_owned()))
        })
        .collect();
    throwing.sort_by(|a, b| b.cmp(a));
    let named: Vec<String> =
        throwing.iter().take(THROWING).map(|(pending, name)| format!("{} in {name}", units::count(*pending))).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    (pending + cleared > 0).then(|| {
        format!(
            "exceptions: {} pending when a native method returned{named}, {} cleared before that by ExceptionClear",
            units::count(pending),
            units::count(cleared)
        )
    })
}

/// How many were left and cleared in all.
pub(super) fn all(jni: &JniSnapshot) -> [u64; 2] {
    sum(&by_place(jni))
}

fn sum(all: &[(Option<usize>, [u64; 2])]) -> [u64; 2] {
    all.iter().fold([0, 0], |[pending, cleared], (_, more)| [pending + more[0], cleared + more[1]])
}

/// The same of each native method, and of nobody's code.
fn by_place(jni: &JniSnapshot) -> Vec<(Option<usize>, [u64; 2])> {
    let (made, none) = (Made::by_method(jni), Made::default());
    let places = (0..jni.snapshot.methods.len()).map(Some).chain([None]);
    places.map(|place| (place, made.get(&place).unwrap_or(&none).exceptions(jni, place))).collect()
}

fn classes(jni: &JniSnapshot) -> Option<String> {
    let all = by_class(&jni.thrown);
    let named = all.iter().take(CLASSES).map(|(class, [pending, cleared])| {
        let class = class.map_or("(class not known)".into(), names::printable);
        format!("{class} {} pending, {} cleared", units::count(*pending), units::count(*cleared))
    });
    let mut named: Vec<String> = named.collect();
    let more = all.len() - named.len();
    named.extend((more > 0).then(|| format!("and {more} more (--format json lists all)")));
    (!named.is_empty()).then(|| format!("exceptions by class: {}", named.join("; ")))
}

/// How many exceptions of each class were left pending and cleared, the most first.
pub(super) fn by_class<'a>(thrown: impl IntoIterator<Item = &'a JniExceptions>) -> Vec<(Option<&'a str>, [u64; 2])> {
    let mut sums: HashMap<Option<&str>, [u64; 2]> = HashMap::new();
    for of in thrown {
        let [pending, cleared] = sums.entry(of.class.as_deref()).or_default();
        (*pending, *cleared) = (*pending + of.pending, *cleared + of.cleared);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    let sum = |[pending, cleared]: &[u64; 2]| pending + cleared;
    sums.sort_by(|(a, of_a), (b, of_b)| sum(of_b).cmp(&sum(of_a)).then_with(|| a.cmp(b)));
    sums
}
