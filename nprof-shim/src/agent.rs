//! What the agent knows and does in a VM. `entry.rs` has the functions that the VM calls.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use jvmti_bindings::mutf8::decode_cstr_lossy;

use crate::clock::{self, Clock, Moment};
use crate::helper::{self, Helpers, PACKAGE};
use crate::jni::Jni;
use crate::jvmti::{Jvmti, MethodId, MethodName};
use crate::methods::{Manner, Methods};
use crate::options::{Options, Selection};
use crate::pool::{self, Mode, STUBS, Stub};
use crate::records::Records;
use crate::sharding::Sharding;
use crate::{dump, intrinsics, rebind};

/// The most binds that are kept until the VM can be asked for their names. A VM starts with some two hundred.
const MOST_EARLY_BINDS: usize = 65_536;

/// The agent. It lives from its first loading until the process ends.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) jvmti: Jvmti,
    pub(crate) records: Records,
    pub(crate) methods: Methods,
    pub(crate) sharding: Sharding,
    loaded: Moment,
    clock: Clock,
    /// Whether methods that are bound get stubs.
    active: AtomicBool,
    orders: Mutex<Orders>,
    early: Mutex<Vec<(MethodId, usize)>>,
    notes: Mutex<Vec<String>>,
    helpers: OnceLock<Helpers>,
}

/// What was asked for so far.
#[derive(Debug)]
struct Orders {
    selection: Selection,
    manner: Manner,
    exit_dump: Option<PathBuf>,
}

impl Agent {
    /// Sets the stubs up.
    ///
    /// # Errors
    /// When there is no memory for the records.
    pub(crate) fn new(jvmti: Jvmti, options: &Options) -> std::io::Result<Self> {
        let records = Records::map(STUBS)?;
        let sharding = options.sharding.as_deref().and_then(Sharding::named).unwrap_or_else(Sharding::best);
        let (loaded, clock) = (Moment::now(), Clock::estimate());
        pool::configure(sharding, &records, &clock);
        let manner = Manner { mode: Mode::Time, threshold_ns: u64::MAX };
        Ok(Self {
            jvmti,
            records,
            methods: Methods::default(),
            sharding,
            loaded,
            clock,
            active: AtomicBool::new(false),
            orders: Mutex::new(Orders { selection: Selection::default(), manner, exit_dump: None }),
            early: Mutex::default(),
            notes: Mutex::default(),
            helpers: OnceLock::new(),
        })
    }

    /// Does what a loading asks for. Without `jni` the VM has not started, and all else follows in [`Self::started`].
    pub(crate) fn obey(&self, options: &Options, jni: Option<Jni>) {
        self.keep(options);
        if options.mode.is_some() || options.threshold_ns.is_some() {
            self.change_manner();
        }
        if options.selection.is_some() {
            self.attach(jni);
        }
        if options.detach {
            self.detach(jni);
        }
        if let Some(file) = &options.dump {
            self.dump(file);
        }
    }

    /// The VM runs Java code from now on: methods that were bound before get their stubs.
    pub(crate) fn started(&self, jni: Jni) {
        self.refine_clock();
        let binds = std::mem::take(&mut *lock(&self.early));
        if self.is_active() {
            self.note(rebind::early(self, jni, &binds));
        }
    }

    /// The VM ends.
    pub(crate) fn ended(&self) {
        self.active.store(false, Ordering::Relaxed);
        let file = lock(&self.orders).exit_dump.take();
        if let Some(file) = file {
            self.dump(&file);
        }
    }

    /// What a method is to be bound to instead of `address`; `None` for just that.
    pub(crate) fn bound(&self, jni: Option<Jni>, id: MethodId, address: usize) -> Option<usize> {
        if !self.is_active() {
            return None;
        }
        if let Some(stub) = Stub::at(address) {
            self.bound_again(stub);
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
        jni.forget(class);
        Some(self.stub_for(id, address, &name.ok()?)?.entry())
    }

    /// A method is bound to a stub that it had: by us, or by another agent that leaves.
    pub(crate) fn bound_again(&self, stub: Stub) {
        let mode = lock(&self.orders).manner.mode;
        self.methods.bound_again(stub, mode);
    }

    /// The stub of a method that is bound to `address`, if it is to have one.
    pub(crate) fn stub_for(&self, id: MethodId, address: usize, name: &MethodName) -> Option<Stub> {
        let manner = {
            let orders = lock(&self.orders);
            is_selected(&orders.selection, name).then_some(orders.manner)?
        };
        self.methods.stub_for(id, address, name, manner, &self.records)
    }

    /// The classes from which methods are bound; defined when they are first wanted.
    pub(crate) fn helpers(&self, jni: Jni) -> Result<&Helpers, helper::Error> {
        if let Some(helpers) = self.helpers.get() {
            helpers.claim(jni)?;
            return Ok(helpers);
        }
        // Not inside of `get_or_init`, which locks. Whoever is second finds the classes of the first.
        let helpers = Helpers::define(jni)?;
        Ok(self.helpers.get_or_init(|| helpers))
    }

    /// What went wrong so far.
    pub(crate) fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }

