//! A target put together from the fixtures: what it has mapped, its methods, and a plan in a form to compare.

use super::super::select::Selection;
use super::super::{Limits, Planner};
use super::{LATE, SITES, TestFile, image_of};
use crate::model::{Bound, FileId, FileOffset, Library, Mapping, Method, NativeCode, Probe, SkipReason, VirtAddr};

pub(super) const SITES_AT: u64 = 0x7f00_0000_0000;
pub(super) const LATE_AT: u64 = 0x7f11_0000_0000;
pub(super) const NO_LIMIT: Limits = Limits { functions: usize::MAX };

/// A library of the fixtures, mapped at an address.
pub(super) struct Mapped {
    pub(super) library: Library,
    _file: TestFile,
}

impl Mapped {
    pub(super) fn new(name: &str, inode: u64, bytes: &[u8], at: u64) -> Self {
        let test_file = TestFile::new(bytes);
        let file = FileId { major: 8, minor: 1, inode };
        let (path, open_path) = (format!("/opt/{name}").into(), test_file.path());
        let library = Library { file, path, deleted: false, open_path, mappings: Vec::new() };
        Self { library, _file: test_file }.at(at, bytes.len() as u64)
    }

    pub(super) fn sites() -> Self {
        Self::new("libsites.so", 1, &SITES, SITES_AT)
    }

    pub(super) fn late() -> Self {
        Self::new("liblate.so", 2, &LATE, LATE_AT)
    }

    pub(super) fn at(mut self, start: u64, length: u64) -> Self {
        let Library { file, ref path, .. } = self.library;
        let (start, end) = (VirtAddr(start), VirtAddr(start + length));
        let path = path.clone();
        self.library.mappings = vec![Mapping { start, end, offset: FileOffset(0), executable: true, file, path }];
        self
    }
}

pub(super) fn method(id: u64, class: &str, name: &str, code: NativeCode) -> Method {
    let (class, name, signature) = (class.into(), name.into(), "()V".into());
    Method { id: VirtAddr(id), class, name, signature, code }
}

pub(super) fn unbound(id: u64, class: &str, name: &str) -> Method {
    method(id, class, name, NativeCode::Unbound)
}

pub(super) fn offset(name: &str) -> u64 {
    image_of(&SITES).unwrap().export(&format!("Java_Sites_{name}")).unwrap().0
}

/// What is bound to a function of `fixtures/sites.S`.
pub(super) fn at(function: &str) -> NativeCode {
    NativeCode::Bound(VirtAddr(SITES_AT + offset(function)))
}

pub(super) fn planner() -> Planner {
    Planner::new(Selection::default(), NO_LIMIT, None)
}

/// Index, methods with how they are bound, of every probe.
pub(super) fn listed(planner: &Planner) -> Vec<(u32, Vec<(String, Bound)>)> {
    let methods =
        |probe: &Probe| probe.methods.iter().map(|known| (known.method.name.to_string(), known.bound)).collect();
    planner.probes().iter().map(|probe| (probe.index, methods(probe))).collect()
}

pub(super) fn skipped(planner: &Planner) -> Vec<(String, SkipReason)> {
    let mut skipped: Vec<_> = planner.skipped().map(|one| (one.method.method.name.to_string(), one.reason)).collect();
    skipped.sort();
    skipped
}

pub(super) fn named(name: &str, bound: Bound) -> (String, Bound) {
    (name.to_owned(), bound)
}
