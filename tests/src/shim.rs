//! The companion agent in a target: loading it, and reading the records that it writes down.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::jdk::Jdk;
use crate::name::MethodName;
use crate::process::Called;

/// The shared library that Cargo built for these tests, beside the test program itself.
///
/// # Errors
/// When it is not there.
pub fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let directory = program.parent().context("a program is in a directory")?;
    let library = directory.join("libnprof_shim.so");
    ensure!(library.exists(), "{} was not built", library.display());
    Ok(library)
}

/// The option that loads the agent when a JVM starts.
///
/// # Errors
/// As [`library`].
pub fn agent_path(options: &str) -> Result<String> {
    Ok(format!("-agentpath:{}={options}", library()?.display()))
}

/// Loads the agent into a running JVM, or tells one that is loaded what to do.
///
/// # Errors
/// When the JVM does not take it.
pub fn load(jdk: &Jdk, pid: u32, options: &str) -> Result<()> {
    load_copy(jdk, pid, &library()?, options)
}

/// The same for a copy of the agent.
///
/// # Errors
/// When the JVM does not take it.
pub fn load_copy(jdk: &Jdk, pid: u32, library: &Path, options: &str) -> Result<()> {
    let mut command = Command::new(jdk.tool("jcmd"));
    command.arg(pid.to_string()).arg("JVMTI.agent_load").arg(library).arg(format!("\"{options}\""));
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.contains("return code: 0"), "{command:?}: {said}");
    Ok(())
}

/// The methods that hold the address of a stub, of an agent that nprof has loaded or a test.
///
/// # Errors
/// When nprof cannot list the methods.
pub fn still_stubbed(pid: u32) -> Result<Vec<MethodName>> {
    let of_agent = |library: &str| library.starts_with("libnprof_shim.so");
    let listed = crate::nprof::methods(pid, &[])?.methods.into_iter();
    // The agent has its own natives, which are in its library for good.
    let others = listed.filter(|listed| !listed.class.starts_with("nprof.shim."));
    Ok(others.filter(|listed| listed.library.as_deref().is_some_and(of_agent)).map(|listed| listed.name()).collect())
}

/// What the agent knows of one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// Calls that were only counted.
    pub counted: u64,
    /// Calls that were to be timed.
    pub entered: u64,
    /// Of these, those that ended.
    pub ended: u64,
    /// Their time, in nanoseconds.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Record {
    /// All calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.counted + self.entered
    }
}

/// What the agent has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Records {
    /// What went wrong.
    pub notes: Vec<String>,
    /// The methods. Those of the same name, of classes of several loaders, are added up.
    pub methods: BTreeMap<MethodName, Record>,
}

impl Records {
    /// Adds what is known of a method to that of others with the same name.
    pub fn add(&mut self, name: &MethodName, of_one: Record) {
        let Record { counted, entered, ended, total_ns, max_ns } = of_one;
        let record = self.methods.entry(name.clone()).or_default();
        record.counted += counted;
        record.entered += entered;
        record.ended += ended;
        record.total_ns += total_ns;
        record.max_ns = record.max_ns.max(max_ns);
    }

    /// The record of a method; of no calls if it has none.
    #[must_use]
    pub fn record(&self, class: &str, method: &str, signature: &str) -> Record {
        self.methods.get(&MethodName::new(class, method, signature)).copied().unwrap_or_default()
    }

    /// Checks that nothing went wrong in the agent.
    ///
    /// # Errors
    /// What did.
    pub fn must_be_without_notes(&self) -> Result<()> {
        ensure!(self.notes.is_empty(), "the agent says: {:?}", self.notes);
        Ok(())
    }

    /// Checks that as many calls were seen since `before` as were made.
    ///
    /// # Errors
    /// When a function was seen more often or less.
    pub fn must_equal(&self, before: &Self, called: &[Called]) -> Result<()> {
        ensure!(!called.is_empty(), "nothing was called");
        for function in called {
            let calls = |records: &Self| -> u64 {
                function.methods.iter().filter_map(|name| records.methods.get(name)).map(Record::calls).sum()
            };
            let seen = calls(self) - calls(before);
            ensure!(seen == function.made && seen == function.counted, "{seen} calls were seen of {function:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that methods of the same name are added up.
    #[test]
    fn adds_up() {
        let mut records = Records::default();
        let name = MethodName::new("a.B", "m", "()V");
        for _ in 0..2 {
            records.add(&name, Record { counted: 1, entered: 2, ended: 3, total_ns: 4, max_ns: 5 });
        }
        let sum = Record { counted: 2, entered: 4, ended: 6, total_ns: 8, max_ns: 5 };
        assert_eq!(records.record("a.B", "m", "()V"), sum);
        assert_eq!(records.record("a.B", "n", "()V"), Record::default());
    }
}
