//! What native code has made and not let go: read while the probes are still there, with the classes of the objects it was made of,
//! and of some with the Java stack that it was made in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nprof_common::{JniHandle, JniHeld};

use super::classes::Classes;
use super::prepared::Prepared;
use super::{Error, slow};
use crate::aggregate::HeldThing;
use crate::attach::{Collect, JniTable, VmTable};
use crate::discover::Proc;
use crate::model::{JniResource, Jvm, VirtAddr};
use crate::profile::{MadeStacks, StackRing};
use crate::sys::remote_memory::ProcessMemory;

/// The lowest bits of a handle, which say what kind of reference it is.
const TAG_BITS: u64 = 7;

impl Prepared {
    /// What is collected besides for it.
    pub(super) fn collect_held(&self, others: Collect) -> Result<Collect, Error> {
        Ok(Collect { held: true, anchor_from_env: self.anchor_from_env()?, ..slow::with_stacks(others) })
    }
}

/// Follows what a JVM's native code holds.
#[derive(Debug)]
pub(super) struct HeldWatch {
    memory: ProcessMemory,
    older_than: Duration,
    stacks: MadeStacks,
    ring: Arc<StackRing>,
    /// What its queue is known by to the ring.
    number: u64,
}

/// What is held, by what its stacks are known by.
#[derive(Debug)]
pub(super) struct Held(Vec<((JniHandle, u64), HeldThing)>);

impl HeldWatch {
    /// Takes the stacks that come by `ring`. `older_than` is the age from which on something is told.
    pub(super) fn begin(
        (proc, jvm): (&Proc, &Jvm),
        ring: Arc<StackRing>,
        vms: Arc<VmTable>,
        older_than: Duration,
    ) -> Result<Self, Error> {
        let queue = ring.add_made(jvm.pid);
        let number = queue.number();
        let stacks = MadeStacks::start((proc.clone(), jvm.pid), queue, vms).map_err(|error| {
            ring.remove(number);
            Error::Defect { what: error.to_string() }
        })?;
        Ok(Self { memory: ProcessMemory::new(jvm.pid), older_than, stacks, ring, number })
    }

    /// Forgets the stacks of what is not held any more, if there are many.
    pub(super) fn tick(&self, table: &JniTable) {
        self.stacks.forget(|handle, since_ns| table.is_held(handle, since_ns));
    }

    /// What is held now, without stacks.
    pub(super) fn read(&self, table: &JniTable, classes: &mut Classes) -> Held {
        let (held, now_ns, mut names) = (table.held(), now_ns(), HashMap::new());
        let mut thing = |(handle, held): (JniHandle, JniHeld)| {
            let resource = JniResource::of_holds(handle.holds()).filter(|_| held.depth > 0)?;
            let thing = HeldThing {
                resource,
                records: (held.caller, held.function),
                class: self.class((classes, &mut names), resource, handle.value, held.object),
                times: held.depth,
                age: Duration::from_nanos(now_ns.saturating_sub(held.since_ns)),
                path: None,
            };
            Some(((handle, held.since_ns), thing))
        };
        Held(held.into_iter().filter_map(&mut thing).collect())
    }

    /// The same with stacks, and from which age on it is told. No more stacks are taken: the programs have forgotten the VM.
    pub(super) fn finish(&self, held: Held) -> (Vec<HeldThing>, Duration) {
        self.ring.flush();
        self.ring.remove(self.number);
        self.stacks.finish();
        let with_path = |((handle, since_ns), thing): ((JniHandle, u64), HeldThing)| HeldThing {
            path: self.stacks.path_of(handle, since_ns),
            ..thing
        };
        (held.0.into_iter().map(with_path).collect(), self.older_than)
    }

    /// The class of what something was made of, and of an array the length.
    fn class(
        &self,
        (classes, names): (&mut Classes, &mut HashMap<u64, Option<String>>),
        resource: JniResource,
        value: u64,
        object: u64,
    ) -> Option<(String, Option<u32>)> {
        // The class of an object that is gone may be gone, too, and another one where it was.
        if object == 0 || resource == JniResource::Weak && !self.leads_somewhere(value) {
            return None;
        }
        let name = names.entry(classes.key(object)?).or_insert_with(|| classes.name(object)).clone()?;
        let length = classes.length(object).filter(|_| name.ends_with("[]"));
        Some((name, length))
    }

    /// Whether there still is an object where a reference leads.
    fn leads_somewhere(&self, handle: u64) -> bool {
        let mut object = [0; 8];
        self.memory.read_exact(VirtAddr(handle & !TAG_BITS), &mut object).is_ok() && object != [0; 8]
    }
}

/// Now, on the clock that the programs read.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::try_from(now).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
