//! What the agent was told by options: who decides where no nprof is connected.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jvmti_bindings::mutf8::decode_cstr_lossy;

use crate::clock;
use crate::helper::PACKAGE;
use crate::intrinsics;
use crate::jvmti::MethodName;
use crate::methods::Manner;
use crate::options::{Options, Selection};
use crate::pool::Mode;

/// The orders, and whether they are followed.
#[derive(Debug)]
pub(crate) struct Orders {
    followed: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    selection: Selection,
    manner: Manner,
    exit_dump: Option<PathBuf>,
}

/// Calls cannot be timed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this CPU's time stamp counter is not steady: calls are counted, not timed")]
pub(crate) struct Unsteady;

impl Orders {
    /// Nothing is ordered.
    pub(crate) fn none() -> Self {
        let manner = Manner { mode: Mode::Time, threshold_ns: u64::MAX };
        let inner = Inner { selection: Selection::default(), manner, exit_dump: None };
        Self { followed: AtomicBool::new(false), inner: Mutex::new(inner) }
    }

    /// Adds what one loading asks for.
    ///
    /// # Errors
    /// When calls are to be timed that cannot be. They are counted then.
    pub(crate) fn add(&self, options: &Options) -> Result<(), Unsteady> {
        let mut inner = self.lock();
        if let Some(selection) = &options.selection {
            inner.selection = selection.clone();
        }
        if let Some(mode) = options.mode {
            inner.manner.mode = mode;
        }
        if let Some(threshold_ns) = options.threshold_ns {
            inner.manner.threshold_ns = threshold_ns;
        }
        if let Some(file) = &options.exit_dump {
            inner.exit_dump = Some(file.clone());
        }
        let times = !matches!(inner.manner.mode, Mode::Off | Mode::Count);
        if times && !clock::is_steady() {
            inner.manner.mode = Mode::Count;
            return Err(Unsteady);
        }
        Ok(())
    }

    /// From now on they are followed, or no more.
    pub(crate) fn follow(&self, followed: bool) {
        self.followed.store(followed, Ordering::Relaxed);
    }

    pub(crate) fn are_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed)
    }

    /// How all methods are watched that are.
    pub(crate) fn manner(&self) -> Manner {
        self.lock().manner
    }

    /// How a method is watched; `None` if it is not.
    pub(crate) fn manner_of(&self, name: &MethodName) -> Option<Manner> {
        let inner = self.lock();
        (self.are_followed() && is_selected(&inner.selection, name)).then_some(inner.manner)
    }

    /// Where the records are to be written when the VM ends; told once.
    pub(crate) fn take_exit_dump(&self) -> Option<PathBuf> {
        self.lock().exit_dump.take()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a method is one of the agent's.
pub(crate) fn is_own(name: &MethodName) -> bool {
    name.class.to_bytes().starts_with(PACKAGE.as_bytes())
}

fn is_selected(selection: &Selection, name: &MethodName) -> bool {
    let class = name.dotted_class();
    let left_out = || !selection.intrinsics && intrinsics::is_candidate(&class, &decode_cstr_lossy(&name.name));
    selection.classes.iter().any(|prefix| class.starts_with(prefix.as_str()))
        && !is_own(name)
        && !intrinsics::is_special(&class)
        && !left_out()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn selected(selection: &Selection, class: &str, name: &str) -> bool {
        let [class, name, signature] = [class, name, "()V"].map(|text| CString::new(text).unwrap());
        is_selected(selection, &MethodName { class, name, signature })
    }

    /// Check that classes are chosen by the beginnings of their names, intrinsics when asked for, and our own class and
    /// those that the VM links in its own ways never.
    #[test]
    fn selection() {
        let some = Selection { classes: vec!["java.lang.".into(), "com.A".into()], intrinsics: false };
        assert!(selected(&some, "Ljava/lang/System;", "initProperties") && selected(&some, "Lcom/A$B;", "m"));
        assert!(!selected(&some, "Ljava/util/zip/CRC32;", "m"));
        assert!(!selected(&some, "Ljava/lang/System;", "arraycopy"));
        let all = Selection { classes: vec![String::new()], intrinsics: true };
        assert!(selected(&all, "Ljava/lang/System;", "arraycopy"));
        assert!(!selected(&all, "Ljava/lang/invoke/MethodHandle;", "linkToStatic"));
        assert!(!selected(&all, "Lnprof/shim/Binder;", "bind"));
        assert!(!selected(&Selection::default(), "Lcom/A;", "m"));
    }
}
