//! A recording added up: by thread, library, package or class.

use std::collections::{BTreeSet, HashMap};

use super::super::super::by_thread::NO_THREAD;
use super::super::super::groups::{By, Groups, Shape};
use super::super::super::order::Order;
use super::super::super::sum::{Name, Sum};
use super::super::super::uncertain::Uncertain;
use super::super::functions;
use super::super::order::ordered;
use crate::aggregate::{Detail, thread_mark, weigh};
use crate::model::{Profile, ProfileFrameKind, Weight};

/// The groups of a recording.
pub(super) fn groups(profile: &Profile, by: By, order: Order) -> Groups<'_> {
    match by {
        By::Thread => Groups::new(by, order, of_threads(profile).into_iter().map(named)),
        _ => Groups::new(by, order, of_functions(profile, by).map(named)),
    }
}

fn named<'a>((name, sum): (&'a str, Sum)) -> (Name<'a>, Sum) {
    (name.into(), sum)
}

/// Which columns the groups of a recording have.
pub(super) fn shape(profile: &Profile, by: By) -> Shape {
    let is_estimated = by != By::Thread && profile.functions.iter().any(|function| function.unseen.is_some());
    Shape { is_timed: true, is_estimated }
}

fn of_functions(profile: &Profile, by: By) -> impl Iterator<Item = (&str, Sum)> {
    let weight = Weight::default_of(&profile.about);
    ordered(profile).into_iter().map(move |function| {
        let error = functions::error_ns(function, weight).unwrap_or_default();
        let own = Uncertain { value: function.all_ns(function.self_ns), error };
        let ran = match weight {
            Weight::OnCpu => Uncertain { value: functions::placed_ns(function, weight), error },
            _ => own,
        };
        let sum = Sum { functions: 1, calls: functions::all_calls(function), ran, own };
        (by.name(&function.library, &function.class).unwrap_or_default(), sum)
    })
}

/// What each thread did, calls included that it has not returned from: the exact totals, divided as the samples are.
fn of_threads(profile: &Profile) -> Vec<(&str, Sum)> {
    let mut sums: HashMap<&str, Sum> = HashMap::new();
    let mut methods: HashMap<&str, BTreeSet<(String, String, String)>> = HashMap::new();
    let by_mark: HashMap<String, &str> =
        profile.threads.iter().map(|thread| (thread_mark(&thread.name), thread.name.as_str())).collect();
    for weight in [Weight::Calls, Weight::SelfTime, Weight::default_of(&profile.about)] {
        // By timer there are no calls to be divided.
        let Ok(weighed) = weigh(profile, weight, Detail { threads: true, ..Detail::default() }) else { continue };
        for stack in &weighed.stacks {
            let frames = || stack.frames.iter().filter_map(|at| weighed.frames.get(*at as usize));
            let thread =
                frames().next().and_then(|outermost| by_mark.get(&outermost.name)).copied().unwrap_or(NO_THREAD);
            let sum = sums.entry(thread).or_default();
            let column = match weight {
                Weight::Calls => &mut sum.calls,
                Weight::SelfTime => &mut sum.own,
                _ => &mut sum.ran,
            };
            column.value = column.value.saturating_add(stack.value);
            let native = frames().rev().find(|frame| frame.kind == ProfileFrameKind::NativeMethod);
            let name = native.map(|frame| (frame.scope.clone(), frame.name.clone(), frame.signature.clone()));
            methods.entry(thread).or_default().extend(name);
        }
    }
    let functions = |thread: &str| methods.get(thread).map_or(0, |methods| methods.len() as u64);
    sums.into_iter().map(|(thread, sum)| (thread, Sum { functions: functions(thread), ..sum })).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::recorded;
    use super::*;
    use crate::model::{StackTotals, ThreadName};

    fn profile() -> Profile {
        let mut profile = recorded::profile();
        let thread = |(tid, name): (u32, &str)| ThreadName { tid, name: name.to_owned() };
        profile.threads = [(1, "worker"), (2, "worker"), (3, "main")].map(thread).to_vec();
        for (totals, thread) in profile.calls.iter_mut().zip([0, 2, 1]) {
            totals.thread = Some(thread);
        }
        profile
    }

    /// Check that threads of one name are one row, that exact totals are divided among them, and that what nobody has sampled is a
    /// row of its own.
    #[test]
    fn by_thread() {
        let mut profile = profile();
        let mut unsampled = profile.functions[0].clone();
        unsampled.method = "unsampled".to_owned();
        profile.functions.push(unsampled);
        let found = groups(&profile, By::Thread, Order::Calls);
        let row = |(name, sum): &(Name<'_>, Sum)| (name.to_string(), sum.functions, sum.calls.value, sum.own.value);
        let expected = [("worker", 2, 25, 2_500_000), (NO_THREAD, 1, 10, 1_000_000), ("main", 1, 5, 500_000)];
        let expected = expected.map(|(name, functions, calls, own)| (name.to_owned(), functions, calls, own));
        let mut found: Vec<_> = found.groups.iter().map(row).collect();
        found.sort_by_key(|(_, _, calls, _)| std::cmp::Reverse(*calls));
        let calls: u64 = found.iter().map(|(_, _, calls, _)| calls).sum();
        assert_eq!((calls, found.len()), (40, 3), "{found:?}");
        assert_eq!(
            found.iter().map(|row| row.0.clone()).collect::<BTreeSet<_>>(),
            expected.iter().map(|row| row.0.clone()).collect()
        );
        let own: u64 = found.iter().map(|(.., own)| own).sum();
        assert_eq!(own, 4_000_000);
    }

    /// Check that other groups are sums of exact totals, also where no thread is known.
    #[test]
    fn by_library() {
        let mut profile = recorded::profile();
        profile.functions[0].library = "libb.so".to_owned();
        profile.calls.push(StackTotals { thread: None, ..profile.calls[0] });
        let found = groups(&profile, By::Library, Order::OnCpu);
        let rows: Vec<_> = found.groups.iter().map(|(name, sum)| (name.name, sum.calls.value, sum.own.value)).collect();
        assert_eq!(rows, [("liba.so", 20, 2_000_000), ("libb.so", 10, 1_000_000)]);
    }
}
