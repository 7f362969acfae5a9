//! What is installed on this machine, seen by looking at files. No program is started: a look takes milliseconds.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::cargo;

/// The places to look at. Tests point them into a temporary directory.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Prefix of every system path.
    pub(crate) root: PathBuf,
    /// Directories with programs, best first.
    pub(crate) path: Vec<PathBuf>,
    /// Rustup's home; `toolchains` below it holds the toolchains.
    pub(crate) rustup_home: PathBuf,
    /// The directory with JVMs of other versions, for the tests.
    pub(crate) jvms: PathBuf,
    /// The directory with the emulator for the tests, where it is not installed.
    pub(crate) emulator: PathBuf,
    /// The directory with kernels of suites of Debian, for the tests.
    pub(crate) kernels: PathBuf,
    /// The directory with jars for the benchmark of real programs.
    pub(crate) programs: PathBuf,
    /// The directory of the active toolchain's own programs.
    pub(crate) toolchain_bin: PathBuf,
    /// Whether this process may install packages and load BPF programs.
    pub(crate) is_root: bool,
}

impl Machine {
    /// The machine that this process runs on.
    pub(crate) fn this() -> Self {
        let home = PathBuf::from(env::var_os("HOME").unwrap_or_else(|| OsString::from("/root")));
        let place =
            |variable: &str, default: &str| env::var_os(variable).map_or_else(|| home.join(default), PathBuf::from);
        let cargo_home = place("CARGO_HOME", ".cargo");
        let mut path: Vec<PathBuf> =
            env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
        // `cargo install` puts programs there even where the PATH does not name it, and Debian keeps the
        // administrator's programs off an ordinary user's PATH.
        path.extend([cargo_home.join("bin"), PathBuf::from("/usr/sbin")]);
        let mut machine = Self {
            root: PathBuf::from("/"),
            path,
            rustup_home: place("RUSTUP_HOME", ".rustup"),
            jvms: cargo::target_directory().join("test-jvms"),
            emulator: cargo::target_directory().join("test-emulator"),
            kernels: cargo::target_directory().join("test-kernels"),
            programs: cargo::target_directory().join("bench-programs"),
            toolchain_bin: PathBuf::new(),
            is_root: rustix::process::geteuid().is_root(),
        };
        // Cargo says where it is to what it runs; without it, the one on the PATH is as good.
        let cargo = env::var_os("CARGO").map(PathBuf::from);
        let cargo = cargo.or_else(|| machine.program("cargo"));
        machine.toolchain_bin = cargo.and_then(|cargo| Some(cargo.parent()?.to_path_buf())).unwrap_or_default();
        machine
    }

    /// Where an absolute system path lies on this machine.
    pub(crate) fn system(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The path, if something is there.
    pub(crate) fn existing(&self, path: &str) -> Option<PathBuf> {
        Some(self.system(path)).filter(|path| path.exists())
    }

    /// The program that a shell would start by this name.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
    }

    /// The nightly toolchain of rustup (not a dated one).
    pub(crate) fn nightly(&self) -> Option<Nightly> {
        let toolchains = self.rustup_home.join("toolchains");
        let mut names: Vec<String> = fs::read_dir(toolchains)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| is_undated_nightly(name))
            .collect();
        names.sort();
        let home = self.rustup_home.join("toolchains").join(names.first()?);
        Some(Nightly { home })
    }
}

/// `nightly-x86_64-unknown-linux-gnu`, but not `nightly-2026-01-31-x86_64-unknown-linux-gnu`.
fn is_undated_nightly(name: &str) -> bool {
    name.strip_prefix("nightly-").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// A nightly toolchain.
#[derive(Debug, Clone)]
pub(crate) struct Nightly {
    home: PathBuf,
}

impl Nightly {
    /// The sources of the standard library, if they are installed.
    pub(crate) fn library_sources(&self) -> Option<PathBuf> {
        Some(self.home.join("lib/rustlib/src/rust/library")).filter(|path| path.is_dir())
    }

    /// The major version of its LLVM, from the name of the library (`libLLVM.so.22.1-rust-1.97.0-nightly`).
    pub(crate) fn llvm(&self) -> Option<u32> {
        fs::read_dir(self.home.join("lib"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find_map(|name| llvm_major(&name))
    }
}

fn llvm_major(file_name: &str) -> Option<u32> {
    let rest = file_name.strip_prefix("libLLVM.so.").or_else(|| file_name.strip_prefix("libLLVM-"))?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
pub(crate) mod fake {
    //! A machine in a temporary directory.

    use super::*;

    /// The machine and the directory that holds it.
    pub(crate) struct FakeMachine {
        pub(crate) machine: Machine,
        directory: tempfile::TempDir,
    }

    impl FakeMachine {
        /// A machine with nothing on it.
        pub(crate) fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().to_path_buf();
            let machine = Machine {
                path: vec![root.join("usr/bin"), root.join("root/.cargo/bin")],
                rustup_home: root.join("root/.rustup"),
                jvms: root.join("target/test-jvms"),
                emulator: root.join("target/test-emulator"),
                kernels: root.join("target/test-kernels"),
                programs: root.join("target/bench-programs"),
                toolchain_bin: root.join("root/.rustup/toolchains/stable/bin"),
                is_root: true,
                root,
            };
            Self { machine, directory }
        }

        /// Adds an empty file and the directories above it.
        pub(crate) fn file(&self, path: &str) -> &Self {
            self.file_with(path, "")
        }

        /// Adds a file with content and the directories above it.
        pub(crate) fn file_with(&self, path: &str, content: &str) -> &Self {
            let path = self.directory.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeMachine;
    use super::*;

    const NIGHTLY: &str = "/root/.rustup/toolchains/nightly-x86_64-unknown-linux-gnu";

    /// Check that the first directory of the PATH wins and that a directory is not taken for a program.
    #[test]
    fn program_is_the_first_file_on_the_path() {
        let fake = FakeMachine::new();
        assert_eq!(fake.machine.program("cc"), None);
        fake.file("/root/.cargo/bin/cc").file("/usr/bin/cc/inside");
        let found = fake.machine.program("cc").unwrap();
        assert!(found.ends_with("root/.cargo/bin/cc"), "{found:?}");
    }

    /// Check that a dated nightly does not count as `nightly`, which is what `rustup run nightly` would start.
    #[test]
    fn nightly_is_the_undated_one() {
        let fake = FakeMachine::new();
        fake.file("/root/.rustup/toolchains/nightly-2026-01-31-x86_64-unknown-linux-gnu/lib/a");
        assert!(fake.machine.nightly().is_none());
        fake.file(&format!("{NIGHTLY}/lib/libLLVM.so.22.1-rust-1.97.0-nightly"));
        let nightly = fake.machine.nightly().unwrap();
        assert_eq!(nightly.llvm(), Some(22));
        assert_eq!(nightly.library_sources(), None);
        fake.file(&format!("{NIGHTLY}/lib/rustlib/src/rust/library/core/Cargo.toml"));
        assert!(nightly.library_sources().is_some());
    }

    /// Check that both ways of naming LLVM's library are read and others are not.
    #[test]
    fn llvm_version_comes_from_the_file_name() {
        assert_eq!(llvm_major("libLLVM-22-rust-1.97.0-nightly.so"), Some(22));
        assert_eq!(llvm_major("libLLVM.so.23.0"), Some(23));
        assert_eq!(llvm_major("librustc_driver-23.so"), None);
    }
}
