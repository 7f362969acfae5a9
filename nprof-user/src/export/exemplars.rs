//! Single calls beside the buckets of a distribution: of each bucket the slowest, with who made it.

use std::collections::BTreeMap;

use super::distribution::CLASSIC;
use super::labels::push_escaped;
use crate::model::Exemplar;

/// The most characters that names and values of an exemplar's labels may have together, by OpenMetrics.
const CHARACTERS: usize = 128;
/// The same of the names, and of a thread's name: the kernel keeps 15 bytes.
const NAMES: usize = "thread".len() + "caller".len();
const THREAD: usize = 32;

/// The exemplars of a distribution, by the classic bucket.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Exemplars(BTreeMap<usize, Exemplar>);

impl Exemplars {
    /// Takes one in, if it is the slowest of its bucket.
    pub(super) fn add(&mut self, exemplar: &Exemplar) {
        let is_within = |(last, _): &(i32, _)| exemplar.time_ns <= 1 << (last / 4);
        let bucket = CLASSIC.iter().position(is_within).unwrap_or(CLASSIC.len());
        if self.0.get(&bucket).is_none_or(|known| known.time_ns < exemplar.time_ns) {
            self.0.insert(bucket, exemplar.clone());
        }
    }

    /// That of a bucket of [`CLASSIC`], or of the one after them.
    pub(super) fn of(&self, bucket: usize) -> Option<&Exemplar> {
        self.0.get(&bucket)
    }
}

/// What stands between the braces: `thread="pool-1",caller="com.acme.Shop::load:17"`, as far as it is known and there is room. Of a long
/// caller the end is left.
pub(super) fn labels(exemplar: &Exemplar) -> String {
    let thread: String = exemplar.thread.chars().take(THREAD).collect();
    let room = CHARACTERS - NAMES - thread.chars().count();
    let mut labels = String::new();
    for (name, value) in [("thread", thread), ("caller", end_of(&exemplar.caller, room))] {
        if !value.is_empty() {
            labels.push_str(if labels.is_empty() { "" } else { "," });
            labels.push_str(name);
            labels.push_str("=\"");
            push_escaped(&mut labels, &value);
            labels.push('"');
        }
    }
    labels
}

/// The last characters of a text, so many at most.
fn end_of(text: &str, most: usize) -> String {
    let all = text.chars().count();
    if all <= most {
        return text.to_owned();
    }
    "...".chars().chain(text.chars().skip(all - (most - 3))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::exemplar;

    /// Check that each bucket has its slowest: a call that took as long as a bound is below it.
    #[test]
    fn the_slowest_of_each_bucket() {
        let mut exemplars = Exemplars::default();
        [200, 256, 250, 257, 1_024, 17_179_869_184, 17_179_869_185].iter().for_each(|ns| exemplars.add(&exemplar(*ns)));
        let shown = (0..=CLASSIC.len()).filter_map(|bucket| Some((bucket, exemplars.of(bucket)?.time_ns)));
        assert!(shown.eq([(0, 256), (1, 1_024), (13, 17_179_869_184), (14, 17_179_869_185)]));
    }

    /// Check that labels are never longer than may be, whatever a target calls its threads and classes, and say nothing of nothing.
    #[test]
    fn labels_fit() {
        let with = |thread: &str, caller: &str| {
            labels(&Exemplar { thread: thread.to_owned(), caller: caller.to_owned(), ..exemplar(1) })
        };
        assert_eq!(with("pool \"1\"\n", "a.B::c:1"), "thread=\"pool \\\"1\\\"\\n\",caller=\"a.B::c:1\"");
        assert_eq!([with("", ""), with("a", ""), with("", "b")], ["", "thread=\"a\"", "caller=\"b\""]);
        let long = with(&"ü".repeat(100), &format!("{}::end:7", "ö".repeat(500)));
        let values = long.chars().count() - "thread=\"\",caller=\"\"".len();
        assert!(
            values + NAMES == CHARACTERS && long.ends_with("ö::end:7\"") && long.contains("caller=\"...ö"),
            "{long}"
        );
    }
}
