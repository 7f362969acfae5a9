//! The table of what building and testing need, why, how to see that it is there, and how to get it.

use crate::jdk;
use crate::machine::Machine;

use super::remedy::Remedy;

/// The newest LLVM whose bitcode the `bpf-linker` that setup builds can read.
pub(crate) const LLVM: u32 = 22;

/// The emulator's program.
const QEMU: &str = "qemu-system-x86_64";

/// The beginnings of the names of their jars.
const ROCKSDB: &str = "rocksdbjni";
const ANSERINI: &str = "anserini";

/// What a thing is needed for; a later purpose includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Building and the demo.
    Build,
    /// Making the BPF object.
    Bpf,
    /// The tests.
    Test,
    /// The benchmark of real programs.
    Programs,
}

/// One thing that is needed.
#[derive(Debug)]
pub(crate) struct Need {
    /// What it is.
    pub(crate) what: &'static str,
    /// What it does for nprof, to follow "missing: WHAT, ".
    pub(crate) why: &'static str,
    /// What it is needed for.
    pub(crate) purpose: Purpose,
    /// Where it is, if it is there.
    find: fn(&Machine) -> Option<String>,
    /// Ways to get it, the preferred one first.
    pub(crate) remedies: &'static [Remedy],
}

impl Need {
    /// Where it is, if it is there.
    pub(crate) fn found(&self, machine: &Machine) -> Option<String> {
        (self.find)(machine)
    }

    /// The ways to get it that this machine offers.
    pub(crate) fn remedies<'a>(&self, machine: &'a Machine) -> impl Iterator<Item = &'static Remedy> + use<'a> {
        self.remedies.iter().filter(|remedy| remedy.is_possible(machine))
    }
}

