//! The shim's library: the one that this nprof brings, and one that a JVM has loaded.
//!
//! Any process can map a file with the shim's name. So a shim is known by what it is: nprof speaks to one whose file is the
//! embedded one, byte for byte. Even that proves nothing of what the process says, which is bounded and checked
//! (`allowance.rs`, `connection.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use procfs::process::{Process, Task};

use super::Refusal;
use crate::discover::{self, Proc};
use crate::elf::{self, Elf, Limits};
use crate::model::{Jvm, Library, Mapping, Method, NativeCode, Pid, VirtAddr};
use crate::sys::target_file::TargetFile;

/// The file, built together with nprof.
///
/// It needs musl or glibc 2.18 in the target (`nprof-shim/src/c_library.rs`). On an older one the JVM does not load it, and says
/// so.
pub static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnprof_shim.so"));

/// What it is called wherever it lies.
pub const NAME: &str = "libnprof_shim.so";

/// What each call passes that a stub has chosen: a slow one, or one whose stack is to be taken.
const CHOSEN_SITE: &str = "nprof_stub_chosen";
/// The name of what threads pass that have no row.
const ROWLESS_SITE: &str = "nprof_stub_rowless";

/// The name of its thread, which lives as long as a conversation with nprof.
const THREAD: &str = "nprof-shim";

/// How long that thread may take to notice that its nprof has ended, and how often it is asked.
const ENDING: Duration = Duration::from_secs(1);
const ENDING_STEP: Duration = Duration::from_millis(5);

/// The size of a page, in which files are mapped.
const PAGE: u64 = 4096;

/// How much of a file is compared at a time.
const PIECE: usize = 64 << 10;

/// The package of the shim's own classes.
const PACKAGE: &str = "nprof.shim.";

/// Whether a method is one of the shim's own, which nobody wants to be traced.
#[must_use]
pub fn is_own(method: &Method) -> bool {
    method.class.starts_with(PACKAGE)
}

/// A shim that is in a JVM, connected or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Its library.
    pub library: Library,
}

/// The shim that is loaded into a JVM; `None` if there is none.
///
/// # Errors
/// If the process is gone or may not be looked into.
pub fn find(proc: &Proc, jvm: &Jvm) -> Result<Option<Loaded>, discover::Error> {
    Ok(among(&proc.libraries(jvm.pid)?))
}

/// Whether another nprof has the shim in a process count: then a thread of the shim waits for that nprof's messages. One that has just
/// ended is waited for.
#[must_use]
pub fn is_in_use(pid: Pid) -> bool {
    let began = Instant::now();
    while has_thread(pid) {
        if began.elapsed() >= ENDING {
            return true;
        }
        thread::sleep(ENDING_STEP);
    }
    false
}

fn has_thread(pid: Pid) -> bool {
    let tasks = i32::try_from(pid.0).ok().and_then(|pid| Process::new(pid).ok()?.tasks().ok());
    let is_shim = |task: Task| task.stat().is_ok_and(|stat| stat.comm == THREAD);
    tasks.is_some_and(|mut tasks| tasks.any(|task| task.is_ok_and(is_shim)))
}

/// The shim among the libraries of a JVM. It may be that of another nprof, or one that only looks like a shim: see
/// [`Loaded::is_known`].
#[must_use]
pub fn among(libraries: &[Library]) -> Option<Loaded> {
    let known = libraries.iter().find(|library| Layout::own().is_of(library));
    let known = known.or_else(|| libraries.iter().find(|library| library.name() == NAME));
    known.map(|library| Loaded { library: library.clone() })
}

/// Where the code is in the embedded file.
#[derive(Debug, Clone, Copy, Default)]
struct Layout {
    /// Of its mapping: place in the file and length, in whole pages.
    offset: u64,
    length: u64,
    /// What chosen calls pass, from the beginning of the file.
    chosen_site: u64,
    /// What threads pass that have no row, from there too.
    rowless_site: u64,
}

