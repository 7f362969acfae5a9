//! Recordings that the command line names.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::selection::{SelectionArgs, ThreadArgs};
use super::terminal::say;
use crate::aggregate::{narrow, narrow_to_threads, tells_threads};
use crate::model::{FunctionTotals, Method, NativeCode, Profile, ProfileMode, VirtAddr};
use crate::recording;
use crate::resolve::select::Selection;
use crate::resolve::threads::ThreadSelection;

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

/// How many threads are named where none is called as somebody thought.
const NAMED: usize = 8;

/// Recordings as if only what is selected had been traced; `None` if a pattern matches no method or thread of any of them, which
/// has been said.
///
/// # Errors
/// For a pattern that is none, and for patterns where recordings know no methods.
pub(super) fn select<const N: usize>(
    profiles: [Profile; N],
    selected: &SelectionArgs,
    threads: &ThreadArgs,
) -> anyhow::Result<Option<[Profile; N]>> {
    let Some(profiles) = select_threads(profiles, threads)? else { return Ok(None) };
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

/// How often the methods that a pattern selects were called in each recording; `None` if none of them has such a method, which has
/// been said.
///
/// # Errors
/// For a pattern that is none, and where recordings know no methods.
pub(super) fn calls_of<const N: usize>(profiles: [&Profile; N], pattern: &str) -> anyhow::Result<Option<[u64; N]>> {
    if profiles.iter().any(|profile| profile.about.mode == ProfileMode::OnCpu) {
        bail!("a recording of the CPU (`--on-cpu`) knows no calls: omit `--per`");
    }
    let selection = Selection::parse(&[pattern], &[], &[])?;
    let methods: Vec<Method> = profiles.iter().flat_map(|profile| profile.functions.iter().map(method)).collect();
    if let Some(unmatched) = selection.unmatched(&methods).first() {
        say(format_args!("{unmatched}"));
        return Ok(None);
    }
    let calls = |profile: &Profile| {
        let selected = profile.functions.iter().filter(|function| selection.selects(&method(function)));
        selected.map(FunctionTotals::all_calls).fold(0, u64::saturating_add)
    };
    Ok(Some(profiles.map(calls)))
}

/// Recordings as if only threads of such names had been traced; `None` if no thread of any of them has one, which has been said.
///
/// # Errors
/// For a text that is no glob, and for recordings that do not tell threads apart.
pub(super) fn select_threads<const N: usize>(
    profiles: [Profile; N],
    ThreadArgs { threads }: &ThreadArgs,
) -> anyhow::Result<Option<[Profile; N]>> {
    let selection = ThreadSelection::parse(threads)?;
    if selection.is_empty() {
        return Ok(Some(profiles));
    }
    profiles.iter().try_for_each(tells_threads)?;
    let names: Vec<&str> = profiles.iter().flat_map(|profile| &profile.threads).map(|thread| &*thread.name).collect();
    let unmatched: Vec<&str> = selection.unmatched(&names).collect();
    if !unmatched.is_empty() {
        let there = there(&names);
        unmatched.iter().for_each(|glob| say(format_args!("no thread of the recording is called `{glob}`{there}")));
        return Ok(None);
    }
    if profiles.iter().any(|profile| profile.trees.is_some()) {
        say("trees of invocations are left out: their sums are of all threads");
    }
    let narrowed = |profile| -> anyhow::Result<Profile> {
        let mut narrowed = narrow_to_threads(profile, |name| selection.selects(name))?;
        narrowed.about.threads.clone_from(threads);
        narrowed.trees = None;
        Ok(narrowed)
    };
    let narrowed: Vec<Profile> = profiles.into_iter().map(narrowed).collect::<Result<_, _>>()?;
    Ok(narrowed.try_into().ok())
}

/// The names that there are.
fn there(names: &[&str]) -> String {
    let known: BTreeSet<&str> = names.iter().copied().collect();
    let mut named: Vec<String> = known.iter().take(NAMED).map(|name| name.escape_debug().to_string()).collect();
    if known.len() > NAMED {
        named.push(format!("{} more", known.len() - NAMED));
    }
    if named.is_empty() { String::new() } else { format!("; there are {}", named.join(", ")) }
}

/// The first method of a function, which recordings know it by.
fn method(function: &FunctionTotals) -> Method {
    let FunctionTotals { class, method, signature, .. } = function.clone();
    let (class, name, signature) = (class.into(), method.into(), signature.into());
    Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound }
}
