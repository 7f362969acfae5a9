//! The VM as a whole: threads that it does not know and their work in it, and what its library exports.

#![expect(unsafe_code, reason = "calls the VM")]

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::time::Duration;

use jvmti_bindings::sys::jni::{JNI_VERSION_1_6, JavaVM, JavaVMAttachArgs};

use crate::jni::Jni;

/// How often a VM is asked to take a thread, and how long is waited in between. One that has just told its agents that
/// it is there may refuse for a moment, and does not say when that is over.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// The VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vm(*mut JavaVM);

// SAFETY: the VM is there until the process ends, and what is called here may be called by any thread.
unsafe impl Send for Vm {}
// SAFETY: as above.
unsafe impl Sync for Vm {}

impl Vm {
    /// The VM that loads the agent.
    ///
    /// # Safety
    /// `vm` is the pointer that the VM gave the agent.
    pub(crate) unsafe fn new(vm: *mut JavaVM) -> Self {
        Self(vm)
    }

    /// Works in the VM with the current thread, which must not be one of the VM's, and leaves it again. `None` if the VM
    /// does not take the thread.
    pub(crate) fn visit<T>(self, work: impl FnOnce(Jni) -> T) -> Option<T> {
        let visit = self.enter()?;
        Some(work(visit.jni))
    }

    /// A variable that the VM's library exports.
    pub(crate) fn exported(self, name: &CStr) -> Option<*const c_void> {
        // Where it was not loaded for all to see, by the name of the file in which the VM's own variable is.
        symbol(libc::RTLD_DEFAULT, name).or_else(|| symbol(self.library()?, name))
    }

    /// Whether a function is in the VM's library.
    pub(crate) fn has_function(self, address: usize) -> bool {
        let of_vm = linked(self.0.addr());
        of_vm.zip(linked(address)).is_some_and(|(vm, function)| vm.dli_fbase == function.dli_fbase)
    }

    /// The VM's library, for the dynamic linker.
    fn library(self) -> Option<*mut c_void> {
        let file = linked(self.0.addr())?.dli_fname;
        // SAFETY: the linker's own name of what is loaded, or null for the program; with this flag nothing is loaded.
        let library = unsafe { libc::dlopen(file, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!library.is_null()).then_some(library)
    }

    fn enter(self) -> Option<Visit> {
        let attach = self.table().AttachCurrentThreadAsDaemon;
        let mut name = *b"nprof-shim\0";
        let mut arguments =
            JavaVMAttachArgs { version: JNI_VERSION_1_6, name: name.as_mut_ptr().cast(), group: null_mut() };
        let arguments = (&raw mut arguments).cast::<c_void>();
        for _ in 0..ATTEMPTS {
            let mut env = null_mut::<c_void>();
            // SAFETY: the VM is there; the variables are as the function wants them.
            let code = unsafe { attach(self.0, &raw mut env, arguments) };
            // SAFETY: the environment is that of this thread, until it leaves.
            if let (0, Some(jni)) = (code, unsafe { Jni::passed(env.cast()) }) {
                return Some(Visit { vm: self, jni });
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    fn table(self) -> &'static jvmti_bindings::sys::jni::JNIInvokeInterface_ {
        // SAFETY: the pointer is the VM's.
        let table = unsafe { *self.0 };
        // SAFETY: the VM's table of functions is constant.
        unsafe { &*table }
    }
}

/// What the dynamic linker knows of an address.
fn linked(address: usize) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is only looked for; the variable takes what is known of it.
    let found = unsafe { libc::dladdr(null::<c_void>().with_addr(address), info.as_mut_ptr()) };
    // SAFETY: all its fields may be zero.
    (found != 0).then(|| unsafe { info.assume_init() })
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*const c_void> {
    // SAFETY: the handle is the linker's; the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}

/// The stay of a thread in the VM. It ends also when the work panics: the VM would wait for ever for a thread that is
/// gone.
struct Visit {
    vm: Vm,
    jni: Jni,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let detach = self.vm.table().DetachCurrentThread;
        // SAFETY: this thread has been attached, and has no Java frames.
        unsafe { detach(self.vm.0) };
    }
}
