//! What a shim says, as owned values: the packet that a message came in can go.
//!
//! Names are in the form that people write them, as everywhere in nprof. A shim lives in the target, which may say anything:
//! what is no name is kept as it is.

use nprof_common::wire;

use crate::hotspot;
use crate::model::VirtAddr;

pub use nprof_common::wire::{
    Applied, ClassFile, ClassesListed, Enhanced, Hello, How, IdCaller, IdFunction, IdsForgotten, Scanned, Stubbed,
    TreesEnded,
};

/// A message of a shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromShimOwned {
    /// Who it is. A [`super::Connection`] has had this before it is handed out; it comes only once.
    Hello(Hello),
    /// A method and what it is bound to.
    Bound(Bound),
    /// All answers to a `Scan` have come.
    Scanned(Scanned),
    /// A method has its stub.
    Stubbed(Stubbed),
    /// All answers to an `Apply` have come.
    Applied(Applied),
    /// So many messages were not sent since the connection began, because nprof did not read them in time.
    Dropped(u64),
    /// Something went wrong in the shim that the user should know.
    Note(String),
    /// The answer to a `Detach`: so many methods still have a stub's address.
    Detached(u32),
    /// The shim ends the connection, for this reason.
    Bye(String),
    /// Ids are kept from now on.
    IdsKept,
    /// What came of it, by function.
    IdFunction(IdFunction),
    /// What came of it, by caller.
    IdCaller(IdCaller),
    /// All of that has come.
    IdsForgotten(IdsForgotten),
    /// Methods can be enhanced.
    TreesReady(bool),
    /// A part of the list of classes is in the area.
    ClassesListed(ClassesListed),
    /// The methods of a part of the classes are in the area.
    MethodsListed(ClassesListed),
    /// The file of a class is in the area.
    ClassFile(ClassFile),
    /// Classes have been enhanced, or not.
    Enhanced(Enhanced),
    /// What enhanced methods tell is recorded from now on.
    TreesRecorded,
    /// The class of an exception, `java.io.IOException`, by its number.
    ExceptionClass(u32, String),
    /// All classes of exceptions have come.
    ExceptionsNamed,
    /// Nothing is recorded any more, and classes are restored.
    TreesEnded(TreesEnded),
}

/// A method and what it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The shim's number for the method: the same as long as the process lives.
    pub number: u32,
    /// How the shim came to know of the bind.
    pub how: How,
    /// The number of the method's record; `None` if it has no stub.
    pub index: Option<u32>,
    /// Where the VM's `Method` is; `None` if the shim does not know.
    pub method: Option<VirtAddr>,
    /// The native, also where a stub stands before it.
    pub address: VirtAddr,
    /// `java.util.zip.CRC32`.
    pub class: String,
    /// `updateBytes0`.
    pub name: String,
    /// `(I[BII)I`.
    pub signature: String,
}

impl FromShimOwned {
    /// Reads a packet.
    pub(super) fn decode(packet: &[u8]) -> Result<Self, wire::Error> {
        Ok(match wire::FromShim::decode(packet)? {
            wire::FromShim::Hello(hello) => Self::Hello(hello),
            wire::FromShim::Bound(bound) => Self::Bound(Bound::of(&bound)),
            wire::FromShim::Scanned(scanned) => Self::Scanned(scanned),
            wire::FromShim::Stubbed(stubbed) => Self::Stubbed(stubbed),
            wire::FromShim::Applied(applied) => Self::Applied(applied),
            wire::FromShim::Dropped(total) => Self::Dropped(total),
            wire::FromShim::Note(said) => Self::Note(text(said)),
            wire::FromShim::Detached(left) => Self::Detached(left),
            wire::FromShim::Bye(reason) => Self::Bye(text(reason)),
            wire::FromShim::IdsKept => Self::IdsKept,
            wire::FromShim::IdFunction(sum) => Self::IdFunction(sum),
            wire::FromShim::IdCaller(caller) => Self::IdCaller(caller),
            wire::FromShim::IdsForgotten(end) => Self::IdsForgotten(end),
            wire::FromShim::TreesReady(first) => Self::TreesReady(first),
            wire::FromShim::ClassesListed(part) => Self::ClassesListed(part),
            wire::FromShim::MethodsListed(part) => Self::MethodsListed(part),
            wire::FromShim::ClassFile(file) => Self::ClassFile(file),
            wire::FromShim::Enhanced(done) => Self::Enhanced(done),
            wire::FromShim::TreesRecorded => Self::TreesRecorded,
            wire::FromShim::ExceptionClass(of) => Self::ExceptionClass(of.number, class_of_descriptor(&text(of.class))),
            wire::FromShim::ExceptionsNamed => Self::ExceptionsNamed,
            wire::FromShim::TreesEnded(end) => Self::TreesEnded(end),
        })
    }
}

