//! What the agent knows and does in a VM. `entry.rs` has the functions that the VM calls.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nprof_common::is_vm_linked;
use nprof_common::wire::{Bound, FromShim, How, NO_INDEX};

use crate::clock::{Clock, Moment};
use crate::functions::Functions;
use crate::helper::{self, Helpers, is_own};
use crate::jni::Jni;
use crate::jvmti::{Class, Jvmti, MethodId, MethodName};
use crate::link::{Link, Policy};
use crate::methods::Methods;
use crate::options::Options;
use crate::pool::{self, Stub};
use crate::records::Records;
use crate::sharding::Sharding;
use crate::slots::{self, Slots};
use crate::stage::Stage;
use crate::vm::Vm;
use crate::{library, link, rebind, scan, trees};

/// The most binds that are kept until the VM can be asked for their names. A VM starts with some two hundred.
const MOST_EARLY_BINDS: usize = 65_536;

/// The agent. It lives from its first loading until the process ends.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) jvmti: Jvmti,
    pub(crate) vm: Vm,
    pub(crate) methods: Methods,
    pub(crate) functions: Functions,
    pub(crate) sharding: Sharding,
    /// The file that this library was loaded from.
    pub(crate) library: Option<OwnedFd>,
    slots: OnceLock<Slots>,
    loaded: Moment,
    /// Whether the VM was running then.
    is_late: bool,
    clock: Clock,
    /// nprof, if it is connected. Without it nothing is watched that was not watched before.
    link: Mutex<Option<Arc<Link>>>,
    work: Mutex<()>,
    pub(crate) stage: Stage,
    early: Mutex<Vec<(MethodId, usize)>>,
    helpers: OnceLock<Helpers>,
}

impl Agent {
    /// Sets the stubs up.
    pub(crate) fn new(jvmti: Jvmti, vm: Vm, is_late: bool) -> Self {
        let sharding = Sharding::best();
        let (loaded, clock) = (Moment::now(), Clock::estimate());
        pool::configure(sharding, &clock);
        Self {
            jvmti,
            vm,
            methods: Methods::default(),
            functions: Functions::default(),
            sharding,
            library: library::open(),
            slots: OnceLock::new(),
            loaded,
            is_late,
            clock,
            link: Mutex::default(),
            work: Mutex::default(),
            stage: Stage::default(),
            early: Mutex::default(),
            helpers: OnceLock::new(),
        }
    }

    /// Whether the VM was running when the agent was loaded.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Does what a loading asks for. Without `jni` the VM has not started, and all else follows in [`Self::started`].
    ///
    /// # Errors
    /// When nprof cannot be connected to that is to be there.
    pub(crate) fn obey(&'static self, options: &Options, jni: Option<Jni>) -> Result<(), link::Error> {
        if jni.is_some() {
            self.stage.begin();
        }
        options.connect.as_deref().map_or(Ok(()), |socket| self.link_to(socket, jni.is_none()))
    }