/// Everything, in the order of installation: later entries may need earlier ones.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        what: "a C compiler",
        why: "to link Rust programs and to compile the C sources of the tests",
        purpose: Purpose::Build,
        find: c_compiler,
        remedies: &[Remedy::Packages(&["gcc", "libc6-dev"])],
    },
    Need {
        what: "a JDK",
        why: "to compile and run the Java workload that is traced",
        purpose: Purpose::Build,
        find: |machine| jdk::newest(machine).map(|jdk| jdk.home.display().to_string()),
        remedies: &[Remedy::Packages(&["openjdk-17-jdk-headless"])],
    },
    Need {
        what: "an eBPF toolchain",
        why: "a Rust compiler with a `core` library for the bpfel-unknown-none target",
        purpose: Purpose::Bpf,
        find: bpf_toolchain,
        remedies: &[Remedy::RustSource, Remedy::Packages(&["rustc-web", "libstd-rust-web-dev-bpf"])],
    },
    Need {
        what: "bpf-linker",
        why: "to link the eBPF object",
        purpose: Purpose::Bpf,
        find: |machine| program(machine, "bpf-linker"),
        remedies: &[Remedy::BpfLinker],
    },
    Need {
        what: "rustfmt and clippy",
        why: "to lint",
        purpose: Purpose::Test,
        find: lint_tools,
        remedies: &[Remedy::RustupComponents(&["rustfmt", "clippy"])],
    },
    Need {
        what: "cargo-deny",
        why: "to check the licences and origins of what nprof is made of",
        purpose: Purpose::Test,
        find: |machine| program(machine, "cargo-deny"),
        remedies: &[Remedy::CargoInstall { name: "cargo-deny", version: "0.20.2" }],
    },
    Need {
        what: "bpftool",
        why: "to see in the tests that nothing stays behind in the kernel",
        purpose: Purpose::Test,
        find: |machine| program(machine, "bpftool"),
        remedies: &[Remedy::Packages(&["bpftool"])],
    },
    Need {
        what: "bpftrace",
        why: "to compare counts and costs with another tool",
        purpose: Purpose::Test,
        find: |machine| program(machine, "bpftrace"),
        remedies: &[Remedy::Packages(&["bpftrace"])],
    },
    Need {
        what: "clang with libbpf's headers",
        why: "to compile the example of a user's BPF program in C",
        purpose: Purpose::Test,
        find: |machine| {
            machine.existing("/usr/include/bpf/bpf_helpers.h")?;
            program(machine, "clang")
        },
        remedies: &[Remedy::Packages(&["clang", "libbpf-dev"])],
    },
    Need {
        what: "musl",
        why: "to load what goes into JVMs with another C library than this machine's",
        purpose: Purpose::Test,
        find: |machine| program(machine, "musl-gcc"),
        remedies: &[Remedy::Packages(&["musl-tools"])],
    },
    Need {
        what: "lintian",
        why: "to check the Debian package",
        purpose: Purpose::Test,
        find: |machine| program(machine, "lintian"),
        remedies: &[Remedy::Packages(&["lintian"])],
    },
    Need {
        what: "snappy for Java",
        why: "as a real JNI library",
        purpose: Purpose::Test,
        find: |machine| jni_library(machine, "snappy-java.jar", "libsnappyjava.so"),
        remedies: &[Remedy::Packages(&["libsnappy-java", "libsnappy-jni"])],
    },
    Need {
        what: "lz4 for Java",
        why: "as a real JNI library",
        purpose: Purpose::Test,
        find: |machine| jni_library(machine, "lz4-java.jar", "liblz4-java.so"),
        remedies: &[Remedy::Packages(&["liblz4-java", "liblz4-jni"])],
    },
    Need {
        what: "JNA",
        why: "as a real JNI library, and with SQLite as a real program under load",
        purpose: Purpose::Test,
        find: |machine| jni_library(machine, "jna.jar", "libjnidispatch.system.so"),
        remedies: &[Remedy::Packages(&["libjna-java", "libjna-jni", "libsqlite3-0"])],
    },
    Need {
        what: "SQLite's JDBC driver",
        why: "as a real JNI library, and as a real program under load",
        purpose: Purpose::Test,
        find: |machine| jni_library(machine, "sqlite-jdbc.jar", "libsqlitejdbc.so"),
        remedies: &[Remedy::Packages(&["libxerial-sqlite-jdbc-java", "libxerial-sqlite-jdbc-jni"])],
    },
    Need {
        what: "Prometheus",
        why: "to scrape nprof, and to check its alerts and the dashboard's queries (promtool)",
        purpose: Purpose::Test,
        find: |machine| program(machine, "promtool").and(program(machine, "prometheus")),
        remedies: &[Remedy::WithoutService { package: "prometheus", unit: "prometheus.service" }],
    },
    Need {
        what: "Chromium",
        why: "to look at flame graphs as their readers do",
        purpose: Purpose::Test,
        find: |machine| program(machine, "chromium"),
        remedies: &[Remedy::Packages(&["chromium"])],
    },
    Need {
        what: "Debian's packaging tools",
        why: "to make the Debian package and look into it",
        purpose: Purpose::Test,
        find: |machine| program(machine, "dpkg-deb").and(program(machine, "dpkg-shlibdeps")),
        remedies: &[Remedy::Packages(&["dpkg-dev"])],
    },
    Need {
        what: "a JVM of JDK 11",
        why: "to test the oldest version that is supported",
        purpose: Purpose::Test,
        find: |machine| jvm(machine, 11),
        remedies: &[Remedy::Wheel { feature: 11, version: "11.0.13.1" }],
    },
    Need {
        what: "a JVM of JDK 17",
        why: "to test a version that many still run",
        purpose: Purpose::Test,
        find: |machine| jvm(machine, 17),
        remedies: &[Remedy::Wheel { feature: 17, version: "17.0.9.2" }],
    },
    Need {
        what: "a JVM of JDK 21",
        why: "to test the first version with virtual threads",
        purpose: Purpose::Test,
        find: |machine| jvm(machine, 21),
        remedies: &[Remedy::Wheel { feature: 21, version: "21.0.8.2" }],
    },
    Need {
        what: "a JVM of JDK 25",
        why: "to test the newest version with long support",
        purpose: Purpose::Test,
        find: |machine| jvm(machine, 25),
        remedies: &[Remedy::Wheel { feature: 25, version: "25.0.2.1" }],
    },
    Need {
        what: "a JVM of JDK 26",
        why: "to test the newest version",
        purpose: Purpose::Test,
        find: |machine| jvm(machine, 26),
        remedies: &[Remedy::Unreleased { feature: 26 }],
    },
    Need {
        what: "QEMU",
        why: "to run the BPF programs on another kernel than this machine's",
        purpose: Purpose::Test,
        find: emulator,
        remedies: &[Remedy::Packages(&["qemu-system-x86"]), Remedy::Emulator],
    },
    Need {
        what: "the kernel of Debian 13",
        why: "to see that its verifier takes the BPF programs",
        purpose: Purpose::Test,
        find: |machine| kernel(machine, "trixie"),
        remedies: &[Remedy::Kernel { suite: "trixie" }],
    },
    Need {
        what: "Tomcat 9 with its native library",
        why: "as a real program under load, by TLS",
        purpose: Purpose::Programs,
        find: |machine| debian_library(machine, "libtcnative-1.so").and(debian_jar(machine, "tomcat9-catalina.jar")),
        remedies: &[Remedy::Packages(&["libtomcat9-java", "libtcnative-1"])],
    },
    Need {
        what: "RocksDB for Java",
        why: "as a real program under load, with the file system",
        purpose: Purpose::Programs,
        find: |machine| program_jar(machine, ROCKSDB),
        remedies: &[Remedy::Jar { package: "pyspark", version: "3.5.1", within: "deps/jars", jar: ROCKSDB }],
    },
    Need {
        what: "ONNX runtime for Java",
        why: "as a real program under load, with inference",
        purpose: Purpose::Programs,
        find: |machine| program_jar(machine, ANSERINI),
        remedies: &[Remedy::Jar {
            package: "pyserini",
            version: "1.6.0",
            within: "pyserini/resources/jars",
            jar: ANSERINI,
        }],
    },
];

