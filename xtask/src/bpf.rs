//! `cargo xtask bpf`: makes the BPF object that is checked in, and proves that it is what its sources say.
//!
//! Few machines have what compiles for BPF: a nightly compiler, LLVM and `bpf-linker`. Who does not change the programs
//! does not need it, because the object lies beside them. It depends on nothing of the machine that makes it: no path is in it,
//! and the same compiler makes the same bytes everywhere.
//!
//! Two toolchains are known: a rustup nightly with `rust-src`, which builds `core` itself, and Debian's `rustc-web`, whose
//! `libstd-rust-web-dev-bpf` brings `core` prebuilt. Nothing is installed from here but by [`setup`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use object::build::elf::{Builder, SectionData};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind, elf};

use crate::cargo;
use crate::inner_cargo::clean;
use crate::machine::Machine;
use crate::process;
use crate::setup::{self, Purpose};

#[path = "../../nprof-ebpf/made.rs"]
mod made;

use made::Made;

const TARGET: &str = "bpfel-unknown-none";
/// How cargo compiles it: a profile of its own, so that what a release has of its dependencies does not change the bytes.
const PROFILE: &str = "bpf";
/// The binary of nprof's programs, and that of the example.
const PROGRAMS: &str = "nprof";
const EXAMPLE: &str = "bytes";
/// Debian's compiler, which must be told that it may do what else only a nightly does.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// The command.
///
/// # Errors
/// When what it needs cannot be installed, or the programs do not compile.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    setup::ensure(Purpose::Bpf)?;
    match words[..] {
        [] => write()?,
        ["--check"] => check()?,
        ["--example", file] => example(Path::new(file))?,
        _ => bail!("unknown arguments {words:?}; there are `--check` and `--example FILE`"),
    }
    Ok(ExitCode::SUCCESS)
}

fn write() -> Result<()> {
    let (object, made) = make()?;
    let workspace = cargo::workspace();
    fs::write(workspace.join(made::OBJECT), &object)?;
    fs::write(workspace.join(made::NOTE), made.to_string())?;
    eprintln!("bpf: wrote {}, {} bytes", made::OBJECT, object.len());
    Ok(())
}

/// Makes the object of the example of a user's program.
fn example(file: &Path) -> Result<()> {
    fs::write(file, without_debug_information(&fs::read(compile(EXAMPLE)?)?)?)?;
    Ok(())
}

/// Makes the object again and compares it with the one that is checked in: to the byte, if the same compiler made that;
/// otherwise its programs, maps and constants.
///
/// # Errors
/// When they differ, or the programs do not compile.
pub(crate) fn check() -> Result<()> {
    let workspace = cargo::workspace();
    let (object, made) = make()?;
    let (old, was) = (fs::read(workspace.join(made::OBJECT))?, Made::read(&workspace)?);
    ensure!(
        was.is_current(&workspace)? && made.sources == was.sources,
        "the sources of {} have changed since it was made: `cargo xtask bpf` makes it again",
        made::OBJECT
    );
    if (&made.compiler, &made.linker) == (&was.compiler, &was.linker) {
        ensure!(object == old, "{} is not what its sources say: `cargo xtask bpf` makes it again", made::OBJECT);
        return Ok(());
    }
    eprintln!(
        "bpf: {} was made by {} and {}, here are {} and {}: only programs, maps and constants are compared",
        made::OBJECT,
        was.compiler,
        was.linker,
        made.compiler,
        made.linker
    );
    let (here, there) = (parts(&object)?, parts(&old)?);
    ensure!(here == there, "{}: {:?}", made::OBJECT, here.symmetric_difference(&there));
    Ok(())
}

/// The sections of programs and maps, and the names of what they hold that others may know.
fn parts(object: &[u8]) -> Result<BTreeSet<(String, String)>> {
    let file = object::File::parse(object)?;
    let mut parts = BTreeSet::new();
    for symbol in file.symbols().filter(object::ObjectSymbol::is_global) {
        let Some(section) = symbol.section_index() else { continue };
        let section = file.section_by_index(section)?;
        // Where the compiler puts helpers like `memcpy` is its own affair.
        if section.kind() != SectionKind::Text || section.name()? != ".text" {
            parts.insert((section.name()?.to_owned(), symbol.name()?.to_owned()));
        }
    }
    Ok(parts)
}

