//! The functions of the VM's tool interface that the agent uses, with results that are checked.
//!
//! Method ids and class references are the VM's own. A class reference is good until the native frame ends in which it
//! was given, or until it is deleted.

#![expect(unsafe_code, reason = "calls the VM")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use jvmti_bindings::mutf8;
use jvmti_bindings::sys::jni::{JNI_EDETACHED, JNINativeInterface_, JavaVM, jclass, jint, jmethodID, jobject, jthread};
use jvmti_bindings::sys::jvmti::{
    JVMTI_CLASS_STATUS_INITIALIZED, JVMTI_DISABLE, JVMTI_ENABLE, JVMTI_EVENT_CLASS_FILE_LOAD_HOOK,
    JVMTI_EVENT_NATIVE_METHOD_BIND, JVMTI_EVENT_THREAD_END, JVMTI_EVENT_VM_DEATH, JVMTI_EVENT_VM_INIT,
    JVMTI_PHASE_LIVE, JVMTI_PHASE_START, JVMTI_VERSION_1_2, jvmtiCapabilities, jvmtiEnv, jvmtiError, jvmtiEvent,
    jvmtiEventCallbacks, jvmtiInterface_1_, jvmtiPhase,
};

/// A method, as the VM names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MethodId(pub(crate) usize);

/// A reference to a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class(pub(crate) jclass);

/// A reference to a class loader; null for that of the VM's own classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loader(pub(crate) jobject);

/// A reference to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread(pub(crate) jthread);

impl Loader {
    /// The loader of the VM's own classes.
    pub(crate) const BOOT: Self = Self(null_mut());
}

/// What a method is called, in the VM's own encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MethodName {
    /// `Ljava/util/zip/CRC32;`.
    pub(crate) class: CString,
    /// `updateBytes0`.
    pub(crate) name: CString,
    /// `(I[BII)I`.
    pub(crate) signature: CString,
}

impl MethodName {
    /// The class's name with dots: `java.util.zip.CRC32`.
    pub(crate) fn dotted_class(&self) -> String {
        let class = mutf8::decode_cstr_lossy(&self.class);
        class.strip_prefix('L').and_then(|class| class.strip_suffix(';')).unwrap_or(&class).replace('/', ".")
    }
}

impl fmt::Display for MethodName {
    /// Class, method and signature, with tabs between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, signature] = [&self.name, &self.signature].map(|text| mutf8::decode_cstr_lossy(text));
        write!(f, "{}\t{name}\t{signature}", self.dotted_class())
    }
}

/// How long a VM may take to start from when it obeys requests, and how often it is looked.
const STARTED_WITHIN: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// The VM refused something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// A function of the tool interface returned an error.
    #[error("the VM's {function} failed with error {code}")]
    Refused {
        /// The function.
        function: &'static str,
        /// The VM's number for the reason.
        code: i32,
    },
    /// The VM has no such function.
    #[error("the VM has no {0}")]
    Missing(&'static str),
}

/// The agent's environment in the VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jvmti {
    env: *mut jvmtiEnv,
}

// SAFETY: the VM lets an environment be used from all of its threads.
unsafe impl Send for Jvmti {}
// SAFETY: as above.
unsafe impl Sync for Jvmti {}

/// Calls a function of the table with the environment and more arguments, and gives an `Error` with its name.
macro_rules! call {
    ($self:ident . $function:ident ( $($argument:expr),* )) => {{
        let function = $self.table().$function.ok_or(Error::Missing(stringify!($function)))?;
        // SAFETY: the environment is the VM's, and stays; the arguments are ids and references that it gave, and
        // pointers to variables of the types that it fills.
        let error = unsafe { function($self.env, $($argument),*) };
        check(error, stringify!($function))
    }};
}

impl Jvmti {
    /// Asks the VM for an environment.
    ///
    /// # Safety
    /// `vm` is the pointer that the VM gave the agent.
    pub(crate) unsafe fn of(vm: *mut JavaVM) -> Result<Self, Error> {
        let mut env = null_mut::<c_void>();
        // SAFETY: the caller's pointer is the VM's.
        let table = unsafe { *vm };
        // SAFETY: the VM's table of functions is constant.
        let get_env = unsafe { (*table).GetEnv };
        // SAFETY: the variable takes the pointer.
        let code = unsafe { get_env(vm, &raw mut env, JVMTI_VERSION_1_2) };
        if code != 0 || env.is_null() {
            return Err(Error::Refused { function: "GetEnv", code });
        }
        Ok(Self { env: env.cast() })
    }

