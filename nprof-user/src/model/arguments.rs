//! What a call was made with and what it returned, and where a native method gets it: the convention of C on x86-64 Linux
//! (System V ABI), after `JNIEnv *` and the object or class.

use nprof_common::args::{FILES_SHIFT, REGISTERS, RESULT, USED_SHIFT, WORDS};

use super::Method;
use super::descriptor;

/// How many arguments are passed in registers of floating-point numbers, which nobody can read from outside.
const FLOAT_REGISTERS: usize = 8;

/// Whether it is told what slow calls, or those of a timeline, were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ArgsWanted {
    /// No.
    #[default]
    No,
    /// Numbers, classes and lengths.
    Values,
    /// The first characters and bytes of strings and arrays, too.
    Contents,
}

/// What a call was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallArguments {
    /// The object whose method it is; `None` of a static method, and where that is not known.
    pub this: Option<ArgumentObject>,
    /// The arguments, in the order of the descriptor.
    pub arguments: Vec<Argument>,
    /// What it returned; `None` if it returns nothing.
    pub result: Option<Argument>,
}

/// One argument, or the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its type by the descriptor, as in Java: `java.lang.String[]`.
    pub declared: String,
    /// Its value.
    pub value: ArgumentValue,
    /// Of a file descriptor: what `/proc/PID/fd` named by it just after the call.
    pub file: Option<String>,
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentValue {
    /// A whole number.
    Integer(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// A character, or a half of one.
    Char(u16),
    /// The bits of a `float`.
    Float(u32),
    /// The bits of a `double`.
    Double(u64),
    /// No object.
    Null,
    /// An object.
    Object(ArgumentObject),
    /// It is not known.
    Unknown(UnknownArgument),
}

/// An object that is an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArgumentObject {
    /// Its class, as in Java: `java.lang.String[]`.
    pub class: String,
    /// Of an array its length, of a buffer its capacity.
    pub length: Option<u32>,
    /// Of a `java.io.FileDescriptor` the descriptor; negative if it is closed.
    pub fd: Option<i32>,
    /// Its first characters or bytes, and whether there are more. Whatever the program had there.
    pub contents: Option<(String, bool)>,
}

/// Why a value is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownArgument {
    /// It was in a register of floating-point numbers, which the kernel does not show to programs at probes.
    FloatRegister,
    /// It came after more arguments than are noted.
    TooMany,
    /// Nothing was noted of the call: it was nested too deep, or too many threads made calls.
    NotNoted,
    /// What it refers to could not be looked at with certainty: the collector moves objects, or was about to.
    Heap,
    /// The call has ended with its thread.
    NotReturned,
    /// The call has thrown an exception, and what it returned means nothing.
    Thrown,
}

impl UnknownArgument {
    /// The word for JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FloatRegister => "float-register",
            Self::TooMany => "too-many",
            Self::NotNoted => "not-noted",
            Self::Heap => "heap",
            Self::NotReturned => "not-returned",
            Self::Thrown => "thrown",
        }
    }
}

/// Where a native method gets an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// In this word of those that are noted ([`nprof_common::MadeWith::words`]).
    Word(usize),
    /// In a register of floating-point numbers.
    FloatRegister,
    /// On the stack, above what is noted.
    Above,
}

/// The arguments of a descriptor, each with its place; `None` if it is none.
#[must_use]
pub fn argument_places(signature: &str) -> Option<Vec<(&str, ArgumentPlace)>> {
    // The first register of whole numbers that is noted has the object or the class.
    let (mut whole, mut floats, mut stack) = (1, 0, REGISTERS);
    let mut place = |field: &str| {
        let is_float = matches!(field, "F" | "D");
        let (next, registers) = if is_float { (&mut floats, FLOAT_REGISTERS) } else { (&mut whole, REGISTERS) };
        let (next, is_register) = if *next < registers { (next, true) } else { (&mut stack, false) };
        let at = *next;
        *next += 1;
        match (is_register, is_float) {
            (true, true) => ArgumentPlace::FloatRegister,
            _ if at < WORDS => ArgumentPlace::Word(at),
            _ => ArgumentPlace::Above,
        }
    };
    let fields = descriptor::fields(signature)?;
    Some(fields.into_iter().map(|field| (field, place(field))).collect())
}

/// What the programs have to know of the arguments of a function that is bound to these methods
/// ([`nprof_common::MadeWith::kinds`]): 0 if they do not agree, so that nobody knows what the arguments are.
pub fn argument_kinds<'a>(methods: impl IntoIterator<Item = &'a Method>) -> u64 {
    let mut methods = methods.into_iter();
    let Some(first) = methods.next() else { return 0 };
    if methods.any(|other| other.signature != first.signature) {
        return 0;
    }
    let Some(places) = argument_places(&first.signature) else { return 0 };
    // The object or the class is always one.
    let (mut kinds, mut used) = (1, 1);
    for (number, (field, place)) in places.into_iter().enumerate() {
        let ArgumentPlace::Word(word) = place else { continue };
        used = used.max(word as u64 + 1);
        if is_reference(field) {
            kinds |= 1 << word;
        } else if is_file(&first.class, &first.name, number) && field == "I" {
            kinds |= 1 << (word + FILES_SHIFT as usize);
        }
    }
    if descriptor::result(&first.signature).is_some_and(is_reference) {
        kinds |= 1 << RESULT;
    }
    kinds | used << USED_SHIFT
}

