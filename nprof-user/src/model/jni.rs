//! JNI functions: what they are for, and what is looked at when they are called.

mod callers;
mod held;
mod locals;
mod table;

use std::iter::Sum;

use nprof_common::{JniCallee, JniCalls, JniKind};

use self::table::TABLE;
use super::{JniResource, Method, MethodSnapshot, Resources, Snapshot};
pub use callers::{Estimate, JavaName, JniCaller, JniCallers};
pub use held::{JniCallPath, JniHeldGroup, JniHeldSnapshot};
pub use locals::{JniLocalsSnapshot, LocalsBeyond, LocalsKnown};

/// What JNI functions are shown as methods of.
pub const CLASS: &str = "JNIEnv";

/// How many places the table has before the version that made it longer.
const LENGTHS: [(u32, usize); 3] = [(19, 234), (24, 235), (u32::MAX, TABLE.len())];

/// The functions of a VM of this version of Java, with their places in its table.
pub fn jni_functions(version: u32) -> impl Iterator<Item = (usize, &'static str)> {
    let length = LENGTHS.iter().find(|(before, _)| version < *before).map_or(TABLE.len(), |(_, length)| *length);
    TABLE[..length].iter().enumerate().filter(|(_, name)| !name.is_empty()).map(|(place, name)| (place, *name))
}

/// What functions are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JniFamily {
    /// Classes, methods and fields by their names.
    LookUps,
    /// Java methods and constructors.
    Calls,
    /// Fields of objects and classes.
    Fields,
    /// Arrays: their elements and lengths.
    Arrays,
    /// Strings.
    Strings,
    /// Critical sections.
    Critical,
    /// References: made, let go, compared.
    References,
    /// Exceptions: thrown, asked for, cleared.
    Exceptions,
    /// Locks of objects.
    Monitors,
    /// Direct buffers.
    Buffers,
    /// Everything else.
    Other,
}

impl JniFamily {
    /// What a function is for.
    #[must_use]
    pub fn of(function: &str) -> Self {
        let has = |part: &str| function.contains(part);
        match kind(function) {
            JniKind::Member | JniKind::Class => return Self::LookUps,
            JniKind::Enters | JniKind::Leaves => return Self::Critical,
            _ => {}
        }
        match function {
            _ if function.starts_with("Call") => Self::Calls,
            "NewObject" | "NewObjectV" | "NewObjectA" | "AllocObject" => Self::Calls,
            _ if has("Exception") || function.starts_with("Throw") || function == "FatalError" => Self::Exceptions,
            _ if function.ends_with("Field") && !has("Reflected") => Self::Fields,
            _ if has("Array") => Self::Arrays,
            _ if has("String") => Self::Strings,
            _ if has("Ref") && !has("Reflected") || has("Local") || function == "IsSameObject" => Self::References,
            _ if has("Monitor") => Self::Monitors,
            _ if has("Direct") => Self::Buffers,
            _ => Self::Other,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LookUps => "look-ups",
            Self::Calls => "calls",
            Self::Fields => "fields",
            Self::Arrays => "arrays",
            Self::Strings => "strings",
            Self::Critical => "critical",
            Self::References => "references",
            Self::Exceptions => "exceptions",
            Self::Monitors => "monitors",
            Self::Buffers => "buffers",
            Self::Other => "other",
        }
    }
}

/// What is looked at when a function is called.
#[must_use]
pub fn kind(function: &str) -> JniKind {
    match function {
        "GetMethodID" | "GetStaticMethodID" | "GetFieldID" | "GetStaticFieldID" => JniKind::Member,
        "FindClass" => JniKind::Class,
        "ExceptionClear" => JniKind::Clears,
        "GetPrimitiveArrayCritical" | "GetStringCritical" => JniKind::Enters,
        "ReleasePrimitiveArrayCritical" | "ReleaseStringCritical" => JniKind::Leaves,
        "DeleteLocalRef" | "DeleteGlobalRef" | "DeleteWeakGlobalRef" => JniKind::LetsGo,
        "ReleaseStringChars" | "ReleaseStringUTFChars" => JniKind::LetsGo,
        _ if function.starts_with("Release") => JniKind::LetsElementsGo,
        "NewDirectByteBuffer" => JniKind::MakesBuffer,
        "PushLocalFrame" => JniKind::PushesFrame,
        "PopLocalFrame" => JniKind::PopsFrame,
        "EnsureLocalCapacity" => JniKind::MakesRoom,
        _ if JniResource::made_by(function).is_some() => JniKind::Makes,
        _ => JniKind::Plain,
    }
}

