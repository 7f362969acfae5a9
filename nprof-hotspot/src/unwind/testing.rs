//! The unwinder on a small VM made of a few structs in a map of bytes, with a layout like no real one's.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::collections_layout::CollectionsLayout;
use super::fixed::Fixed;
use super::freshness::counter;
use super::layout::{
    BlobLayout, CodeLayout, ConstMethodLayout, EntryLayout, HeapLayout, HiddenFlag, NmethodLayout, Place, Statics,
    Versioned,
};
use super::sender::Known;
use super::{CrossingKind, End, FrameKind, JavaStack, Sample, Unwinder};
use crate::hotspot::{Layout, Number, Pages, Reader, RemoteMemory};
use crate::model::{CutReason, VirtAddr};
use crate::sys::remote_memory::MemoryError;

/// The variable that leads to the heap of objects, and where in that collections are counted.
const OBJECT_HEAP: u64 = 0x5_9000;
const COLLECTIONS: u64 = 0x40;
/// The loader of all classes.
const LOADER: u64 = 0x5_8000;
const HEAPS: u64 = 0x1_0000;
const HEAP: u64 = 0x1_1000;
pub(super) const CODE: u64 = 0x10_0000;
const SEGMENT_MAP: u64 = 0x2_0000;
pub(super) const INTERPRETER: u64 = 0x9_0000;
pub(super) const CALL_STUB_RETURN: u64 = 0x9_8000;
pub(super) const STACK: u64 = 0x7000_0000;
/// Where the compiled method and the wrapper begin: blocks are one segment of 64 KB, with 8 bytes in front.
pub(super) const COMPILED: u64 = CODE + 0x1_0008;
const WRAPPER: u64 = CODE + 0x2_0008;
/// Where there is no blob, until a test makes one.
pub(super) const STUB: u64 = CODE + 0x3_0008;
/// Where the code of a blob begins.
pub(super) const INSTRUCTIONS: u64 = 0x200;

/// The memory of the VM.
#[derive(Debug, Default)]
pub(super) struct SmallVm {
    bytes: RefCell<BTreeMap<u64, u8>>,
}

impl RemoteMemory for SmallVm {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        let len = buf.len();
        let bytes = self.bytes.borrow();
        for (at, byte) in (addr.0..).zip(buf) {
            *byte = *bytes.get(&at).ok_or(MemoryError::Unreadable { addr, len })?;
        }
        Ok(())
    }
}

impl SmallVm {
    pub(super) fn put(&self, addr: u64, bytes: &[u8]) {
        self.bytes.borrow_mut().extend((addr..).zip(bytes.iter().copied()));
    }

    pub(super) fn word(&self, addr: u64, value: u64) {
        self.put(addr, &value.to_le_bytes());
    }

    /// A VM with two methods: `a.B.run` compiled, with `a.B.inner` inlined, and `a.B.nap` with a wrapper.
    pub(super) fn new() -> Self {
        let vm = Self::default();
        vm.word(HEAPS, HEAPS + 8);
        vm.word(HEAPS + 8, 1);
        vm.word(HEAPS + 16, HEAPS + 24);
        vm.word(HEAPS + 24, HEAP);
        vm.word(HEAP, CODE);
        vm.word(HEAP + 8, CODE + 0x4_0000);
        vm.word(HEAP + 16, SEGMENT_MAP);
        vm.word(HEAP + 24, 16);
        vm.put(SEGMENT_MAP, &[0xff, 0, 0, 0]);
        vm.put(STUB - 8, &[0; 8]);
        for (number, name) in (0..).zip(["run", "inner", "nap"]) {
            vm.method(method(number), name, name == "nap");
        }
        vm.put(0x3_0000, b"nmethod\0");
        vm.put(0x3_1000, b"native nmethod\0");
        // Strings are read in pieces that end with their page at the latest.
        vm.put(0x3_0008, &[0; 64]);
        vm.put(0x3_100f, &[0; 64]);
        vm.blob(COMPILED, 0x3_0000, method(0), 4);
        vm.blob(WRAPPER, 0x3_1000, method(2), 6);
        vm
    }

