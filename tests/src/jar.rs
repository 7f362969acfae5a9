//! A target under its own name.
//!
//! JVMs that run the same are one `jvm` in metrics. With a name per test, tests that run at the same time are kept apart.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::jdk::Jdk;
use crate::process::RemoteProcess;
use crate::target::Targets;

/// A jar that starts one of the targets. Dropping it deletes it.
#[derive(Debug)]
pub struct Jar<'a> {
    jdk: &'a Jdk,
    name: String,
    path: PathBuf,
    _directory: TempDir,
}

impl<'a> Jar<'a> {
    /// A jar that starts `targets.Shapes`.
    ///
    /// # Errors
    /// When the JDK's tool refuses.
    pub fn new(jdk: &'a Jdk, name: &str) -> Result<Self> {
        Self::of(jdk, name, "targets.Shapes")
    }

    /// The jar `NAME-VERSION-PID.jar`, which starts the class `main`.
    ///
    /// # Errors
    /// When the JDK's tool refuses.
    pub fn of(jdk: &'a Jdk, name: &str, main: &str) -> Result<Self> {
        let directory = TempDir::new()?;
        let name = format!("{name}-{}-{}.jar", jdk.version, std::process::id());
        let path = directory.path().join(&name);
        std::fs::copy(Targets::get()?.jar(jdk, main)?, &path).with_context(|| path.display().to_string())?;
        Ok(Self { jdk, name, path, _directory: directory })
    }

    /// What it runs on.
    #[must_use]
    pub fn jdk(&self) -> &Jdk {
        self.jdk
    }

    /// What its JVMs are called: the value of the label `jvm`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts one more JVM of this name that runs `targets.Shapes`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self) -> Result<RemoteProcess> {
        self.start_with(&[])
    }

    /// The same with these options of the VM.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_with(&self, options: &[&str]) -> Result<RemoteProcess> {
        RemoteProcess::shapes_from(self.jdk, &self.path, options)
    }
}
