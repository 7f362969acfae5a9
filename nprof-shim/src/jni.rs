//! The functions of the VM's native interface that the agent uses.

#![expect(unsafe_code, reason = "calls the VM")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use jvmti_bindings::sys::jni::{
    JNI_VERSION_1_6, JNIEnv, JNINativeInterface_, JNINativeMethod, JavaVM, jint, jlong, jobject, jvalue,
};

use crate::jvmti::{Class, Loader, MethodId, Thread, raw};

/// More references than this no native may ask room for.
const MOST_REFERENCES: usize = 65_535;

/// The environment of the current thread; not to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jni {
    env: *mut JNIEnv,
}

/// Calls a function of the table with the environment and more arguments.
macro_rules! call {
    ($self:ident . $function:ident ( $($argument:expr),* )) => {{
        // SAFETY: the VM's table is constant; only this entry of it is read.
        let function = unsafe { (*$self.table()).$function };
        // SAFETY: the environment is this thread's; the arguments are references and ids that the VM gave, C strings,
        // and pointers to what the function reads.
        unsafe { function($self.env, $($argument),*) }
    }};
}

impl Jni {
    /// The environment that the VM passed to a native or to an event; `None` for none.
    ///
    /// # Safety
    /// `env` is null or of the current thread, and used only until the native or the event returns.
    pub(crate) unsafe fn passed(env: *mut JNIEnv) -> Option<Self> {
        (!env.is_null()).then_some(Self { env })
    }

    /// The environment of the current thread; `None` where the thread is not the VM's.
    ///
    /// # Safety
    /// `vm` is the pointer that the VM gave the agent.
    pub(crate) unsafe fn of(vm: *mut JavaVM) -> Option<Self> {
        let mut env = null_mut::<c_void>();
        // SAFETY: the caller's pointer is the VM's.
        let table = unsafe { *vm };
        // SAFETY: the VM's table of functions is constant.
        let get_env = unsafe { (*table).GetEnv };
        // SAFETY: the variable takes the pointer.
        let code = unsafe { get_env(vm, &raw mut env, JNI_VERSION_1_6) };
        (code == 0 && !env.is_null()).then_some(Self { env: env.cast() })
    }

    fn table(self) -> *const JNINativeInterface_ {
        // SAFETY: the environment is this thread's.
        unsafe { *self.env }
    }

    /// Defines a class in a loader. `None` if the VM refuses, for example because it is there.
    pub(crate) fn define_class(self, loader: Loader, name: &CStr, class_file: &[u8]) -> Option<Class> {
        let length = jint::try_from(class_file.len()).ok()?;
        let class = call!(self.DefineClass(name.as_ptr(), loader.0, class_file.as_ptr().cast::<i8>(), length));
        self.checked_class(class)
    }

    /// The loader of the JDK's classes that are not the VM's own; `None` where there is none (JDK 8).
    pub(crate) fn platform_loader(self) -> Option<Loader> {
        let class = self.find_class(c"java/lang/ClassLoader")?;
        let loader = self.static_object(class, c"getPlatformClassLoader", c"()Ljava/lang/ClassLoader;")?;
        Some(Loader(loader.0))
    }

    /// The object that a static method without arguments returns; `None` if there is none.
    pub(crate) fn static_object(self, class: Class, name: &CStr, signature: &CStr) -> Option<Class> {
        let getter = self.static_method(class, name, signature)?;
        let object = call!(self.CallStaticObjectMethodA(class.0, raw(getter), null()));
        self.checked_class(object)
    }

    /// Whether two references are to the same loader.
    pub(crate) fn is_same(self, one: Loader, other: Loader) -> bool {
        call!(self.IsSameObject(one.0, other.0)) != 0
    }

    /// A reference that is good in all threads, and until the process ends.
    pub(crate) fn kept(self, class: Class) -> Option<Class> {
        let kept = call!(self.NewGlobalRef(class.0));
        (!kept.is_null()).then_some(Class(kept))
    }

    /// As [`Self::kept`].
    pub(crate) fn kept_loader(self, loader: Loader) -> Option<Loader> {
        self.kept(Class(loader.0)).map(|kept| Loader(kept.0))
    }

    /// A class by its name; `None` if there is none.
    pub(crate) fn find_class(self, name: &CStr) -> Option<Class> {
        let class = call!(self.FindClass(name.as_ptr()));
        self.checked_class(class)
    }

    fn checked_class(self, class: jobject) -> Option<Class> {
        (!self.clear_exception() && !class.is_null()).then_some(Class(class))
    }

