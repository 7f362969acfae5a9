//! Small values for the tests of the renderers.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nprof_common::{Consumed, Counter};

use crate::model::{
    Bound, Collectors, Histogram, Jvm, JvmKind, Losses, Method, MethodSnapshot, NativeCode, Pid, PlannedMethod, Price,
    Prices, ProbeCost, ProgramValues, SkipReason, Skipped, SlowCall, Snapshot, StartTime, States, Tier, Traced,
    Tracing, Unseen, VirtAddr,
};

pub(super) fn method(class: &str, name: &str, signature: &str) -> Method {
    Method {
        id: VirtAddr(0),
        class: class.into(),
        name: name.into(),
        signature: signature.into(),
        code: NativeCode::Unbound,
    }
}

pub(super) fn planned(class: &str, name: &str, signature: &str) -> PlannedMethod {
    PlannedMethod { method: method(class, name, signature), bound: Bound::Export }
}

/// A function `class::call` in `liba.so` with one method, whose calls all take the same time.
pub(super) fn function(index: u32, class: &str, calls: u64, total_ns: u64) -> MethodSnapshot {
    let each = total_ns.checked_div(calls).unwrap_or(0);
    let fourth = u128::from(each).pow(4);
    let bucket = (0..127).find(|&i| fourth <= 1 << i).unwrap_or(127);
    MethodSnapshot {
        index,
        tier: Tier::Kernel,
        methods: vec![planned(class, "call", "()V")],
        library: "liba.so".to_owned(),
        cost: Some(ProbeCost::Emulated),
        traced_after: Duration::ZERO,
        traced: Traced::as_wanted(Tracing::Timed),
        counted: 0,
        calls,
        in_flight: 0,
        open: None,
        untimed: 0,
        total_ns,
        estimated_ns: None,
        estimated_error_ns: None,
        unseen: None,
        self_ns: Some(total_ns),
        probe_ns: 0,
        probe_error_ns: 0,
        price: Price::default(),
        cost_ns: Some(0),
        off_cpu_ns: None,
        consumed: None,
        bytes_per_call: None,
        threads: None,
        estimated_off_ns: None,
        max_ns: each,
        histogram: Histogram { buckets: if total_ns > 0 { vec![(bucket, calls)] } else { Vec::new() } },
    }
}

pub(super) fn prices() -> Prices {
    Prices {
        emulated: Price { timed_ns: 900, counted_ns: 500, inside_ns: 600, inside_error_ns: 200 },
        single_stepped: Price { timed_ns: 13_000, counted_ns: 6000, inside_ns: 11_000, inside_error_ns: 2000 },
    }
}

/// A JVM whose functions were called as often: one that does nothing, at a site that is single-stepped, another at one that
/// is not, and one that takes 3 us.
pub(super) fn probed() -> Snapshot {
    let probed = |index, class, net_ns: u64, cost| {
        let (calls, price) = (1000, prices().at(cost));
        let histogram = function(index, class, calls, calls * (net_ns + price.inside_ns)).histogram;
        MethodSnapshot {
            cost: Some(cost),
            price,
            probe_ns: calls * price.inside_ns,
            probe_error_ns: calls * price.inside_error_ns,
            cost_ns: Some(price.of_calls(calls, 0)),
            histogram,
            ..function(index, class, calls, calls * net_ns)
        }
    };
    let methods = vec![
        probed(0, "a.Empty", 20, ProbeCost::Emulated),
        probed(1, "a.Slow", 3000, ProbeCost::Emulated),
        probed(2, "a.Stepped", 500, ProbeCost::SingleStepped),
    ];
    let cost = Some(Duration::from_micros(14_800));
    Snapshot { methods, cost, cpu: Some(Duration::from_secs(1)), cost_share: Some(0.0321), ..snapshot() }
}

/// A JVM that was measured for 2.5 s without a call.
pub(super) fn snapshot() -> Snapshot {
    Snapshot {
        started: Timestamp::from_second(1_700_000_000).unwrap(),
        elapsed: Duration::from_millis(2500),
        jvm: Jvm {
            pid: Pid(1234),
            start_time: StartTime(987_654),
            main: "com.acme.Main".to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: "OpenJDK 64-Bit Server VM".to_owned(),
            vm_version: "17.0.15+6".to_owned(),
            uid: 1000,
            user: Some("acme".to_owned()),
            container: None,
        },
        ended: false,
        downcalls: false,
        timed: true,
        methods: Vec::new(),
        traced: 5,
        states: States { functions: [0, 0, 0, 0, 0, 5], demoted: 0 },
        cost: None,
        cpu: None,
        cost_share: None,
        prices: prices(),
        collectors: Collectors::default(),
        slow: None,
        jni: None,
        programs: Vec::new(),
        skipped: Arc::default(),
        losses: Losses { counts: vec![("unreturned", 0), ("too-deep", 0)] },
    }
}