    /// The same of a VM that runs, or is about to: until JDK 21 a VM that is starting obeys a request to load an agent, and has no
    /// environment for it before it has started. The thread that loads agents has nothing else to do.
    ///
    /// # Safety
    /// As [`Self::of`].
    pub(crate) unsafe fn of_running(vm: *mut JavaVM) -> Result<Self, Error> {
        let deadline = Instant::now() + STARTED_WITHIN;
        loop {
            // SAFETY: the caller's VM.
            match unsafe { Self::of(vm) } {
                Err(Error::Refused { code: JNI_EDETACHED, .. }) if Instant::now() < deadline => {
                    std::thread::sleep(STEP)
                }
                found => return found,
            }
        }
    }

    fn table(self) -> &'static jvmtiInterface_1_ {
        // SAFETY: the environment is never disposed of.
        let functions = unsafe { (*self.env).functions };
        // SAFETY: the table has had this size since JDK 11, and stays.
        unsafe { &*functions }
    }

    /// Asks for events of the VM's start and its end, and for the right to ask for all others that the agent uses.
    pub(crate) fn listen(self, callbacks: &jvmtiEventCallbacks) -> Result<(), Error> {
        let mut capabilities = jvmtiCapabilities::default();
        capabilities.set_can_generate_native_method_bind_events(true);
        call!(self.AddCapabilities(&raw const capabilities))?;
        let size = jint::try_from(size_of::<jvmtiEventCallbacks>()).unwrap_or(jint::MAX);
        call!(self.SetEventCallbacks(callbacks, size))?;
        for event in [JVMTI_EVENT_VM_INIT, JVMTI_EVENT_VM_DEATH] {
            self.notice(event, true)?;
        }
        Ok(())
    }

    /// Turns events of bound methods on or off.
    pub(crate) fn notice_binds(self, wanted: bool) -> Result<(), Error> {
        self.notice(JVMTI_EVENT_NATIVE_METHOD_BIND, wanted)
    }

    /// Turns events of threads that end on or off.
    pub(crate) fn notice_thread_ends(self, wanted: bool) -> Result<(), Error> {
        self.notice(JVMTI_EVENT_THREAD_END, wanted)
    }

    /// Turns events of class files that are shown on or off.
    pub(crate) fn notice_class_files(self, wanted: bool) -> Result<(), Error> {
        self.notice(JVMTI_EVENT_CLASS_FILE_LOAD_HOOK, wanted)
    }

    /// Asks for the right to change classes. It costs nothing to have.
    pub(crate) fn may_retransform(self) -> Result<(), Error> {
        let mut capabilities = jvmtiCapabilities::default();
        capabilities.set_can_retransform_classes(true);
        call!(self.AddCapabilities(&raw const capabilities))
    }

    /// Asks for the right to mark objects. It costs nothing to have.
    pub(crate) fn may_mark(self) -> Result<(), Error> {
        let mut capabilities = jvmtiCapabilities::default();
        capabilities.set_can_tag_objects(true);
        call!(self.AddCapabilities(&raw const capabilities))
    }

    /// Marks an object with a number, until it is collected. The VM keeps the marks of each agent apart.
    pub(crate) fn mark(self, object: jobject, number: u64) -> Result<(), Error> {
        call!(self.SetTag(object, number.cast_signed()))
    }

    /// What an object is marked with; 0 if with nothing.
    pub(crate) fn mark_of(self, object: jobject) -> u64 {
        let mut number = 0;
        let _zero_if_refused = (|| call!(self.GetTag(object, &raw mut number)))();
        number.cast_unsigned()
    }

    /// Has the VM make classes anew from their files, which agents may change.
    pub(crate) fn retransform(self, classes: &[Class]) -> Result<(), Error> {
        let classes: Vec<jclass> = classes.iter().map(|class| class.0).collect();
        let count = jint::try_from(classes.len()).unwrap_or(0);
        call!(self.RetransformClasses(count, classes.as_ptr()))
    }

    /// Memory that the VM frees, with these bytes; null if there is none.
    pub(crate) fn allocated(self, bytes: &[u8]) -> *mut u8 {
        let mut memory = null_mut();
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let allocated = (|| call!(self.Allocate(size, &raw mut memory)))();
        if allocated.is_err() || memory.is_null() {
            return null_mut();
        }
        // SAFETY: the VM has just allocated as many bytes.
        unsafe { memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        memory
    }

    /// Whether the VM lets a class be changed.
    pub(crate) fn is_modifiable(self, class: Class) -> bool {
        let mut modifiable = 0;
        let asked = (|| call!(self.IsModifiableClass(class.0, &raw mut modifiable)))();
        asked.is_ok() && modifiable != 0
    }

    /// The name of a class as a descriptor.
    pub(crate) fn signature_of(self, class: Class) -> Result<Vec<u8>, Error> {
        let mut name = null_mut();
        call!(self.GetClassSignature(class.0, &raw mut name, null_mut()))?;
        Ok(self.taken_text(name).into_bytes())
    }

    /// The access flags of a class.
    pub(crate) fn modifiers_of(self, class: Class) -> Result<u32, Error> {
        let mut modifiers = 0;
        call!(self.GetClassModifiers(class.0, &raw mut modifiers))?;
        Ok(modifiers.cast_unsigned())
    }

    /// The interfaces that a class names, by references that are to be forgotten; an error for one that is not prepared yet.
    pub(crate) fn interfaces_of(self, class: Class) -> Result<Vec<Class>, Error> {
        let (mut count, mut interfaces) = (0, null_mut());
        call!(self.GetImplementedInterfaces(class.0, &raw mut count, &raw mut interfaces))?;
        Ok(self.taken(interfaces, count).into_iter().map(Class).collect())
    }

    /// A number that stays with an object.
    pub(crate) fn hash_of(self, object: jobject) -> jint {
        let mut hash = 0;
        let _zero_if_refused = (|| call!(self.GetObjectHashCode(object, &raw mut hash)))();
        hash
    }

    fn notice(self, event: jvmtiEvent, wanted: bool) -> Result<(), Error> {
        let mode = if wanted { JVMTI_ENABLE } else { JVMTI_DISABLE };
        call!(self.SetEventNotificationMode(mode, event, null_mut()))
    }

    /// Whether methods can be asked for their names.
    pub(crate) fn knows_names(self) -> bool {
        matches!(self.phase(), Ok(JVMTI_PHASE_START | JVMTI_PHASE_LIVE))
    }

    fn phase(self) -> Result<jvmtiPhase, Error> {
        let mut phase = 0;
        call!(self.GetPhase(&raw mut phase))?;
        Ok(phase)
    }

    /// The calling thread, by a reference that is to be forgotten.
    pub(crate) fn current_thread(self) -> Result<Thread, Error> {
        let mut thread = null_mut();
        call!(self.GetCurrentThread(&raw mut thread))?;
        Ok(Thread(thread))
    }

    /// Has all threads come to a safepoint: what any of them was in the middle of within the VM is done when this returns.
    pub(crate) fn pass_safepoint(self, thread: Thread) -> Result<(), Error> {
        // For two threads, be they the same one, the VM stops all; for a single one it would stop only that.
        let (threads, mut traces) = ([thread.0; 2], null_mut());
        let passed = call!(self.GetThreadListStackTraces(2, threads.as_ptr(), 1, &raw mut traces));
        self.free(traces.cast());
        passed
    }

    /// All classes that are loaded.
    pub(crate) fn loaded_classes(self) -> Result<Vec<Class>, Error> {
        let (mut count, mut classes) = (0, null_mut());
        call!(self.GetLoadedClasses(&raw mut count, &raw mut classes))?;
        Ok(self.taken(classes, count).into_iter().map(Class).collect())
    }

    /// The native methods of a class; an error for one that is not prepared yet.
    pub(crate) fn native_methods(self, class: Class) -> Result<Vec<MethodId>, Error> {
        let (mut count, mut methods) = (0, null_mut());
        call!(self.GetClassMethods(class.0, &raw mut count, &raw mut methods))?;
        let methods = self.taken(methods, count).into_iter().map(|id| MethodId(id.addr()));
        Ok(methods.filter(|&id| self.is_native(id)).collect())
    }

    /// The methods that a class declares: modifiers, name and descriptor; an error for one that is not prepared yet.
    pub(crate) fn methods_of(self, class: Class) -> Result<Vec<(u32, CString, CString)>, Error> {
        let (mut count, mut methods) = (0, null_mut());
        call!(self.GetClassMethods(class.0, &raw mut count, &raw mut methods))?;
        let methods = self.taken(methods, count).into_iter();
        Ok(methods.filter_map(|id| self.method_of(MethodId(id.addr())).ok()).collect())
    }

    fn method_of(self, id: MethodId) -> Result<(u32, CString, CString), Error> {
        let (mut modifiers, mut name, mut signature) = (0, null_mut(), null_mut());
        call!(self.GetMethodModifiers(raw(id), &raw mut modifiers))?;
        call!(self.GetMethodName(raw(id), &raw mut name, &raw mut signature, null_mut()))?;
        Ok((modifiers.cast_unsigned(), self.taken_text(name), self.taken_text(signature)))
    }

    fn is_native(self, id: MethodId) -> bool {
        let mut native = 0;
        let asked = (|| call!(self.IsMethodNative(raw(id), &raw mut native)))();
        asked.is_ok() && native != 0
    }

    /// The class of a method.
    pub(crate) fn class_of(self, id: MethodId) -> Result<Class, Error> {
        let mut class = null_mut();
        call!(self.GetMethodDeclaringClass(raw(id), &raw mut class))?;
        Ok(Class(class))
    }

    /// The loader of a class, by a reference that is to be forgotten.
    pub(crate) fn loader_of(self, class: Class) -> Result<Loader, Error> {
        let mut loader = null_mut();
        call!(self.GetClassLoader(class.0, &raw mut loader))?;
        Ok(Loader(loader))
    }

    /// What a method of this class is called.
    pub(crate) fn name_of(self, class: Class, id: MethodId) -> Result<MethodName, Error> {
        let (mut owner, mut name, mut signature) = (null_mut(), null_mut(), null_mut());
        call!(self.GetClassSignature(class.0, &raw mut owner, null_mut()))?;
        let class = self.taken_text(owner);
        call!(self.GetMethodName(raw(id), &raw mut name, &raw mut signature, null_mut()))?;
        Ok(MethodName { class, name: self.taken_text(name), signature: self.taken_text(signature) })
    }

    /// Whether a class is initialised. It stays so then. Arrays and primitive types never are.
    pub(crate) fn is_initialized(self, class: jclass) -> bool {
        let mut status = 0;
        let asked = (|| call!(self.GetClassStatus(class, &raw mut status)))();
        asked.is_ok() && status & JVMTI_CLASS_STATUS_INITIALIZED != 0
    }

    /// A copy of the VM's table of JNI functions as it is now.
    pub(crate) fn function_table(self) -> Result<FunctionTable, Error> {
        let mut table = null_mut();
        call!(self.GetJNIFunctionTable(&raw mut table))?;
        Ok(FunctionTable { jvmti: self, table })
    }

    /// A copy of an array that the VM allocated, which is freed.
    fn taken<T: Copy>(self, array: *mut T, length: jint) -> Vec<T> {
        let length = usize::try_from(length).unwrap_or(0);
        if array.is_null() || length == 0 {
            return Vec::new();
        }
        // SAFETY: the VM has just filled as many elements.
        let copy = unsafe { std::slice::from_raw_parts(array, length) }.to_vec();
        self.free(array.cast());
        copy
    }

    /// A copy of a string that the VM allocated, which is freed.
    fn taken_text(self, text: *mut c_char) -> CString {
        if text.is_null() {
            return CString::default();
        }
        // SAFETY: the VM has just given this C string.
        let copy = unsafe { CStr::from_ptr(text) }.to_owned();
        self.free(text.cast());
        copy
    }

    fn free(self, memory: *mut u8) {
        if let Some(deallocate) = self.table().Deallocate {
            // SAFETY: the VM allocated it, and nothing points to it any more. An error would mean that it is not the
            // VM's; then it must stay.
            unsafe { deallocate(self.env, memory) };
        }
    }
}