    fn keep(&self, options: &Options) {
        let mut orders = lock(&self.orders);
        if let Some(selection) = &options.selection {
            orders.selection = selection.clone();
        }
        if let Some(mode) = options.mode {
            orders.manner.mode = mode;
        }
        if let Some(threshold_ns) = options.threshold_ns {
            orders.manner.threshold_ns = threshold_ns;
        }
        if let Some(file) = &options.exit_dump {
            orders.exit_dump = Some(file.clone());
        }
        let times = !matches!(orders.manner.mode, Mode::Off | Mode::Count);
        if times && !clock::is_steady() {
            orders.manner.mode = Mode::Count;
            drop(orders);
            lock(&self.notes).push("this CPU's time stamp counter is not steady: calls are counted, not timed".into());
        }
    }

    fn change_manner(&self) {
        let manner = lock(&self.orders).manner;
        self.methods.change(manner);
    }

    fn attach(&self, jni: Option<Jni>) {
        self.active.store(true, Ordering::Relaxed);
        self.note(self.jvmti.notice_binds(true));
        if let Some(jni) = jni.filter(|_| self.jvmti.is_live()) {
            self.refine_clock();
            self.note(rebind::all(self, jni));
        }
    }

    /// The stubs stay: a thread may be in one, and compiled code may go on to call one.
    fn detach(&self, jni: Option<Jni>) {
        Stub::all().for_each(|stub| stub.set_mode(Mode::Off));
        self.active.store(false, Ordering::Relaxed);
        self.note(self.jvmti.notice_binds(false));
        if let Some(jni) = jni.filter(|_| self.jvmti.is_live()) {
            self.note(rebind::restore(self, jni));
        }
        // An event that was under way may have switched one on again.
        Stub::all().for_each(|stub| stub.set_mode(Mode::Off));
    }

    fn refine_clock(&self) {
        pool::set_clock(&self.clock.refined(self.loaded, Moment::now()));
    }

    fn dump(&self, file: &std::path::Path) {
        self.note(dump::write(self, file));
    }

    fn note<E: std::error::Error>(&self, done: Result<(), E>) {
        if let Err(error) = done {
            lock(&self.notes).push(error.to_string());
        }
    }

    fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }
}

fn is_selected(selection: &Selection, name: &MethodName) -> bool {
    if name.class.to_bytes().starts_with(PACKAGE.as_bytes()) {
        return false;
    }
    let class = name.dotted_class();
    let left_out = || !selection.intrinsics && intrinsics::is_candidate(&class, &decode_cstr_lossy(&name.name));
    selection.classes.iter().any(|prefix| class.starts_with(prefix.as_str()))
        && !intrinsics::is_special(&class)
        && !left_out()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn selected(selection: &Selection, class: &str, name: &str) -> bool {
        let [class, name, signature] = [class, name, "()V"].map(|text| CString::new(text).unwrap());
        is_selected(selection, &MethodName { class, name, signature })
    }

    /// Check that classes are chosen by the beginnings of their names, intrinsics when asked for, and our own class and
    /// those that the VM links in its own ways never.
    #[test]
    fn selection() {
        let some = Selection { classes: vec!["java.lang.".into(), "com.A".into()], intrinsics: false };
        assert!(selected(&some, "Ljava/lang/System;", "initProperties") && selected(&some, "Lcom/A$B;", "m"));
        assert!(!selected(&some, "Ljava/util/zip/CRC32;", "m"));
        assert!(!selected(&some, "Ljava/lang/System;", "arraycopy"));
        let all = Selection { classes: vec![String::new()], intrinsics: true };
        assert!(selected(&all, "Ljava/lang/System;", "arraycopy"));
        assert!(!selected(&all, "Ljava/lang/invoke/MethodHandle;", "linkToStatic"));
        assert!(!selected(&all, "Lnprof/shim/Binder;", "bind"));
        assert!(!selected(&Selection::default(), "Lcom/A;", "m"));
    }
}
