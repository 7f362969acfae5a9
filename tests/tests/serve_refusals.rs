//! Where `nprof serve` cannot serve, it ends at once and says what is in its way and what to do.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nprof_tests::nprof::{binary, run};
use nprof_tests::require::{on_kernel, traced_on_every_jdk};
use tempfile::TempDir;

use crate::serve::serve;

/// A user with no privileges.
const NOBODY: u32 = 65534;

/// A path that can be given to nprof.
fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

/// Checks what a failed `nprof serve` said: each of `words`, and nothing of those privileges that would not help.
fn said(code: Option<i32>, stderr: &str, words: &[&str]) -> Result<()> {
    ensure!(code == Some(2), "exit code {code:?}: {stderr}");
    for word in words {
        ensure!(stderr.contains(word), "no '{word}' in: {stderr}");
    }
    let is_about_tracing = words.contains(&"CAP_BPF");
    ensure!(stderr.contains("CAP_BPF") == is_about_tracing, "wrong advice: {stderr}");
    Ok(())
}

/// Runs `nprof serve`, which must fail and say each of `words`.
fn fails(args: &[&str], words: &[&str]) -> Result<()> {
    let run = run(&[&["serve"], args].concat())?;
    said(run.code, &run.stderr, words)
}

/// The same with a copy of nprof, as a user with no privileges.
fn fails_for_nobody(nprof: &Path, args: &[&str], words: &[&str]) -> Result<()> {
    let mut command = Command::new(nprof);
    command.arg("serve").args(args).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    let output = command.output()?;
    said(output.status.code(), &String::from_utf8_lossy(&output.stderr), words)
}

/// Check that every mistake of a file and of the flags is said at once, each with its place.
#[test]
fn several_mistakes() -> Result<()> {
    let directory = TempDir::new()?;
    let file = directory.path().join("nprof.toml");
    fs::write(&file, "listne = \"127.0.0.1:0\"\nmax-overhead = \"2\"\npatterns = [\"A::[\"]\n")?;
    let config = text(&file)?;
    let place = |line: u32| format!("{config}:{line}:1: ");
    let words = [&place(1), &place(2), &place(3), "nearest: listen", "2% or 0.5%", "--listen: `80`", "127.0.0.1:9464"];
    fails(&["--config", config, "--listen", "80"], &words)
}

/// Check that an address and a control socket that others have are named, with what to do.
#[test]
fn in_use() -> Result<()> {
    let directory = TempDir::new()?;
    let socket = directory.path().join("control.sock");
    let socket = text(&socket)?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    fails(&["--listen", &address, "--control", socket], &[&address, "something listens there already", "--listen"])?;
    fails(&["--listen", "192.0.2.1:9464", "--control", socket], &["192.0.2.1:9464", "ip address"])?;
    let file = directory.path().join("file");
    fs::write(&file, "")?;
    fails(&["--listen", "127.0.0.1:0", "--control", text(&file)?], &[text(&file)?, "no socket", "--control"])?;
    traced_on_every_jdk(|_| {
        let serve = serve()?;
        let control = serve.control();
        fails(&["--listen", "127.0.0.1:0", "--control", text(&control)?], &["another nprof", "--control"])
    })
}

/// Check that a secret which everybody may read is refused.
#[test]
fn open_secrets() -> Result<()> {
    let directory = TempDir::new()?;
    let token = directory.path().join("token");
    fs::write(&token, "secret")?;
    fs::set_permissions(&token, Permissions::from_mode(0o644))?;
    let token = text(&token)?;
    fails(&["--check-config", "--bearer-token-file", token], &[token, "every user", "chmod o="])
}

/// Check that a user with no privileges is told for each thing that is refused what would help with that.
#[test]
fn without_privileges() -> Result<()> {
    on_kernel(|| {
        let directory = TempDir::new()?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
        let (socket, token) = (directory.path().join("control.sock"), directory.path().join("token"));
        let (socket, token) = (text(&socket)?, text(&token)?);
        // The original may lie where only root can go.
        let nprof = directory.path().join("nprof");
        fs::copy(binary(), &nprof)?;
        let fails_for_nobody = |args: &[&str], words: &[&str]| fails_for_nobody(&nprof, args, words);
        let free = ["--listen", "127.0.0.1:0"];
        fails_for_nobody(&[&free[..], &["--control", socket]].concat(), &["BPF program", "CAP_BPF", "nprof check"])?;
        // In some containers all ports are free to all.
        if fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")?.trim() == "1024" {
            fails_for_nobody(&["--listen", "127.0.0.1:80", "--control", socket], &["127.0.0.1:80", "below 1024"])?;
        }
        fails_for_nobody(&[&free[..], &["--control", "/run/no-such/s"]].concat(), &["/run/no-such", "--control"])?;
        fs::write(token, "secret")?;
        fs::set_permissions(token, Permissions::from_mode(0o600))?;
        let words = [token, "let the user that nprof runs as read"];
        fails_for_nobody(&["--check-config", "--bearer-token-file", token], &words)?;
        fails_for_nobody(&["--check-config", "--config", token], &words)
    })
}
