//! Classes in the JDK's own two loaders, from which methods are bound.
//!
//! The VM prints a warning on the target's output for each method of the JDK that is bound by code of another loader.
//! So the agent defines a tiny class in each, has Java code of it call a native of it, and binds from that native. The
//! class also has natives at known addresses, and one without an address: by them the place of the address in the VM's
//! memory is found (`slots.rs`).
//!
//! ```java
//! package nprof.shim;
//! final class Binder {
//!     static native void bind(long batch);
//!     static native void known();
//!     static native void never();
//!     static void run(long batch) { bind(batch); }
//! }
//! ```

#![expect(unsafe_code, reason = "is called by the VM, with a pointer that went through it; keeps references of the VM")]

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::with_exposed_provenance;
use std::sync::atomic::{AtomicUsize, Ordering};

use jvmti_bindings::sys::jni::{JNIEnv, jclass, jlong};
use nprof_common::tree::HOOK_CLASS;

use crate::class_file::{ClassFile, Code};
use crate::jni::Jni;
use crate::jvmti::{Class, Jvmti, Loader, MethodId, MethodName};

/// How the names of all classes of the agent begin.
const PACKAGE: &str = "Lnprof/shim/";
const BOOT_NAME: &CStr = c"nprof/shim/Binder";
/// Another name than in the boot loader: the one would hide the other from look-ups.
const PLATFORM_NAME: &CStr = c"nprof/shim/PlatformBinder";

/// A method that is to get an address.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) class: Class,
    pub(crate) name: CString,
    pub(crate) signature: CString,
    pub(crate) address: usize,
    /// Whether its class is of the platform loader.
    pub(crate) of_platform: bool,
}

/// The defined classes.
#[derive(Debug)]
pub(crate) struct Helpers {
    boot: Helper,
    platform: Option<(Loader, Helper)>,
}

// SAFETY: the references are global ones.
unsafe impl Send for Helpers {}
// SAFETY: as above.
unsafe impl Sync for Helpers {}

/// One of them.
#[derive(Debug, Clone, Copy)]
struct Helper {
    class: Class,
    run: MethodId,
}

/// Why there is no helper, or it does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The VM refused the class, or what it needs.
    #[error("the VM refuses the class nprof.shim.Binder")]
    Refused,
    /// Another thread is binding.
    #[error("methods are being bound already")]
    Busy,
}

/// Methods on their way through the VM.
struct Batch<'a> {
    bindings: &'a [&'a Binding],
    refused: Cell<usize>,
}

/// The address of the batch that `bind` is to be called with; zero for none. Java code could call `bind` with anything.
static EXPECTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static BINDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is binding methods for us: then the VM tells of what we know.
pub(crate) fn is_binding() -> bool {
    BINDING.get()
}

impl Helpers {
    /// Defines the classes, or finds them where they have been defined before.
    pub(crate) fn define(jni: Jni) -> Result<Self, Error> {
        let boot = Helper::define(jni, Loader::BOOT, BOOT_NAME).ok_or(Error::Refused)?;
        // Without it methods are bound all the same; only the VM is not quiet about it.
        let platform = jni.platform_loader().and_then(|loader| {
            let helper = Helper::define(jni, loader, PLATFORM_NAME)?;
            Some((jni.kept_loader(loader)?, helper))
        });
        Ok(Self { boot, platform })
    }

    /// Makes the classes' natives this agent's again: another copy of it, loaded by another name, may have made them
    /// its own.
    pub(crate) fn claim(&self, jni: Jni) -> Result<(), Error> {
        let platform = self.platform.is_none_or(|(_, helper)| helper.claim(jni));
        if self.boot.claim(jni) && platform { Ok(()) } else { Err(Error::Refused) }
    }

    /// Whether methods of a class are to be bound from the platform loader.
    pub(crate) fn is_of_platform(&self, jvmti: Jvmti, jni: Jni, class: Class) -> bool {
        let (Some((platform, _)), Ok(loader)) = (&self.platform, jvmti.loader_of(class)) else { return false };
        if loader == Loader::BOOT {
            return false;
        }
        let same = jni.is_same(*platform, loader);
        jni.forget_loader(loader);
        same
    }