/// Which argument of a function is the id of the Java method that it calls.
#[must_use]
pub fn callee(function: &str) -> JniCallee {
    match function {
        _ if function.starts_with("CallNonvirtual") => JniCallee::Fourth,
        _ if function.starts_with("Call") => JniCallee::Third,
        "NewObject" | "NewObjectV" | "NewObjectA" => JniCallee::Third,
        _ => JniCallee::Nothing,
    }
}

/// The calls of one JNI function by one native method, without what probes have put into their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JniUse {
    /// The place of the method in [`Snapshot::methods`]; `None` for calls that no traced native method has made.
    pub method: Option<usize>,
    /// The place of the function there.
    pub function: usize,
    /// The sums.
    pub calls: JniCalls,
    /// How far the time of a call may be off, in nanoseconds: what the probes put into it is known no better.
    pub error_ns: u64,
}

impl JniUse {
    /// The time in it, without traced native methods that were called meanwhile, in nanoseconds.
    #[must_use]
    pub fn self_ns(&self) -> u64 {
        self.calls.total_ns.saturating_sub(self.calls.child_ns)
    }

    /// Of this, the time that the threads were running.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.self_ns().saturating_sub(self.calls.off_ns)
    }
}

/// The calls of one Java method by one native method, by one JNI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniCallback {
    /// The calls.
    pub made: JniUse,
    /// The Java method as native code has named it: of an object of a class below, the method that overrides it is the one that runs.
    /// `None` of those of which it is not known.
    pub java: Option<Method>,
}

/// Critical sections that a native method has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalSections {
    /// As in [`JniUse`].
    pub method: Option<usize>,
    /// How many have ended. Those within others are a part of them.
    pub sections: u64,
    /// How long they lasted together, in nanoseconds.
    pub total_ns: u64,
    /// How long the longest did.
    pub longest_ns: u64,
}

/// Collections that waited for the end of critical sections, the last of which a native method had held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectionWaits {
    /// As in [`JniUse`].
    pub method: Option<usize>,
    /// How many have waited and begun.
    pub collections: u64,
    /// How long they waited together, in nanoseconds.
    pub total_ns: u64,
    /// How long the one did that waited longest.
    pub longest_ns: u64,
}

impl CollectionWaits {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            method: self.method,
            collections: self.collections + other.collections,
            total_ns: self.total_ns.saturating_add(other.total_ns),
            longest_ns: self.longest_ns.max(other.longest_ns),
        }
    }
}

/// Direct buffers that a native method has made of memory of its own. The collector lets go of them, and nobody of the memory but who
/// has got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuffersMade {
    /// As in [`JniUse`].
    pub method: Option<usize>,
    /// How many.
    pub buffers: u64,
    /// The bytes of all of them.
    pub bytes: u64,
    /// The bytes of the largest.
    pub largest_bytes: u64,
}

/// Whether collections wait for the end of critical sections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CollectionsWait {
    /// They may, and it is not known how long they did.
    #[default]
    Perhaps,
    /// Not with this collector: it leaves alone what critical sections are about.
    Never,
    /// They do, and these have; in no order.
    For(Vec<CollectionWaits>),
}