fn program(machine: &Machine, name: &str) -> Option<String> {
    Some(machine.program(name)?.display().to_string())
}

/// QEMU as it is installed, or one that is only unpacked.
fn emulator(machine: &Machine) -> Option<String> {
    let unpacked = machine.emulator.join("usr/bin").join(QEMU);
    let unpacked = || unpacked.is_file().then(|| unpacked.display().to_string());
    program(machine, QEMU).or_else(unpacked)
}

/// The kernel of a suite of Debian.
fn kernel(machine: &Machine, suite: &str) -> Option<String> {
    Some(machine.kernels.join(suite)).filter(|path| path.is_file()).map(|path| path.display().to_string())
}

/// A JVM of this version: a JDK of the system, or one that only runs.
fn jvm(machine: &Machine, feature: u32) -> Option<String> {
    let own = machine.jvms.join(feature.to_string());
    let own = own.join("bin/java").exists().then_some(own);
    Some(own.or_else(|| jdk::of_version(machine, feature))?.display().to_string())
}

/// A jar that was unpacked for the benchmark of real programs.
fn program_jar(machine: &Machine, name: &str) -> Option<String> {
    let mut jars =
        std::fs::read_dir(&machine.programs).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let jar = jars.find(|jar| jar.starts_with(name))?;
    Some(machine.programs.join(jar).display().to_string())
}

fn c_compiler(machine: &Machine) -> Option<String> {
    // The compiler alone, without the C library's headers, links nothing.
    machine.existing("/usr/include/stdio.h")?;
    program(machine, "cc")
}

/// Either of the two toolchains that are known.
fn bpf_toolchain(machine: &Machine) -> Option<String> {
    rustup_toolchain(machine).or_else(|| debian_toolchain(machine))
}

