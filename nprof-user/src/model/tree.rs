//! Invocations of chosen methods: what is chosen, what was left out, and what threads tell of entering and leaving.

use super::SharedStr;

/// What a node of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeKind {
    /// A Java method, which tells of itself.
    Java,
    /// A native method, of which the chosen methods tell that call it, or which is seen by itself.
    Native,
    /// A Java method that the VM may put code of its own in the place of, so that it cannot tell of itself: as a native one.
    Intrinsic,
    /// A JNI function that a native method calls.
    Jni(JniStep),
}

/// What a JNI function is for, as the layers of a native method's calls show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JniStep {
    /// It gives something that is to be let go.
    Creation,
    /// It lets something go.
    Release,
    /// Anything else.
    Call,
}

/// A method that trees can have as a node. Its place in [`TreePlan::methods`] is its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeMethod {
    /// The class, dotted: `com.acme.Svc$Inner`.
    pub class: SharedStr,
    /// The method's name, `<init>` for a constructor.
    pub method: SharedStr,
    /// The JVM descriptor.
    pub signature: SharedStr,
    /// Of a JNI function that calls Java, the method that it calls, with its descriptor: `com.acme.Svc::get(I)V`.
    pub callee: Option<SharedStr>,
    /// What it is.
    pub kind: TreeKind,
    /// Whether a tree begins where it is entered.
    pub is_entry: bool,
    /// How many calls it is away from the nearest entry method; 0 for these.
    pub depth: u32,
    /// From where chosen methods may call it: the caller's number and the lines of its source, in order, without repetition.
    pub callers: Vec<TreeCaller>,
}

/// A chosen method that may call another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeCaller {
    /// The caller's number.
    pub method: u32,
    /// The lines of the calls; empty where its class has none.
    pub lines: Vec<u16>,
}

/// What will be enhanced, and what will not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreePlan {
    /// The methods, entry methods first.
    pub methods: Vec<TreeMethod>,
    /// What was left out.
    pub left_out: Vec<LeftOut>,
    /// The limit that ended the search before the depth did.
    pub limit: Option<String>,
    /// Methods of the JDK that are changed as well, so that tasks are known again where they are run: `java.util.concurrent.FutureTask::run()V`.
    pub for_tasks: Vec<String>,
    /// Whether the VM drops all code that it has compiled when these methods are enhanced, and not just that of their classes.
    pub drops_code: bool,
}

/// A method, or a call that leads nowhere known, that is no node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// `com.acme.Svc::get(I)V`, or what is called where that is no method.
    pub what: String,
    /// Why.
    pub why: LeftOutReason,
}

/// Why something is no node of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutReason {
    /// Its class is in none of the packages that were asked for.
    Package,
    /// It is deeper than was asked for.
    Depth,
    /// It has no code: abstract.
    Abstract,
    /// Called by reflection or a method handle: what that calls is not known before.
    Reflection,
    /// Its class is not loaded, or not used, yet.
    NotLoaded,
    /// A native or intrinsic method that is called where another one may be meant: the call is of a method that others override.
    Ambiguous,
    /// The VM does not let its class be changed.
    Unmodifiable,
    /// What enhanced methods call needs it itself.
    Reserved,
    /// Its class file cannot be changed, for this reason.
    ClassFile(String),
    /// A limit was reached before.
    Limit,
}

/// A thread of Java's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeThread {
    /// A platform thread, by its id in the kernel.
    Platform(u32),
    /// One in a container that had ended before its id on the host was known, by the one that it had there: another thread may have the same on
    /// the host.
    Contained(u32),
    /// A virtual thread, by `Thread::threadId`.
    Virtual(u64),
}

/// A call that has ended, among those of its thread: told by whoever sees it end, the innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedCall {
    /// Which thread.
    pub thread: TreeThread,
    /// When it began, in nanoseconds of the kernel's monotonic clock.
    pub start_ns: u64,
    /// How long it took.
    pub time_ns: u64,
    /// Of which method: its number.
    pub method: u32,
    /// How many calls it was in.
    pub depth: u32,
    /// How many calls within it could not be told.
    pub lost: u64,
    /// The number of the class of the exception that was pending at its end.
    pub exception: Option<u32>,
}

/// What a thread tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEventKind {
    /// It has entered a method.
    Enter,
    /// It has left one normally.
    Return,
    /// It has left one by an exception of the class with this number.
    Throw {
        /// The number.
        exception: u32,
    },
    /// So many events before this one are missing: there was no room for them.
    Lost(u64),
    /// Since what it told last it has not been running for so many nanoseconds. `None` comes behind the entry into an entry method: that will not be
    /// known until it is left.
    Waited(Option<u64>),
    /// Since what it told last this counter of its has grown by so much.
    Consumed {
        /// The number of the counter ([`nprof_common::Counter`]), below that of those of threads.
        counter: u32,
        /// By how much.
        amount: u64,
    },
    /// So many whole calls within the innermost open one are missing.
    LostWithin(u64),
    /// It has made the task with this number, which another thread may run.
    Hands(u64),
    /// Behind the entry into an entry method: it is part of the task with this number.
    Comes(u64),
}

/// One thing that a thread tells. Those of one thread come in the order in which they happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeEvent {
    /// Which thread.
    pub thread: TreeThread,
    /// When, in nanoseconds of the kernel's monotonic clock.
    pub at_ns: u64,
    /// Of which method: its number.
    pub method: u32,
    /// What.
    pub kind: TreeEventKind,
}