impl CollectionsWait {
    /// All that have waited, whoever held them up; `None` where that is not known.
    #[must_use]
    pub fn all(&self) -> Option<CollectionWaits> {
        match self {
            Self::Perhaps => None,
            Self::Never => Some(CollectionWaits::default()),
            Self::For(waits) => Some(waits.iter().copied().fold(CollectionWaits::default(), CollectionWaits::and)),
        }
    }
}

/// What native code has asked of one VM.
#[derive(Debug, Clone, PartialEq)]
pub struct JniSnapshot {
    /// Everything that was measured: native methods, and JNI functions (of [`super::Bound::JniFunction`]) in the same list.
    pub snapshot: Snapshot,
    /// Who has called which function; in no order.
    pub uses: Vec<JniUse>,
    /// Of functions that call Java, the same by Java method; in no order.
    pub callbacks: Vec<JniCallback>,
    /// The critical sections; in no order.
    pub critical: Vec<CriticalSections>,
    /// How long collections waited for their end.
    pub collections: CollectionsWait,
    /// Direct buffers by native method; the most bytes first.
    pub buffers: Vec<BuffersMade>,
    /// Functions that the VM has made as code of its own, which no probe sees.
    pub unseen: Vec<&'static str>,
    /// Whether it is told which look-ups of members are the same.
    pub tells_members: bool,
    /// Stubs have counted: then it is not told which Java was called, or what came of calls.
    pub is_by_stubs: bool,
    /// Who has called, where stubs have counted.
    pub callers: JniCallers,
    /// What was made and not let go, where that is followed.
    pub held: Option<JniHeldSnapshot>,
    /// Exceptions by native method and class: the most first.
    pub thrown: Vec<JniExceptions>,
}

/// Exceptions of one class that a native method has left or cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniExceptions {
    /// As in [`JniUse`].
    pub method: Option<usize>,
    /// As Java names it; `None` if that is not certain.
    pub class: Option<String>,
    /// How many were pending when the method returned.
    pub pending: u64,
    /// How many were cleared before.
    pub cleared: u64,
}

impl JniSnapshot {
    /// The name of a function, by its place.
    #[must_use]
    pub fn function(&self, place: usize) -> &str {
        let row = self.snapshot.methods.get(place).and_then(|row| row.methods.first());
        row.map_or("", |function| &function.method.name)
    }

    /// How many of each were made and let go, as far as functions were called that do it.
    #[must_use]
    pub fn resources(&self) -> [(JniResource, Resources); JniResource::ALL.len()] {
        let mut all = JniResource::ALL.map(|resource| (resource, Resources::default()));
        for made in &self.uses {
            let (name, times) = (self.function(made.function), made.calls.calls.saturating_sub(made.calls.vain));
            for (resource, sums) in &mut all {
                sums.made += if JniResource::made_by(name) == Some(*resource) { times } else { 0 };
                let lets_go = JniResource::let_go_by(name) == Some(*resource);
                sums.let_go += if lets_go { times } else { 0 };
                sums.made_before += if lets_go { made.calls.unknown } else { 0 };
            }
        }
        all
    }

    /// Whether not all calls were seen or timed: the sums are then no more than what was seen.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.snapshot.methods.iter().any(is_partial)
    }

    /// The functions of which not all calls were seen and timed, each by its first method.
    pub fn demoted(&self) -> impl Iterator<Item = &Method> {
        let rows = self.snapshot.methods.iter().filter(|row| is_partial(row));
        rows.filter_map(|row| row.methods.first()).map(|known| &known.method)
    }

    /// The same of the functions that begin and end critical sections: where not all of their calls were seen, it is not known which of
    /// them belong together.
    #[must_use]
    pub fn has_all_sections(&self) -> bool {
        self.has_all_of(JniResource::Critical)
    }

    /// The same of the functions that make and let go one kind of things.
    #[must_use]
    pub fn has_all_of(&self, resource: JniResource) -> bool {
        let is_one = |place: usize| {
            let name = self.function(place);
            JniResource::made_by(name) == Some(resource) || JniResource::let_go_by(name) == Some(resource)
        };
        !self.snapshot.methods.iter().enumerate().any(|(place, row)| is_one(place) && is_partial(row))
    }

    /// The sums of the uses of some functions.
    #[must_use]
    pub fn sum_of(&self, is_wanted: impl Fn(&str) -> bool) -> JniSum {
        self.uses.iter().filter(|made| is_wanted(self.function(made.function))).map(JniSum::from).sum()
    }
}