/// A JVM with a function at which programs of the user's run, and one at which none does.
pub(super) fn with_programs() -> Snapshot {
    let by_index = [(0, 12_022_867)].into();
    let programs = vec![ProgramValues { name: "bytes".to_owned(), title: "BYTES".to_owned(), by_index }];
    let methods = vec![function(0, "a.A", 5, 10_000), function(1, "b.B", 50, 1000)];
    Snapshot { methods, programs, ..snapshot() }
}

/// A call that took 24.3 ms, of which nothing else is known than who made it.
pub(super) fn slow_call() -> SlowCall {
    SlowCall {
        ended: Timestamp::from_second(1_700_000_001).unwrap(),
        ended_ns: 5_000_000_000,
        method: method("a.A", "read", "()V"),
        time_ns: 24_300_000,
        off_cpu_ns: None,
        consumed: None,
        arguments: None,
        wait: None,
        by_stub: false,
        tid: 77,
        thread: "pool\u{1b}-1".to_owned(),
        callers: Vec::new(),
    }
}

/// Two functions of which it was collected what their calls consume, and one that was only counted.
pub(super) fn collected() -> Snapshot {
    let mut consumed = Consumed::default();
    consumed.own[Counter::MinorFaults as usize] = 1_234;
    consumed.own[Counter::MajorFaults as usize] = 6;
    consumed.own[Counter::ReadBytes as usize] = 5 << 20;
    consumed.total = consumed.own;
    consumed.total[Counter::ReadBytes as usize] += 1000;
    let of = |consumed| Some(Box::new(consumed));
    let counted = MethodSnapshot { counted: 7, consumed: of(Consumed::default()), ..function(2, "c.C", 7, 0) };
    let methods = vec![
        MethodSnapshot { consumed: of(consumed), ..function(0, "a.A", 5, 10_000) },
        MethodSnapshot { consumed: of(Consumed::default()), ..function(1, "b.B", 50, 1000) },
        MethodSnapshot { histogram: Histogram::default(), ..counted },
    ];
    let collectors = Collectors::named(&["io", "faults"]).unwrap_or_default();
    Snapshot { methods, collectors, traced: 3, ..snapshot() }
}

/// The same with one of everything: overloads, aliases, nesting, calls in flight, a late start, a costly site,
/// untimed calls, skipped methods and losses.
pub(super) fn eventful() -> Snapshot {
    let mut deflate = function(0, "java.util.zip.Deflater", 1000, 3_200_000);
    deflate.library = "libzip.so".to_owned();
    deflate.methods = vec![planned("java.util.zip.Deflater", "deflate", "(J[BII)I")];
    deflate.max_ns = 7000;
    deflate.histogram.buckets = vec![(46, 900), (52, 100)];

    let mut overload = deflate.clone();
    overload.index = 1;
    overload.methods = vec![planned("java.util.zip.Deflater", "deflate", "(J)I")];
    overload.total_ns = 1_000_000;
    overload.self_ns = Some(250_000);
    overload.max_ns = 2400;
    overload.histogram.buckets = vec![(40, 900), (45, 100)];
    overload.cost = Some(ProbeCost::SingleStepped);

    let mut shared = function(2, "java.lang.invoke.VarHandle", 1_234_567, 0);
    shared.library = "libjvm.so".to_owned();
    shared.methods =
        ["set", "get", "getAndAdd"].map(|name| planned("java.lang.invoke.VarHandle", name, "()V")).to_vec();
    shared.methods[1].bound = Bound::Registered;
    shared.untimed = 1_234_567;
    shared.traced_after = Duration::from_millis(500);

    let mut waiting = function(3, "été.日本\u{1b}[2J", 0, 0);
    waiting.in_flight = 2;

    let skipped = |class: &str, reason| Skipped { method: planned(class, "call", "()V"), reason };
    Snapshot {
        methods: vec![shared, overload, waiting, deflate, function(4, "a.Silent", 0, 0)],
        traced: 9,
        states: States { functions: [0, 0, 0, 0, 0, 9], demoted: 0 },
        skipped: vec![
            skipped("a.Late", SkipReason::Unbound),
            skipped("a.Handle", SkipReason::Intrinsic),
            skipped("a.Later", SkipReason::Unbound),
        ]
        .into(),
        losses: Losses { counts: vec![("unreturned", 1_234_567), ("too-deep", 0)] },
        ..snapshot()
    }
}

/// A JVM whose budget was too small for three of its functions: one is detached, one only counted, one was detached and
/// counted for a time and is timed again. Two more are as they should be.
pub(crate) fn demoted() -> Snapshot {
    let mut hot = function(0, "a.Hot", 500_000, 100_000_000);
    hot.traced.tracing = Tracing::Detached;
    hot.traced.unwatched = Duration::from_millis(1500);
    let mut warm = function(1, "a.Warm", 1000, 200_000);
    (warm.calls, warm.counted) = (40_000, 39_000);
    warm.traced.tracing = Tracing::Counted;
    let mut back = function(2, "a.Back", 500, 100_000);
    (back.calls, back.counted) = (1000, 500);
    back.traced.unwatched = Duration::from_millis(500);
    Snapshot {
        methods: vec![function(3, "a.Cool", 5, 10_000), back, warm, hot, function(4, "a.Silent", 0, 0)],
        states: States { functions: [1, 0, 0, 1, 0, 3], demoted: 2 },
        cost: Some(Duration::from_millis(48)),
        cpu: Some(Duration::from_millis(2448)),
        cost_share: Some(0.0196),
        ..snapshot()
    }
}