impl Layout {
    fn own() -> &'static Self {
        static OWN: OnceLock<Layout> = OnceLock::new();
        // A test says that the embedded file has one.
        OWN.get_or_init(|| Self::read().unwrap_or_default())
    }

    fn read() -> Option<Self> {
        let library = Elf::parse(BYTES, Limits::LIBRARY).ok()?;
        let (code, symbols) = (library.code().ok()?, library.debug_symbols().ok()?);
        let site = |of| symbols.named(&[of]).flatten().find_map(|(name, site)| (name == of).then_some(site));
        let place = code.first()?.range();
        let offset = place.start.0 & !(PAGE - 1);
        let length = place.end.0.next_multiple_of(PAGE) - offset;
        let [chosen, rowless] = [CHOSEN_SITE, ROWLESS_SITE].map(|name| elf::offset_of(&code, site(name)?));
        Some(Self { offset, length, chosen_site: chosen?.0, rowless_site: rowless?.0 })
    }

    /// Whether a library is mapped as the embedded one would be.
    fn is_of(&self, library: &Library) -> bool {
        let length = |mapping: &Mapping| mapping.end.0.saturating_sub(mapping.start.0);
        library.mappings.iter().any(|mapping| mapping.offset.0 == self.offset && length(mapping) == self.length)
    }
}

impl Loaded {
    /// Whether it is the very library that this nprof brings. Reads its file.
    #[must_use]
    pub fn is_known(&self) -> bool {
        Layout::own().is_of(&self.library) && is_own_file(&self.library.open_path).unwrap_or(false)
    }

    /// Whether an address is that of the instruction in it which chosen calls pass, so that a probe may be put there.
    #[must_use]
    pub fn is_chosen_site(&self, address: VirtAddr) -> bool {
        self.is_at(address, Layout::own().chosen_site)
    }

    /// The same of the instruction that threads pass which have found no row.
    #[must_use]
    pub fn is_rowless_site(&self, address: VirtAddr) -> bool {
        self.is_at(address, Layout::own().rowless_site)
    }

    fn is_at(&self, address: VirtAddr, offset: u64) -> bool {
        let mapping = self.library.mappings.iter().find(|mapping| mapping.contains(address));
        mapping.is_some_and(|mapping| address.0 - mapping.start.0 + mapping.offset.0 == offset)
    }

    /// Whether the VM holds an address in it for a method: that of a stub.
    #[must_use]
    pub fn holds(&self, method: &Method) -> bool {
        let NativeCode::Bound(address) = method.code else { return false };
        self.library.holds(address)
    }

    /// A path by which the target opens the very file that it has loaded: loading that again loads nothing twice.
    pub(super) fn path_inside(&self, proc: &Proc, pid: Pid) -> Result<PathBuf, Refusal> {
        let file = &self.library.open_path;
        // The shim keeps its own file open, since nobody else knows it once it has been unlinked.
        if let Some(number) = proc.descriptor_of(pid, file)? {
            return Ok(format!("/proc/self/fd/{number}").into());
        }
        let path = proc.path_inside(pid, &self.library.path).filter(|path| proc.finds(pid, path, file));
        path.ok_or(Refusal::FileLost { pid })
    }
}

