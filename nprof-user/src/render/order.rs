//! The rows of a run in one of the orders that they can have: one for each column.

use std::cmp::{Ordering, Reverse};
use std::sync::LazyLock;
use std::time::Duration;

use super::per_call::PerCall;
use super::rows::{Row, by_name, process};
use crate::model::{COLLECTORS, Column, Snapshot};

/// By which column rows are ordered: the largest number first, names from A to Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The time that threads ran in a method itself, in calls that have not returned, too; as far as that is not known, the time of its
    /// calls.
    #[default]
    OnCpu,
    /// The time of the calls.
    Total,
    /// The same without traced calls that they made.
    SelfTime,
    /// The part of that in which threads did not run.
    OffCpu,
    /// How far the time of the calls may be off, as a share of it.
    Error,
    /// The number of calls.
    Calls,
    /// How far that may be off, as a share of it.
    CallsError,
    /// Calls in a second.
    Rate,
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
    /// The time of those until now, or until the end.
    Open,
    /// What the calls have consumed of this.
    Consumed(&'static Column),
    /// How many of these bytes half of the calls consumed at most.
    MedianOf(&'static Column),
    /// The same of 99 of a hundred.
    P99Of(&'static Column),
    /// What programs of the user's have counted that are in the object of this name.
    Program(&'static str),
    /// How many functions are added up in a row.
    Functions,
    /// Who counted.
    Tier,
    /// The process.
    Pid,
    /// The JVM's main class or jar.
    Jvm,
    /// The library.
    Library,
    /// The class, then the method.
    Method,
    /// What rows go by that are added up; else as the method.
    Name,
}

/// Before the name of an object with programs of the user's, as in CSV.
const PROGRAM: &str = "program.";

/// Every order with the word for it, but for those of programs of the user's.
static WORDS: LazyLock<Vec<(Order, String)>> = LazyLock::new(|| {
    let collected = COLLECTORS.iter().flat_map(|collector| collector.columns).flat_map(|column| {
        let quantiles = [(Order::MedianOf(column), "p50"), (Order::P99Of(column), "p99")];
        let quantiles = quantiles.map(|(order, of)| (order, format!("{}_{of}", column.name)));
        let all = [(Order::Consumed(column), column.name.to_owned())];
        all.into_iter().chain(quantiles.into_iter().filter(move |_| column.per_call.is_some()))
    });
    Order::ALL.iter().map(|(order, word)| (*order, (*word).to_owned())).chain(collected).collect()
});

impl Order {
    /// Every order that needs no collector, with the word for it.
    const ALL: [(Self, &str); 21] = [
        (Self::OnCpu, "on-cpu"),
        (Self::Total, "total"),
        (Self::SelfTime, "self"),
        (Self::OffCpu, "off-cpu"),
        (Self::Error, "error"),
        (Self::Calls, "calls"),
        (Self::CallsError, "calls-error"),
        (Self::Rate, "rate"),
        (Self::Average, "avg"),
        (Self::Median, "p50"),
        (Self::P99, "p99"),
        (Self::Max, "max"),
        (Self::InFlight, "in-flight"),
        (Self::Open, "open"),
        (Self::Functions, "functions"),
        (Self::Tier, "tier"),
        (Self::Pid, "pid"),
        (Self::Jvm, "jvm"),
        (Self::Library, "library"),
        (Self::Method, "method"),
        (Self::Name, "name"),
    ];

    /// Every word for an order, those of what can be collected too.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(_, word)| word.as_str())
    }

    /// The order of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let program = || word.strip_prefix(PROGRAM).filter(|name| !name.is_empty());
        let known = WORDS.iter().find(|(_, known)| known == word).map(|(order, _)| *order);
        // There is one command line, and so as good as one of these.
        known.or_else(|| Some(Self::Program(program()?.to_owned().leak())))
    }

    /// Whether rows that are added up can be in this order.
    #[must_use]
    pub fn is_of_groups(self) -> bool {
        matches!(self, Self::OnCpu | Self::SelfTime | Self::Error | Self::Calls | Self::CallsError)
            || self.is_of_groups_alone()
            || self == Self::Name
    }

    /// Whether no others can.
    #[must_use]
    pub fn is_of_groups_alone(self) -> bool {
        self == Self::Functions
    }

    /// What has to be collected for it.
    #[must_use]
    pub fn column(self) -> Option<&'static Column> {
        match self {
            Self::Consumed(column) | Self::MedianOf(column) | Self::P99Of(column) => Some(column),
            _ => None,
        }
    }

    /// The word for it; of programs of the user's, the name of their object.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Program(name) => name,
            _ => WORDS.iter().find(|(order, _)| *order == self).map_or("", |(_, word)| word),
        }
    }

    /// Which of two rows comes first. Those that this order does not tell apart are in the default one, then by name.
    pub(super) fn compare(self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        let by_column = match self {
            Self::Library => a.measured.library.cmp(&b.measured.library),
            Self::Tier => a.measured.tier.as_str().cmp(b.measured.tier.as_str()),
            Self::Pid => a.snapshot.jvm.pid.cmp(&b.snapshot.jvm.pid),
            Self::Jvm => a.snapshot.jvm.main.cmp(&b.snapshot.jvm.main),
            Self::Method | Self::Name => Ordering::Equal,
            _ => Reverse(self.number(a)).cmp(&Reverse(self.number(b))),
        };
        let is_by_name = matches!(self, Self::Method | Self::Name);
        let by_weight = || if is_by_name { Ordering::Equal } else { weight(a).cmp(&weight(b)) };
        by_column.then_with(by_weight).then_with(|| by_name(&a.first.method, &b.first.method))
    }

    /// What stands in the column; 0 where nothing is known.
    fn number(self, row: &Row<'_>) -> u64 {
        let of_call = |column, q| PerCall::of(row.measured).quantile(column, q).unwrap_or_default();
        match self {
            Self::OnCpu => row.placed_ns(),
            Self::Total => row.total_ns(),
            Self::SelfTime => row.measured.self_ns.unwrap_or_default(),
            Self::OffCpu => row.measured.off_cpu_ns.unwrap_or_default(),
            Self::Error => row.estimate_error_ns().map_or(0, |_known| row.total().error_in_millionths()),
            Self::Calls => row.calls(),
            Self::CallsError => row.all_calls().error_in_millionths(),
            Self::Rate => in_an_hour(row.calls(), row.called_for()),
            Self::Average => row.average_ns().unwrap_or_default(),
            Self::Median => row.quantile_ns(0.50).unwrap_or_default(),
            Self::P99 => row.quantile_ns(0.99).unwrap_or_default(),
            Self::Max => row.measured.max_ns,
            Self::InFlight => row.measured.in_flight,
            Self::Consumed(column) => row.measured.consumed.as_deref().map_or(0, |consumed| column.own(consumed)),
            Self::MedianOf(column) => of_call(column, 0.50),
            Self::P99Of(column) => of_call(column, 0.99),
            Self::Program(name) => of_program(row, name).unwrap_or_default(),
            Self::Open => row.open_ns().unwrap_or_default(),
            Self::Functions | Self::Tier | Self::Pid | Self::Jvm => 0,
            Self::Library | Self::Method | Self::Name => 0,
        }
    }
}

