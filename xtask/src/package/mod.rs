//! `cargo xtask package`: a Debian package of nprof, `nprof_VERSION_amd64.deb`.
//!
//! What goes where is [`contents`], what dpkg is told is [`control`]; this file builds, runs the tools and puts the
//! parts together. Two runs on one commit with one compiler make the same bytes: every file has the time of the commit.

mod contents;
mod control;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::process;

/// What nprof is built for; Debian's name of x86-64.
const ARCHITECTURE: &str = "amd64";
/// None of the tools that are run here takes longer than seconds.
const TOOL_LIMIT: Duration = Duration::from_secs(5 * 60);

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// A release binary that is there already; built if there is none.
    binary: Option<PathBuf>,
    /// Where to put the package; `package` in cargo's target directory if it is not said.
    out: Option<PathBuf>,
}

/// The command. Prints the path of the package.
///
/// # Errors
/// When the arguments are wrong, the build fails, or a tool is missing or fails.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let request = parse(arguments)?;
    if env::consts::ARCH != "x86_64" {
        bail!("nprof is for x86-64, and this machine is not");
    }
    let binary = match request.binary {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => cargo::nprof(&cargo::build_release()?)?,
    };
    let out = request.out.unwrap_or_else(|| cargo::target_directory().join("package"));
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    println!("{}", package(&binary, &out)?.display());
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<Request> {
    let mut request = Request::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "--bin" => &mut request.binary,
            "--out" => &mut request.out,
            _ => bail!("unknown argument `{word}`; there are --bin PATH and --out DIR"),
        };
        *place = Some(words.next().with_context(|| format!("{word} wants a path"))?.into());
    }
    Ok(request)
}

/// Makes the package of `binary` in the directory `out`.
fn package(binary: &Path, out: &Path) -> Result<PathBuf> {
    let name = format!("nprof_{}_{ARCHITECTURE}.deb", env!("CARGO_PKG_VERSION"));
    // Beside the package and not in a temporary directory: a failed attempt can be looked at.
    let work = out.join("work");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
    }
    let root = work.join("root");
    contents::lay_out(binary, &work, &root)?;
    control::write_directory(&work, &root)?;
    let path = out.join(name);
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "-Zxz", "--build"]).arg(&root).arg(&path);
    // dpkg-deb says where it puts the package; that is said here, in one way for all.
    output(command.env("SOURCE_DATE_EPOCH", source_date()?))?;
    fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
    Ok(path)
}

/// The time that all files get, in seconds since 1970: that of the commit, unless the environment says another.
fn source_date() -> Result<String> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let mut git = Command::new("git");
    let date = output(git.args(["log", "-1", "--format=%ct"]).current_dir(cargo::workspace()));
    date.context("outside of a git checkout, set SOURCE_DATE_EPOCH to the time that the files shall have")
}

/// Runs a tool to its success and gives what it printed.
fn output(command: &mut Command) -> Result<String> {
    let mut text = String::new();
    let status = process::run_lines(command, TOOL_LIMIT, |line| {
        text += line;
        text.push('\n');
    })?;
    process::check(command, status)?;
    Ok(text.trim_end().to_owned())
}

/// Writes a file with a mode, and the directories above it.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let parent = path.parent().with_context(|| format!("{} has no directory", path.display()))?;
    make_directory(parent)?;
    fs::write(path, content).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// Makes a directory and those above it, readable for all whatever the umask is.
fn make_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    fs::create_dir(path).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Check that the arguments are read, in any order, and that a wrong or half one is refused.
    #[test]
    fn arguments_are_read() {
        assert_eq!(parse(&[]).unwrap(), Request::default());
        let request = parse(&words("--out b --bin a")).unwrap();
        assert_eq!((request.binary, request.out), (Some("a".into()), Some("b".into())));
        assert!(parse(&words("--bin")).is_err());
        assert!(parse(&words("--fast")).is_err());
    }

    /// Check that a tool's output is given without its last line feed, and that its failure is an error.
    #[test]
    fn tools_say_something_or_fail() {
        let shell = |script: &str| output(Command::new("sh").args(["-c", script]));
        assert_eq!(shell("echo a; echo b").unwrap(), "a\nb");
        assert!(shell("echo a; exit 3").is_err());
    }
}