    fn link_to(&'static self, socket: &Path, is_starting: bool) -> Result<(), link::Error> {
        match link::service::start(self, socket) {
            Err(error) if is_starting && error.is_absence() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.note(self.jvmti.notice_binds(true));
                Ok(())
            }
        }
    }

    /// The VM runs Java code from now on: methods that were bound before get their stubs.
    pub(crate) fn started(&self, jni: Jni) {
        self.refine_clock();
        if self.policy().is_some() {
            self.adopt_early(jni);
        }
        self.stage.begin();
    }

    /// Learns the names of the methods that were bound before the VM could tell them, and gives them their stubs.
    pub(crate) fn adopt_early(&self, jni: Jni) {
        let binds = std::mem::take(&mut *lock(&self.early));
        if !binds.is_empty() {
            self.note(rebind::early(self, jni, &binds));
        }
    }

    /// The VM ends.
    pub(crate) fn ended(&self) {
        self.stage.end();
        if let Some(link) = self.link() {
            link::ids::end_with_vm(self, &link);
            trees::pause_with_vm();
            link.end("the JVM ends");
        }
    }

    /// What a method is to be bound to instead of `address`; `None` for just that.
    pub(crate) fn bound(&self, jni: Option<Jni>, id: MethodId, address: usize) -> Option<usize> {
        self.link()?;
        if let Some(stub) = Stub::at(address) {
            self.methods.bound_again(stub);
            return None;
        }
        if helper::is_binding() {
            return None;
        }
        let Some(jni) = jni.filter(|_| self.jvmti.knows_names()) else {
            let mut early = lock(&self.early);
            if early.len() < MOST_EARLY_BINDS {
                early.push((id, address));
            }
            return None;
        };
        let class = self.jvmti.class_of(id).ok()?;
        let name = self.jvmti.name_of(class, id);
        let bound = scan::Bound { class, of_platform: false, id, address };
        let stub = name.ok().and_then(|name| self.stub_for(jni, bound, &name));
        jni.forget(class);
        stub.map(Stub::entry)
    }

    /// The stub of a method that is now bound, if it is to have one. nprof is told of the bind.
    pub(crate) fn stub_for(&self, jni: Jni, bound: scan::Bound, name: &MethodName) -> Option<Stub> {
        if is_own(name) {
            return None;
        }
        let number = self.methods.number_of(bound.id, name)?;
        let options = self.methods.options(number).or_else(|| self.policy()?.binds);
        let options = options.filter(|_| !is_vm_linked(&name.dotted_class()));
        let stub = options.and_then(|options| self.methods.stub_for(number, bound.address, options));
        self.publish(jni, number, bound, name, stub);
        stub
    }

    /// Tells nprof of a method that has been bound.
    fn publish(&self, jni: Jni, number: u32, bound: scan::Bound, name: &MethodName, stub: Option<Stub>) {
        let Some(link) = self.link().filter(|link| link.policy().is_some()) else { return };
        link.send(&FromShim::Bound(Bound {
            number,
            how: How::Event,
            index: stub.map_or(NO_INDEX, Stub::index),
            method: self.pointer(jni, bound.class, bound.id) as u64,
            address: bound.address as u64,
            class: name.class.to_bytes(),
            name: name.name.to_bytes(),
            signature: name.signature.to_bytes(),
        }));
    }

    /// The address of the VM's `Method`, or 0.
    pub(crate) fn pointer(&self, jni: Jni, class: Class, id: MethodId) -> usize {
        self.slots.get().and_then(|slots| slots.method(jni, class, id)).unwrap_or(0)
    }

    /// The classes from which methods are bound; defined when they are first wanted.
    pub(crate) fn helpers(&self, jni: Jni) -> Result<&Helpers, helper::Error> {
        if let Some(helpers) = self.helpers.get() {
            helpers.claim(jni)?;
            return Ok(helpers);
        }
        // Not inside `get_or_init`, which locks. Whoever is second finds the classes of the first.
        let helpers = Helpers::define(jni)?;
        Ok(self.helpers.get_or_init(|| helpers))
    }

    /// The place of addresses in the VM's memory; looked for when it is first wanted.
    pub(crate) fn slots(&self, jni: Jni, helpers: &Helpers) -> Result<&Slots, slots::Error> {
        if let Some(slots) = self.slots.get() {
            return Ok(slots);
        }
        let slots = Slots::find(self.vm, jni, helpers)?;
        Ok(self.slots.get_or_init(|| slots))
    }

    /// Does what will be needed in any case, so that events find it done.
    pub(crate) fn prepare(&self, jni: Jni) -> Result<(), rebind::Error> {
        let helpers = self.helpers(jni)?;
        self.slots(jni, helpers)?;
        Ok(())
    }

    /// Tells nprof what went wrong.
    pub(crate) fn note<E: std::error::Error>(&self, done: Result<(), E>) {
        if let (Err(error), Some(link)) = (done, self.link()) {
            link.send(&FromShim::Note(error.to_string().as_bytes()));
        }
    }

    /// The right to do something that must not be done twice at a time. Not to be asked for in events.
    pub(crate) fn work(&self) -> MutexGuard<'_, ()> {
        lock(&self.work)
    }

    /// Takes a new connection, and returns the one before.
    pub(crate) fn connect(&self, link: Arc<Link>) -> Option<Arc<Link>> {
        lock(&self.link).replace(link)
    }

    /// Forgets a connection; `false` if there is another by now, or none.
    pub(crate) fn disconnect(&self, link: &Arc<Link>) -> bool {
        let is_current = lock(&self.link).take_if(|current| Arc::ptr_eq(current, link)).is_some();
        if is_current {
            lock(&self.early).clear();
        }
        is_current
    }

    /// nprof, if it is connected.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        lock(&self.link).clone()
    }

    fn policy(&self) -> Option<Policy> {
        lock(&self.link).as_ref()?.policy()
    }

    /// No method is watched any more, and from now on others are recorded elsewhere.
    pub(crate) fn start_over(&self, records: Option<Records>) {
        let old = self.methods.replace_records(records);
        self.functions.start_over();
        // Before the run's number changes: who has the new one finds the new rows.
        pool::collect(records.as_ref().and_then(Records::collecting));
        pool::end_run();
        if let Some(old) = old {
            self.note(old.let_go());
        }
    }

    /// Nobody writes to the rows of threads any more: they are not read, and their map is let go of.
    pub(crate) fn forget_rows(&self) {
        pool::collect(None);
        self.note(self.methods.let_rows_go());
    }

    /// The VM tells of nothing any more but its end.
    pub(crate) fn be_quiet(&self) {
        self.note(self.jvmti.notice_binds(false));
    }

    /// So many ticks of the counter in nanoseconds.
    pub(crate) fn nanoseconds(&self, ticks: u64) -> u64 {
        let Clock { multiplier, .. } = self.clock.refined(self.loaded, Moment::now());
        u64::try_from((u128::from(ticks) * u128::from(multiplier)) >> 32).unwrap_or(u64::MAX)
    }

    /// Learns how fast the counter runs, the better the later.
    pub(crate) fn refine_clock(&self) {
        pool::set_clock(&self.clock.refined(self.loaded, Moment::now()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