/// Rustup's nightly with the sources of `core`. A nightly with an LLVM newer than the linker's does not count.
pub(crate) fn rustup_toolchain(machine: &Machine) -> Option<String> {
    let nightly = machine.nightly().filter(|nightly| nightly.llvm().is_none_or(|llvm| llvm <= LLVM))?;
    Some(nightly.library_sources()?.display().to_string())
}

/// Debian's compiler for web browsers, with its ready-made `core` for the BPF target.
pub(crate) fn debian_toolchain(machine: &Machine) -> Option<String> {
    machine.existing("/usr/lib/rustlib/bpfel-unknown-none")?;
    Some(machine.existing("/usr/bin/rustc")?.display().to_string())
}

fn lint_tools(machine: &Machine) -> Option<String> {
    let tools = ["cargo-fmt", "cargo-clippy"].map(|tool| machine.toolchain_bin.join(tool));
    tools.iter().all(|tool| tool.is_file()).then(|| machine.toolchain_bin.display().to_string())
}

/// A jar and the native library that it loads, where Debian puts them.
fn jni_library(machine: &Machine, jar: &str, library: &str) -> Option<String> {
    debian_library(machine, &format!("jni/{library}")).and(debian_jar(machine, jar))
}

fn debian_library(machine: &Machine, library: &str) -> Option<String> {
    let architecture = std::env::consts::ARCH;
    let path = machine.existing(&format!("/usr/lib/{architecture}-linux-gnu/{library}"))?;
    Some(path.display().to_string())
}

fn debian_jar(machine: &Machine, jar: &str) -> Option<String> {
    Some(machine.existing(&format!("/usr/share/java/{jar}"))?.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    const NIGHTLY: &str = "/root/.rustup/toolchains/nightly-x86_64-unknown-linux-gnu";

    /// Check that Debian's compiler counts only with the BPF target's library, and that library only with it.
    #[test]
    fn debian_toolchain_needs_both_packages() {
        let fake = FakeMachine::new();
        fake.file("/usr/bin/rustc");
        assert_eq!(bpf_toolchain(&fake.machine), None);
        fake.file("/usr/lib/rustlib/bpfel-unknown-none/lib/a");
        assert!(bpf_toolchain(&fake.machine).unwrap().ends_with("rustc"));
        std::fs::remove_file(fake.machine.system("/usr/bin/rustc")).unwrap();
        assert_eq!(bpf_toolchain(&fake.machine), None);
    }

    /// Check that a nightly counts only with the sources of `core`, and not when its LLVM is too new for the linker.
    #[test]
    fn nightly_needs_sources_and_a_known_llvm() {
        for (llvm, counts) in [(LLVM, true), (LLVM + 1, false)] {
            let fake = FakeMachine::new();
            fake.file(&format!("{NIGHTLY}/lib/libLLVM.so.{llvm}.1-rust"));
            assert_eq!(bpf_toolchain(&fake.machine), None);
            fake.file(&format!("{NIGHTLY}/lib/rustlib/src/rust/library/Cargo.toml"));
            assert_eq!(bpf_toolchain(&fake.machine).is_some(), counts);
        }
    }

    /// Check that a compiler without the C library's headers is not enough.
    #[test]
    fn c_compiler_needs_headers() {
        let fake = FakeMachine::new();
        fake.file("/usr/bin/cc");
        assert_eq!(c_compiler(&fake.machine), None);
        fake.file("/usr/include/stdio.h");
        assert!(c_compiler(&fake.machine).is_some());
    }

    /// Check that every need says how to get it, so that a message never ends in nothing.
    #[test]
    fn every_need_has_a_remedy() {
        for need in NEEDS {
            assert!(!need.remedies.is_empty(), "{}", need.what);
            assert!(!need.why.is_empty(), "{}", need.what);
        }
    }
}