/// Compiles and links the programs.
fn make() -> Result<(Vec<u8>, Made)> {
    let (toolchain, workspace) = (toolchain()?, cargo::workspace());
    let program = compile(PROGRAMS)?;
    let sources = sources(&workspace, &fs::read_to_string(program.with_extension("d"))?)?;
    let made = Made {
        compiler: toolchain.version()?,
        linker: version(Command::new("bpf-linker").arg("--version"))?,
        fingerprint: made::fingerprint(&workspace, &sources)?,
        sources,
    };
    Ok((without_debug_information(&fs::read(&program)?)?, made))
}

/// Compiles and links one of the binaries of `nprof-ebpf`. Returns where it is.
fn compile(name: &str) -> Result<PathBuf> {
    let (toolchain, workspace) = (toolchain()?, cargo::workspace());
    let built = cargo::target_directory().join("bpf");
    let mut command = toolchain.build();
    command
        .args(["--quiet", "--package", "nprof-ebpf", "--bin", name, "--profile", PROFILE, "--target", TARGET])
        .current_dir(&workspace)
        .env("CARGO_TARGET_DIR", &built)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&toolchain, &workspace)?.join("\x1f"));
    process::run(&mut command, cargo::BUILD_LIMIT)?;
    Ok(built.join(TARGET).join(PROFILE).join(name))
}

fn toolchain() -> Result<Toolchain> {
    Toolchain::of(&Machine::this()).context("there is no compiler for BPF: run `cargo xtask setup --for bpf`")
}

/// What the compiler is told besides the target.
fn flags(toolchain: &Toolchain, workspace: &Path) -> Result<Vec<String>> {
    // The maps are described to the kernel by BTF, which the linker makes from debug information. Version 3 of the
    // instruction set has 32-bit and atomic operations; kernels know it since 5.12.
    let mut flags = ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Ctarget-cpu=v3"].map(str::to_owned).to_vec();
    let mut places = vec![(workspace.to_path_buf(), "."), (toolchain.library_sources()?, "rust")];
    let registries = cargo::home().join("registry/src");
    for registry in fs::read_dir(&registries).with_context(|| format!("cannot read {}", registries.display()))? {
        places.push((registry?.path(), "registry"));
    }
    flags.extend(places.into_iter().map(|(place, name)| format!("--remap-path-prefix={}={name}", place.display())));
    Ok(flags)
}

/// The files that the compiler has read, out of what it says of them to `make`, without those outside of the workspace.
fn sources(workspace: &Path, dependencies: &str) -> Result<Vec<String>> {
    let (_, files) = dependencies.split_once(": ").context("the compiler does not say what it has read")?;
    let own = files.split_whitespace().filter_map(|file| Path::new(file).strip_prefix(workspace).ok());
    let sources: BTreeSet<String> = own.map(|file| file.display().to_string()).collect();
    ensure!(!sources.is_empty(), "the compiler has read nothing of {}", workspace.display());
    Ok(sources.into_iter().collect())
}

/// The object without DWARF, most of it: what the kernel is told comes from BTF.
fn without_debug_information(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object)?;
    for section in builder.sections.iter_mut() {
        let name = section.name.to_string();
        section.delete |= name.starts_with(".debug_") || name.starts_with(".rel.debug_");
    }
    builder.delete_orphans();
    // The linker keeps the names of sections among those of symbols; the writer wants them apart.
    let names = builder.sections.add();
    names.name = ".shstrtab".into();
    names.sh_type = elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}

/// A way to compile `core` and our crate for the BPF target.
#[derive(Debug)]
enum Toolchain {
    /// rustup's nightly, with `core` built from `rust-src`.
    Nightly,
    /// Debian's compiler, with `core` prebuilt.
    Debian,
}