fn is_partial(row: &MethodSnapshot) -> bool {
    !row.traced.unwatched.is_zero() || row.counted > 0 || row.unseen.is_some()
}

/// Uses added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JniSum {
    /// Calls.
    pub calls: u64,
    /// Of these, those that were timed.
    pub timed: u64,
    /// Of `calls`, those that did something: no null was returned, and there was something to let go or to clear.
    pub effective: u64,
    /// Their time, without traced native methods that were called meanwhile, in nanoseconds.
    pub self_ns: u64,
    /// Of this, the time that the threads were running.
    pub on_cpu_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// Of `calls`, look-ups of what had been found before.
    pub redundant: u64,
    /// The time that the threads were running in these, in nanoseconds.
    pub redundant_ns: u64,
    /// How far these times may be off, in nanoseconds: all calls together, a single one, and those that were redundant.
    pub error_ns: u64,
    /// See `error_ns`.
    pub max_error_ns: u64,
    /// See `error_ns`.
    pub redundant_error_ns: u64,
}

impl From<&JniUse> for JniSum {
    fn from(made: &JniUse) -> Self {
        let JniCalls { calls, timed, max_ns, vain, redundant, redundant_ns, .. } = made.calls;
        let (effective, self_ns, on_cpu_ns) = (calls.saturating_sub(vain), made.self_ns(), made.on_cpu_ns());
        let error_of = |calls: u64| made.error_ns.saturating_mul(calls);
        Self {
            calls,
            timed,
            effective,
            self_ns,
            on_cpu_ns,
            max_ns,
            redundant,
            redundant_ns,
            error_ns: error_of(timed),
            max_error_ns: made.error_ns,
            redundant_error_ns: error_of(redundant),
        }
    }
}

impl JniSum {
    /// Takes in more.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.calls, more.calls),
            (&mut self.timed, more.timed),
            (&mut self.effective, more.effective),
            (&mut self.self_ns, more.self_ns),
            (&mut self.on_cpu_ns, more.on_cpu_ns),
            (&mut self.redundant, more.redundant),
            (&mut self.redundant_ns, more.redundant_ns),
            (&mut self.error_ns, more.error_ns),
            (&mut self.redundant_error_ns, more.redundant_error_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.max_ns = self.max_ns.max(more.max_ns);
        self.max_error_ns = self.max_error_ns.max(more.max_error_ns);
    }
}

impl Sum for JniSum {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, more| {
            sum.add(&more);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::jni::fixed_arguments;

    use super::*;

    /// Check that the table is that of the header: some places that the specification names, and the lengths.
    #[test]
    fn places() {
        let of = |version| jni_functions(version).collect::<Vec<_>>();
        for (place, name) in [(4, "GetVersion"), (6, "FindClass"), (33, "GetMethodID"), (94, "GetFieldID")] {
            assert!(of(17).contains(&(place, name)), "{name}");
        }
        for (place, name) in
            [(113, "GetStaticMethodID"), (169, "GetStringUTFChars"), (222, "GetPrimitiveArrayCritical")]
        {
            assert!(of(17).contains(&(place, name)), "{name}");
        }
        assert_eq!([11, 17, 21, 25].map(|version| of(version).len()), [230, 230, 231, 232]);
        assert_eq!(of(17).last(), Some(&(233, "GetModule")));
    }