    /// A method with the code `00 00 ...` whose lines are 10 from bytecode 0 and 11 from bytecode 4 on.
    fn method(&self, addr: u64, name: &str, is_native: bool) {
        let (constant, pool, klass) = (addr + 0x100, addr + 0x200, 0x5_0000);
        self.word(addr + 8, constant);
        self.word(addr + 16, if is_native { 0x100 } else { 0 });
        self.word(constant, pool);
        self.put(constant + 8, &[1, 0, 2, 0]);
        self.put(constant + 12, &[6, 0, 0, 0, 8, 0, 1, 0]);
        self.put(constant + 32, &[0xff, 0, 20, 4 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.word(pool, klass);
        self.word(pool + 8, 3);
        self.word(pool + 24, addr + 0x300);
        self.word(pool + 32, 0x5_2000);
        self.word(klass + 8, 0x5_1000);
        self.word(klass + 16, LOADER);
        for (symbol, text) in [(0x5_1000, "a/B"), (0x5_2000, "()V"), (addr + 0x300, name)] {
            self.put(symbol, &[u8::try_from(text.len()).unwrap(), 0]);
            self.put(symbol + 2, text.as_bytes());
        }
    }

    /// A blob with a frame of `frame_words`. It has one call, 0x10 bytes into its code, in method 2 (bytecode 0) inlined
    /// into method 1 (bytecode 5).
    pub(super) fn blob(&self, addr: u64, name: u64, method_addr: u64, frame_words: u64) {
        self.put(addr, &[0; 0x400]);
        self.put(addr - 8, &[1; 8]);
        self.word(addr, name);
        self.word(addr + 24, method_addr);
        let numbers = [
            (8, 0x400),
            (12, frame_words),
            (16, INSTRUCTIONS),
            (20, 0x400),
            (32, 77),
            (36, 4),
            (40, 8),
            (44, 0x100),
            (48, 0x110),
            (52, 0x110),
            (56, 0x120),
            (60, 0x120),
            (64, 0x130),
            (68, 0x300),
        ];
        for (offset, value) in numbers {
            self.put(addr + offset, &value.to_le_bytes()[..4]);
        }
        self.put(addr + 0x100, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x10, 0, 0, 0, 4, 0, 0, 0]);
        self.put(addr + 0x110, &[0, 0, 1, 6, 1, 2, 1]);
        // Scope 1: the outermost. Scope 4: inlined into it.
        self.put(addr + 0x111, &[0, 1, 6, 1, 2, 1]);
        self.word(addr + 0x120, method_addr);
        self.word(addr + 0x128, method(1));
    }

    pub(super) fn unwinder(&self) -> Unwinder<&Self> {
        let call_stub_return = VirtAddr(CALL_STUB_RETURN);
        let interpreter = VirtAddr(INTERPRETER)..VirtAddr(INTERPRETER + 0x1000);
        let (mut reader, layout) = (Reader::new(Pages::of(self)), layout());
        let counter = counter(&mut reader, &layout).unwrap();
        Unwinder {
            reader,
            layout,
            counter,
            misses_frozen: false,
            fixed: Fixed { interpreter, call_stub_return, code: VirtAddr(INTERPRETER)..VirtAddr(CODE + 0x4_0000) },
            known: Known::default(),
        }
    }
}

pub(super) fn method(number: u64) -> u64 {
    0x6_0000 + 0x1000 * number
}

fn number(offset: u64, width: usize) -> Number {
    Number { offset, width }
}

fn in_blob(offset: u64) -> Place {
    Place::in_blob(number(offset, 4))
}

fn layout() -> CodeLayout {
    let mut names = Layout::empty();
    (names.method.const_method, names.method.access_flags, names.method.constants) = (8, 16, 0);
    (names.method.name_index, names.method.signature_index) = (number(8, 2), number(10, 2));
    (names.pool.holder, names.pool.length, names.pool.entries) = (0, number(8, 4), 16);
    (names.symbol.length, names.symbol.body) = (number(0, 2), 2);
    (names.klass.name, names.klass.loader) = (8, 16);
    let unused = VirtAddr(0);
    CodeLayout {
        names,
        statics: Statics {
            heaps: VirtAddr(HEAPS),
            interpreter: unused,
            call_stub_return: unused,
            code_low: unused,
            code_high: unused,
            major_version: unused,
        },
        heap: HeapLayout {
            list_length: number(0, 4),
            list_data: 8,
            low: 0,
            high: 8,
            segment_map: 16,
            log2_segment_size: number(24, 4),
            block_used: number(0, 1),
            block_size: 8,
            stub_buffer: 0,
            stub_limit: number(0, 4),
        },
        blob: BlobLayout {
            name: 0,
            size: number(8, 4),
            frame_size: number(12, 4),
            code_begin: in_blob(16),
            code_end: in_blob(20),
            upcall_frame_data: None,
            header_bytes: 72,
        },
        nmethod: NmethodLayout {
            method: 24,
            compile_id: number(32, 4),
            comp_level: number(36, 1),
            orig_pc_offset: number(40, 4),
            pcs_begin: in_blob(44),
            pcs_end: in_blob(48),
            scopes_begin: in_blob(52),
            scopes_end: in_blob(56),
            metadata_begin: in_blob(60),
            metadata_end: in_blob(64),
            deopt_handlers: vec![in_blob(68)],
            verified_entry: None,
            pc_offset: number(0, 4),
            scope_offset: number(4, 4),
            pc_desc_size: 8,
        },
        const_method: ConstMethodLayout {
            size: 24,
            total_words: number(12, 4),
            code_size: number(16, 2),
            flags: number(18, 2),
        },
        entry: EntryLayout { wrapper_slot: -6, anchor: 0, last_sp: 0, last_pc: 8, last_fp: 16 },
        hidden: Some(HiddenFlag { flags: number(18, 2), in_const_method: true, mask: 0x10 }),
        anonymous: None,
        symbol_tag: None,
        objects: None,
        frozen: None,
        collections: Some(CollectionsLayout {
            heap: VirtAddr(OBJECT_HEAP),
            total: number(COLLECTIONS, 4),
            stopped: None,
        }),
        versioned: Versioned::of(17),
    }
}

/// A stack as the wrapper of `nap` sees it, at the native's first instruction: `nap` called by `run`, that by `run` in the
/// interpreter, that by native code, that by nobody.
fn stack() -> Vec<u64> {
    let mut words = vec![0; 64];
    let addr = |word: u64| STACK + 8 * word;
    words[0] = WRAPPER + INSTRUCTIONS + 0x30;
    // The wrapper's frame is words 1 to 6, that of the compiled method 7 to 10.
    words[6] = COMPILED + INSTRUCTIONS + 0x10;
    words[10] = INTERPRETER + 0x80;
    let interpreted = 22;
    words[9] = addr(interpreted);
    let slot = |words_away: i64| usize::try_from(22 + words_away).unwrap();
    words[slot(-8)] = method(0) + 0x100 + 24 + 4;
    words[slot(-3)] = method(0);
    words[slot(-1)] = addr(24);
    words[slot(1)] = CALL_STUB_RETURN;
    words[slot(0)] = addr(40);
    // The wrapper that the entry frame at word 40 names; its anchor is empty.
    words[34] = addr(48);
    words
}

fn unwind(unwinder: &mut Unwinder<&SmallVm>, words: &[u64]) -> JavaStack {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    unwinder.unwind(&Sample::at_native_entry(VirtAddr(STACK), VirtAddr(1), &bytes).unwrap()).unwrap()
}

fn frames(stack: &JavaStack) -> Vec<(String, Option<u32>, FrameKind)> {
    stack.frames.iter().map(|frame| (frame.method.to_string(), frame.line, frame.kind)).collect()
}

/// Check that each kind of frame leads to the next, up to the thread's first one, and that all are named with their lines.
#[test]
fn follows_every_kind_of_frame() {
    let vm = SmallVm::new();
    let stack = unwind(&mut vm.unwinder(), &stack());
    let expected = [
        ("a.B.nap", None, FrameKind::NativeWrapper),
        ("a.B.inner", Some(10), FrameKind::Inlined),
        ("a.B.run", Some(11), FrameKind::C2),
        ("a.B.run", Some(11), FrameKind::Interpreted),
    ];
    assert_eq!(stack.end, End::Complete);
    assert_eq!(frames(&stack), expected.map(|(name, line, kind)| (name.to_owned(), line, kind)));
    let crossings: Vec<_> = stack.crossings.iter().map(|crossing| (crossing.after, crossing.kind)).collect();
    assert_eq!(crossings, [(4, CrossingKind::CalledFromNative)]);
}

/// Check that a copy of any length gives the innermost frames of the whole, and that it says that it is cut.
#[test]
fn short_copies_are_cut() {
    let vm = SmallVm::new();
    let mut unwinder = vm.unwinder();
    let whole = unwind(&mut unwinder, &stack());
    for words in 1..=48 {
        let part = unwind(&mut unwinder, &stack()[..words]);
        assert_eq!(part.end, End::Cut(CutReason::StackTooShort), "{words} words");
        assert_eq!(part.frames, whole.frames[..part.frames.len()], "{words} words");
    }
}

/// Check that code which has been replaced is noticed, also where it begins at the same address.
#[test]
fn replaced_code_is_read_again() {
    let vm = SmallVm::new();
    let mut unwinder = vm.unwinder();
    unwind(&mut unwinder, &stack());
    vm.method(method(5), "other", false);
    vm.blob(COMPILED, 0x3_0000, method(5), 4);
    vm.put(COMPILED + 32, &[78]);
    assert_eq!(frames(&unwind(&mut unwinder, &stack()))[2].0, "a.B.other");
}

/// Check that code which was read while the VM was making it is read again, and that it is said to have changed, not to be
/// damaged, if the heap was collected since the stack was taken.
#[test]
fn half_made_code_is_read_again() {
    let vm = SmallVm::new();
    vm.word(OBJECT_HEAP, OBJECT_HEAP);
    vm.put(OBJECT_HEAP + COLLECTIONS, &4u32.to_le_bytes());
    let calls = COMPILED + 0x100..COMPILED + 0x110;
    let made: Vec<u8> = calls.clone().map(|at| vm.bytes.borrow()[&at]).collect();
    vm.put(calls.start, &[0; 16]);
    let mut unwinder = vm.unwinder();
    unwinder.known.lasting.insert(VirtAddr(LOADER));
    let bytes: Vec<u8> = stack().iter().flat_map(|word| word.to_le_bytes()).collect();
    let sample = Sample::at_native_entry(VirtAddr(STACK), VirtAddr(1), &bytes).unwrap();
    let mut end = |collections| unwinder.unwind(&Sample { collections: Some(collections), ..sample }).unwrap().end;
    assert_eq!([3, 4].map(&mut end), [CutReason::Changing, CutReason::InvalidPcDesc].map(End::Cut));
    vm.put(calls.start, &made);
    assert_eq!(end(4), End::Complete);
}

/// Check that a method is named anew where all of it is as before but a name: the class's constants lead to another one, or
/// another one has come to lie where it was.
#[test]
fn replaced_names_are_read_again() {
    const TAG: u64 = 0x40;
    let vm = SmallVm::new();
    let name = method(0) + 0x300;
    let tag = |symbol: u64, tag: u8| vm.put(symbol + TAG, &[tag, 0]);
    [0x5_1000, 0x5_2000, 0x5_3000, name, method(1) + 0x300, method(2) + 0x300].into_iter().for_each(|of| tag(of, 1));
    let mut unwinder = vm.unwinder();
    unwinder.layout.symbol_tag = Some(number(TAG, 2));
    let mut outermost = || frames(&unwind(&mut unwinder, &stack()))[3].0.clone();
    assert_eq!(outermost(), "a.B.run");
    vm.put(name, b"\x03\0ran");
    tag(name, 2);
    assert_eq!(outermost(), "a.B.ran");
    vm.put(0x5_3000, b"\x03\0two");
    vm.word(method(0) + 0x200 + 24, 0x5_3000);
    assert_eq!(outermost(), "a.B.two");
}

/// Check that what was read after a later collection of the heap had begun is not taken for what was there before, unless it
/// had been read before as well.
#[test]
fn what_came_later_is_not_shown() {
    let vm = SmallVm::new();
    vm.word(OBJECT_HEAP, OBJECT_HEAP);
    let collected = |times: u32| vm.put(OBJECT_HEAP + COLLECTIONS, &times.to_le_bytes());
    let bytes: Vec<u8> = stack().iter().flat_map(|word| word.to_le_bytes()).collect();
    let sample = Sample::at_native_entry(VirtAddr(STACK), VirtAddr(1), &bytes).unwrap();
    let after_three = Sample { collections: Some(3), ..sample };
    collected(4);
    // The second time the frames of compiled code have been named, and of the short copy there are no others.
    for stack in [&bytes[..], &bytes[..96]] {
        let mut unwinder = vm.unwinder();
        for _ in 0..2 {
            let late = unwinder.unwind(&Sample { stack, ..after_three }).unwrap();
            assert_eq!((late.end, late.frames.len()), (End::Cut(CutReason::Changing), 0));
        }
    }
    collected(3);
    let mut unwinder = vm.unwinder();
    assert_eq!(unwinder.unwind(&after_three).unwrap().end, End::Complete);
    collected(4);
    assert_eq!(unwinder.unwind(&after_three).unwrap().end, End::Complete);
    vm.method(method(5), "other", false);
    vm.blob(COMPILED, 0x3_0000, method(5), 4);
    vm.put(COMPILED + 32, &[78]);
    assert_eq!(unwinder.unwind(&after_three).unwrap().end, End::Cut(CutReason::Changing));
    assert_eq!(unwinder.unwind(&Sample { collections: Some(4), ..sample }).unwrap().end, End::Complete);
    let mut unwinder = vm.unwinder();
    unwinder.known.lasting.insert(VirtAddr(LOADER));
    assert_eq!(unwinder.unwind(&after_three).unwrap().end, End::Complete);
}

/// Check that a method which cannot be read has gone if the heap was collected since, and is damaged if not.
#[test]
fn methods_go_with_a_collection() {
    let vm = SmallVm::new();
    vm.word(OBJECT_HEAP, OBJECT_HEAP);
    vm.put(OBJECT_HEAP + COLLECTIONS, &4u32.to_le_bytes());
    let mut words = stack();
    words[19] = method(9);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sample = Sample::at_native_entry(VirtAddr(STACK), VirtAddr(1), &bytes).unwrap();
    for (collections, reason) in
        [(Some(3), CutReason::Changing), (Some(4), CutReason::BadMethod), (None, CutReason::BadMethod)]
    {
        let mut unwinder = vm.unwinder();
        unwinder.known.lasting.insert(VirtAddr(LOADER));
        let cut = unwinder.unwind(&Sample { collections, ..sample }).unwrap();
        assert_eq!((cut.end, cut.frames.len() > 2), (End::Cut(reason), true), "{collections:?}");
    }
}

/// Check that a method that the VM hides is shown as hidden, and no other one.
#[test]
fn hidden_methods_are_marked() {
    let vm = SmallVm::new();
    vm.put(method(1) + 0x100 + 18, &[0x11]);
    let hidden = |stack: JavaStack| stack.frames.iter().map(|frame| frame.hidden).collect::<Vec<_>>();
    assert_eq!(hidden(unwind(&mut vm.unwinder(), &stack())), [false, true, false, false]);
}

/// Check that a deoptimised frame is named by the place where it stood.
#[test]
fn deoptimised_frames_stand_where_they_stood() {
    let vm = SmallVm::new();
    let mut words = stack();
    // The compiled frame begins at word 7 and keeps its place 8 bytes further.
    words[6] = COMPILED + 0x300;
    words[8] = COMPILED + INSTRUCTIONS + 0x10;
    let stack = unwind(&mut vm.unwinder(), &words);
    assert_eq!(frames(&stack)[1].0, "a.B.inner");
    assert!(stack.crossings.iter().any(|crossing| crossing.kind == CrossingKind::Deoptimised));
}

/// Check that what cannot be right cuts the stack, each with its reason.
#[test]
fn damage_is_named() {
    let vm = SmallVm::new();
    let cut = |word: usize, value: u64| {
        let mut words = stack();
        words[word] = value;
        unwind(&mut vm.unwinder(), &words).end
    };
    assert_eq!(cut(6, COMPILED + INSTRUCTIONS + 0x11), End::Cut(CutReason::InvalidPcDesc));
    assert_eq!(cut(6, CODE + 0x3_0100), End::Cut(CutReason::UnknownCode));
    assert_eq!(cut(6, 0x1234), End::Cut(CutReason::UnknownCode));
    assert_eq!(cut(19, method(9)), End::Cut(CutReason::BadMethod));
    assert_eq!(cut(21, STACK), End::Cut(CutReason::BadFrame));
    vm.put(COMPILED + 0x128, &[0; 8]);
    vm.put(COMPILED + 0x120, &[1; 8]);
    assert_eq!(cut(0, WRAPPER + INSTRUCTIONS), End::Cut(CutReason::BadScope));
}