/// What the programs of an object have counted at the calls of a row.
fn of_program(row: &Row<'_>, name: &str) -> Option<u64> {
    row.snapshot.programs.iter().find(|programs| programs.name == name)?.of(row.measured.index)
}

/// Calls in an hour: rates as whole numbers, so that rare calls have one, too.
pub(super) fn in_an_hour(calls: u64, time: Duration) -> u64 {
    let in_hour = u128::from(calls) * Duration::from_secs(3_600).as_nanos();
    in_hour.checked_div(time.as_nanos()).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// What the default order goes by: work, time, calls.
fn weight(row: &Row<'_>) -> Reverse<(u64, u64, u64)> {
    Reverse((row.placed_ns(), row.total_ns(), row.calls()))
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

/// The same by their calls in some time, the most in a second first.
pub(super) fn fastest<'a>(
    jvms: &'a [Snapshot],
    calls_in: impl Fn(&Row<'a>) -> (u64, Duration),
    limit: usize,
) -> (Vec<Row<'a>>, usize) {
    let mut rows = all(jvms, Order::Rate);
    let all = rows.len();
    rows.sort_by_cached_key(|row| {
        let (calls, time) = calls_in(row);
        Reverse(in_an_hour(calls, time))
    });
    rows.truncate(limit);
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
    use std::time::Duration;

    use nprof_common::Consumed;

    use super::{Order, Row, all, fastest};
    use crate::model::{BytesPerCall, COLLECTORS, Histogram, MethodSnapshot, OpenTime, Pid, Snapshot, Tier, Unseen};
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

    /// Check the orders by how often, how far off, and by whom.
    #[test]
    fn by_rates_errors_and_tiers() {
        let mut snapshot = samples::snapshot();
        let row = |index: u32, class: &str| samples::function(index, class, 10, 1_000);
        let unseen = |error_calls, error_ns| {
            Some(Unseen { calls: 1_000, error_calls, total_ns: 1_000, error_ns: Some(error_ns), ..Unseen::default() })
        };
        snapshot.methods = vec![
            MethodSnapshot { calls: 20, ..row(0, "c.C") },
            MethodSnapshot { traced_after: snapshot.elapsed * 9 / 10, ..row(1, "d.D") },
            MethodSnapshot { unseen: unseen(10, 900), ..row(2, "b.B") },
            MethodSnapshot { unseen: unseen(200, 20), tier: Tier::Stub, ..row(3, "a.A") },
        ];
        let mut other = snapshot.clone();
        (other.jvm.pid, other.jvm.main) = (Pid(snapshot.jvm.pid.0 + 1), "a.Main".to_owned());
        other.methods.truncate(1);
        other.methods[0].index = 7;
        let jvms = [snapshot, other];
        let order = |order| all(&jvms, order).iter().map(|row| row.measured.index).collect::<Vec<_>>();
        assert_eq!([Order::CallsError, Order::Error, Order::Jvm].map(|order| first(&jvms, order)), [3, 2, 7]);
        assert_eq!(order(Order::Pid).last(), Some(&7));
        assert_eq!(order(Order::Tier).last(), Some(&3), "from A to Z");
        assert_eq!(order(Order::Name), order(Order::Method));
        let seen: Vec<u32> = order(Order::Rate);
        assert_eq!(seen[..3], [3, 2, 1], "of these there are 1,010 in all of the time, and 10 in a tenth of it");
        let calls_in = |row: &Row<'_>| (u64::from(row.measured.index), Duration::from_secs(1));
        let (rows, count) = fastest(&jvms, calls_in, 2);
        assert_eq!((rows.iter().map(|row| row.measured.index).collect::<Vec<_>>(), count), (vec![7, 3], 5));
    }

    fn first(jvms: &[Snapshot], order: Order) -> u32 {
        all(jvms, order)[0].measured.index
    }

    /// Check that rows can be in the order of each column of what was collected, of bytes also by what single calls consumed, and of
    /// what programs of the user's have counted.
    #[test]
    fn by_each_collected_column() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = (0..3).map(|index| samples::function(index, "a.A", 10, 1_000)).collect();
        for column in COLLECTORS.iter().flat_map(|collector| collector.columns) {
            for method in &mut snapshot.methods {
                (method.consumed, method.bytes_per_call) = (Some(Box::default()), Some(Vec::new()));
            }
            let counter = column.counters[0];
            let consumed = |bytes: u64| {
                let mut consumed = Consumed::default();
                (consumed.own[counter as usize], consumed.total[counter as usize]) = (bytes, bytes);
                Some(Box::new(consumed))
            };
            let moved = |buckets: &[(i32, u64)]| {
                Some(vec![BytesPerCall { counter, max: 9_000, histogram: Histogram { buckets: buckets.to_vec() } }])
            };
            // Most in all, most in half of the calls, most in the largest ones.
            snapshot.methods[0].consumed = consumed(900_000);
            (snapshot.methods[1].consumed, snapshot.methods[1].bytes_per_call) = (consumed(9), moved(&[(40, 10)]));
            (snapshot.methods[2].consumed, snapshot.methods[2].bytes_per_call) = (consumed(8), moved(&[(50, 1)]));
            let jvms = [snapshot.clone()];
            let of = |end: &str| Order::of(&format!("{}{end}", column.name));
            assert_eq!(of("").map(|order| first(&jvms, order)), Some(0), "{}", column.name);
            let quantiles = [of("_p50"), of("_p99")].map(|order| order.map(|order| first(&jvms, order)));
            let expected = if column.per_call.is_some() { [Some(1), Some(2)] } else { [None, None] };
            assert_eq!(quantiles, expected, "{}", column.name);
        }
        let jvms = [samples::with_programs()];
        let bytes = Order::of("program.bytes").unwrap();
        assert_eq!((bytes, bytes.word()), (Order::Program("bytes"), "bytes"));
        let most = jvms[0].programs[0].by_index.iter().max_by_key(|(_, bytes)| **bytes).map(|(index, _)| *index);
        assert_eq!(Some(first(&jvms, bytes)), most);
        assert_eq!(Order::of("program."), None);
    }

    /// Check that who works in a call that does not return comes before others that work less, and who waits in one does not.
    #[test]
    fn open_calls_work_or_wait() {
        let mut snapshot = samples::snapshot();
        let row = |index: u32, class: &str, open: OpenTime| MethodSnapshot {
            in_flight: open.calls,
            open: Some(open),
            off_cpu_ns: Some(0),
            ..samples::function(index, class, 0, 0)
        };
        let open = |self_ns, off_cpu_ns| OpenTime { calls: 1, self_ns, off_cpu_ns: Some(off_cpu_ns) };
        let ended = MethodSnapshot { off_cpu_ns: Some(0), ..samples::function(1, "b.B", 9, 5_000) };
        snapshot.methods = vec![row(0, "a.Waits", open(9_000, 8_990)), ended, row(2, "c.Works", open(8_000, 100))];
        let jvms = [snapshot];
        let order = |order| all(&jvms, order).iter().map(|row| row.measured.index).collect::<Vec<_>>();
        assert_eq!([order(Order::OnCpu), order(Order::Open)], [[2, 1, 0], [0, 2, 1]]);
        assert_eq!(all(&jvms, Order::Method).iter().map(Row::only_waited).collect::<Vec<_>>(), [true, false, false]);
    }

    /// Check that every order has a word of its own.
    #[test]
    fn words_tell_orders_apart() {
        let words: std::collections::BTreeSet<&str> = Order::words().collect();
        assert_eq!(words.len(), Order::words().count());
        assert!(Order::words().all(|word| Order::of(word).is_some_and(|order| order.word() == word)));
    }
}