/// Whether values of this type are objects.
#[must_use]
pub fn is_reference(field: &str) -> bool {
    field.starts_with(['L', '['])
}

/// Natives of the JDK whose arguments of type `int` are file descriptors: class, methods, and which arguments.
const FILES: &[(&str, &[&str], &[usize])] = &[
    ("sun.nio.ch.EPoll", &["wait"], &[0]),
    ("sun.nio.ch.EPoll", &["ctl"], &[0, 2]),
    ("sun.nio.ch.EventFD", &["set0"], &[0]),
    ("sun.nio.ch.FileDispatcherImpl", &["closeIntFD"], &[0]),
    ("sun.nio.ch.UnixFileDispatcherImpl", &["closeIntFD"], &[0]),
    ("sun.nio.ch.UnixDispatcher", &["close0"], &[0]),
    ("sun.nio.ch.IOUtil", &["drain", "drain1", "write1"], &[0]),
    ("sun.nio.fs.LinuxWatchService", &["inotifyAddWatch", "inotifyRmWatch"], &[0]),
    ("sun.nio.fs.LinuxWatchService", &["poll"], &[0, 1]),
    (
        "sun.nio.fs.LinuxNativeDispatcher",
        &["fgetxattr0", "flistxattr", "fremovexattr0", "fsetxattr0", "posix_fadvise"],
        &[0],
    ),
    ("sun.nio.fs.LinuxFileSystem", &["directCopy0"], &[0, 1]),
    ("sun.nio.fs.UnixCopyFile", &["transfer"], &[0, 1]),
    ("sun.nio.fs.UnixFileSystem", &["bufferedCopy0"], &[0, 1]),
    (
        "sun.nio.fs.UnixNativeDispatcher",
        &[
            "close",
            "close0",
            "dup",
            "fchmod",
            "fchmod0",
            "fchown",
            "fchown0",
            "fdopendir",
            "fgetxattr0",
            "flistxattr",
            "flistxattr0",
            "fremovexattr0",
            "fsetxattr0",
            "fstat",
            "fstat0",
            "fstatat0",
            "futimens",
            "futimens0",
            "futimes",
            "futimes0",
            "openat0",
            "read",
            "read0",
            "renameat0",
            "unlinkat0",
            "write",
            "write0",
        ],
        &[0],
    ),
];

fn is_file(class: &str, method: &str, argument: usize) -> bool {
    FILES
        .iter()
        .any(|(of, methods, arguments)| *of == class && methods.contains(&method) && arguments.contains(&argument))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NativeCode, VirtAddr};

    fn method(class: &str, name: &str, signature: &str) -> Method {
        let (class, name, signature) = (class.into(), name.into(), signature.into());
        Method { id: VirtAddr(0x1000), class, name, signature, code: NativeCode::Unbound }
    }

    /// Check that each kind of number goes its own way: whole ones in four registers, others in eight, and all the rest on the
    /// stack in their order, as far as it is noted.
    #[test]
    fn places_by_the_convention() {
        use ArgumentPlace::{Above, FloatRegister, Word};
        let places =
            |signature| argument_places(signature).unwrap().into_iter().map(|(_, place)| place).collect::<Vec<_>>();
        assert_eq!(places("(IJFDLa/A;[B)V"), [Word(1), Word(2), FloatRegister, FloatRegister, Word(3), Word(4)]);
        assert_eq!(places("(IIIIIFI)V"), [Word(1), Word(2), Word(3), Word(4), Word(5), FloatRegister, Word(6)]);
        let floats = places("(DDDDDDDDDIFIIIIIIIIIIII)V");
        assert_eq!(floats[7..11], [FloatRegister, Word(5), Word(1), Word(6)]);
        assert_eq!(floats[18..], [Word(11), Word(12), Word(13), Above, Above]);
        assert!(argument_places("nothing").is_none());
    }

    /// Check what the programs are told to follow, and that nothing is where methods of one function do not agree.
    #[test]
    fn kinds_of_arguments() {
        let read = method("a.A", "read", "(I[BJLjava/lang/String;)[I");
        assert_eq!(argument_kinds([&read]), 1 | 1 << 2 | 1 << 4 | 1 << RESULT | 5 << USED_SHIFT);
        assert_eq!(argument_kinds([&read, &method("a.B", "read", "(I)V")]), 0);
        assert_eq!(argument_kinds([&method("a.A", "x", "()V"), &method("a.A", "y", "()V")]), 1 | 1 << USED_SHIFT);
        let ctl = method("sun.nio.ch.EPoll", "ctl", "(IIII)I");
        assert_eq!(argument_kinds([&ctl]), 1 | 5 << USED_SHIFT | 1 << (1 + 32) | 1 << (3 + 32));
        let many = method("a.A", "many", "(IIIIIIIIIIIIIIIIII)V");
        assert_eq!(argument_kinds([&many]), 1 | (WORDS as u64) << USED_SHIFT);
        assert_eq!(argument_kinds([]), 0);
    }
}
