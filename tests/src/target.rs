//! Compiles the targets under `tests/targets/`: Java classes, the C libraries that they load, and the truth agent.
//!
//! The result is kept under `target/test-targets/` in a directory named by the content of the sources and the
//! compiler, so that it is built once.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::jdk::{Jdk, OLDEST_SUPPORTED};
use crate::shape_source;

/// The C libraries: name and sources.
const LIBRARIES: [(&str, &[&str]); 20] = [
    ("libshapes.so", &["shapes.c", "shapes_time.c", "shapes_threads.c", "entries.S", "onward.S"]),
    ("liblate.so", &["late.c"]),
    ("libguest.so", &["guest.c"]),
    ("libtruth.so", &["truth_agent.c"]),
    ("libmany.so", &["many.S"]),
    ("libthousands.so", &["thousands.c"]),
    ("libcallers.so", &["callers.c"]),
    ("libstacks.so", &["stacks.c", "stacks_entry.S"]),
    ("libstressed.so", &["stressed.c"]),
    ("libcritical.so", &["critical.c"]),
    ("libtwisted.so", &["twisted.c"]),
    ("libhostile.so", &["hostile.c"]),
    ("libconsuming.so", &["consuming.c"]),
    ("libasking.so", &["asking.c"]),
    ("libfaulty.so", &["faulty.c"]),
    ("libfunctions.so", &["functions.c"]),
    ("liblingering.so", &["lingering.c"]),
    ("liblooking.so", &["looking.c"]),
    ("libsoaked.so", &["soaked.c"]),
    ("libtable.so", &["table.c", "table_calls.S"]),
];

/// How many natives the class `targets.Many` has, as `many.S` defines them.
pub const MANY: usize = 2_000;

/// How many natives the class `targets.Thousands` has, as `thousands.c` binds them.
pub const THOUSANDS: usize = 6_000;

/// The directory that holds the compiled targets.
#[derive(Debug, Clone)]
pub struct Targets {
    directory: PathBuf,
}

impl Targets {
    /// The compiled targets: those in the directory `NPROF_TEST_TARGETS`, where there is no compiler; otherwise they are compiled if
    /// need be. They run on every supported JDK.
    ///
    /// # Errors
    /// When there is no JDK or a compiler refuses a source.
    pub fn get() -> Result<&'static Self> {
        static BUILT: OnceLock<Result<Targets>> = OnceLock::new();
        let compiled = || match std::env::var_os("NPROF_TEST_TARGETS") {
            Some(directory) => Ok(Self { directory: directory.into() }),
            None => build(),
        };
        BUILT.get_or_init(compiled).as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    /// The class path of the package `targets`.
    #[must_use]
    pub fn classes(&self) -> PathBuf {
        self.directory.join("classes")
    }

    /// The directory of the class that `LateLibrary` loads by a separate class loader.
    #[must_use]
    pub fn guest_classes(&self) -> PathBuf {
        self.directory.join("guests")
    }

    /// The class path of the demo.
    #[must_use]
    pub fn demo_classes(&self) -> PathBuf {
        self.directory.join("demo")
    }

    /// The classes in a jar that starts one of them. It is packed at the first time.
    ///
    /// # Errors
    /// When the JDK's tool refuses.
    pub fn jar(&self, jdk: &Jdk, main: &str) -> Result<PathBuf> {
        let jar = self.directory.join(format!("{main}.jar"));
        if !jar.exists() {
            // Others may do the same at the same time: each jar is as good.
            let scratch = TempDir::new_in(&self.directory)?;
            let packed = scratch.path().join("packed.jar");
            let mut command = Command::new(jdk.tool("jar"));
            command
                .args(["--create", "--main-class", main, "--file"])
                .arg(&packed)
                .arg("-C")
                .arg(self.classes())
                .arg(".");
            succeed(command.env("LC_ALL", "C.UTF-8"))?;
            std::fs::rename(&packed, &jar)?;
        }
        Ok(jar)
    }

    /// Packs the classes into a jar of which one of them is a Java agent, that may retransform.
    ///
    /// # Errors
    /// When the JDK's tool refuses.
    pub fn pack_agent(&self, jdk: &Jdk, agent: &str, into: &Path) -> Result<()> {
        let manifest = into.with_extension("manifest");
        std::fs::write(&manifest, format!("Premain-Class: {agent}\nCan-Retransform-Classes: true\n"))?;
        let mut command = Command::new(jdk.tool("jar"));
        command.args(["--create", "--manifest"]).arg(manifest).arg("--file").arg(into);
        succeed(command.arg("-C").arg(self.classes()).arg(".").env("LC_ALL", "C.UTF-8"))
    }

    /// One of the C libraries, or the programs `calls` and `held`, by its file name.
    #[must_use]
    pub fn library(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The directory that Cargo builds into.
#[must_use]
pub fn cargo_target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |dir| workspace.join(dir))
}

/// Where the sources of the targets are.
#[must_use]
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("targets")
}

