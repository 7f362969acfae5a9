//! The rows of a comparison: what both recordings say of a function, what of it has changed, and which row comes first.

use std::cmp::Ordering;

use nprof_common::{Consumed, Counters};

use super::super::super::uncertain::Uncertain;
use super::super::super::units;
use super::super::callers::percent;
use super::{DiffOrder, rounded};
use crate::model::Column;

/// What one of two recordings says of a function, for each second of it or for each call of some method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) calls: f64,
    /// How far `calls` may be off.
    pub(super) calls_error: f64,
    pub(super) time_ns: u64,
    /// How far `time_ns` may be off; `None` if nobody knows.
    pub(super) error_ns: Option<u64>,
    /// What the calls have consumed themselves, as far as that is known.
    pub(super) consumed: Option<Counters>,
}

impl Rate {
    /// A time without calls, which is exact.
    pub(super) fn of_time(time_ns: u64) -> Self {
        Self { calls: 0.0, calls_error: 0.0, time_ns, error_ns: Some(0), consumed: None }
    }

    /// The time or, where that is lost in its error, how long it can be at most.
    pub(super) fn time(&self) -> String {
        Uncertain { value: self.time_ns, error: self.error_ns.unwrap_or(0) }.duration()
    }

    /// Adds what calls have consumed in a recording of which this makes a second.
    pub(super) fn consume(&mut self, consumed: &Consumed, part: impl Fn(u64) -> f64) {
        let sums = self.consumed.get_or_insert_default();
        sums.iter_mut().zip(consumed.own).for_each(|(sum, own)| *sum = sum.saturating_add(rounded(part(own))));
    }

    /// What the calls have consumed of this.
    pub(super) fn consumed(&self, column: &Column) -> String {
        self.consumed
            .as_ref()
            .map_or_else(|| "-".to_owned(), |counters| units::counted(column.of(counters), column.unit))
    }

    /// The calls or, where those are lost in their error, how many there can be at most.
    pub(super) fn calls(&self) -> String {
        let is_lost = self.calls < self.calls_error;
        if is_lost { format!("<{}", units::rate(self.calls + self.calls_error)) } else { units::rate(self.calls) }
    }
}

/// A function in both recordings; what is missing in one is 0 there.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) label: String,
    /// Whether the kernel single-stepped an instruction of it in one of the recordings.
    pub(super) stepped: bool,
    /// Whether it was too expensive to watch in one of them.
    pub(super) estimated: bool,
    pub(super) before: Rate,
    pub(super) after: Rate,
}

impl Row {
    fn change_ns(&self) -> u64 {
        self.after.time_ns.abs_diff(self.before.time_ns)
    }

    /// The name, with its marks.
    pub(super) fn marked(&self) -> String {
        let marks = [(self.estimated, '≈'), (self.stepped, '!')];
        let marks: String = marks.iter().filter(|(applies, _)| *applies).map(|(_, mark)| *mark).collect();
        if marks.is_empty() { self.label.clone() } else { format!("{} {marks}", self.label) }
    }

    /// `+1.24 ms`, `-3.00 us`, `0 ns`.
    pub(super) fn change(&self) -> String {
        format!("{}{}", self.sign(), units::duration(self.change_ns()))
    }

    /// How far the change may be off: the errors of both recordings are as often in one direction as in opposite ones.
    pub(super) fn error(&self) -> String {
        match self.error_ns() {
            _ if !self.estimated => String::new(),
            None => "-".to_owned(),
            Some(error_ns) => format!("± {}", units::duration(error_ns)),
        }
    }

    fn error_ns(&self) -> Option<u64> {
        let (before, after) = self.before.error_ns.zip(self.after.error_ns)?;
        Some(root_of_squares(before, after))
    }

    /// What the calls have consumed of this in both recordings.
    pub(super) fn consumed(&self, column: &Column) -> String {
        format!("{} → {}", self.before.consumed(column), self.after.consumed(column))
    }

