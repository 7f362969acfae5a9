//! The class that enhanced methods call.
//!
//! ```java
//! package java.lang;
//! public final class NprofTree {
//!     public static void enter(int number) {
//!         Thread thread = Thread.currentThread();                           // from JDK 21 on; before, the natives get 0 and false
//!         enter(number, thread.threadId(), thread.isVirtual());
//!     }
//!     public static void leave(int number) { ... }
//!     public static void threw(Throwable thrown, int number) { ... }
//!     public static void hands(Object task, int kind) { ... }
//!     public static void runs(Object task) { ... }
//!     public static void ran() { ... }
//!     static native void enter(int number, long thread, boolean isVirtual);
//!     ...                                                               // and so on: the same, and the thread
//! }
//! ```
//!
//! It is in `java.lang`, so that each module reads it and each loader finds it: the VM lets the boot loader have it there.
//!
//! # Where the stack ends
//! A beginning that is told and an end that finds no room would leave a thread in a method, or with a task, that it has left long ago. So the hooks
//! for beginnings take more of the stack than those for ends ([`BEGINS`]): where they do not fit, they tell nothing, and the method that calls them ends by the same
//! `StackOverflowError` as if it had overflowed itself.

use std::ffi::CString;
use std::sync::OnceLock;

use nprof_common::tree::{ENTER, HANDS, HOOK_CLASS, LEAVE, RAN, RUNS, THREW};

use super::{Error, record, tasks};
use crate::agent::Agent;
use crate::class_file::{ClassFile, Code};
use crate::helper::Binding;
use crate::jni::Jni;
use crate::jvmti::{Class, Loader};

/// The methods, the descriptors of their natives, and what loads the arguments.
const HOOKS: [((&str, &str), &str, &[u8]); 6] = [
    (ENTER, "(IJZ)V", &[ILOAD_0]),
    (LEAVE, "(IJZ)V", &[ILOAD_0]),
    (THREW, "(Ljava/lang/Throwable;IJZ)V", &[ALOAD_0, ILOAD_1]),
    (HANDS, "(Ljava/lang/Object;IJZ)V", &[ALOAD_0, ILOAD_1]),
    (RUNS, "(Ljava/lang/Object;JZ)V", &[ALOAD_0]),
    (RAN, "(JZ)V", &[]),
];

/// The hooks for beginnings.
const BEGINS: [&str; 2] = [ENTER.0, RUNS.0];
/// What they have more than those for ends, in words: locals, which take room where the hook is interpreted; and depth of the operand stack, which takes none,
/// but the VM looks as far ahead in code that it compiles as would be taken if that had to be interpreted from there on. It only does if that is more than
/// a page. A method that was compiled when it began and is interpreted when it ends has less room than before: by the size of its frame.
const LOCALS_MORE: u16 = 64;
const STACK_MORE: u16 = 560;

const LCONST_0: u8 = 0x09;
const ICONST_0: u8 = 0x03;
const ILOAD_0: u8 = 0x1a;
const ILOAD_1: u8 = 0x1b;
const ALOAD_0: u8 = 0x2a;
const DUP: u8 = 0x59;
const ALOAD_2: u8 = 0x2c;
const ASTORE_2: u8 = 0x4d;
const INVOKE_VIRTUAL: u8 = 0xb6;
const INVOKE_STATIC: u8 = 0xb8;
const RETURN: u8 = 0xb1;

/// Defines it, or finds it where it has been defined before, and binds its natives. Once: each binding would cost the VM memory.
pub(super) fn define(agent: &Agent, jni: Jni) -> Result<(), Error> {
    static DEFINED: OnceLock<()> = OnceLock::new();
    if DEFINED.get().is_some() {
        return Ok(());
    }
    let name = CString::new(HOOK_CLASS).map_err(|_nul| Error::Hook)?;
    let has_virtual = has_virtual_threads(jni);
    let class = jni.define_class(Loader::BOOT, &name, &class_file(has_virtual)).or_else(|| jni.find_class(&name));
    let class = class.and_then(|class| jni.kept(class)).ok_or(Error::Hook)?;
    let addresses = record::addresses().into_iter().chain(tasks::addresses());
    let bindings: Vec<Binding> = HOOKS
        .into_iter()
        .zip(addresses)
        .filter_map(|(((name, _), signature, _), address)| binding(class, name, signature, address))
        .collect();
    if agent.helpers(jni)?.bind(jni, &bindings)? > 0 {
        return Err(Error::Hook);
    }
    DEFINED.get_or_init(|| ());
    Ok(())
}

fn binding(class: Class, name: &str, signature: &str, address: usize) -> Option<Binding> {
    let [name, signature] = [name, signature].map(CString::new);
    Some(Binding { class, name: name.ok()?, signature: signature.ok()?, address, of_platform: false })
}

fn has_virtual_threads(jni: Jni) -> bool {
    let Some(thread) = jni.find_class(c"java/lang/Thread") else { return false };
    let has = jni.method(thread, c"isVirtual", c"()Z").is_some() && jni.method(thread, c"threadId", c"()J").is_some();
    jni.forget(thread);
    has
}

fn class_file(has_virtual: bool) -> Vec<u8> {
    let mut class = ClassFile::public(HOOK_CLASS);
    for ((name, public), signature, loads) in HOOKS {
        class.native_method(name, signature);
        let mut bytes = loads.to_vec();
        if has_virtual {
            const THREAD: &str = "java/lang/Thread";
            let mut call = |opcode: u8, name: &str, signature: &str| {
                let [high, low] = class.reference(THREAD, name, signature).to_be_bytes();
                [opcode, high, low]
            };
            bytes.extend(call(INVOKE_STATIC, "currentThread", "()Ljava/lang/Thread;"));
            bytes.extend([DUP, ASTORE_2]);
            bytes.extend(call(INVOKE_VIRTUAL, "threadId", "()J"));
            bytes.push(ALOAD_2);
            bytes.extend(call(INVOKE_VIRTUAL, "isVirtual", "()Z"));
        } else {
            bytes.extend([LCONST_0, ICONST_0]);
        }
        let [high, low] = class.method_reference(name, signature).to_be_bytes();
        bytes.extend([INVOKE_STATIC, high, low, RETURN]);
        let (stack, locals) = if BEGINS.contains(&name) { (STACK_MORE, LOCALS_MORE) } else { (0, 0) };
        class.public_static_method(name, public, &Code { stack: 5 + stack, locals: 3 + locals, bytes: &bytes });
    }
    class.finish()
}
