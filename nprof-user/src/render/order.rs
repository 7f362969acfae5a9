//! The rows of a run in one of the orders that they can have: one for each column.

use std::cmp::{Ordering, Reverse};

use super::rows::{Row, by_name, process};
use crate::model::{COLLECTORS, Column, Snapshot};

/// By which column rows are ordered: the largest number first, names from A to Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The time that threads ran in a method itself; as far as that is not known, the time of its calls.
    #[default]
    OnCpu,
    /// The time of the calls.
    Total,
    /// The same without traced calls that they made.
    SelfTime,
    /// The part of that in which threads did not run.
    OffCpu,
    /// The number of calls.
    Calls,
    /// The mean time of a call.
    Average,
    /// Half of the calls take no longer.
    Median,
    /// Of a hundred calls one takes longer.
    P99,
    /// The longest call.
    Max,
    /// Calls that have not returned.
    InFlight,
    /// The time of those until the end, in recordings.
    Open,
    /// What the calls have consumed of this.
    Consumed(&'static Column),
    /// The library.
    Library,
    /// The class, then the method.
    Method,
}

impl Order {
    /// Every order that needs no collector, with the word for it.
    const ALL: [(Self, &str); 13] = [
        (Self::OnCpu, "on-cpu"),
        (Self::Total, "total"),
        (Self::SelfTime, "self"),
        (Self::OffCpu, "off-cpu"),
        (Self::Calls, "calls"),
        (Self::Average, "avg"),
        (Self::Median, "p50"),
        (Self::P99, "p99"),
        (Self::Max, "max"),
        (Self::InFlight, "in-flight"),
        (Self::Open, "open"),
        (Self::Library, "library"),
        (Self::Method, "method"),
    ];

    /// Every word for an order, those of what can be collected too.
    pub fn words() -> impl Iterator<Item = &'static str> {
        let columns = COLLECTORS.iter().flat_map(|collector| collector.columns);
        Self::ALL.into_iter().map(|(_, word)| word).chain(columns.map(|column| column.name))
    }

    /// The order of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|(_, known)| *known == word).map(|(order, _)| order);
        let columns = || COLLECTORS.iter().flat_map(|collector| collector.columns);
        known.or_else(|| columns().find(|column| column.name == word).map(Self::Consumed))
    }

    /// Whether rows that are added up can be in this order.
    #[must_use]
    pub fn is_of_groups(self) -> bool {
        matches!(self, Self::OnCpu | Self::SelfTime | Self::Calls)
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Consumed(column) => column.name,
            _ => Self::ALL.into_iter().find(|(order, _)| *order == self).map_or("", |(_, word)| word),
        }
    }

    /// Which of two rows comes first. Those that this order does not tell apart are in the default one, then by name.
    pub(super) fn compare(self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        let by_column = match self {
            Self::Library => a.measured.library.cmp(&b.measured.library),
            Self::Method => Ordering::Equal,
            _ => Reverse(self.number(a)).cmp(&Reverse(self.number(b))),
        };
        let by_weight = || if self == Self::Method { Ordering::Equal } else { weight(a).cmp(&weight(b)) };
        by_column.then_with(by_weight).then_with(|| by_name(&a.first.method, &b.first.method))
    }

    /// What stands in the column; 0 where nothing is known.
    fn number(self, row: &Row<'_>) -> u64 {
        match self {
            Self::OnCpu => row.weight_ns(),
            Self::Total => row.total_ns(),
            Self::SelfTime => row.measured.self_ns.unwrap_or_default(),
            Self::OffCpu => row.measured.off_cpu_ns.unwrap_or_default(),
            Self::Calls => row.calls(),
            Self::Average => row.average_ns().unwrap_or_default(),
            Self::Median => row.quantile_ns(0.50).unwrap_or_default(),
            Self::P99 => row.quantile_ns(0.99).unwrap_or_default(),
            Self::Max => row.measured.max_ns,
            Self::InFlight => row.measured.in_flight,
            Self::Consumed(column) => row.measured.consumed.as_deref().map_or(0, |consumed| column.own(consumed)),
            Self::Open | Self::Library | Self::Method => 0,
        }
    }
}

