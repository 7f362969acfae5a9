//! From frame to frame, as far as the native part of a stack goes.

use std::collections::HashMap;
use std::sync::Arc;

use super::address_space::AddressSpace;
use super::cfi::{Context, UnwindTable};
use super::library_file::{LibraryError, LibraryFile, vdso};
use super::rule::{RegisterFile, Rule};
use super::sample::{CodeAddress, NativeEnd, NativeSample, NativeStack, Registers};
use super::stack_copy::StackCopy;
use crate::elf::{self, Segment};
use crate::model::{CutReason, ElfAddr, Library, Pid, VirtAddr};
use crate::sys::remote_memory::ProcessMemory;

/// A stack with more native frames in a row is cut, visibly.
pub const MAX_FRAMES: usize = 1_000;
/// How many rules are remembered. A JVM under load needs some thousand.
const MAX_RULES: usize = 1 << 14;
/// How much unwind information of all libraries together is kept, in bytes. That of a JVM with all its own takes four
/// million.
const MAX_TABLES: u64 = 256 << 20;

/// What is known of a library's code.
#[derive(Debug)]
struct Code {
    segments: Vec<Segment>,
    table: UnwindTable,
}

/// Unwinds native frames of one process. It remembers libraries and rules, within limits.
#[derive(Debug)]
pub struct NativeUnwinder {
    memory: ProcessMemory,
    vdso: Option<Library>,
    space: AddressSpace<Result<Code, LibraryError>>,
    rules: HashMap<(u32, ElfAddr), Option<Arc<Rule>>>,
    /// How much unwind information is kept, in bytes.
    held: u64,
    context: Box<Context>,
}

/// The frame that another one led to.
struct Next {
    caller: RegisterFile,
    is_return: bool,
    guessed: bool,
}