/// A JVM with functions that were too expensive to watch: one that is called all the time, one that looks have seen called once
/// or twice, one that they have never seen called; and one that was watched.
pub(crate) fn estimated() -> Snapshot {
    let unseen = |index, class, (calls, total_ns), unseen| {
        let mut row = function(index, class, calls, total_ns);
        (row.traced.tracing, row.traced.unwatched) = (Tracing::Detached, Duration::from_millis(2400));
        MethodSnapshot { unseen: Some(unseen), ..row }
    };
    let hot = Unseen {
        calls: 4_000_000,
        error_calls: 800_000,
        total_ns: 400_000_000,
        error_ns: Some(120_000_000),
        ..Unseen::default()
    };
    let few =
        Unseen { calls: 2_000, error_calls: 4_000, total_ns: 200_000, error_ns: Some(500_000), ..Unseen::default() };
    let quiet = Unseen { error_calls: 1_200, ..Unseen::default() };
    let mut counted = function(4, "a.Counted", 0, 0);
    (counted.calls, counted.counted) = (9_000, 9_000);
    (counted.estimated_ns, counted.estimated_error_ns) = (Some(3_600_000), Some(900_000));
    counted.traced.tracing = Tracing::Counted;
    let methods = vec![
        unseen(0, "a.Hot", (1000, 100_000), hot),
        unseen(1, "a.Few", (10, 1_000), few),
        unseen(2, "a.Quiet", (0, 0), quiet),
        function(3, "a.Cool", 5, 10_000),
    ];
    let states = States { functions: [3, 0, 0, 1, 0, 2], demoted: 4 };
    Snapshot { methods: methods.into_iter().chain([counted]).collect(), states, ..snapshot() }
}

/// A JVM whose calls are counted by both tiers: one function by its probe, one method by its stub, one by the one and then
/// by the other, two methods that share a function which its probe still sees, and one of whose calls some were timed.
pub(super) fn of_both_tiers() -> Snapshot {
    let stubbed = |index, class, calls, total_ns, tier| {
        let cost = (tier == Tier::Both).then_some(ProbeCost::Emulated);
        let cost_ns = cost.map(|_| 0);
        MethodSnapshot { tier, cost, cost_ns, self_ns: None, ..function(index, class, calls, total_ns) }
    };
    let mut parent = function(0, "a.Parent", 100, 9_000_000);
    parent.self_ns = Some(8_000_000);
    let mut shared = function(3, "a.Shared", 10, 10_000);
    shared.methods.push(planned("b.Shared", "call", "()V"));
    let moved = [stubbed(u32::MAX, "a.Shared", 70, 3_000, Tier::Stub), stubbed(2, "a.Moved", 300, 60_000, Tier::Both)];
    let mut sampled = stubbed(u32::MAX - 2, "a.Sampled", 1_000, 80_000, Tier::Stub);
    (sampled.calls, sampled.counted, sampled.estimated_ns) = (17_000, 16_000, Some(1_300_000));
    let rows = [parent, stubbed(u32::MAX - 1, "a.Stubbed", 5_000_000, 400_000_000, Tier::Stub), shared, sampled];
    Snapshot { methods: rows.into_iter().chain(moved).collect(), ..snapshot() }
}

/// Two JVMs of one run: the eventful one, and one that started a second later, has the same overloads apart from
/// one, and has ended.
pub(super) fn several() -> Vec<Snapshot> {
    let first = eventful();
    let mut second = snapshot();
    second.started += Duration::from_secs(1);
    second.elapsed = Duration::from_millis(2000);
    second.jvm.pid = Pid(77);
    second.jvm.main = "orders-1.2.jar".to_owned();
    second.ended = true;
    second.methods = vec![first.methods[3].clone(), first.methods[0].clone()];
    second.methods[0].total_ns = 4_000_000;
    second.methods[0].self_ns = Some(4_000_000);
    second.traced = 3;
    second.states.functions = [0, 0, 0, 0, 0, 3];
    second.skipped = vec![first.skipped[0].clone()].into();
    second.losses = Losses { counts: vec![("unreturned", 3), ("too-deep", 4)] };
    vec![first, second]
}

/// A JSON document that is spread over lines for its readers, as it is written: on one line, with this version.
pub(super) fn one_line(golden: &str) -> String {
    let joined: String = golden.lines().map(str::trim_start).collect();
    joined.replace("VERSION", env!("CARGO_PKG_VERSION")) + "\n"
}
