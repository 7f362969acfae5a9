//! Recordings that the command line names.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::selection::SelectionArgs;
use super::terminal::say;
use crate::aggregate::narrow;
use crate::model::{FunctionTotals, Method, NativeCode, Profile, ProfileMode, VirtAddr};
use crate::recording;

/// Reads a recording.
///
/// # Errors
/// If it cannot be read; the error names it.
pub(super) fn open(path: &Path) -> anyhow::Result<Profile> {
    let read = File::open(path)
        .map_err(|source| recording::Error::Io { source })
        .and_then(|mut file| recording::read(&mut file));
    read.with_context(|| path.display().to_string())
}

/// Recordings as if only what is selected had been traced; `None` if a pattern matches no method of any of them, which has been
/// said.
///
/// # Errors
/// For a pattern that is none, and for patterns where recordings know no methods.
pub(super) fn select<const N: usize>(
    profiles: [Profile; N],
    selected: &SelectionArgs,
) -> anyhow::Result<Option<[Profile; N]>> {
    if selected.is_empty() {
        return Ok(Some(profiles));
    }
    if profiles.iter().any(|profile| profile.about.mode == ProfileMode::OnCpu) {
        bail!(
            "a recording of the CPU (`--on-cpu`) has samples of whatever ran and knows no methods: omit what selects some"
        );
    }
    let selection = selected.parse()?;
    let methods: Vec<Method> = profiles.iter().flat_map(|profile| profile.functions.iter().map(method)).collect();
    let unmatched = selection.unmatched(&methods);
    for pattern in &unmatched {
        say(format_args!("{pattern}"));
    }
    if !unmatched.is_empty() {
        say(
            "only methods that were called while it was recorded are in a recording; `nprof report FILE --all` lists them",
        );
    }
    let keeps = |function: &FunctionTotals| {
        selection.selects(&method(function)) && selection.selects_library(&function.library)
    };
    if unmatched.is_empty() && !profiles.iter().flat_map(|profile| &profile.functions).any(keeps) {
        say("no native method of the recording is selected");
        return Ok(None);
    }
    let narrowed = |profile: Profile| {
        let mut narrowed = narrow(profile, keeps);
        if !selected.patterns.is_empty() {
            narrowed.about.patterns.clone_from(&selected.patterns);
        }
        narrowed
    };
    Ok(unmatched.is_empty().then(|| profiles.map(narrowed)))
}

/// The first method of a function, which recordings know it by.
fn method(function: &FunctionTotals) -> Method {
    let FunctionTotals { class, method, signature, .. } = function.clone();
    Method { id: VirtAddr(0), class, name: method, signature, code: NativeCode::Unbound }
}