/// What the default order goes by: work, time, calls.
fn weight(row: &Row<'_>) -> Reverse<(u64, u64, u64)> {
    Reverse((row.weight_ns(), row.total_ns(), row.calls()))
}

/// Every row of every JVM, in this order. Equal functions of several JVMs stay several rows.
pub(super) fn all(jvms: &[Snapshot], order: Order) -> Vec<Row<'_>> {
    let mut rows = unordered(jvms);
    rows.sort_by(|a, b| compare(order, a, b));
    rows
}

/// The first `limit` rows, in order, and how many there are in all. Sorts no more than it returns.
pub(super) fn top(jvms: &[Snapshot], order: Order, limit: usize) -> (Vec<Row<'_>>, usize) {
    let mut rows = unordered(jvms);
    let all = rows.len();
    if limit > 0 && limit < all {
        rows.select_nth_unstable_by(limit - 1, |a, b| compare(order, a, b));
    }
    rows.truncate(limit);
    rows.sort_by(|a, b| compare(order, a, b));
    (rows, all)
}

fn unordered<'a>(jvms: &'a [Snapshot]) -> Vec<Row<'a>> {
    let of_jvm = |jvm: &'a Snapshot| jvm.methods.iter().filter_map(move |measured| Row::of(jvm, measured));
    jvms.iter().flat_map(of_jvm).collect()
}

fn compare(order: Order, a: &Row<'_>, b: &Row<'_>) -> Ordering {
    order
        .compare(a, b)
        .then_with(|| process(a.snapshot).cmp(&process(b.snapshot)))
        .then_with(|| a.measured.index.cmp(&b.measured.index))
}

#[cfg(test)]
mod tests {
    use super::{Order, all};
    use crate::model::MethodSnapshot;
    use crate::render::samples;

    /// Check each order on rows of which every column has another first one.
    #[test]
    fn one_for_each_column() {
        let mut snapshot = samples::snapshot();
        let row = |index: u32, class: &str, library: &str| MethodSnapshot {
            library: library.to_owned(),
            off_cpu_ns: Some(0),
            ..samples::function(index, class, 10, 1_000)
        };
        snapshot.methods = vec![
            row(0, "c.C", "libc.so"),
            MethodSnapshot { total_ns: 9_000, self_ns: Some(400), ..row(1, "d.D", "libd.so") },
            MethodSnapshot { self_ns: Some(5_000), off_cpu_ns: Some(4_900), ..row(2, "e.E", "libe.so") },
            MethodSnapshot { calls: 500, counted: 490, self_ns: Some(300), ..row(3, "f.F", "libf.so") },
            MethodSnapshot { max_ns: 7_000, self_ns: Some(200), ..row(4, "a.A", "libg.so") },
            MethodSnapshot { in_flight: 3, self_ns: Some(100), ..row(5, "g.G", "liba.so") },
        ];
        let jvms = [snapshot];
        let first = |order| all(&jvms, order)[0].measured.index;
        let orders = [
            Order::OnCpu,
            Order::Total,
            Order::SelfTime,
            Order::OffCpu,
            Order::Calls,
            Order::Max,
            Order::InFlight,
            Order::Library,
            Order::Method,
            Order::Average,
        ];
        assert_eq!(orders.map(first), [0, 1, 2, 2, 3, 4, 5, 5, 4, 1]);
        let by_name: Vec<u32> = all(&jvms, Order::Method).iter().map(|row| row.measured.index).collect();
        assert_eq!(by_name, [4, 0, 1, 2, 3, 5]);
    }

    /// Check that every order has a word of its own.
    #[test]
    fn words_tell_orders_apart() {
        let words: std::collections::BTreeSet<&str> = Order::ALL.iter().map(|(_, word)| *word).collect();
        assert_eq!(words.len(), Order::ALL.len());
        assert!(Order::words().all(|word| Order::of(word).is_some_and(|order| order.word() == word)));
    }
}