impl Toolchain {
    fn of(machine: &Machine) -> Option<Self> {
        if setup::nightly_for_bpf(machine).is_some() {
            return Some(Self::Nightly);
        }
        setup::debian_for_bpf(machine).map(|_| Self::Debian)
    }

    fn build(&self) -> Command {
        match self {
            Self::Nightly => {
                let mut command = clean(Command::new("rustup"));
                command.args(["run", "nightly", "cargo", "build", "-Zbuild-std=core"]);
                command
            }
            Self::Debian => {
                let mut command = clean(cargo::command("build"));
                command.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }

    fn rustc(&self) -> Command {
        match self {
            Self::Nightly => {
                let mut command = clean(Command::new("rustup"));
                command.args(["run", "nightly", "rustc"]);
                command
            }
            Self::Debian => Command::new(DEBIAN_RUSTC),
        }
    }

    fn version(&self) -> Result<String> {
        version(self.rustc().arg("--version"))
    }

    /// Where the sources of `core` are.
    fn library_sources(&self) -> Result<PathBuf> {
        let root = version(self.rustc().args(["--print", "sysroot"]))?;
        Ok(Path::new(&root).join("lib/rustlib/src"))
    }
}

/// The one line that a program prints.
fn version(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run `{}`", process::describe(command)))?;
    process::check(command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the note is read as it was written, and that another source is noticed.
    #[test]
    fn notes_what_it_was_made_of() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path();
        fs::create_dir(workspace.join("nprof-ebpf")).unwrap();
        fs::write(workspace.join("a.rs"), "a").unwrap();
        fs::write(workspace.join("Cargo.lock"), "[[package]]\nname = \"aya-ebpf\"\nversion = \"1\"\n").unwrap();
        let sources = vec!["a.rs".to_owned()];
        let fingerprint = made::fingerprint(workspace, &sources).unwrap();
        let made = Made { compiler: "rustc 1 (a b)".into(), linker: "bpf-linker 2".into(), sources, fingerprint };
        fs::write(workspace.join(made::NOTE), made.to_string()).unwrap();
        assert_eq!(Made::read(workspace).unwrap(), made);
        assert!(made.is_current(workspace).unwrap());
        for (file, text) in [("a.rs", "b"), ("Cargo.lock", "[[package]]\nname = \"aya-ebpf\"\nversion = \"2\"\n")] {
            let before = fs::read(workspace.join(file)).unwrap();
            fs::write(workspace.join(file), text).unwrap();
            assert!(!made.is_current(workspace).unwrap(), "{file}");
            fs::write(workspace.join(file), before).unwrap();
        }
        assert!(!Made::default().is_current(workspace).unwrap(), "made of nothing");
    }

    /// Check that files of the workspace are told from others, and that there must be some.
    #[test]
    fn own_sources() {
        let told = "/w/target/nprof: /w/nprof-ebpf/src/main.rs /w/nprof-common/src/lib.rs /rust/core.rs";
        let found = sources(Path::new("/w"), told).unwrap();
        assert_eq!(found, ["nprof-common/src/lib.rs", "nprof-ebpf/src/main.rs"]);
        assert!(sources(Path::new("/v"), told).is_err());
    }

    /// Check that the object that is checked in has all that nprof looks for by name.
    #[test]
    fn object_is_whole() {
        let object = fs::read(cargo::workspace().join(made::OBJECT)).unwrap();
        let parts = parts(&object).unwrap();
        for (section, name) in [("uprobe", "nprof_enter"), ("uretprobe", "nprof_return"), (".maps", "NPROF_STATS")] {
            assert!(parts.iter().any(|(place, found)| place.starts_with(section) && found == name), "{parts:?}");
        }
        let text = String::from_utf8_lossy(&object);
        let path = cargo::workspace().display().to_string();
        assert!(!text.contains(&path) && !text.contains("/registry/src/"), "a path of the machine that made it");
    }
}
