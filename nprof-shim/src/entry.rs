//! The functions that the VM calls: when it loads the agent, and at its events.
//!
//! Nothing that goes wrong here may become the VM's problem. No panic gets out, and loading always succeeds: a VM whose
//! agent fails to load ends.

#![expect(unsafe_code, reason = "is called by the VM")]

use std::ffi::{CStr, c_char, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use jvmti_bindings::mutf8::decode_cstr_lossy;
use jvmti_bindings::sys::jni::{JNIEnv, JavaVM, jclass, jint, jmethodID, jobject, jthread};
use jvmti_bindings::sys::jvmti::{jvmtiEnv, jvmtiEventCallbacks};

use crate::agent::Agent;
use crate::id_cache;
use crate::jni::Jni;
use crate::jvmti::{self, Class, Jvmti, MethodId};
use crate::link;
use crate::options::{self, Options};
use crate::trees;
use crate::vm::Vm;

static AGENT: OnceLock<Agent> = OnceLock::new();

/// Why the agent does nothing.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Options(#[from] options::Unknown),
    #[error(transparent)]
    Vm(#[from] jvmti::Error),
    #[error(transparent)]
    Link(#[from] link::Error),
}

/// The VM starts and loads the agent (`-agentpath`).
///
/// # Safety
/// To be called by a VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnLoad(vm: *mut JavaVM, options: *mut c_char, _reserved: *mut c_void) -> jint {
    // SAFETY: the VM passes itself and a C string, or null.
    guarded(|| report(unsafe { load(vm, options, false) }));
    0
}

/// A running VM loads the agent, or loads it again.
///
/// # Safety
/// To be called by a VM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnAttach(vm: *mut JavaVM, options: *mut c_char, _reserved: *mut c_void) -> jint {
    // SAFETY: the VM passes itself and a C string, or null.
    guarded(|| report(unsafe { load(vm, options, true) }));
    0
}

/// # Safety
/// `vm` is the VM, `options` a C string or null.
unsafe fn load(vm: *mut JavaVM, options: *mut c_char, runs: bool) -> Result<(), Error> {
    let text = if options.is_null() {
        String::new()
    } else {
        // SAFETY: the caller's C string.
        decode_cstr_lossy(unsafe { CStr::from_ptr(options) })
    };
    let options = Options::parse(&text)?;
    if AGENT.get().is_none() {
        // SAFETY: the caller's VM.
        let jvmti = if runs { unsafe { Jvmti::of_running(vm) } } else { unsafe { Jvmti::of(vm) } }?;
        // SAFETY: the caller's VM.
        let agent = Agent::new(jvmti, unsafe { Vm::new(vm) }, runs);
        // The VM loads agents one after another: nobody else has set it meanwhile.
        AGENT.get_or_init(|| agent);
        jvmti.listen(&callbacks())?;
    }
    // SAFETY: the caller's VM.
    let jni = unsafe { Jni::of(vm) }.filter(|_| runs);
    if let Some(agent) = AGENT.get() {
        agent.obey(&options, jni)?;
    }
    Ok(())
}

fn callbacks() -> jvmtiEventCallbacks {
    let mut callbacks = jvmtiEventCallbacks::default();
    callbacks.NativeMethodBind = Some(on_bind);
    callbacks.VMInit = Some(on_init);
    callbacks.VMDeath = Some(on_death);
    callbacks.ThreadEnd = Some(on_thread_end);
    callbacks.ClassFileLoadHook = Some(on_class_file);
    callbacks
}

unsafe extern "system" fn on_bind(
    _jvmti: *mut jvmtiEnv,
    jni: *mut JNIEnv,
    _thread: jthread,
    method: jmethodID,
    address: *mut c_void,
    new_address: *mut *mut c_void,
) {
    guarded(|| {
        // SAFETY: the VM passes the thread's environment, or null while it starts.
        let jni = unsafe { Jni::passed(jni) };
        let Some(instead) = AGENT.get().and_then(|agent| agent.bound(jni, MethodId(method.addr()), address.addr()))
        else {
            return;
        };
        if !new_address.is_null() {
            // SAFETY: the VM passes where it wants to be told another address.
            unsafe { new_address.write(std::ptr::null_mut::<c_void>().with_addr(instead)) };
        }
    });
}

unsafe extern "system" fn on_init(_jvmti: *mut jvmtiEnv, jni: *mut JNIEnv, _thread: jthread) {
    guarded(|| {
        // SAFETY: the VM passes the thread's environment.
        let jni = unsafe { Jni::passed(jni) };
        if let (Some(agent), Some(jni)) = (AGENT.get(), jni) {
            agent.started(jni);
        }
    });
}

unsafe extern "system" fn on_death(_jvmti: *mut jvmtiEnv, _jni: *mut JNIEnv) {
    guarded(|| {
        if let Some(agent) = AGENT.get() {
            agent.ended();
        }
    });
}

unsafe extern "system" fn on_thread_end(_jvmti: *mut jvmtiEnv, jni: *mut JNIEnv, _thread: jthread) {
    guarded(|| {
        id_cache::thread_ended(jni.addr());
        trees::thread_ended(jni.addr());
    });
}

unsafe extern "system" fn on_class_file(
    _jvmti: *mut jvmtiEnv,
    _jni: *mut JNIEnv,
    redefined: jclass,
    _loader: jobject,
    name: *const c_char,
    _domain: jobject,
    length: jint,
    file: *const c_uchar,
    new_length: *mut jint,
    new_file: *mut *mut c_uchar,
) {
    guarded(|| {
        let redefined = (!redefined.is_null()).then_some(Class(redefined));
        let length = usize::try_from(length).unwrap_or(0);
        if file.is_null() || new_length.is_null() || new_file.is_null() {
            return;
        }
        // SAFETY: the VM shows a class file of this length.
        let file = unsafe { std::slice::from_raw_parts(file, length) };
        // SAFETY: if there is a name, it is the VM's C string.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        let Some((new, agent)) = trees::class_file_loaded(redefined, name, file).zip(AGENT.get()) else { return };
        let (memory, Ok(length)) = (agent.jvmti.allocated(&new), jint::try_from(new.len())) else { return };
        if !memory.is_null() {
            // SAFETY: the VM passes where it wants to be told another file, and its length.
            unsafe { new_file.write(memory) };
            // SAFETY: as above.
            unsafe { new_length.write(length) };
        }
    });
}

/// The name of a class as a descriptor.
pub(crate) fn name_of_class(class: jclass) -> Option<Vec<u8>> {
    AGENT.get()?.jvmti.signature_of(Class(class)).ok()
}

/// Whether a class is initialised, for good.
pub(crate) fn is_initialized(class: jclass) -> bool {
    AGENT.get().is_some_and(|agent| agent.jvmti.is_initialized(class))
}

fn guarded(work: impl FnOnce()) {
    // The panic has been printed by its hook; the VM goes on without what was not done.
    drop(catch_unwind(AssertUnwindSafe(work)));
}

#[expect(clippy::print_stderr, reason = "who loads an agent by hand has no other way to learn of a wrong option")]
fn report(loaded: Result<(), Error>) {
    if let Err(error) = loaded {
        eprintln!("nprof-shim: {error}");
    }
}
