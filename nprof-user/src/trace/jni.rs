//! A trace of the other direction: native methods, and the JNI functions that they call.
//!
//! A JNI function is planned, attached, governed and recorded as a native method is. Besides, the kernel keeps which native method
//! has called which function.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nprof_common::jni::of_pair;
use nprof_common::{JniPlaces, JniThrown};

use super::classes::Classes;
use super::critical::{Known, LockerWatch};
use super::held::HeldWatch;
use super::jni_tree::JniTree;
use super::jvm_jni::{Functions, learn_thrown, thrown_sums};
use super::prepared::Prepared;
use super::vm::ended_or;
use super::{Error, SlowWatch, Tracer, calibrate, slow};
use crate::aggregate::{self, CalledSum, HeldThing, JniPairs};
use crate::attach::{Collect, Engine, JniTable};
use crate::model::{EndedCall, JniSnapshot, TreeMethod};

/// A JVM whose JNI functions are traced. Everything is detached when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct JniTracer {
    tracer: Tracer,
    table: Arc<JniTable>,
    functions: usize,
    unseen: Vec<&'static str>,
    tells_members: bool,
    classes: Classes,
    calls: Option<JniTree>,
    held: Option<HeldWatch>,
    /// What was held before the probes were detached.
    held_at_end: Option<(Vec<HeldThing>, Duration)>,
    locker: LockerWatch,
}

impl Prepared {
    /// Attaches everything that is planned, and JNI functions. With `held_from` it is also followed what native code makes and does not
    /// let go, and told of what is as old; with `tells_calls` each call is told, and nothing that is held.
    ///
    /// # Errors
    /// As [`Prepared::attach`]; [`Error::NoJni`] if the VM's table of functions is not found.
    pub fn jni(mut self, held_from: Option<Duration>, tells_calls: bool) -> Result<JniTracer, Error> {
        let (proc, jvm) = (self.proc().clone(), self.jvm().clone());
        let known = Functions::read(&proc, &jvm);
        let Functions { methods, unseen, mirrors } = known.map_err(|error| ended_or(error, &proc, &jvm))?;
        self.plan_jni(&methods);
        let others = self.engine_collects();
        let others = if held_from.is_some() { self.collect_held(others)? } else { others };
        let pending = self.pending_places()?;
        let known = self.collections_wait()?;
        let collections = matches!(known, Known::At(..));
        let calls = tells_calls;
        let collect = Collect { jni: true, callees: true, pending, off_cpu: true, calls, collections, ..others };
        let (engine, feeds) = Engine::load_measuring(self.capacity()?, &collect)?;
        let calibrated = calibrate(&proc, &engine)?;
        let not_there = || Error::Defect { what: "the calls of JNI functions are not collected".to_owned() };
        let (table, vms) = (Arc::clone(engine.jni().ok_or_else(not_there)?), Arc::clone(engine.vms()));
        let places = JniPlaces { pending_from_env: pending.from_env, ..mirrors.unwrap_or_default() };
        let classes = Classes::begin(&proc, &jvm, &vms, places)?;
        let (feeds, calls) = if tells_calls { (None, Some(JniTree::new(feeds))) } else { (Some(feeds), None) };
        let ring = feeds.filter(|_| collect.stacks()).map(slow::ring).transpose()?;
        let with_ring = |wanted: bool| ring.clone().filter(|_| wanted);
        let slow =
            with_ring(collect.slow).map(|ring| SlowWatch::by_ring(proc.clone(), &engine, ring, Arc::clone(&vms)));
        let held = with_ring(collect.held).zip(held_from);
        let held =
            held.map(|(ring, from)| HeldWatch::begin((&proc, &jvm), ring, Arc::clone(&vms), from)).transpose()?;
        let slow = slow.transpose()?;
        let tracer = self.attach_to(&engine, calibrated, slow)?;
        let locker = LockerWatch::begin(&engine, jvm.pid, known);
        let (functions, tells_members) = (methods.len(), mirrors.is_some());
        let held_at_end = None;
        Ok(JniTracer { calls, tracer, table, functions, unseen, tells_members, classes, held, held_at_end, locker })
    }
}

impl JniTracer {
    /// The JVM.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// How many JNI functions are traced, or were refused by the kernel.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// Does what is due: see [`Tracer::tick`].
    pub fn tick(&mut self) {
        if self.tracer.is_due() {
            self.tracer.tick();
            self.learn_names();
            if let Some(calls) = &mut self.calls {
                calls.refresh(self.tracer.traced_jvm());
            }
            if let Some(held) = &self.held {
                held.tick(&self.table);
            }
        }
    }

    /// Passes on the calls that have ended since the last time, where they are told one by one.
    pub fn read_calls(&mut self, pass: impl FnMut(EndedCall)) {
        if let Some(calls) = &mut self.calls {
            calls.read(self.tracer.traced_jvm(), &mut self.classes, pass);
        }
    }

    /// The functions whose calls are told, by the numbers that calls have. There may be more later.
    #[must_use]
    pub fn told_methods(&self) -> &[TreeMethod] {
        self.calls.as_ref().map_or(&[], JniTree::methods)
    }

    /// The name of a class of exceptions that calls have the number of; `None` if it is not certain.
    pub fn exception_name(&mut self, number: u32) -> Option<&str> {
        let class = self.calls.as_ref()?.class(number).filter(|class| *class != JniThrown::UNKNOWN)?;
        self.classes.learn(class);
        self.classes.learnt(class)
    }

    /// How many calls could not be told.
    #[must_use]
    pub fn lost_calls(&self) -> u64 {
        self.calls.as_ref().map_or(0, JniTree::lost)
    }

    /// Detaches all probes: see [`Tracer::stop`].
    pub fn stop(&mut self) {
        // As long as the probes are there: what is let go while they are detached is not seen.
        let held = self.held.as_ref().filter(|_| self.held_at_end.is_none());
        let read = held.map(|held| held.read(&self.table, &mut self.classes));
        self.learn_names();
        // First of all: a wait whose section's end is not seen any more is nobody's.
        self.locker.stop();
        self.tracer.stop();
        if let (Some(held), Some(read)) = (&self.held, read) {
            self.held_at_end = Some(held.finish(read));
        }
    }

    /// Names the classes of exceptions, and Java methods that were called, while they are loaded.
    fn learn_names(&mut self) {
        learn_thrown(&mut self.classes, &self.table.thrown());
        self.table.called_ids().into_iter().for_each(|id| self.classes.learn_method(id));
    }

    /// Everything measured from the start to now, or to the end if tracing was stopped. What is held is known once it was.
    #[must_use]
    pub fn snapshot(&self) -> JniSnapshot {
        // First who has called, then how often was called: a function has never been called less than by all its callers.
        let (pairs, called) = (self.table.read(), self.table.called());
        let snapshot = self.tracer.snapshot();
        let records: HashMap<u32, u32> =
            self.tracer.traced_jvm().records().map(|(index, record)| (record, index)).collect();
        let thrown = thrown_sums(&self.classes, &self.table.thrown());
        let called = called.into_iter().map(|(called, calls)| CalledSum {
            records: of_pair(called.pair),
            java: self.classes.learnt_method(called.id).cloned(),
            calls,
        });
        let called = called.collect();
        let (held, collections) = (self.held_at_end.clone(), self.locker.collections.clone());
        let known = JniPairs { pairs, called, records, held, thrown, collections };
        aggregate::jni(snapshot, &known, self.unseen.clone(), self.tells_members)
    }
}
