//! Small measurements for the tests of rules.

use std::time::Duration;

use jiff::Timestamp;
use nprof_common::{Consumed, Counter, JniCalls};

use super::Measured;
use crate::aggregate::testing::{function, snapshot};
use crate::model::{
    Bound, CollectionsWait, CriticalSections, Fault, JniCallers, JniSnapshot, JniUse, MethodSnapshot, SlowCall,
    SlowCalls, Snapshot,
};

/// The place of the first native method.
pub(super) const NATIVE: usize = 0;

/// A JVM that is being measured.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) jni: JniSnapshot,
    pub(super) earlier: Option<Box<JniSnapshot>>,
}

impl Sample {
    /// One that was measured for so long.
    pub(super) fn seconds(seconds: u64) -> Self {
        let jni = JniSnapshot {
            snapshot: Snapshot { elapsed: Duration::from_secs(seconds), ..snapshot() },
            uses: Vec::new(),
            callbacks: Vec::new(),
            critical: Vec::new(),
            collections: CollectionsWait::Perhaps,
            buffers: Vec::new(),
            unseen: Vec::new(),
            tells_members: true,
            is_by_stubs: false,
            callers: JniCallers::default(),
            held: None,
            thrown: Vec::new(),
        };
        Self { jni, earlier: None }
    }

    /// Adds a native method `a.N::name`, whose threads have run all the time.
    pub(super) fn native(&mut self, name: &str, calls: u64, total_ns: u64) {
        self.add("a.N", name, (calls, total_ns), Bound::Export);
    }

    /// Adds a JNI function.
    pub(super) fn function(&mut self, name: &str, calls: u64) -> usize {
        self.add("JNIEnv", name, (calls, calls * 100), Bound::JniFunction);
        self.jni.snapshot.methods.len() - 1
    }

    /// Adds calls of a function by a native method.
    pub(super) fn used(&mut self, method: Option<usize>, function: usize, say: impl FnOnce(&mut JniCalls)) {
        let mut calls = JniCalls::NONE;
        say(&mut calls);
        self.jni.uses.push(JniUse { method, function, calls, error_ns: 0 });
    }

    /// Adds critical sections of the first native.
    pub(super) fn sections(&mut self, sections: u64, total_ns: u64, longest_ns: u64) {
        self.jni.critical.push(CriticalSections { method: Some(NATIVE), sections, total_ns, longest_ns });
    }

    /// Adds a slow call of the first native.
    pub(super) fn slow(&mut self, time_ns: u64, off_cpu_ns: u64) {
        let method = self.jni.snapshot.methods[NATIVE].methods[0].method.clone();
        let call = SlowCall {
            ended: Timestamp::UNIX_EPOCH,
            ended_ns: time_ns,
            method,
            time_ns,
            off_cpu_ns: Some(off_cpu_ns),
            consumed: None,
            arguments: None,
            wait: None,
            by_stub: false,
            tid: 7,
            thread: "worker".to_owned(),
            callers: vec!["a.Caller::run:7".to_owned()],
        };
        self.jni.snapshot.slow = Some(SlowCalls { slowest: vec![call], ..SlowCalls::default() });
    }

    /// A row, to be changed.
    pub(super) fn row(&mut self, place: usize) -> &mut MethodSnapshot {
        &mut self.jni.snapshot.methods[place]
    }

    /// Has all calls of the first native consume so much together.
    pub(super) fn consumed(&mut self, counter: Counter, amount: u64) {
        let consumed = self.row(NATIVE).consumed.get_or_insert_with(|| Box::new(Consumed::default()));
        consumed.own[counter as usize] = amount;
    }

    pub(super) fn measured(&self) -> Measured<'_> {
        let Self { jni, earlier } = self;
        Measured { jni, earlier: earlier.as_deref() }
    }

    /// The one fault that a rule finds.
    pub(super) fn only(&self, rule: impl Fn(&Measured<'_>) -> Vec<Fault>) -> Fault {
        let mut faults = rule(&self.measured());
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.remove(0)
    }

    fn add(&mut self, class: &str, name: &str, (calls, total_ns): (u64, u64), bound: Bound) {
        let index = u32::try_from(self.jni.snapshot.methods.len()).unwrap();
        let mut row = MethodSnapshot { off_cpu_ns: Some(0), ..function(index, name, calls, total_ns) };
        row.methods[0].bound = bound;
        row.methods[0].method.class = class.into();
        self.jni.snapshot.methods.push(row);
    }
}