/// Whether a file is the embedded one. Reads no more than it has to.
fn is_own_file(path: &Path) -> io::Result<bool> {
    let file = TargetFile::open(path)?;
    if file.about().len != BYTES.len() as u64 {
        return Ok(false);
    }
    let mut piece = vec![0; PIECE];
    for (own, offset) in BYTES.chunks(PIECE).zip((0..).step_by(PIECE)) {
        let piece = &mut piece[..own.len()];
        file.read_exact_at(piece, offset)?;
        if piece != own {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use object::elf::DT_NEEDED;
    use object::read::elf::{Dyn as _, ElfFile64, FileHeader};
    use object::{LittleEndian, Object as _, ObjectSymbol as _};

    use super::*;
    use crate::model::{FileId, FileOffset};

    /// A library of this content, mapped like the embedded one but for `more` bytes, and at which path it is.
    fn mapped(content: &[u8], more: u64) -> (Loaded, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, content).unwrap();
        let (own, id) = (*Layout::own(), FileId { major: 1, minor: 2, inode: 3 });
        let (start, end) = (VirtAddr(0x10_0000), VirtAddr(0x10_0000 + own.length + more));
        let path = PathBuf::from("/tmp/libnprof_shim.so");
        let mapping =
            Mapping { start, end, offset: FileOffset(own.offset), executable: true, file: id, path: path.clone() };
        let open_path = file.path().to_owned();
        (Loaded { library: Library { file: id, path, deleted: false, open_path, mappings: vec![mapping] } }, file)
    }

    /// Check that a thread of the shim that goes on is in use, and one that ends while it is asked is not.
    #[test]
    fn who_is_ending_is_not_in_use() {
        let ((hold, held), (tell, told)) = (channel::<()>(), channel());
        let wait = move || (tell.send(()).unwrap(), held.recv());
        let shim = thread::Builder::new().name(THREAD.to_owned()).spawn(wait).unwrap();
        // It names itself before it does anything.
        told.recv().unwrap();
        let own = Pid(std::process::id());
        assert!(is_in_use(own));
        let asked = thread::spawn(move || is_in_use(own));
        drop(hold);
        assert!(!asked.join().unwrap());
        shim.join().unwrap().1.unwrap_err();
    }

    /// Check that a shim is known by its content, whatever it is called, and that neither a name nor a mapping makes one.
    #[test]
    fn known_by_what_it_is() {
        let (own, _file) = mapped(BYTES, 0);
        assert!(own.is_known());
        let renamed = Library { path: PathBuf::from("/opt/agent.so"), ..own.library.clone() };
        assert!(among(&[renamed]).is_some_and(|loaded| loaded.is_known()));
        let mut other = BYTES.to_vec();
        other[BYTES.len() / 2] ^= 1;
        for (content, more) in [(&other[..], 0), (&BYTES[1..], 0), (b"", 0), (BYTES, 4096)] {
            let (stranger, _file) = mapped(content, more);
            assert!(among(std::slice::from_ref(&stranger.library)).is_some_and(|loaded| !loaded.is_known()), "{more}");
        }
        let decoy = Library { mappings: Vec::new(), ..own.library.clone() };
        assert_eq!(among(&[decoy, own.library.clone()]), Some(own), "not the first with the name");
    }

    /// Check that a probe for slow calls is put nowhere else in it.
    #[test]
    fn chosen_site_is_one_place() {
        let (own, _file) = mapped(BYTES, 0);
        let layout = Layout::own();
        let around =
            |offset: u64| [-1, 0, 1].map(|by| VirtAddr((0x10_0000 + offset - layout.offset).wrapping_add_signed(by)));
        let [chosen, rowless] = [layout.chosen_site, layout.rowless_site].map(around);
        assert_eq!(chosen.map(|address| own.is_chosen_site(address)), [false, true, false]);
        assert_eq!(rowless.map(|address| own.is_rowless_site(address)), [false, true, false]);
        assert!(!own.is_chosen_site(rowless[1]) && !own.is_rowless_site(VirtAddr(0)));
    }

    /// Check that the embedded file is a library that a JVM can load while it runs, with names for profilers.
    #[test]
    fn is_an_agent() {
        let library = object::File::parse(BYTES).unwrap();
        for name in ["Agent_OnLoad", "Agent_OnAttach"] {
            assert!(library.dynamic_symbols().any(|symbol| symbol.is_global() && symbol.name() == Ok(name)), "{name}");
        }
        assert!(library.symbols().any(|symbol| symbol.name() == Ok("nprof_stub_chosen")));
    }

    /// Check that the embedded file needs no library that a JVM on musl cannot give it.
    #[test]
    fn needs_a_c_library_alone() {
        let library: ElfFile64<'_, LittleEndian> = ElfFile64::parse(BYTES).unwrap();
        let (header, endian) = (library.elf_header(), LittleEndian);
        let sections = header.sections(endian, BYTES).unwrap();
        let (entries, strings) = sections.dynamic(endian, BYTES).unwrap().expect("it is linked dynamically");
        let strings = sections.strings(endian, BYTES, strings).unwrap();
        let needed = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
        let names: Vec<_> = needed.map(|entry| entry.string(endian, strings).unwrap()).collect();
        assert_eq!(names, [b"libc.so.6"]);
    }

    /// Check that the embedded file loads into a process with glibc 2.18, however new that of the machine is where it was
    /// built.
    #[test]
    fn needs_no_new_glibc() {
        let library: ElfFile64<'_, LittleEndian> = ElfFile64::parse(BYTES).unwrap();
        let (header, endian) = (library.elf_header(), LittleEndian);
        let sections = header.sections(endian, BYTES).unwrap();
        let (mut needs, names) = sections.gnu_verneed(endian, BYTES).unwrap().expect("it uses glibc");
        let strings = sections.strings(endian, BYTES, names).unwrap();
        let mut newest = [0, 0];
        while let Some((_, mut versions)) = needs.next().unwrap() {
            while let Some(version) = versions.next().unwrap() {
                let name = std::str::from_utf8(version.name(endian, strings).unwrap()).unwrap();
                if let Some(numbers) = name.strip_prefix("GLIBC_") {
                    let numbers: Vec<u32> = numbers.split('.').map(|number| number.parse().unwrap()).collect();
                    newest = newest.max([numbers[0], numbers[1]]);
                }
            }
        }
        assert!(newest > [2, 0] && newest <= [2, 18], "needs glibc {newest:?}");
    }
}