    /// Check that those with any number of arguments are followed by their twins with a list, that no others are, and how many come before.
    #[test]
    fn twins() {
        let all: Vec<(usize, &str)> = jni_functions(25).collect();
        for pair in all.windows(2) {
            let [(place, name), (next, twin)] = [pair[0], pair[1]];
            let has_twin = next == place + 1 && twin.strip_suffix('V') == Some(name);
            let before = match callee(name) {
                JniCallee::Third => 3,
                _ => 4,
            };
            assert_eq!(fixed_arguments(place), has_twin.then_some(before), "{name}");
        }
        assert_eq!(all.iter().filter(|(place, _)| fixed_arguments(*place).is_some()).count(), 31);
    }

    /// Check what functions are for, those whose names resemble others included.
    #[test]
    fn families_and_kinds() {
        for (name, family, kind) in [
            ("GetStaticFieldID", JniFamily::LookUps, JniKind::Member),
            ("FindClass", JniFamily::LookUps, JniKind::Class),
            ("CallNonvirtualObjectMethodV", JniFamily::Calls, JniKind::Makes),
            ("CallStaticVoidMethod", JniFamily::Calls, JniKind::Plain),
            ("GetObjectField", JniFamily::Fields, JniKind::Makes),
            ("SetStaticIntField", JniFamily::Fields, JniKind::Plain),
            ("ToReflectedField", JniFamily::Other, JniKind::Makes),
            ("FromReflectedMethod", JniFamily::Other, JniKind::Plain),
            ("ReleaseIntArrayElements", JniFamily::Arrays, JniKind::LetsElementsGo),
            ("GetObjectArrayElement", JniFamily::Arrays, JniKind::Makes),
            ("GetIntArrayElements", JniFamily::Arrays, JniKind::Makes),
            ("ReleasePrimitiveArrayCritical", JniFamily::Critical, JniKind::Leaves),
            ("GetStringCritical", JniFamily::Critical, JniKind::Enters),
            ("ReleaseStringUTFChars", JniFamily::Strings, JniKind::LetsGo),
            ("PushLocalFrame", JniFamily::References, JniKind::PushesFrame),
            ("PopLocalFrame", JniFamily::References, JniKind::PopsFrame),
            ("EnsureLocalCapacity", JniFamily::References, JniKind::MakesRoom),
            ("DeleteWeakGlobalRef", JniFamily::References, JniKind::LetsGo),
            ("ExceptionClear", JniFamily::Exceptions, JniKind::Clears),
            ("ThrowNew", JniFamily::Exceptions, JniKind::Plain),
            ("MonitorEnter", JniFamily::Monitors, JniKind::Plain),
            ("GetVersion", JniFamily::Other, JniKind::Plain),
        ] {
            assert_eq!((JniFamily::of(name), super::kind(name)), (family, kind), "{name}");
        }
    }

    /// Check that exactly the functions that run Java have the id of a method, and where.
    #[test]
    fn which_call_java() {
        let with = |place: JniCallee| jni_functions(25).filter(|(_, name)| callee(name) == place).count();
        // Ten types in three forms, virtual and static; and constructors.
        assert_eq!((with(JniCallee::Third), with(JniCallee::Fourth)), (63, 30));
        for (name, place) in [
            ("NewObjectA", JniCallee::Third),
            ("CallStaticIntMethodV", JniCallee::Third),
            ("CallNonvirtualVoidMethod", JniCallee::Fourth),
            ("NewObjectArray", JniCallee::Nothing),
            ("AllocObject", JniCallee::Nothing),
        ] {
            assert_eq!(callee(name), place, "{name}");
        }
    }

    /// Check that for everything but local references, which the VM lets go by itself, there are as many functions that let go as make.
    #[test]
    fn what_is_made_can_be_let_go() {
        for resource in JniResource::ALL.into_iter().filter(|resource| *resource != JniResource::Local) {
            let functions = || jni_functions(25).map(|(_, name)| name);
            let made = functions().filter(|name| JniResource::made_by(name) == Some(resource)).count();
            let let_go = functions().filter(|name| JniResource::let_go_by(name) == Some(resource)).count();
            assert!(made > 0 && made == let_go, "{resource:?}: {made} and {let_go}");
        }
    }
}
