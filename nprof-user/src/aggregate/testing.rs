//! Small snapshots for tests.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Bound, Collectors, Histogram, Jvm, JvmKind, Losses, Method, MethodSnapshot, NativeCode, Pid, PlannedMethod, Price,
    Prices, Snapshot, StartTime, States, Tier, Traced, Tracing, VirtAddr,
};

/// A function with one method, `a.N` and this name, whose calls have taken so long together.
pub(crate) fn function(index: u32, name: &str, calls: u64, total_ns: u64) -> MethodSnapshot {
    let method = Method {
        id: VirtAddr(0),
        class: "a.N".into(),
        name: name.into(),
        signature: "()V".into(),
        code: NativeCode::Unbound,
    };
    MethodSnapshot {
        index,
        tier: Tier::Kernel,
        methods: vec![PlannedMethod { method, bound: Bound::Export }],
        library: "liba.so".to_owned(),
        cost: None,
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
        consumed: None,
        bytes_per_call: None,
        threads: None,
        self_ns: Some(total_ns),
        probe_ns: 0,
        probe_error_ns: 0,
        price: Price::default(),
        cost_ns: None,
        off_cpu_ns: None,
        estimated_off_ns: None,
        max_ns: 0,
        histogram: Histogram::default(),
    }
}

/// A JVM without a call.
pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        started: Timestamp::UNIX_EPOCH,
        elapsed: Duration::ZERO,
        jvm: Jvm {
            pid: Pid(1234),
            start_time: StartTime(9),
            main: "com.acme.Main".to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: String::new(),
            vm_version: String::new(),
            uid: 0,
            user: None,
            container: None,
        },
        ended: false,
        timed: true,
        methods: Vec::new(),
        traced: 0,
        states: States::default(),
        cost: None,
        cpu: None,
        cost_share: None,
        prices: Prices::default(),
        slow: None,
        jni: None,
        programs: Vec::new(),
        skipped: [].into(),
        downcalls: false,
        collectors: Collectors::default(),
        losses: Losses::default(),
    }
}
