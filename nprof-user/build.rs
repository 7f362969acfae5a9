//! Builds the BPF object (`nprof-ebpf`) for the library to embed, with whichever toolchain this machine has.
//!
//! Two are known: a rustup nightly with `rust-src`, which builds `core` itself, and Debian's `rustc-web`, whose
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
    for input in
        ["nprof-ebpf/src", "nprof-ebpf/Cargo.toml", "nprof-common/src", "nprof-common/Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
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
    build(&toolchain().ok_or("the BPF toolchain has vanished")?, &workspace, &out_dir)?;
    let object = out_dir.join("ebpf").join(TARGET).join("release/nprof");
    fs::copy(&object, out_dir.join("nprof.bpf.o")).map_err(|error| format!("{}: {error}", object.display()))?;
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

fn build(toolchain: &Toolchain, workspace: &Path, out_dir: &Path) -> Result<(), Box<dyn Error>> {
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
    let status = command
        .args(["--quiet", "--package", "nprof-ebpf", "--release", "--target", TARGET])
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", out_dir.join("ebpf"))
        // The maps are described to the kernel by BTF, which the linker makes from debug information. Version 3 of the
        // instruction set has 32-bit and atomic operations; kernels know it since 5.12.
        .env("CARGO_ENCODED_RUSTFLAGS", ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Ctarget-cpu=v3"].join("\x1f"))
        .status()?;
    if !status.success() {
        return Err(format!("building nprof-ebpf: {status}").into());
    }
    Ok(())
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