impl Bound {
    fn of(bound: &wire::Bound<'_>) -> Self {
        Self {
            number: bound.number,
            how: bound.how,
            index: Some(bound.index).filter(|&index| index != wire::NO_INDEX),
            method: Some(VirtAddr(bound.method)).filter(|method| !method.is_null()),
            address: VirtAddr(bound.address),
            class: class_of_descriptor(&text(bound.class)),
            name: text(bound.name),
            signature: text(bound.signature),
        }
    }
}

/// A text in the VM's modified UTF-8, or in plain UTF-8.
fn text(bytes: &[u8]) -> String {
    hotspot::decode(bytes).unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The name of the class whose descriptor is `Ljava/util/zip/CRC32;`.
fn class_of_descriptor(descriptor: &str) -> String {
    let internal = descriptor.strip_prefix('L').and_then(|rest| rest.strip_suffix(';'));
    // A hidden class is `LMain$$Lambda.0x00007f;` in a descriptor and `Main$$Lambda+0x00007f` in the VM's own tables.
    let internal = internal.map(|name| match name.rsplit_once('.') {
        Some((before, suffix)) => format!("{before}+{suffix}"),
        None => name.to_owned(),
    });
    internal.as_deref().and_then(hotspot::class_name).unwrap_or_else(|| descriptor.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(message: &wire::FromShim<'_>) -> FromShimOwned {
        FromShimOwned::decode(message.encode(&mut [0; 512]).unwrap()).unwrap()
    }

    /// Check that names get the form that the inventory gives them, and that what stands for nothing becomes nothing.
    #[test]
    fn bound_speaks_the_inventorys_language() {
        let bound = wire::Bound {
            number: 7,
            how: How::Event,
            index: wire::NO_INDEX,
            method: 0,
            address: 0x7f00_0000_1000,
            class: b"Ljava/util/zip/CRC32;",
            name: b"caf\xc3\xa9",
            signature: b"(I[BII)I",
        };
        let FromShimOwned::Bound(known) = decoded(&wire::FromShim::Bound(bound)) else { panic!("another message") };
        assert_eq!((known.class.as_str(), known.name.as_str()), ("java.util.zip.CRC32", "caf\u{e9}"));
        assert_eq!((known.index, known.method), (None, None));
        let bound = wire::Bound { index: 3, method: 0x1000, ..bound };
        let FromShimOwned::Bound(known) = decoded(&wire::FromShim::Bound(bound)) else { panic!("another message") };
        assert_eq!((known.index, known.method), (Some(3), Some(VirtAddr(0x1000))));
    }

    /// Check that a hidden class has the name that Java shows, and that what is no class keeps what it is.
    #[test]
    fn odd_classes() {
        assert_eq!(class_of_descriptor("LMain$$Lambda.0x00007f;"), "Main$$Lambda/0x00007f");
        assert_eq!(class_of_descriptor("LMain;"), "Main");
        assert_eq!(class_of_descriptor("[I"), "[I");
        assert_eq!(class_of_descriptor(""), "");
    }

    /// Check that bytes that are no text of the VM's, and packets that are no messages, do no harm.
    #[test]
    fn nonsense_is_survived() {
        assert_eq!(decoded(&wire::FromShim::Note(b"a\xffb")), FromShimOwned::Note("a\u{fffd}b".into()));
        assert_eq!(FromShimOwned::decode(b"nonsense"), Err(wire::Error::Length));
    }
}
