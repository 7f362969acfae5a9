//! Names of native frames, by symbols and debug information.
//!
//! blazesym finds them. It maps files into memory, so it gets copies of the target's files, which nobody can cut short,
//! and the host's own debug files as they are.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::evict::{self, Evict};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer as Blazesym};

use super::address_space::AddressSpace;
use super::cfi::UnwindTable;
use super::covered::FunctionStarts;
use super::debug_file::{self, DebugFile};
use super::library_file::{LibraryError, LibraryFile, memory_file, vdso};
use super::names::{Names, NativeFrame, Owner, unknown};
use super::sample::CodeAddress;
use crate::elf::{self, Fault, Segment};
use crate::model::{ElfAddr, Library, Pid, VirtAddr};
use crate::sys::remote_memory::ProcessMemory;
use crate::sys::target_file::TargetFile;

/// How many named addresses are remembered. A long recording of a large JVM meets some ten thousand.
const MAX_NAMED: usize = 1 << 17;
/// What their names may take, in bytes.
const MAX_NAMES: usize = 64 << 20;
/// What is copied of a file at a time, in bytes.
const AT_A_TIME: usize = 256 << 10;
/// How large a copy of a file may be, and all of them together, in bytes.
const MAX_COPY: u64 = 512 << 20;
const MAX_COPIES: u64 = 1 << 30;
/// What the beginnings of all libraries' functions may take, in bytes. Those of libjvm take less than one million.
const MAX_STARTS: u64 = 64 << 20;
/// The VM's own library.
const VM: &str = "libjvm.so";

/// A library whose functions can be named.
#[derive(Debug)]
struct Symbols {
    code: Vec<Segment>,
    owner: Owner,
    /// What blazesym opens.
    path: PathBuf,
    /// The copy behind `path`, if it is one, and its size in bytes.
    copy: Option<(File, u64)>,
    starts: Arc<FunctionStarts>,
}

/// Names native frames of one process. It remembers names, within limits.
#[derive(Debug)]
pub struct Symbolizer {
    memory: ProcessMemory,
    vdso: Option<Library>,
    space: AddressSpace<Result<Symbols, LibraryError>>,
    blazesym: Blazesym,
    named: HashMap<(u32, ElfAddr), Arc<[NativeFrame]>>,
    names: Names,
    unknown: Arc<[NativeFrame]>,
    /// The size of all copies, in bytes.
    copied: u64,
    /// What the beginnings of functions take, in bytes.
    indexed: u64,
}

/// Addresses of one library that are to be looked up.
#[derive(Debug)]
struct Batch {
    path: PathBuf,
    owner: Owner,
    starts: Arc<FunctionStarts>,
    /// Each address, and which of the wanted frames are there.
    wanted: BTreeMap<u64, Vec<usize>>,
}

