//! What native code has made and not let go: read while the probes are still there, with the classes of the objects it was made of,
//! and of some with the Java stack that it was made in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nprof_common::{HeapPlaces, JniHandle, JniHeld, Referent, VmPlaces};
use zerocopy::FromZeros as _;

use super::prepared::Prepared;
use super::sampling::libjvm_of;
use super::{Error, slow};
use crate::aggregate::HeldThing;
use crate::attach::{Collect, JniTable, VmTable};
use crate::discover::Proc;
use crate::model::{JniResource, Jvm, Pid, VirtAddr, descriptor};
use crate::profile::{MadeStacks, StackRing};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Unwinder;

/// The lowest bits of a handle, which say what kind of reference it is.
const TAG_BITS: u64 = 7;
/// An address for objects of which only the first words are known. It is only kept.
const SOMEWHERE: u64 = 1 << 12;

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
    unwinder: Unwinder<ProcessMemory>,
    heap: HeapPlaces,
    older_than: Duration,
    stacks: MadeStacks,
    ring: Arc<StackRing>,
    /// What its queue is known by to the ring.
    number: u64,
}

impl HeldWatch {
    /// Tells the programs how to read the classes of objects, and takes the stacks that come by `ring`. `older_than` is the age from
    /// which on something is told.
    pub(super) fn begin(
        (proc, jvm): (&Proc, &Jvm),
        ring: Arc<StackRing>,
        vms: Arc<VmTable>,
        older_than: Duration,
    ) -> Result<Self, Error> {
        let memory = ProcessMemory::new(jvm.pid);
        let mut unwinder = Unwinder::open(memory.clone(), &libjvm_of(proc, jvm)?)?;
        // Its end is noticed elsewhere.
        let heap = unwinder.heap_places().ok().flatten().filter(|heap| heap.class_mask != 0).unwrap_or_default();
        let collections = unwinder.collections_place().map_or(0, |place| place.0);
        // Who reads stacks tells the same again, and more.
        tell(&vms, jvm.pid, &VmPlaces { collections, heap, ..VmPlaces::default() });
        let queue = ring.add_made(jvm.pid);
        let number = queue.number();
        let stacks = MadeStacks::start((proc.clone(), jvm.pid), queue, vms).map_err(|error| {
            ring.remove(number);
            Error::Defect { what: error.to_string() }
        })?;
        Ok(Self { memory, unwinder, heap, older_than, stacks, ring, number })
    }

    /// Forgets the stacks of what is not held any more, if there are many.
    pub(super) fn tick(&self, table: &JniTable) {
        self.stacks.forget(|handle, since_ns| table.is_held(handle, since_ns));
    }

    /// What is held now, and from which age on it is told. No further stacks are taken.
    pub(super) fn read(&mut self, table: &JniTable) -> (Vec<HeldThing>, Duration) {
        let (mut classes, held) = (HashMap::new(), table.held());
        let now_ns = now_ns();
        self.ring.flush();
        self.ring.remove(self.number);
        self.stacks.finish();
        let thing = |(handle, held): (JniHandle, JniHeld)| {
            let resource = JniResource::of_holds(handle.holds()).filter(|_| held.depth > 0)?;
            Some(HeldThing {
                resource,
                records: (held.caller, held.function),
                class: self.class(&mut classes, resource, handle.value, held.object),
                times: held.depth,
                path: self.stacks.path_of(handle, held.since_ns),
                age: Duration::from_nanos(now_ns.saturating_sub(held.since_ns)),
            })
        };
        (held.into_iter().filter_map(thing).collect(), self.older_than)
    }

    /// The class of what something was made of, and of an array the length.
    fn class(
        &mut self,
        known: &mut HashMap<u64, Option<String>>,
        resource: JniResource,
        value: u64,
        object: u64,
    ) -> Option<(String, Option<u32>)> {
        // The class of an object that is gone may be gone, too, and another one where it was.
        if object == 0 || self.heap.class_mask == 0 || resource == JniResource::Weak && !self.leads_somewhere(value) {
            return None;
        }
        let (class_word, class_mask) = (self.heap.class_word, self.heap.class_mask);
        let name = known.entry(object & class_mask).or_insert_with(|| self.name(object)).clone()?;
        let is_array = name.ends_with("[]");
        let length = match (class_word, class_mask) {
            (0, _) => Some(object & u64::from(u32::MAX)),
            (_, u64::MAX) => None,
            _ => Some(object >> 32),
        };
        let length = length.filter(|_| is_array).and_then(|length| u32::try_from(length).ok());
        Some((name, length))
    }

    fn name(&mut self, object: u64) -> Option<String> {
        let mut copied = Referent { addr: SOMEWHERE, head_bytes: 16, ..Referent::new_zeroed() };
        copied.head[..2].copy_from_slice(&JniHeld::words_of(object, self.heap.class_word));
        let class = self.unwinder.living_object(&copied).ok().flatten()?.class;
        Some(if class.starts_with('[') { descriptor::java_type(&class) } else { class.replace('/', ".") })
    }

    /// Whether there still is an object where a reference leads.
    fn leads_somewhere(&self, handle: u64) -> bool {
        let mut object = [0; 8];
        self.memory.read_exact(VirtAddr(handle & !TAG_BITS), &mut object).is_ok() && object != [0; 8]
    }
}

fn tell(vms: &VmTable, pid: Pid, places: &VmPlaces) {
    if let Err(error) = vms.set(pid, places) {
        tracing::warn!("process {pid}: classes of what is held are not read: {error}");
    }
}

/// Now, on the clock that the programs read.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::try_from(now).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
