//! From a method to the function behind it: library and offset of the entry.

use std::collections::HashMap;
use std::sync::Arc;

use super::image::Image;
use super::images;
use super::mangle::{critical_name, jni_long_name, jni_short_name};
use crate::model::{Bound, FileId, FileOffset, Library, LibraryId, Method, NativeCode, SkipReason, VirtAddr};

/// Where the function behind a method begins, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Function {
    pub library: LibraryId,
    pub entry: FileOffset,
    pub bound: Bound,
}

/// The libraries of a target, and their files as far as they could be read.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    libraries: Vec<Library>,
    by_file: HashMap<FileId, LibraryId>,
    /// In the order of `libraries`; `None` for a file that cannot be read.
    images: Vec<Option<Arc<Image>>>,
}

impl Libraries {
    /// Takes over what is mapped now. Libraries keep their number for good; one that is no longer mapped keeps its
    /// entry without mappings. Returns whether any is new, or mapped again.
    pub(super) fn update(&mut self, mapped: &[Library]) -> bool {
        let was_mapped: Vec<bool> = self.libraries.iter().map(|library| !library.mappings.is_empty()).collect();
        for library in &mut self.libraries {
            library.mappings.clear();
        }
        let mut any_new = false;
        for library in mapped {
            match self.by_file.get(&library.file) {
                Some(&LibraryId(place)) => {
                    any_new |= !was_mapped.get(place).copied().unwrap_or(true);
                    // What opens the file that was read stays, as long as it was read.
                    let known = std::mem::replace(&mut self.libraries[place], library.clone());
                    if self.images[place].is_some() {
                        self.libraries[place].open_path = known.open_path;
                    }
                }
                None => {
                    any_new = true;
                    self.push(library);
                }
            }
        }
        any_new
    }

    /// Every library seen so far.
    pub(super) fn all(&self) -> &[Library] {
        &self.libraries
    }

    /// The file of a library, if it could be read.
    pub(super) fn image(&self, id: LibraryId) -> Option<&Image> {
        self.images.get(id.0)?.as_deref()
    }

    /// The function behind a method, or why there is none to probe.
    pub(super) fn locate(&self, method: &Method) -> Result<Function, SkipReason> {
        match method.code {
            NativeCode::Intrinsic => Err(SkipReason::Intrinsic),
            NativeCode::Bound(address) => self.bound(method, address),
            NativeCode::Unbound => self.predicted(method).ok_or(SkipReason::Unbound),
        }
    }

    /// The critical function of a method that is bound to `function`. The VM looks for it in the same library.
    pub(super) fn critical(&self, method: &Method, function: &Function) -> Option<Function> {
        let image = self.image(function.library)?;
        let names = [
            jni_short_name(&method.class, &method.name),
            jni_long_name(&method.class, &method.name, &method.signature),
        ];
        let entry = names.iter().find_map(|name| image.export(&critical_name(name)))?;
        Some(Function { library: function.library, entry, bound: Bound::Critical })
    }

    fn push(&mut self, library: &Library) {
        let image = images::open(&library.open_path)
            .inspect_err(|error| {
                tracing::debug!("{error}: {:?}", std::error::Error::source(error).map(ToString::to_string))
            })
            .ok();
        let open_path = image.as_ref().map_or_else(|| library.open_path.clone(), |image| image.open_path());
        self.by_file.insert(library.file, LibraryId(self.libraries.len()));
        self.libraries.push(Library { open_path, ..library.clone() });
        self.images.push(image);
    }

    fn bound(&self, method: &Method, address: VirtAddr) -> Result<Function, SkipReason> {
        let (library, entry) = self.place_of(address).ok_or(SkipReason::NoFile)?;
        let image = self.image(library).ok_or(SkipReason::UnreadableLibrary)?;
        let bound = if exported_as(image, method) == Some(entry) { Bound::Export } else { Bound::Registered };
        Ok(Function { library, entry, bound })
    }

    /// The function that the VM will find when the method is first called. It asks the libraries of the class's
    /// loader; nprof does not know which these are and takes the first that exports the name.
    fn predicted(&self, method: &Method) -> Option<Function> {
        let mapped = self.libraries.iter().enumerate().filter(|(_, library)| !library.mappings.is_empty());
        mapped.map(|(place, _)| LibraryId(place)).find_map(|library| {
            let entry = exported_as(self.image(library)?, method)?;
            Some(Function { library, entry, bound: Bound::Predicted })
        })
    }

    fn place_of(&self, address: VirtAddr) -> Option<(LibraryId, FileOffset)> {
        self.libraries.iter().enumerate().find_map(|(place, library)| {
            let mapping = library.mappings.iter().find(|mapping| mapping.contains(address))?;
            let offset = mapping.offset.0.checked_add(address.0 - mapping.start.0)?;
            Some((LibraryId(place), FileOffset(offset)))
        })
    }
}

/// Where a library exports a method's JNI name, the short one first as the VM does.
fn exported_as(image: &Image, method: &Method) -> Option<FileOffset> {
    image
        .export(&jni_short_name(&method.class, &method.name))
        .or_else(|| image.export(&jni_long_name(&method.class, &method.name, &method.signature)))
}