/// Compiles into a directory beside the final one, and renames that when it is complete: a build that was broken
/// off, or runs twice at a time, leaves nothing half done.
fn build() -> Result<Targets> {
    let jdk = Jdk::find_all()?
        .into_iter()
        .find(|jdk| jdk.version >= OLDEST_SUPPORTED)
        .with_context(|| format!("no JDK {OLDEST_SUPPORTED} or newer under /usr/lib/jvm to compile the targets"))?;
    let root = cargo_target_dir().join("test-targets");
    let directory = root.join(format!("{:016x}", fingerprint(&jdk)?));
    if !directory.exists() {
        let scratch = root.join(format!("building-{}", std::process::id()));
        compile(&jdk, &scratch)?;
        match std::fs::rename(&scratch, &directory) {
            Ok(()) => {}
            Err(_) if directory.exists() => std::fs::remove_dir_all(&scratch)?,
            Err(error) => bail!("{}: {error}", directory.display()),
        }
    }
    Ok(Targets { directory: directory.canonicalize()? })
}

/// A number for the sources and what compiles them.
fn fingerprint(jdk: &Jdk) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    jdk.to_string().hash(&mut hasher);
    include_str!("target.rs").hash(&mut hasher);
    include_str!("shape_source.rs").hash(&mut hasher);
    for file in files_in(&sources())?.into_iter().chain(files_in(&sources().join("demo"))?) {
        file.hash(&mut hasher);
        std::fs::read(&file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn compile(jdk: &Jdk, into: &Path) -> Result<()> {
    let java: Vec<PathBuf> =
        files_in(&sources())?.into_iter().filter(|f| f.extension() == Some("java".as_ref())).collect();
    let (guests, mut targets): (Vec<_>, Vec<_>) = java.into_iter().partition(|file| file.ends_with("Guest.java"));
    for (class, natives) in [("Many", MANY), ("Thousands", THOUSANDS)] {
        targets.push(declare(into, class, natives)?);
    }
    let (java, c) = shape_source::write(into)?;
    targets.push(java);
    javac(jdk, &into.join("classes"), &targets)?;
    javac(jdk, &into.join("guests"), &guests)?;
    javac(jdk, &into.join("demo"), &[sources().join("demo/Demo.java")])?;
    for (library, files) in LIBRARIES {
        cc(jdk, &into.join(library), files)?;
    }
    cc(jdk, &into.join("libstubs.so"), &[c.to_str().context("a path that is not UTF-8")?, "stubs.c"])?;
    for program in ["calls", "held"] {
        let source = sources().join(program).with_extension("c");
        succeed(compiler().args(["-rdynamic", "-o"]).arg(into.join(program)).arg(source))?;
    }
    Ok(())
}

/// Writes the source of a class whose only content is a great number of natives.
fn declare(into: &Path, class: &str, natives: usize) -> Result<PathBuf> {
    let natives: String = (0..natives).map(|number| format!("    static native int m{number}();\n")).collect();
    let file = into.join(class).with_extension("java");
    std::fs::create_dir_all(into)?;
    std::fs::write(&file, format!("package targets;\n\nfinal class {class} {{\n{natives}}}\n"))?;
    Ok(file)
}

/// Compiles classes of `targets/programs` with libraries that they need, for a release of Java; gives the class path that they
/// are on then.
///
/// # Errors
/// When the compiler refuses one.
pub fn compile_with(jdk: &Jdk, release: u32, classes: &[&str], libraries: &[PathBuf], into: &Path) -> Result<PathBuf> {
    let source = |class: &&str| sources().join("programs").join(format!("{class}.java"));
    let mut command = compile_into(jdk, release, into, &classes.iter().map(source).collect::<Vec<_>>())?;
    command.arg("-cp").arg(std::env::join_paths(libraries)?);
    succeed(&mut command)?;
    Ok(into.to_owned())
}

fn javac(jdk: &Jdk, into: &Path, files: &[PathBuf]) -> Result<()> {
    succeed(&mut compile_into(jdk, OLDEST_SUPPORTED, into, files)?)
}

fn compile_into(jdk: &Jdk, release: u32, into: &Path, files: &[PathBuf]) -> Result<Command> {
    std::fs::create_dir_all(into)?;
    let release = release.to_string();
    let mut command = Command::new(jdk.tool("javac"));
    command.args(["-encoding", "UTF-8", "-Xlint:all", "-Werror", "--release", &release, "-d"]).arg(into).args(files);
    // A class file's name is not ASCII; without a UTF-8 locale the compiler cannot write it.
    command.env("LC_ALL", "C.UTF-8");
    Ok(command)
}

fn cc(jdk: &Jdk, library: &Path, files: &[&str]) -> Result<()> {
    let include = jdk.home.join("include");
    let mut command = compiler();
    command.args(["-shared", "-I"]);
    command.arg(&include).arg("-I").arg(include.join("linux")).arg("-o").arg(library);
    command.args(files.iter().map(|file| sources().join(file)));
    succeed(&mut command)
}

/// The C compiler, with what all our C has in common.
fn compiler() -> Command {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-fPIC", "-O2", "-pthread", "-Wall", "-Wextra", "-Werror"]);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{command:?}\n{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The source files of a directory, in order of name.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in directory.read_dir().with_context(|| format!("{}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| ["java", "c", "h", "S"].map(OsStr::new).contains(&e)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
