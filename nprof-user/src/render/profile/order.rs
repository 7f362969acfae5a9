//! The functions of a recording in one of the orders that the rows of `trace` can have.

use std::cmp::Reverse;

use super::super::order::{Order, in_an_hour};
use super::super::per_call::PerCall;
use super::functions::{self, Open, is_shown, key, placed_ns};
use crate::model::{FunctionTotals, Profile, Weight};

/// The functions that were called, or may have been: by work, that of calls in flight included, where it was told from waiting,
/// else by total time; then most calls, then by name.
pub(super) fn ordered(profile: &Profile) -> Vec<&FunctionTotals> {
    in_order(profile, Order::default())
}

/// The same by a column: the largest number first, names from A to Z. Those that it does not tell apart are in the default order.
pub(super) fn in_order(profile: &Profile, order: Order) -> Vec<&FunctionTotals> {
    let weight = Weight::default_of(&profile.about);
    let open = (weight == Weight::OnCpu).then(|| Open::of(profile, weight));
    let work_ns = |function: &FunctionTotals| {
        placed_ns(function, weight).saturating_add(open.as_ref().map_or(0, |open| open.ns(function)))
    };
    let still = Open::of(profile, Weight::Time);
    let number = |function: &FunctionTotals| match order {
        Order::Open => still.ns(function),
        Order::Rate => in_an_hour(function.all_calls(), function.called_for(profile.about.elapsed)),
        _ => number(order, function),
    };
    let mut functions: Vec<&FunctionTotals> = profile.functions.iter().filter(|function| is_shown(function)).collect();
    functions.sort_by_cached_key(|function| {
        let is_by_name = matches!(order, Order::Method | Order::Name);
        let library = if order == Order::Library { function.library.as_str() } else { "" };
        let default = if is_by_name { (0, 0) } else { (work_ns(function), function.all_calls()) };
        (Reverse(number(function)), library, Reverse(default), key(function))
    });
    functions
}

/// What stands in the column; 0 for names, for the default order, and for what recordings do not have.
fn number(order: Order, function: &FunctionTotals) -> u64 {
    let of_call = |column, q| PerCall::of_recorded(function).quantile(column, q).unwrap_or_default();
    match order {
        Order::Total => functions::all_ns(function),
        Order::SelfTime => function.all_ns(function.self_ns),
        Order::OffCpu => function.off_cpu_ns.saturating_add(function.unseen_off_ns),
        Order::Error => functions::all(function).error_in_millionths(),
        Order::Calls => function.all_calls(),
        Order::CallsError => functions::all_calls(function).error_in_millionths(),
        Order::Average => functions::average(function).value,
        Order::Max => function.max_ns,
        Order::InFlight => function.in_flight,
        Order::Consumed(column) => function.consumed.as_deref().map_or(0, |consumed| column.own(consumed)),
        Order::MedianOf(column) => of_call(column, 0.50),
        Order::P99Of(column) => of_call(column, 0.99),
        // What is not here is refused, or a name.
        _ => 0,
    }
}