/// A copy of the VM's table of JNI functions.
#[derive(Debug)]
pub(crate) struct FunctionTable {
    jvmti: Jvmti,
    table: *mut JNINativeInterface_,
}

impl FunctionTable {
    fn place(&self, number: usize) -> *mut usize {
        self.table.cast::<usize>().wrapping_add(number)
    }

    /// The function at a place that the table of this VM has.
    pub(crate) fn at(&self, place: usize) -> usize {
        // SAFETY: in the copy, which is ours.
        unsafe { self.place(place).read() }
    }

    /// Puts another there.
    pub(crate) fn set(&mut self, place: usize, function: usize) {
        // SAFETY: in the copy, which is ours.
        unsafe { self.place(place).write(function) };
    }

    /// Makes the copy the VM's table.
    pub(crate) fn write(self) -> Result<(), Error> {
        let (jvmti, table) = (self.jvmti, self.table.cast_const());
        call!(jvmti.SetJNIFunctionTable(table))
    }
}

impl Drop for FunctionTable {
    fn drop(&mut self) {
        self.jvmti.free(self.table.cast());
    }
}

/// The id as the VM takes it.
pub(crate) fn raw(id: MethodId) -> jmethodID {
    null::<c_void>().with_addr(id.0).cast_mut()
}

fn check(error: jvmtiError, function: &'static str) -> Result<(), Error> {
    if error == jvmtiError::NONE { Ok(()) } else { Err(Error::Refused { function, code: error.raw() }) }
}
