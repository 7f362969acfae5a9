//! The comparison as pictures: stacks with two numbers each.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::super::report;
use super::Base;
use crate::model::{Unit, Weighed};

/// What the recordings are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names<'a> {
    /// The first.
    pub before: &'a str,
    /// The second.
    pub after: &'a str,
}

/// Stacks of two recordings with their values, the first one's scaled to the amount of the second.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    unit: Unit,
    /// What there is as much of in both, since the first one was scaled.
    same: Option<String>,
    rows: BTreeMap<String, (u64, u64)>,
}

impl Difference {
    /// Compares stacks.
    #[must_use]
    pub fn new(before: &Weighed, after: &Weighed, base: &Base) -> Self {
        Self::of(before, after, |value| base.as_after(value), base.same())
    }

    /// Compares stacks of which those of the first recording have been scaled to as many invocations as the second one has, if that had to be.
    #[must_use]
    pub fn of_trees([before, after]: &[Weighed; 2], is_scaled: bool) -> Self {
        Self::of(before, after, |value| value, is_scaled.then(|| "number of invocations".to_owned()))
    }

    fn of(before: &Weighed, after: &Weighed, as_after: impl Fn(u64) -> u64, same: Option<String>) -> Self {
        let mut rows: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (stack, value) in folded(before) {
            let old = &mut rows.entry(stack).or_default().0;
            *old = old.saturating_add(as_after(value));
        }
        for (stack, value) in folded(after) {
            let new = &mut rows.entry(stack).or_default().1;
            *new = new.saturating_add(value);
        }
        Self { unit: after.unit, same, rows }
    }

    /// Whether there is nothing to draw with the widths of the second recording, or with `negate` of the first.
    #[must_use]
    pub fn is_empty(&self, negate: bool) -> bool {
        self.rows.values().all(|(old, new)| *(if negate { old } else { new }) == 0)
    }

    /// Writes folded stacks with two numbers each, before and after, as other tools for differences read them.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn folded(&self, out: &mut dyn Write) -> io::Result<()> {
        for (stack, (old, new)) in &self.rows {
            writeln!(out, "{stack} {old} {new}")?;
        }
        Ok(())
    }

    /// Draws a flame graph with the widths of the second recording, or with `negate` of the first. Its colours say what
    /// became more or less.
    ///
    /// # Errors
    /// Those of `out`, and if there is nothing to draw.
    pub fn svg(&self, names: &Names<'_>, negate: bool, out: &mut dyn Write) -> io::Result<()> {
        let line = |(stack, (old, new)): (&String, &(u64, u64))| match negate {
            true => format!("{stack} {new} {old}"),
            false => format!("{stack} {old} {new}"),
        };
        let lines: Vec<String> = self.rows.iter().map(line).collect();
        let mut options = Options::default();
        options.title = format!("{} compared with {}", names.after, names.before);
        options.subtitle = Some(self.legend(names, negate));
        options.count_name = if self.unit == Unit::Calls { "calls" } else { "ns" }.to_owned();
        options.negate_differentials = negate;
        options.deterministic = true;
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
    }

    fn legend(&self, names: &Names<'_>, negate: bool) -> String {
        let (widths, missing) = if negate { (names.before, names.after) } else { (names.after, names.before) };
        let what = if self.unit == Unit::Calls { "calls" } else { "time" };
        let mut legend = format!("red: more {what} in {}, blue: less; widths: {widths}", names.after);
        legend.push_str(&format!("; what is only in {missing} has none"));
        if let Some(same) = &self.same {
            legend.push_str(&format!("; {} scaled to the same {same}", names.before));
        }
        legend
    }
}

/// Stacks in one line each, the outermost frame first, and their values.
fn folded(weighed: &Weighed) -> impl Iterator<Item = (String, u64)> {
    let labels: Vec<String> = weighed.frames.iter().map(|frame| report::label(frame).replace(';', ",")).collect();
    weighed.stacks.iter().map(move |stack| {
        let names: Vec<&str> =
            stack.frames.iter().filter_map(|at| labels.get(*at as usize)).map(String::as_str).collect();
        (names.join(";"), stack.value)
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::{callers, recorded};
    use super::*;
    use crate::model::Weight;

    const NAMES: Names<'_> = Names { before: "a.nprof", after: "b<.nprof" };

    fn difference() -> Difference {
        let (before, mut after) = (recorded::profile(), recorded::profile());
        after.functions[0].self_ns = 0;
        after.functions[1].self_ns = 8_000_000;
        let (old, new) =
            (callers::weighed(&before, Weight::Time, false), callers::weighed(&after, Weight::Time, false));
        after.about.elapsed *= 2;
        Difference::new(&old, &new, &Base::seconds(&before, &after))
    }

    /// Check that the first recording is scaled to the length of the second, and that what is missing is 0.
    #[test]
    fn two_columns() {
        let mut out = Vec::new();
        difference().folded(&mut out).unwrap();
        let expected = "a.M.main;a.M.run;a.N.read 4000000 8000000\na.M.main;a.M.run;a.N.read;a.N.copy 2000000 0\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Check that the picture says which recording its widths are of and what its colours mean, and draws what is there.
    #[test]
    fn picture_explains_itself() {
        let svg = |negate| {
            let mut out = Vec::new();
            difference().svg(&NAMES, negate, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (after, before) = (svg(false), svg(true));
        assert!(after.contains("red: more time in b&lt;.nprof, blue: less; widths: b&lt;.nprof"), "{after}");
        assert!(before.contains("widths: a.nprof") && before.contains("a.nprof scaled to the same length"));
        assert!(after.contains("a.N.read") && !after.contains("a.N.copy"));
        assert!(before.contains("a.N.read") && before.contains("a.N.copy"));
        assert_eq!(svg(false), after);
    }

    /// Check that recordings are scaled by calls where that is wanted, and that the picture says so.
    #[test]
    fn scaled_by_calls() {
        let weighed = callers::weighed(&recorded::profile(), Weight::Time, false);
        let difference = Difference::new(&weighed, &weighed, &Base::calls("a.N::read", [20, 10]));
        let mut out = Vec::new();
        difference.folded(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("a.N.read 1000000 2000000\n"));
        assert!(difference.legend(&NAMES, false).ends_with("a.nprof scaled to the same number of calls of a.N::read"));
    }

    /// Check that it is known when there is nothing to draw.
    #[test]
    fn knows_when_there_is_nothing() {
        let nothing = Weighed::default();
        let something = callers::weighed(&recorded::profile(), Weight::Time, false);
        let gone = Difference::new(&something, &nothing, &Base::calls("a", [1, 1]));
        assert_eq!((gone.is_empty(false), gone.is_empty(true)), (true, false));
    }

    /// Check that stacks that have been scaled are not scaled again, and that the picture says that they were.
    #[test]
    fn stacks_of_trees() {
        let weighed = callers::weighed(&recorded::profile(), Weight::Time, false);
        let stacks = [weighed.clone(), weighed];
        let difference = Difference::of_trees(&stacks, true);
        let mut out = Vec::new();
        difference.folded(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("a.N.read 2000000 2000000\n"));
        assert!(difference.legend(&NAMES, false).ends_with("; a.nprof scaled to the same number of invocations"));
        assert!(!Difference::of_trees(&stacks, false).legend(&NAMES, false).contains("scaled"));
    }
}