/// Why the functions of a recording cannot be in an order; `None` if they can.
#[must_use]
pub fn missing(profile: &Profile, order: Order) -> Option<&'static str> {
    let is_collected = |column| profile.about.collectors.columns().any(|of| of == column);
    match order {
        Order::Median | Order::P99 => Some("recordings have no quantiles"),
        Order::Tier | Order::Pid | Order::Jvm => Some("it has no such column"),
        Order::Program(_) => Some("recordings have nothing of programs of yours"),
        Order::OffCpu if !profile.about.off_cpu => Some("it does not tell work from waiting"),
        _ if order.column().is_some_and(|column| !is_collected(column)) => {
            Some("that was not collected (`nprof record --collect`)")
        }
        Order::MedianOf(_) | Order::P99Of(_) if !profile.about.threads.is_empty() => {
            Some("it is not known by thread (`--thread`)")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::{Consumed, Counter};

    use super::super::recorded;
    use super::*;
    use crate::model::{BytesPerCall, COLLECTORS, Collectors, FunctionTotals, Histogram, StackTotals, Unseen};

    fn profile() -> Profile {
        let mut profile = recorded::profile();
        profile.about.off_cpu = true;
        let row = |method: &str, library: &str| FunctionTotals {
            class: "a.N".to_owned(),
            method: method.to_owned(),
            library: library.to_owned(),
            calls: 10,
            total_ns: 1_000,
            self_ns: 1_000,
            max_ns: 100,
            ..FunctionTotals::default()
        };
        profile.functions = vec![
            row("c", "libc.so"),
            FunctionTotals { total_ns: 9_000, self_ns: 400, ..row("d", "libd.so") },
            FunctionTotals { self_ns: 5_000, off_cpu_ns: 4_900, ..row("e", "libe.so") },
            FunctionTotals { calls: 500, self_ns: 300, ..row("f", "libf.so") },
            FunctionTotals { max_ns: 7_000, self_ns: 200, ..row("a", "libg.so") },
            FunctionTotals { in_flight: 3, self_ns: 100, ..row("g", "liba.so") },
        ];
        let waits = StackTotals { function: Some(2), self_ns: 9e3, off_cpu_ns: 9e3, ..profile.calls[0] };
        profile.open = vec![waits];
        profile
    }

    /// Check each order on functions of which every column has another first one.
    #[test]
    fn one_for_each_column() {
        let profile = profile();
        for (order, first) in [
            (Order::OnCpu, "c"),
            (Order::Total, "d"),
            (Order::SelfTime, "e"),
            (Order::OffCpu, "e"),
            (Order::Calls, "f"),
            (Order::Average, "d"),
            (Order::Max, "a"),
            (Order::InFlight, "g"),
            (Order::Open, "e"),
            (Order::Library, "g"),
            (Order::Method, "a"),
        ] {
            assert_eq!(in_order(&profile, order)[0].method, first, "{order:?}");
        }
        let by_name: Vec<&str> = in_order(&profile, Order::Method).iter().map(|of| of.method.as_str()).collect();
        assert_eq!(by_name, ["a", "c", "d", "e", "f", "g"]);
    }

    /// Check the orders by how often and how far off.
    #[test]
    fn by_rates_and_errors() {
        let mut profile = profile();
        profile.functions[4].traced_after_ns = 9_999_000_000;
        let unseen = |calls, error_calls, total_ns, error_ns| Unseen {
            calls,
            error_calls,
            total_ns,
            error_ns: Some(error_ns),
            ..Unseen::default()
        };
        profile.functions[1].unseen = Some(unseen(1_000, 900, 100_000, 1));
        profile.functions[2].unseen = Some(unseen(1_000, 9, 100_000, 60_000));
        let first = |order| in_order(&profile, order)[0].method.as_str();
        assert_eq!([Order::CallsError, Order::Error, Order::Rate].map(first), ["d", "e", "a"]);
        assert_eq!(in_order(&profile, Order::Name), in_order(&profile, Order::Method));
    }

    /// Check that functions can be in the order of each column of what was collected, of bytes also by what single calls consumed.
    #[test]
    fn by_each_collected_column() {
        let mut profile = profile();
        let names: Vec<&str> = COLLECTORS.iter().map(|collector| collector.name).collect();
        profile.about.collectors = Collectors::named(&names).unwrap();
        let of = |own: u64| Some(Box::new(Consumed { own: [own; nprof_common::COUNTERS], ..Consumed::default() }));
        for function in &mut profile.functions {
            (function.consumed, function.bytes_per_call) = (of(0), Some(Vec::new()));
        }
        profile.functions[4].consumed = of(900);
        let of_all = |buckets: &[(i32, u64)]| {
            let histogram = || Histogram { buckets: buckets.to_vec() };
            let bytes = |counter| BytesPerCall { counter, max: 9_000, histogram: histogram() };
            Some(Counter::ALL.map(bytes).to_vec())
        };
        profile.functions[1].bytes_per_call = of_all(&[(40, 10)]);
        profile.functions[2].bytes_per_call = of_all(&[(50, 1)]);
        for column in profile.about.collectors.columns() {
            let first = |end: &str| {
                let order = Order::of(&format!("{}{end}", column.name))?;
                assert_eq!(missing(&profile, order), None);
                Some(in_order(&profile, order)[0].method.as_str())
            };
            let of_calls = if column.per_call.is_some() { [Some("d"), Some("e")] } else { [None; 2] };
            assert_eq!([first("_p50"), first("_p99")], of_calls, "{}", column.name);
            assert_eq!(first(""), Some("a"), "{}", column.name);
        }
    }

    /// Check that what a recording does not have is no order of it.
    #[test]
    fn what_is_missing() {
        let mut profile = profile();
        assert_eq!([Order::OnCpu, Order::OffCpu, Order::Open].map(|order| missing(&profile, order)), [None; 3]);
        for order in
            [Order::P99, Order::Tier, Order::Pid, Order::Jvm, Order::Program("x"), Order::of("read_bytes_p50").unwrap()]
        {
            assert!(missing(&profile, order).is_some(), "{order:?}");
        }
        let faults = Order::of("faults").unwrap();
        assert!(missing(&profile, faults).is_some());
        profile.about.collectors = Collectors::named(&["faults"]).unwrap();
        assert!(missing(&profile, faults).is_none());
        profile.functions[4].consumed =
            Some(Box::new(Consumed { own: [1; nprof_common::COUNTERS], total: [0; nprof_common::COUNTERS] }));
        assert_eq!(in_order(&profile, faults)[0].method, "a");
        profile.about.off_cpu = false;
        assert!(missing(&profile, Order::OffCpu).is_some() && missing(&profile, Order::OnCpu).is_none());
    }
}
