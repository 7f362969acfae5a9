//! Calls of cargo, and what its messages say about the result.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// A release build of everything takes about three minutes on two cores.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// `cargo SUBCOMMAND` in the root of the workspace, with the cargo that runs this program.
pub(crate) fn command(subcommand: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg(subcommand).current_dir(workspace());
    command
}

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    // Cargo sets it at run time too; the value of compile time is wrong once the checkout has moved.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map(Path::to_path_buf).unwrap_or(package)
}

/// Where cargo keeps what it has downloaded.
pub(crate) fn home() -> PathBuf {
    let of_user = || std::env::home_dir().unwrap_or_default().join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(of_user, PathBuf::from)
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> PathBuf {
    // A relative path counts from where cargo runs; `command` runs it in the workspace's root.
    workspace().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// What a build made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Build {
    /// Names of the targets that were compiled now, build scripts included.
    pub(crate) compiled: Vec<String>,
    /// Name and path of each program that is there now, tests apart.
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// Programs that run tests.
    pub(crate) tests: Vec<TestProgram>,
}

/// A program that runs tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The directory of its package, where Cargo runs it.
    pub(crate) directory: PathBuf,
    /// Whether it is a file of `tests/`, and not the code of a library or a program with its unit tests.
    pub(crate) is_integration: bool,
}

impl Build {
    /// Takes in one line of `--message-format=json`.
    fn read(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        if message["reason"] != "compiler-artifact" {
            return;
        }
        let name = message["target"]["name"].as_str().unwrap_or_default();
        if message["fresh"] == false {
            self.compiled.push(name.to_owned());
        }
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else {
            return;
        };
        let name = name.to_owned();
        if message["profile"]["test"] == true {
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            let directory = manifest.parent().unwrap_or(Path::new("")).to_owned();
            let is_integration = message["target"]["kind"][0] == "test";
            self.tests.push(TestProgram { name, path, directory, is_integration });
        } else {
            self.programs.push((name, path));
        }
    }
}

/// Runs a building `command` of cargo, with `--message-format` added.
///
/// # Errors
/// When it fails or takes too long.
pub(crate) fn build(command: &mut Command) -> Result<Build> {
    command.arg("--message-format=json-render-diagnostics");
    let mut build = Build::default();
    let status = process::run_lines(command, BUILD_LIMIT, |line| build.read(line))?;
    process::check(command, status)?;
    Ok(build)
}

/// `cargo build --release`, the very command of the README.
///
/// # Errors
/// When it fails or takes too long.
pub(crate) fn build_release() -> Result<Build> {
    build(command("build").arg("--release"))
}

/// The same with the checks of a debug build, of which the tests need most parts anyway.
///
/// # Errors
/// When it fails or takes too long.
pub(crate) fn build_debug() -> Result<Build> {
    build(&mut command("build"))
}

/// The same in less time and room, to be seen once: in a separate directory, to be removed when the program is out of it.
///
/// # Errors
/// When it fails or takes too long.
pub(crate) fn build_demo(directory: &Path) -> Result<Build> {
    build(command("build").args(["--profile", "demo", "--target-dir"]).arg(directory))
}

/// The `nprof` program that a build made.
///
/// # Errors
/// When the build made none.
pub(crate) fn nprof(build: &Build) -> Result<PathBuf> {
    let (_, path) =
        build.programs.iter().find(|(name, _)| name == "nprof").context("the build made no program `nprof`")?;
    Ok(path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, fresh: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"fresh":{fresh},"executable":{executable}}}"#
        )
    }

    /// Check that compiled and fresh targets are told apart, and that noise is passed over.
    #[test]
    fn messages_are_read() {
        let mut build = Build::default();
        build.read(&artifact("libc", true, "null"));
        build.read(&artifact("build-script-build", false, "null"));
        build.read(&artifact("nprof", true, "\"/t/release/nprof\""));
        build.read(r#"{"reason":"build-finished","success":true}"#);
        build.read("not json");
        assert_eq!(build.compiled, ["build-script-build"]);
        assert_eq!(nprof(&build).unwrap(), PathBuf::from("/t/release/nprof"));
    }

    /// Check that programs that run tests are told from others, and where they are to be run.
    #[test]
    fn tests_are_told_apart() {
        let mut build = Build::default();
        for kind in ["test", "lib"] {
            build.read(&format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{kind}s","kind":["{kind}"]}},"fresh":false,"profile":{{"test":true}},
                "manifest_path":"/w/some/Cargo.toml","executable":"/t/{kind}s-1"}}"#
            ));
        }
        let program = |name: &str, is_integration| TestProgram {
            name: name.to_owned(),
            path: PathBuf::from(format!("/t/{name}-1")),
            directory: PathBuf::from("/w/some"),
            is_integration,
        };
        assert_eq!(build.tests, [program("tests", true), program("libs", false)]);
        assert!(build.programs.is_empty());
    }

    /// Check that a build without the program is an error and not a wrong path.
    #[test]
    fn missing_program_is_an_error() {
        assert!(nprof(&Build::default()).is_err());
    }
}