impl NativeUnwinder {
    /// For the process `pid`, of which no library is known yet.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        let memory = ProcessMemory::new(pid);
        let vdso = vdso(&memory);
        let (space, rules) = (AddressSpace::default(), HashMap::new());
        Self { memory, vdso, space, rules, held: 0, context: Box::new(Context::new()) }
    }

    /// Takes over what the process has mapped now. What is known of a library is kept for as long as it is mapped; its
    /// file is read when a frame lies in it for the first time.
    pub fn set_libraries(&mut self, libraries: &[Library]) {
        let gone = self.space.set(libraries.iter().cloned().chain(self.vdso.clone()));
        let freed = gone.iter().filter_map(|known| Some(known.content.as_ref()?.as_ref().ok()?.table.size()));
        self.held = self.held.saturating_sub(freed.sum());
        self.rules.retain(|(serial, _), _| gone.iter().all(|known| known.serial != *serial));
    }

    /// The libraries that frames lay in and whose files cannot be used, and why.
    pub fn unusable(&self) -> impl Iterator<Item = (&Library, &LibraryError)> {
        self.space.known().filter_map(|known| Some((&known.library, known.content.as_ref()?.as_ref().err()?)))
    }

    /// The native frames of a sample, down to the first address that `stop` says is Java code.
    pub fn unwind(&mut self, sample: &NativeSample<'_>, stop: &dyn Fn(VirtAddr) -> bool) -> NativeStack {
        self.unwind_from(sample, false, stop)
    }

    /// The same for registers as they are in a caller: the address is that to which a call returns.
    pub fn unwind_caller(&mut self, sample: &NativeSample<'_>, stop: &dyn Fn(VirtAddr) -> bool) -> NativeStack {
        self.unwind_from(sample, true, stop)
    }

    fn unwind_from(
        &mut self,
        sample: &NativeSample<'_>,
        mut is_return: bool,
        stop: &dyn Fn(VirtAddr) -> bool,
    ) -> NativeStack {
        let stack = StackCopy { base: sample.stack_base, bytes: sample.stack, probed: sample.probed };
        let mut here = RegisterFile::new(sample.pc, sample.sp, sample.fp);
        let mut found = NativeStack { frames: Vec::new(), guessed: 0, end: NativeEnd::Complete };
        loop {
            let place = CodeAddress { address: here.pc(), is_return };
            if stop(place.address) {
                found.end = NativeEnd::Java(Registers { pc: here.pc(), sp: here.sp(), fp: here.fp() });
                return found;
            }
            if found.frames.len() == MAX_FRAMES {
                found.end = NativeEnd::Cut(CutReason::TooDeep);
                return found;
            }
            found.frames.push(place);
            match self.step(&here, place, &stack, stop) {
                Ok(None) => return found,
                Ok(Some(Next { caller, is_return: returns, guessed })) => {
                    (here, is_return) = (caller, returns);
                    found.guessed += usize::from(guessed);
                }
                Err(reason) => {
                    found.end = NativeEnd::Cut(reason);
                    return found;
                }
            }
        }
    }

    /// The caller of a frame; `None` if the frame is the first of its thread.
    fn step(
        &mut self,
        here: &RegisterFile,
        place: CodeAddress,
        stack: &StackCopy<'_>,
        stop: &dyn Fn(VirtAddr) -> bool,
    ) -> Result<Option<Next>, CutReason> {
        let Some(rule) = self.rule(place.lookup()) else {
            return self.guess(here, place.is_return, stack, stop);
        };
        let Some(caller) = rule.follow(here, stack)? else { return Ok(None) };
        // A signal handler may run on another stack than what it interrupted.
        if caller.sp() <= here.sp() && !rule.is_signal {
            return Err(CutReason::BadFrame);
        }
        if !self.is_code(caller.pc(), stop) {
            return Err(CutReason::UnknownCode);
        }
        Ok(Some(Next { caller, is_return: !rule.is_signal, guessed: false }))
    }

    /// The caller of a frame of which nothing is known: what a function without a frame, one that has just kept its caller's frame pointer,
    /// or one with its own would lead to, if that is code.
    fn guess(
        &self,
        here: &RegisterFile,
        has_called: bool,
        stack: &StackCopy<'_>,
        stop: &dyn Fn(VirtAddr) -> bool,
    ) -> Result<Option<Next>, CutReason> {
        let to = |caller| Ok(Some(Next { caller, is_return: true, guessed: true }));
        let caller_at = |slot: VirtAddr, fp: Option<VirtAddr>| {
            let pc = VirtAddr(stack.word(slot).ok()?);
            let sp = slot.checked_add(8)?;
            self.is_code(pc, stop).then(|| RegisterFile::new(pc, sp, fp))
        };
        let is_kept = here.fp().is_some_and(|fp| stack.word(here.sp()) == Ok(fp.0));
        let above = here.sp().checked_add(8).filter(|_| is_kept);
        let mut slots = [Some(here.sp()), above].into_iter().flatten();
        if !has_called && let Some(caller) = slots.find_map(|slot| caller_at(slot, here.fp())) {
            return to(caller);
        }
        let fp = here.fp().ok_or(CutReason::NoUnwindInfo)?;
        if fp.is_null() && has_called {
            // By convention the first function of a thread has none.
            return Ok(None);
        }
        let saved = stack.word(fp).ok().filter(|_| fp >= here.sp()).map(VirtAddr);
        let slot = fp.checked_add(8);
        match (saved, slot) {
            (Some(saved), Some(slot)) => to(caller_at(slot, Some(saved)).ok_or(CutReason::NoUnwindInfo)?),
            _ => Err(CutReason::NoUnwindInfo),
        }
    }

    fn is_code(&self, pc: VirtAddr, stop: &dyn Fn(VirtAddr) -> bool) -> bool {
        self.space.contains(pc) || stop(pc)
    }

    /// The rule for code at an address, if anything is known about it.
    fn rule(&mut self, addr: VirtAddr) -> Option<Arc<Rule>> {
        let (known, offset) = self.space.locate(addr)?;
        let code = known.content.get_or_insert_with(|| {
            let loaded = load(&known.library, &self.memory, MAX_TABLES.saturating_sub(self.held));
            self.held += loaded.as_ref().map_or(0, |code| code.table.size());
            loaded
        });
        let code = code.as_ref().ok()?;
        let address = elf::address_of(&code.segments, offset)?;
        if self.rules.len() >= MAX_RULES {
            self.rules.clear();
        }
        let rule = self.rules.entry((known.serial, address));
        rule.or_insert_with(|| code.table.rule(address, &mut self.context).map(Arc::new)).clone()
    }
}

/// Reads a library whose unwind information may take `room` bytes.
fn load(library: &Library, memory: &ProcessMemory, room: u64) -> Result<Code, LibraryError> {
    let loaded = LibraryFile::open(library, memory).and_then(|LibraryFile { file, code, sections, .. }| {
        let table = UnwindTable::read(&file, &sections, room);
        let table = table.map_err(|source| LibraryError::Open { path: library.open_path.clone(), source })?;
        Ok(Code { segments: code, table })
    });
    if let Err(error) = &loaded {
        tracing::debug!(library = %library.path.display(), %error, "no native frames");
    }
    loaded
}
