//! Builds what the library embeds: the BPF object (`nprof-ebpf`) and the shim (`nprof-shim`).
//!
//! The shim is an ordinary shared library, built by the compiler that builds nprof. For the BPF object two toolchains are
//! known: a rustup nightly with `rust-src`, which builds `core` itself, and Debian's `rustc-web`, whose
//! `libstd-rust-web-dev-bpf` brings `core` prebuilt. Both need `bpf-linker`. Nothing is installed from here; what is
//! missing is named, and `cargo xtask setup` installs it.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "bpfel-unknown-none";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CORE: &str = "/usr/lib/rustlib/bpfel-unknown-none/lib";

/// How the shim is built, whatever the profile of nprof. A panic in it must unwind, so that it can be caught before it
/// gets into the JVM. Names of functions stay, for profilers; the rest of the debug information would be most of the file.
const SHIM_PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_PANIC", "unwind"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
];

/// A way to compile `core` and our crate for the BPF target.
enum Toolchain {
    /// rustup's nightly, with `core` built from `rust-src`.
    Nightly,
    /// Debian's compiler, with `core` prebuilt.
    Debian,
}

fn main() -> Result<(), Box<dyn Error>> {
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    for krate in ["nprof-common", "nprof-ebpf", "nprof-shim"] {
        for input in ["src", "Cargo.toml", "build.rs"] {
            let input = workspace.join(krate).join(input);
            if input.exists() {
                println!("cargo::rerun-if-changed={}", input.display());
            }
        }
    }
    println!("cargo::rerun-if-changed={}", workspace.join("Cargo.lock").display());
    println!("cargo::rerun-if-env-changed=PATH");

    let missing = missing_tools();
    if !missing.is_empty() {
        let mut message = String::from("the BPF programs cannot be built here:\n");
        for tool in missing {
            writeln!(message, "  - {tool}")?;
        }
        message.push_str("`cargo xtask setup` installs what is missing");
        return Err(message.into());
    }
    build_programs(&toolchain().ok_or("the BPF toolchain has vanished")?, &workspace, &out_dir)?;
    build_shim(&workspace, &out_dir)
}

/// Where both are built: in one place for all profiles of nprof, which change nothing about them and have an `out_dir` each.
fn shared_dir(out_dir: &Path) -> PathBuf {
    // target/PROFILE/build/PACKAGE/out
    out_dir.ancestors().nth(4).unwrap_or(out_dir).join("embedded")
}

/// Puts what was built where the library includes it from.
fn deliver(built: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    fs::copy(built, to).map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(())
}

fn missing_tools() -> Vec<String> {
    let mut missing = Vec::new();
    if toolchain().is_none() {
        missing.push(format!(
            "no compiler for {TARGET}: neither a rustup nightly with the rust-src component nor Debian's rustc-web with \
             libstd-rust-web-dev-bpf was found"
        ));
    }
    if !on_path("bpf-linker") {
        missing.push("bpf-linker is not on the PATH".to_owned());
    }
    missing
}

fn toolchain() -> Option<Toolchain> {
    if nightly_has_source() {
        return Some(Toolchain::Nightly);
    }
    (Path::new(DEBIAN_RUSTC).exists() && Path::new(DEBIAN_CORE).is_dir()).then_some(Toolchain::Debian)
}

fn nightly_has_source() -> bool {
    let Ok(output) = clean(Command::new("rustup")).args(["run", "nightly", "rustc", "--print", "sysroot"]).output()
    else {
        return false;
    };
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success() && Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").is_dir()
}

fn on_path(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn build_programs(toolchain: &Toolchain, workspace: &Path, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut command = match toolchain {
        Toolchain::Nightly => {
            let mut command = clean(Command::new("rustup"));
            command.args(["run", "nightly", "cargo", "build", "-Zbuild-std=core"]);
            command
        }
        Toolchain::Debian => {
            let mut command = clean(Command::new(env::var("CARGO")?));
            command.arg("build").env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
            command
        }
    };
    let built = shared_dir(out_dir).join("ebpf");
    let status = command
        .args(["--quiet", "--package", "nprof-ebpf", "--release", "--target", TARGET])
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", &built)
        // The maps are described to the kernel by BTF, which the linker makes from debug information. Version 3 of the
        // instruction set has 32-bit and atomic operations; kernels know it since 5.12.
        .env("CARGO_ENCODED_RUSTFLAGS", ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Ctarget-cpu=v3"].join("\x1f"))
        .status()?;
    if !status.success() {
        return Err(format!("building nprof-ebpf: {status}").into());
    }
    deliver(&built.join(TARGET).join("release/nprof"), &out_dir.join("nprof.bpf.o"))
}

/// Builds the shim as nprof itself is: by the same compiler, but always optimised, since it runs in other people's JVMs.
fn build_shim(workspace: &Path, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut command = clean(Command::new(env::var("CARGO")?));
    for name in ["RUSTC", "RUSTUP_TOOLCHAIN"] {
        command.envs(env::var_os(name).map(|value| (name, value)));
    }
    let built = shared_dir(out_dir).join("shim");
    let status = command
        .args(["rustc", "--quiet", "--package", "nprof-shim", "--lib", "--crate-type", "cdylib", "--release"])
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", &built)
        .envs(SHIM_PROFILE)
        .status()?;
    if !status.success() {
        return Err(format!("building nprof-shim: {status}").into());
    }
    deliver(&built.join("release/libnprof_shim.so"), &out_dir.join("libnprof_shim.so"))
}

/// A command without what the outer cargo sets for its own compiler.
fn clean(mut command: Command) -> Command {
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let ours = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
        let cargos = name_text.starts_with("CARGO") && !ours.iter().any(|prefix| name_text.starts_with(prefix));
        if cargos || name_text.starts_with("RUSTC") || name_text == "RUSTFLAGS" || name_text == "RUSTUP_TOOLCHAIN" {
            command.env_remove(&name);
        }
    }
    command
}