    /// Binds methods, and tells how many the VM refused.
    pub(crate) fn bind(&self, jni: Jni, bindings: &[Binding]) -> Result<usize, Error> {
        let (platform, others): (Vec<&Binding>, Vec<&Binding>) =
            bindings.iter().partition(|binding| binding.of_platform && self.platform.is_some());
        let refused = self.boot.bind(jni, &others)?;
        match self.platform {
            Some((_, helper)) => Ok(refused + helper.bind(jni, &platform)?),
            None => Ok(refused),
        }
    }

    /// The class that [`Self::known`] and [`Self::unbound`] are of.
    pub(crate) fn class(&self) -> Class {
        self.boot.class
    }

    /// Two natives with the addresses that they have.
    pub(crate) fn known(&self, jni: Jni) -> Option<[(MethodId, usize); 2]> {
        let bind = jni.static_method(self.boot.class, c"bind", c"(J)V")?;
        let known = jni.static_method(self.boot.class, c"known", c"()V")?;
        Some([(bind, bind_address()), (known, known_address())])
    }

    /// A native that has none.
    pub(crate) fn unbound(&self, jni: Jni) -> Option<MethodId> {
        jni.static_method(self.boot.class, c"never", c"()V")
    }
}

impl Helper {
    fn define(jni: Jni, loader: Loader, name: &CStr) -> Option<Self> {
        let class = jni.define_class(loader, name, &class_file(name)).or_else(|| jni.find_class(name))?;
        let class = jni.kept(class)?;
        let helper = Self { class, run: jni.static_method(class, c"run", c"(J)V")? };
        helper.claim(jni).then_some(helper)
    }

    fn claim(self, jni: Jni) -> bool {
        jni.register(self.class, c"bind", c"(J)V", bind_address())
            && jni.register(self.class, c"known", c"()V", known_address())
    }

    fn bind(self, jni: Jni, bindings: &[&Binding]) -> Result<usize, Error> {
        if bindings.is_empty() {
            return Ok(0);
        }
        let batch = Batch { bindings, refused: Cell::new(bindings.len()) };
        let address = (&raw const batch).expose_provenance();
        if EXPECTED.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(Error::Busy);
        }
        jni.call_with_long(self.class, self.run, address.cast_signed() as jlong);
        EXPECTED.store(0, Ordering::Release);
        Ok(batch.refused.get())
    }
}

/// Whether a method is one of the agent's.
pub(crate) fn is_own(name: &MethodName) -> bool {
    let class = name.class.to_bytes();
    let is_hook = || class.strip_prefix(b"L").and_then(|class| class.strip_suffix(b";")) == Some(HOOK_CLASS.as_bytes());
    class.starts_with(PACKAGE.as_bytes()) || is_hook()
}

fn bind_address() -> usize {
    bind as *const () as usize
}

fn known_address() -> usize {
    known as *const () as usize
}

extern "system" fn known(_env: *mut JNIEnv, _class: jclass) {}

extern "system" fn bind(env: *mut JNIEnv, _class: jclass, batch: jlong) {
    let bind = || {
        // SAFETY: the VM passes the thread's environment to each native.
        let jni = unsafe { Jni::passed(env) }?;
        let address = usize::try_from(batch).ok().filter(|&address| address != 0)?;
        EXPECTED.compare_exchange(address, usize::MAX, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // SAFETY: `Helper::bind` waits for this call with a batch at this address: nobody else is expected, and this
        // one only once.
        let batch = unsafe { &*with_exposed_provenance::<Batch<'_>>(address) };
        BINDING.set(true);
        let is_refused =
            |binding: &&&Binding| !jni.register(binding.class, &binding.name, &binding.signature, binding.address);
        batch.refused.set(batch.bindings.iter().filter(is_refused).count());
        BINDING.set(false);
        Some(())
    };
    // What panicked is counted as refused; nothing may unwind into the VM.
    drop(catch_unwind(AssertUnwindSafe(bind)));
}

fn class_file(name: &CStr) -> Vec<u8> {
    let mut class = ClassFile::new(&name.to_string_lossy());
    for (name, signature) in [("bind", "(J)V"), ("known", "()V"), ("never", "()V")] {
        class.native_method(name, signature);
    }
    let bind = class.method_reference("bind", "(J)V");
    let [high, low] = bind.to_be_bytes();
    const LLOAD_0: u8 = 0x1e;
    const INVOKESTATIC: u8 = 0xb8;
    const RETURN: u8 = 0xb1;
    let bytes = [LLOAD_0, INVOKESTATIC, high, low, RETURN];
    class.static_method("run", "(J)V", &Code { stack: 2, locals: 2, bytes: &bytes });
    class.finish()
}
