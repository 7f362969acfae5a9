//! Tasks that one thread hands to another: methods of the JDK that make tasks and run them tell of that.
//!
//! Which task it is, is known exactly: the object is marked with a number (a tag of the VM's, which goes where the object goes, is freed with it, does
//! not keep it, and is no other agent's business). The thread that makes it tells the number if it is in an invocation. The one that runs it
//! keeps the number meanwhile, and tells it when it enters an entry method. Tasks within each other are kept in a stack, of which the innermost
//! counts, also if nobody has told of it: what a thread of a pool does has nothing to do with who started that.

use std::sync::atomic::{AtomicBool, Ordering};

use jvmti_bindings::sys::jni::{JNIEnv, jboolean, jclass, jint, jlong, jobject};
use nprof_common::tree::{EventKind, TASKS, TaskKind, is_task_of, task_number};

use super::record::{Told, with_thread};
use super::waits::Moment;
use crate::jvmti::Jvmti;

/// The marks of tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    jvmti: Jvmti,
    /// Whether any task has been marked in this run.
    are_any: AtomicBool,
}

impl Tasks {
    pub(super) fn new(jvmti: Jvmti) -> Self {
        Self { jvmti, are_any: AtomicBool::new(false) }
    }

    /// A run begins, or has ended: no task is marked.
    pub(super) fn forget(&self) {
        self.are_any.store(false, Ordering::Relaxed);
    }

    fn are_any(&self) -> bool {
        self.are_any.load(Ordering::Relaxed)
    }

    /// The number of a task, if it has one of this run; otherwise 0.
    fn number_of(&self, task: jobject, run: u32) -> u64 {
        if task.is_null() || !self.are_any() {
            return 0;
        }
        let number = self.jvmti.mark_of(task);
        if is_task_of(run, number) { number } else { 0 }
    }

    fn mark(&self, task: jobject, number: u64) -> bool {
        let is_marked = self.jvmti.mark(task, number).is_ok();
        if is_marked {
            self.are_any.store(true, Ordering::Relaxed);
        }
        is_marked
    }

    /// The number of the current thread, as a task.
    fn number_of_thread(&self, run: u32) -> u64 {
        if !self.are_any() {
            return 0;
        }
        // The reference ends with the native.
        self.jvmti.current_thread().map_or(0, |thread| self.number_of(thread.0, run))
    }
}

/// The natives, in the order of `hook`.
pub(super) fn addresses() -> [usize; 3] {
    [hands as *const () as usize, runs as *const () as usize, ran as *const () as usize]
}

extern "system" fn hands(
    env: *mut JNIEnv,
    _class: jclass,
    task: jobject,
    kind: jint,
    thread: jlong,
    is_virtual: jboolean,
) {
    let kind = TaskKind::of(kind.cast_unsigned().into());
    with_thread(env, thread, is_virtual, |told| told.hands(task, kind));
}

extern "system" fn runs(env: *mut JNIEnv, _class: jclass, task: jobject, thread: jlong, is_virtual: jboolean) {
    with_thread(env, thread, is_virtual, |told| told.runs(task));
}

extern "system" fn ran(env: *mut JNIEnv, _class: jclass, thread: jlong, is_virtual: jboolean) {
    with_thread(env, thread, is_virtual, |told| match told.is_virtual {
        None => {
            told.row.end_task();
            told.untold(TASKS);
        }
        Some(_) => told.write(TASKS, EventKind::Ends, || 0, told.moment()),
    });
}

impl Told {
    fn run(&self) -> u32 {
        self.trees.run.load(Ordering::Relaxed)
    }

    /// A task is made, which is of interest within an invocation. Where a virtual thread is, is not known.
    fn hands(&self, task: jobject, kind: TaskKind) {
        let row = self.row;
        let tasks = &self.trees.tasks;
        if self.is_virtual.is_none() && !row.is_told() {
            // One that was submitted before, and taken back.
            if kind == TaskKind::Again && tasks.number_of(task, self.run()) != 0 {
                tasks.mark(task, 0);
            }
            return self.untold(TASKS);
        }
        // A constructor may call another that tells.
        if kind != TaskKind::Again && tasks.number_of(task, self.run()) != 0 {
            return;
        }
        let number = task_number(self.run(), self.ring, row.next_task(), kind);
        if tasks.mark(task, number) {
            self.write(TASKS, EventKind::Handed, || number, self.moment());
        }
    }

    fn runs(&self, task: jobject) {
        let tasks = &self.trees.tasks;
        let number = tasks.number_of(task, self.run());
        if number != 0 && TaskKind::of(number) == TaskKind::Again {
            // It may be submitted by somebody who does not tell.
            tasks.mark(task, 0);
        }
        match self.is_virtual {
            None => {
                self.row.begin_task(number);
                self.untold(TASKS);
            }
            Some(_) => self.write(TASKS, EventKind::Begins, || number, self.moment()),
        }
    }

    /// An entry method has been entered, perhaps by a task of which somebody has told.
    #[inline]
    pub(super) fn comes_of_task(&self, method: u32, moment: Moment) {
        if self.trees.tasks.are_any() {
            let number = self.row.task(|| self.trees.tasks.number_of_thread(self.run()));
            if number != 0 {
                self.write(method, EventKind::Came, || number, moment);
            }
        }
    }

    /// The same in a virtual thread: of its tasks nprof knows, but not who started it.
    pub(super) fn comes_of_thread(&self, method: u32) {
        let number = self.trees.tasks.number_of_thread(self.run());
        if number != 0 {
            self.write(method, EventKind::Came, || number, self.moment());
        }
    }
}
