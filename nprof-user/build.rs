//! Builds what the library embeds: the shim (`nprof-shim`), an ordinary shared library, by the compiler that builds nprof.
//!
//! The BPF object is embedded as it lies beside its sources. Here only that it is theirs is made sure of: `cargo xtask bpf`
//! makes it.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../xtask/src/inner_cargo.rs"]
mod inner_cargo;
#[path = "../nprof-ebpf/made.rs"]
mod made;

use inner_cargo::clean;
use made::Made;

/// How the shim is built, whatever the profile of nprof. A panic in it must unwind, so that it can be caught before it
/// gets into the JVM. Names of functions stay, for profilers; the rest of the debug information, the standard library's too,
/// would be most of the file.
const SHIM_PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_PANIC", "unwind"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let inputs = ["nprof-common/src", "nprof-common/Cargo.toml", "nprof-ebpf", "nprof-shim", "Cargo.lock"];
    for input in inputs {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    if !Made::read(&workspace)?.is_current(&workspace)? {
        let why = format!("the sources of {} have changed since it was made", made::OBJECT);
        return Err(format!("{why}: `cargo xtask bpf` makes it again").into());
    }
    build_shim(&workspace, &out_dir)
}

/// Builds the shim as nprof itself is: by the same compiler, but always optimised, since it runs in other people's JVMs.
fn build_shim(workspace: &Path, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut command = clean(Command::new(env::var("CARGO")?));
    for name in ["RUSTC", "RUSTUP_TOOLCHAIN"] {
        command.envs(env::var_os(name).map(|value| (name, value)));
    }
    // In one place for all profiles of nprof, which change nothing about it and have an `out_dir` each:
    // target/PROFILE/build/PACKAGE/out.
    let built = out_dir.ancestors().nth(4).unwrap_or(out_dir).join("shim");
    let status = command
        .args(["rustc", "--quiet", "--package", "nprof-shim", "--lib", "--crate-type", "cdylib", "--release"])
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", &built)
        .envs(SHIM_PROFILE)
        .status()?;
    if !status.success() {
        return Err(format!("building nprof-shim: {status}").into());
    }
    let library = built.join("release/libnprof_shim.so");
    fs::copy(&library, out_dir.join("libnprof_shim.so")).map_err(|error| format!("{}: {error}", library.display()))?;
    Ok(())
}