    /// What stands in the column of an order; 0 for names, and where nothing is known.
    fn number(&self, order: DiffOrder) -> f64 {
        let consumed = |rate: &Rate, column: &Column| rate.consumed.as_ref().map_or(0, |counters| column.of(counters));
        let time = |ns: u64| ns as f64;
        match order {
            DiffOrder::Change => time(self.change_ns()),
            DiffOrder::Percent if self.before.time_ns == 0 && self.after.time_ns > 0 => f64::INFINITY,
            DiffOrder::Percent => percent(self.change_ns(), self.before.time_ns),
            DiffOrder::Error => self.error_ns().map_or(0.0, time),
            DiffOrder::TimeBefore => time(self.before.time_ns),
            DiffOrder::TimeAfter => time(self.after.time_ns),
            DiffOrder::CallsBefore => self.before.calls,
            DiffOrder::CallsAfter => self.after.calls,
            DiffOrder::Consumed(column) => time(consumed(&self.before, column).abs_diff(consumed(&self.after, column))),
            DiffOrder::Method => 0.0,
        }
    }

    /// Which of two rows comes first. Those that this order does not tell apart are in the default one, then by name.
    pub(super) fn compare(&self, other: &Self, order: DiffOrder) -> Ordering {
        let largest_first = |order| other.number(order).total_cmp(&self.number(order));
        let by_name = self.label.cmp(&other.label);
        if order == DiffOrder::Method {
            return by_name;
        }
        let longest = |row: &Self| row.after.time_ns.max(row.before.time_ns);
        let by_time = largest_first(DiffOrder::Change).then_with(|| longest(other).cmp(&longest(self)));
        largest_first(order).then(by_time).then(by_name)
    }

    fn sign(&self) -> &'static str {
        match self.after.time_ns.cmp(&self.before.time_ns) {
            Ordering::Less => "-",
            Ordering::Equal => "",
            Ordering::Greater => "+",
        }
    }

    /// The same in percent of before.
    pub(super) fn share(&self) -> String {
        let is_there = |rate: Rate| rate.time_ns > 0 || rate.calls + rate.calls_error > 0.0;
        match (is_there(self.before), is_there(self.after)) {
            (false, true) => "new".to_owned(),
            (true, false) => "gone".to_owned(),
            _ if self.before.time_ns == 0 => "-".to_owned(),
            _ => format!("{}{:.1} %", self.sign(), percent(self.change_ns(), self.before.time_ns)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn root_of_squares(one: u64, other: u64) -> u64 {
    (one as f64).hypot(other as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::COLLECTORS;

    /// Check that rows can be in the order of each column: times, calls, changes, errors, names, and what was collected.
    #[test]
    fn in_each_order() {
        let rate = |time_ns, calls| Rate { calls, ..Rate::of_time(time_ns) };
        let row = |label: &str, before: Rate, after: Rate| Row {
            label: label.to_owned(),
            stepped: false,
            estimated: false,
            before,
            after,
        };
        let uncertain = Rate { error_ns: Some(99), ..rate(100, 1.0) };
        let mut rows = [
            row("e", rate(1_000, 1.0), rate(1_500, 1.0)),
            row("d", rate(5_000, 1.0), rate(5_100, 1.0)),
            row("c", rate(10, 9.0), rate(100, 1.0)),
            row("b", rate(4_900, 1.0), rate(5_200, 7.0)),
            row("a", uncertain, uncertain),
        ];
        let mut first = |order| {
            rows.sort_by(|a, b| a.compare(b, order));
            rows[0].label.clone()
        };
        for (order, expected) in [
            (DiffOrder::Change, "e"),
            (DiffOrder::Percent, "c"),
            (DiffOrder::Error, "a"),
            (DiffOrder::TimeBefore, "d"),
            (DiffOrder::TimeAfter, "b"),
            (DiffOrder::CallsBefore, "c"),
            (DiffOrder::CallsAfter, "b"),
            (DiffOrder::Method, "a"),
        ] {
            assert_eq!(first(order), expected, "{order:?}");
        }
        for column in COLLECTORS.iter().flat_map(|collector| collector.columns) {
            let mut counters = Counters::default();
            column.counters.iter().for_each(|counter| counters[*counter as usize] = 7);
            rows.sort_by(|a, b| a.label.cmp(&b.label));
            rows[3].before.consumed = Some(counters);
            let order = DiffOrder::of(column.name).unwrap();
            rows.sort_by(|a, b| a.compare(b, order));
            assert_eq!(rows[0].label, "d", "{}", column.name);
            rows[0].before.consumed = None;
        }
        let new = row("new", rate(0, 0.0), rate(1, 1.0));
        assert_eq!(new.compare(&row("old", rate(1, 1.0), rate(900, 1.0)), DiffOrder::Percent), Ordering::Less);
        assert_eq!(row("none", rate(0, 1.0), rate(0, 1.0)).compare(&new, DiffOrder::Percent), Ordering::Greater);
    }
}