impl Symbolizer {
    /// For the process `pid`, of which no library is known yet.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        let memory = ProcessMemory::new(pid);
        let vdso = vdso(&memory);
        // Debug files are looked for here, in the target's own file system too; names are made readable here, once
        // each; a path that blazesym has opened means another file only after it was told to forget the first.
        let blazesym = Blazesym::builder().set_debug_dirs(Some([""; 0])).enable_demangling(false);
        let blazesym = blazesym.enable_auto_reload(false).build();
        let (space, named, names) = (AddressSpace::default(), HashMap::new(), Names::default());
        Self { memory, vdso, space, blazesym, named, names, unknown: unknown(), copied: 0, indexed: 0 }
    }

    /// Takes over what the process has mapped now. What is known of a library is kept for as long as it is mapped; its
    /// file is read when a frame lies in it for the first time.
    pub fn set_libraries(&mut self, libraries: &[Library]) {
        for known in self.space.set(libraries.iter().cloned().chain(self.vdso.clone())) {
            let Some(Ok(symbols)) = known.content else { continue };
            self.copied = self.copied.saturating_sub(symbols.copied());
            self.indexed = self.indexed.saturating_sub(symbols.starts.size());
            if let Err(error) = self.blazesym.evict(&Evict::Elf(evict::Elf::new(&symbols.path))) {
                tracing::debug!(library = %known.library.path.display(), %error, "its symbols stay in memory");
            }
            self.named.retain(|(serial, _), _| *serial != known.serial);
        }
    }

    /// The libraries that frames lay in and whose files cannot be used, and why.
    pub fn unusable(&self) -> impl Iterator<Item = (&Library, &LibraryError)> {
        self.space.known().filter_map(|known| Some((&known.library, known.content.as_ref()?.as_ref().err()?)))
    }

    /// The functions at an address, the innermost first: one, and before it those that the compiler has inlined there.
    pub fn name(&mut self, address: CodeAddress) -> Arc<[NativeFrame]> {
        self.name_all(&[address]).pop().unwrap_or_else(|| Arc::clone(&self.unknown))
    }

    /// As [`Self::name`] for each address. What is not known yet is looked up in one go for each library.
    pub fn name_all(&mut self, addresses: &[CodeAddress]) -> Vec<Arc<[NativeFrame]>> {
        if self.named.len() >= MAX_NAMED || self.names.size() >= MAX_NAMES {
            self.named.clear();
            self.names = Names::default();
        }
        let mut named = vec![Arc::clone(&self.unknown); addresses.len()];
        let mut batches = BTreeMap::new();
        for (place, (address, frames)) in addresses.iter().zip(&mut named).enumerate() {
            if let Some(known) = self.known_or_batched(address.lookup(), place, &mut batches) {
                *frames = known;
            }
        }
        for (serial, batch) in batches {
            self.look_up(serial, &batch, &mut named);
        }
        named
    }

    /// What is known of an address at once. What has to be looked up goes to its library's batch.
    fn known_or_batched(
        &mut self,
        addr: VirtAddr,
        place: usize,
        batches: &mut BTreeMap<u32, Batch>,
    ) -> Option<Arc<[NativeFrame]>> {
        let (known, offset) = self.space.locate(addr)?;
        let symbols = known.content.get_or_insert_with(|| {
            let room =
                Room { copy: MAX_COPIES.saturating_sub(self.copied), starts: MAX_STARTS.saturating_sub(self.indexed) };
            let loaded = Symbols::load(&known.library, &self.memory, room);
            self.copied += loaded.as_ref().map_or(0, Symbols::copied);
            self.indexed += loaded.as_ref().map_or(0, |symbols| symbols.starts.size());
            loaded
        });
        let Ok(symbols) = symbols else { return Some(owner(&known.library).nameless(offset.0)) };
        let Some(address) = elf::address_of(&symbols.code, offset) else {
            return Some(symbols.owner.nameless(offset.0));
        };
        if let Some(frames) = self.named.get(&(known.serial, address)) {
            return Some(Arc::clone(frames));
        }
        let batch = batches.entry(known.serial).or_insert_with(|| Batch {
            path: symbols.path.clone(),
            owner: symbols.owner.clone(),
            starts: Arc::clone(&symbols.starts),
            wanted: BTreeMap::new(),
        });
        batch.wanted.entry(address.0).or_default().push(place);
        None
    }

    /// Looks up a batch and remembers what is found.
    fn look_up(&mut self, serial: u32, batch: &Batch, named: &mut [Arc<[NativeFrame]>]) {
        let addresses: Vec<u64> = batch.wanted.keys().copied().collect();
        let source = Source::Elf(Elf::new(&batch.path));
        // What is wrong with the file as a whole leaves all its functions without names.
        let symbols = self.blazesym.symbolize(&source, Input::VirtOffset(&addresses)).unwrap_or_else(|error| {
            tracing::debug!(library = %batch.owner.library, %error, "no names");
            Vec::new()
        });
        let mut symbols = symbols.iter();
        for (address, places) in &batch.wanted {
            let start = batch.starts.of(ElfAddr(*address));
            let frames = match symbols.next() {
                Some(Symbolized::Sym(symbol)) if !is_of_another(symbol, start) => {
                    self.names.frames(symbol, &batch.owner)
                }
                _ => self.names.nameless(start.unwrap_or(ElfAddr(*address)), &batch.owner),
            };
            for place in places {
                named[*place] = Arc::clone(&frames);
            }
            self.named.insert((serial, ElfAddr(*address)), frames);
        }
    }
}

/// Whether a symbol was only taken because it is the last one before an address whose function begins later. A symbol
/// with a size says itself what it covers; debug information names functions in pieces, which have neither size nor
/// place.
fn is_of_another(symbol: &Sym<'_>, start: Option<ElfAddr>) -> bool {
    symbol.size.is_none() && symbol.addr > 0 && start.is_some_and(|start| symbol.addr < start.0)
}

/// How much may be kept of a library, in bytes.
struct Room {
    copy: u64,
    starts: u64,
}

impl Symbols {
    /// Finds the best file with symbols of a library.
    fn load(library: &Library, memory: &ProcessMemory, room: Room) -> Result<Self, LibraryError> {
        let opened = LibraryFile::open(library, memory)?;
        let debug = debug_file::find(memory.pid(), library, &opened);
        let LibraryFile { file, code, sections, .. } = opened;
        let owner = owner(library);
        // What cannot be read of this is missed by functions without a name alone.
        let starts = UnwindTable::read(&file, &sections, room.starts).map(UnwindTable::into_starts);
        let starts = Arc::new(starts.unwrap_or_default());
        if let Some(DebugFile::Host(path)) = debug {
            return Ok(Self { code, owner, path, copy: None, starts });
        }
        let copied = match debug {
            Some(DebugFile::Target(debug)) => copy(&debug, room.copy).or_else(|_too_large| copy(&file, room.copy)),
            _ => copy(&file, room.copy),
        };
        let failed = |source| LibraryError::Elf { path: library.open_path.clone(), source };
        let (copy, size) = copied.map_err(failed)?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd()).into();
        Ok(Self { code, owner, path, copy: Some((copy, size)), starts })
    }

    /// The size of the copy, in bytes.
    fn copied(&self) -> u64 {
        self.copy.as_ref().map_or(0, |(_, size)| *size)
    }
}

fn owner(library: &Library) -> Owner {
    let name = library.name();
    Owner { is_vm: name == VM, library: name.into() }
}

/// A copy of a file in memory, and its size.
fn copy(file: &TargetFile, room: u64) -> Result<(File, u64), Fault> {
    let limit = MAX_COPY.min(room);
    if file.about().len > limit {
        return Err(Fault::TooLarge);
    }
    let mut copy = memory_file()?;
    let mut bytes = BufReader::with_capacity(AT_A_TIME, file.stream().take(limit));
    let size = io::copy(&mut bytes, &mut copy)?;
    Ok((copy, size))
}
