//! The functions of a recording in one of the orders that the rows of `trace` can have.

use std::cmp::Reverse;

use super::super::order::Order;
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
        _ => number(order, function),
    };
    let mut functions: Vec<&FunctionTotals> = profile.functions.iter().filter(|function| is_shown(function)).collect();
    functions.sort_by_cached_key(|function| {
        let is_by_name = order == Order::Method;
        let library = if order == Order::Library { function.library.as_str() } else { "" };
        let default = if is_by_name { (0, 0) } else { (work_ns(function), function.all_calls()) };
        (Reverse(number(function)), library, Reverse(default), key(function))
    });
    functions
}

/// What stands in the column; 0 for names, for the default order, and for what recordings do not have.
fn number(order: Order, function: &FunctionTotals) -> u64 {
    match order {
        Order::Total => functions::all_ns(function),
        Order::SelfTime => function.all_ns(function.self_ns),
        Order::OffCpu => function.off_cpu_ns.saturating_add(function.unseen_off_ns),
        Order::Calls => function.all_calls(),
        Order::Average => functions::average(function).value,
        Order::Max => function.max_ns,
        Order::InFlight => function.in_flight,
        Order::Consumed(column) => function.consumed.as_deref().map_or(0, |consumed| column.own(consumed)),
        Order::OnCpu | Order::Open | Order::Median | Order::P99 => 0,
        Order::Library | Order::Method => 0,
    }
}

/// Why the functions of a recording cannot be in an order; `None` if they can.
#[must_use]
pub fn missing(profile: &Profile, order: Order) -> Option<&'static str> {
    match order {
        Order::Median | Order::P99 => Some("recordings have no quantiles"),
        Order::OffCpu if !profile.about.off_cpu => Some("it does not tell work from waiting"),
        Order::Consumed(column) if profile.about.collectors.columns().all(|of| of != column) => {
            Some("that was not collected (`nprof record --collect`)")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::Consumed;

    use super::super::recorded;
    use super::*;
    use crate::model::{Collectors, FunctionTotals, StackTotals};

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

    /// Check that what a recording does not have is no order of it.
    #[test]
    fn what_is_missing() {
        let mut profile = profile();
        assert_eq!([Order::OnCpu, Order::OffCpu, Order::Open].map(|order| missing(&profile, order)), [None; 3]);
        assert!(missing(&profile, Order::P99).is_some());
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
