//! Checks which functions are probed where a probe reaches every process that has the file mapped.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use tempfile::TempDir;

use super::super::guard::Guard;
use super::super::select::Selection;
use super::super::{Image, Planner};
use super::target::{NO_LIMIT, listed, method, named, skipped};
use super::{GUARDED, image_of};
use crate::model::{Bound, FileId, FileOffset, Library, Mapping, NativeCode, SkipReason, VirtAddr};

const AT: u64 = 0x7f22_0000_0000;

/// The fixture, in a directory where programs may have the rights of their owner, which those for temporary files need not
/// be.
struct Guarded {
    _directory: TempDir,
    library: Library,
    first: u64,
}

impl Guarded {
    fn new(mode: u32) -> Self {
        let beside = std::env::current_exe().unwrap();
        let directory = TempDir::new_in(beside.parent().unwrap()).unwrap();
        let open_path = directory.path().join("libguarded.so");
        std::fs::write(&open_path, &*GUARDED).unwrap();
        std::fs::set_permissions(&open_path, Permissions::from_mode(mode)).unwrap();
        let (file, path) = (FileId { major: 8, minor: 1, inode: 5 }, std::path::PathBuf::from("/opt/libguarded.so"));
        let (start, end) = (VirtAddr(AT), VirtAddr(AT + GUARDED.len() as u64));
        let mapping = Mapping { start, end, offset: FileOffset(0), executable: true, file, path: path.clone() };
        let library = Library { file, path, deleted: false, open_path, mappings: vec![mapping] };
        let first = image_of(&GUARDED).unwrap().export("Java_Guarded_exported").unwrap().0;
        Self { _directory: directory, library, first }
    }

    /// Plans methods that are bound so many bytes behind the first function.
    fn plan(&self, guard: Option<Guard>, bound: &[(&str, u64)]) -> Planner {
        let mut planner = Planner::new(Selection::default(), NO_LIMIT, guard);
        let methods = (1..).zip(bound).map(|(id, (name, behind))| {
            method(id, "Guarded", name, NativeCode::Bound(VirtAddr(AT + self.first + behind)))
        });
        planner.add(&methods.collect::<Vec<_>>(), std::slice::from_ref(&self.library));
        planner
    }
}

fn own_user() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// Check that exactly the proven starts of functions are probed, and moved from there on as always.
#[test]
fn proven_starts_alone() {
    let guarded = Guarded::new(0o644);
    let bound = [("exported", 0), ("named", 16), ("covered", 32), ("inOperand", 33), ("label", 48), ("behind", 49)];
    let planner = guarded.plan(Some(Guard::believing(own_user())), &bound);
    let names = listed(&planner).into_iter().flat_map(|(_, methods)| methods).collect::<Vec<_>>();
    let registered = |name| named(name, Bound::Registered);
    assert_eq!(names, [named("exported", Bound::Export), registered("named"), registered("covered")]);
    let moved: Vec<u64> = planner.probes().iter().map(|probe| probe.site.offset.0 - probe.site.entry.0).collect();
    assert_eq!(moved, [0, 3, 0]);
    let unproven = ["behind", "inOperand", "label"].map(|name| (name.to_owned(), SkipReason::UnprovenStart));
    assert_eq!(skipped(&planner), unproven);
}

/// Check that all of these are probed where probes stay in the target.
#[test]
fn nothing_is_asked_without_a_guard() {
    let planner = Guarded::new(0o666).plan(None, &[("exported", 0), ("inOperand", 33), ("label", 48)]);
    assert_eq!((planner.probes().len(), skipped(&planner)), (3, vec![]));
}

/// Check that nothing is believed of a file that is another user's, that others may write, or that the target's user may
/// have written as root.
#[test]
fn untrusted_files() {
    let (readable, writable) = (Guarded::new(0o644), Guarded::new(0o664));
    let untrusted = [("exported".to_owned(), SkipReason::UntrustedFile)];
    let own = Guard::believing(own_user());
    for (guarded, guard) in
        [(&readable, Guard::believing(own_user() + 1)), (&writable, own), (&readable, Guard::new(true))]
    {
        let planner = guarded.plan(Some(guard), &[("exported", 0)]);
        assert_eq!((planner.probes().len(), skipped(&planner).as_slice()), (0, &untrusted[..]), "{guard:?}");
    }
    assert_eq!(readable.plan(Some(own), &[("exported", 0)]).probes().len(), 1);
}

/// Check that what was read and proven is what will be attached to, whatever stands under the path of the target then.
#[test]
fn attached_to_what_was_read() {
    let guarded = Guarded::new(0o644);
    let mut planner = guarded.plan(None, &[("exported", 0)]);
    std::fs::remove_file(&guarded.library.open_path).unwrap();
    std::fs::write(&guarded.library.open_path, b"another").unwrap();
    planner.add(&[], std::slice::from_ref(&guarded.library));
    let opened = Image::open(&planner.libraries()[0].open_path).unwrap();
    assert_eq!(opened.export("Java_Guarded_exported"), Some(FileOffset(guarded.first)));
}