    /// A static method; `None` if there is none.
    pub(crate) fn static_method(self, class: Class, name: &CStr, signature: &CStr) -> Option<MethodId> {
        let id = call!(self.GetStaticMethodID(class.0, name.as_ptr(), signature.as_ptr()));
        (!self.clear_exception() && !id.is_null()).then_some(MethodId(id.addr()))
    }

    /// A method that is not static; `None` if there is none.
    pub(crate) fn method(self, class: Class, name: &CStr, signature: &CStr) -> Option<MethodId> {
        let id = call!(self.GetMethodID(class.0, name.as_ptr(), signature.as_ptr()));
        (!self.clear_exception() && !id.is_null()).then_some(MethodId(id.addr()))
    }

    /// Calls a method `(Ljava/lang/Object;J)J` of an object; `None` if it threw.
    pub(crate) fn call_with_object_and_long(
        self,
        object: Class,
        method: MethodId,
        argument: Class,
        number: jlong,
    ) -> Option<jlong> {
        let arguments = [jvalue { l: argument.0 }, jvalue { j: number }];
        let returned = call!(self.CallLongMethodA(object.0, raw(method), arguments.as_ptr()));
        (!self.clear_exception()).then_some(returned)
    }

    /// What a native is passed in its thread.
    pub(crate) fn raw(self) -> *mut JNIEnv {
        self.env
    }

    /// Calls a static method `(J)V`, and tells whether it threw nothing.
    pub(crate) fn call_with_long(self, class: Class, method: MethodId, argument: jlong) -> bool {
        let arguments = [jvalue { j: argument }];
        call!(self.CallStaticVoidMethodA(class.0, raw(method), arguments.as_ptr()));
        !self.clear_exception()
    }

    /// Binds a native method to an address, and tells whether the VM did so.
    pub(crate) fn register(self, class: Class, name: &CStr, signature: &CStr, address: usize) -> bool {
        let method = JNINativeMethod {
            name: name.as_ptr().cast::<c_char>(),
            signature: signature.as_ptr(),
            fnPtr: null::<c_void>().with_addr(address).cast_mut(),
        };
        let code = call!(self.RegisterNatives(class.0, &raw const method, 1));
        !self.clear_exception() && code == 0
    }

    /// A reference that is good in all threads, and does not keep the class from being unloaded. `None` without memory.
    pub(crate) fn weak(self, class: jobject) -> Option<jobject> {
        let weak = call!(self.NewWeakGlobalRef(class));
        if weak.is_null() {
            self.clear_exception();
            return None;
        }
        Some(weak)
    }

    /// Gives such a reference back.
    pub(crate) fn forget_weak(self, weak: jobject) {
        call!(self.DeleteWeakGlobalRef(weak));
    }

    /// What such a reference is to, by one that is to be forgotten; `None` if that is unloaded.
    pub(crate) fn local(self, weak: jobject) -> Option<Class> {
        let class = call!(self.NewLocalRef(weak));
        (!class.is_null()).then_some(Class(class))
    }

    /// The class of an object, by a reference that is good until the native returns.
    pub(crate) fn class_of(self, object: jobject) -> jobject {
        call!(self.GetObjectClass(object))
    }

    /// The class that a class extends, by a reference that is to be forgotten.
    pub(crate) fn superclass(self, class: Class) -> Option<Class> {
        let parent = call!(self.GetSuperclass(class.0));
        (!parent.is_null()).then_some(Class(parent))
    }

    /// Whether two references, of which one may be weak, are to the same class.
    #[inline]
    pub(crate) fn is_same_class(self, one: jobject, other: jobject) -> bool {
        call!(self.IsSameObject(one, other)) != 0
    }

    /// Asks for room for so many references more.
    pub(crate) fn ensure_room(self, references: usize) {
        let references = jint::try_from(references.min(MOST_REFERENCES)).unwrap_or(jint::MAX);
        // Without the room the VM goes on all the same; it would only say so with `-Xcheck:jni`.
        let _granted = call!(self.EnsureLocalCapacity(references));
        self.clear_exception();
    }

    /// Gives a reference back.
    pub(crate) fn forget(self, class: Class) {
        call!(self.DeleteLocalRef(class.0));
    }

    /// Gives a reference back.
    pub(crate) fn forget_loader(self, loader: Loader) {
        call!(self.DeleteLocalRef(loader.0));
    }

    /// Gives a reference back.
    pub(crate) fn forget_thread(self, thread: Thread) {
        call!(self.DeleteLocalRef(thread.0));
    }

    /// Clears what was thrown, and tells whether something was.
    fn clear_exception(self) -> bool {
        let thrown = call!(self.ExceptionCheck()) != 0;
        if thrown {
            call!(self.ExceptionClear());
        }
        thrown
    }
}
