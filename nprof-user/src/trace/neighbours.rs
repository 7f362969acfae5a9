//! Whether a link may reach everyone who has a library mapped: nobody may pay for it who is not traced, and it may change
//! nobody's code but where a function begins.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::attach::{Neighbours, Terms};
use crate::discover::Proc;
use crate::model::{FileId, FileOffset, Jvm, Library, Pid};
use crate::resolve::select::Selection;
use crate::resolve::{Guard, Image};

/// Asks the host.
pub(super) struct HostNeighbours<'a>(pub &'a Proc);

impl Neighbours for HostNeighbours<'_> {
    fn mapped_by_others(&self, files: &BTreeSet<FileId>, members: &BTreeSet<Pid>) -> BTreeSet<FileId> {
        self.0.mapped_by_others(files, members)
    }

    fn proven(&self, library: &Library, entries: &[FileOffset]) -> BTreeSet<FileOffset> {
        // Who might have forged the file has no terms.
        let guard = Guard::new(false);
        let refused = Image::open(&library.open_path).and_then(|image| guard.refused(&image, entries));
        let refused: BTreeSet<FileOffset> = match refused {
            Ok(refused) => refused.into_iter().map(|(entry, _)| entry).collect(),
            Err(error) => {
                tracing::debug!("{}: nothing is proven: {error}", library.name());
                return BTreeSet::new();
            }
        };
        entries.iter().copied().filter(|entry| !refused.contains(entry)).collect()
    }
}

/// On which terms a JVM shares links with others: the same methods are selected, and JNI functions are traced or not. `None` of one that
/// may have forged what proves that a function begins where it says.
pub(super) fn terms(proc: &Proc, jvm: &Jvm, wanted: (&Selection, Option<usize>, bool, bool)) -> Option<Terms> {
    let may_forge = proc.writes_as_root(jvm).unwrap_or(true);
    let mut hasher = DefaultHasher::new();
    let (selection, max_functions, timed, jni) = wanted;
    (format!("{selection:?}"), max_functions, timed, jni).hash(&mut hasher);
    (!may_forge).then(|| Terms(hasher.finish()))
}
