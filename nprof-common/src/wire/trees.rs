//! What both say about classes that are enhanced. Class files and lists are in the area of the memory that they share ([`crate::tree`]): it
//! belongs to whoever has been asked last.

use super::parts;

parts! {
    /// A class file in the area.
    pub struct ClassFile {
        /// The number of the class.
        pub class: u32,
        /// How many bytes its file has; 0 if there is none.
        pub bytes: u32,
        /// Why there is none: an error of the VM's, or [`ClassFile::UNLOADED`], [`ClassFile::UNMODIFIABLE`], [`ClassFile::TOO_LONG`].
        pub error: u32,
    }
}

impl ClassFile {
    /// The class is unloaded by now.
    pub const UNLOADED: u32 = 1_001;
    /// The VM lets nobody change it.
    pub const UNMODIFIABLE: u32 = 1_002;
    /// It does not fit into the area.
    pub const TOO_LONG: u32 = 1_003;
}

parts! {
    /// A part of the list of classes. For each class there are, in 32 bits each: its modifiers, with [`ClassesListed::MODIFIABLE`]; its
    /// loader; its superclass; how many interfaces it has, and these; the length of its name in bytes, and then the name, in the VM's
    /// encoding and with slashes. Classes and loaders have numbers.
    ///
    /// Of their methods there are, for each class: how many; and for each of these its modifiers, and its name and its descriptor, each
    /// after its length.
    pub struct ClassesListed {
        /// The number of the first class in the area. The others follow.
        pub first: u32,
        /// How many there are in the area.
        pub count: u32,
        /// How many classes there are altogether.
        pub total: u32,
        /// How many bytes they take in the area.
        pub bytes: u32,
    }
}

impl ClassesListed {
    /// Set in the modifiers of a class that the VM lets be changed.
    pub const MODIFIABLE: u32 = 1 << 31;
    /// The number of no class.
    pub const NONE: u32 = u32::MAX;
    /// The loader of the VM's own classes.
    pub const BOOT: u32 = 0;
}

parts! {
    /// What an `Enhance` came to.
    pub struct Enhanced {
        /// So many classes have the file that nprof gave. All of an `Enhance`, or none.
        pub classes: u32,
        /// The VM's error if it refused.
        pub error: u32,
    }
}

parts! {
    /// The class of an exception.
    pub struct ExceptionClass<'a> {
        /// The number that events have.
        pub number: u32,
        /// `Ljava/io/IOException;`.
        pub class: &'a [u8],
    }
}

parts! {
    /// How it ended.
    pub struct TreesEnded {
        /// So many classes are as they were.
        pub restored: u32,
        /// So many could not be restored.
        pub behind: u32,
    }
}
