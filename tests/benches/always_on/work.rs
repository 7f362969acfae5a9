//! The programs, and a turn of each: always the same work.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nprof_tests::jdk::{Jdk, OLDEST_SUPPORTED};
use nprof_tests::process::RemoteProcess;
use nprof_tests::source_tree::SourceTree;
use nprof_tests::target::{Targets, compile_with};
use nprof_tests::usage::java_threads_time;
use tempfile::TempDir;

use crate::turns::State;

/// All that is measured.
pub(crate) const WORKS: [Work; 2] =
    [Work { name: "javac in process", start: compiler }, Work { name: "HTTP server of the JDK", start: server }];

/// A turn of the server: so many requests on each connection.
const REQUESTS: usize = 25;
/// Collections are many and short. Their time is not measured, but what they throw out of the caches is: each turn has its share.
const HEAP: [&str; 4] = ["-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-Xmn16m"];

/// A program.
#[derive(Debug)]
pub(crate) struct Work {
    pub name: &'static str,
    start: fn(&Jdk, TempDir) -> Result<Running>,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// What it is called among JVMs.
    pub main: &'static str,
    program: RemoteProcess,
    /// Who gives it work, if it is not told to work itself.
    client: Option<RemoteProcess>,
    /// What one of the two is told for a turn.
    turn: String,
    _scratch: TempDir,
}

impl Work {
    /// Compiles and starts it.
    pub(crate) fn start(&self, jdk: &Jdk) -> Result<Running> {
        (self.start)(jdk, tempfile::tempdir()?)
    }
}

impl Running {
    /// Has it done once.
    pub(crate) fn turn(&mut self) -> Result<State> {
        let pid = self.program.pid();
        let before = java_threads_time(pid)?;
        let answer = self.client.as_mut().unwrap_or(&mut self.program).run(&self.turn)?.join("\n");
        let cpu = java_threads_time(pid)? - before;
        let p99 = answer.strip_prefix("p99 ").map_or(Ok(0.0), str::parse)?;
        Ok(State { cpu, p99: p99 / 1e9 })
    }

    /// Ends it cleanly.
    pub(crate) fn exit(self) -> Result<()> {
        self.client.map_or(Ok(()), RemoteProcess::exit)?;
        self.program.exit()
    }
}

fn compiler(jdk: &Jdk, scratch: TempDir) -> Result<Running> {
    let [sources, classes] = ["sources", "classes"].map(|name| scratch.path().join(name));
    [&sources, &classes].into_iter().try_for_each(std::fs::create_dir)?;
    // One that is compiled in two hundredths of a second: what else the machine does makes two turns differ by a tenth, however short
    // they are, so the more of them, the better.
    SourceTree::generate_small(&sources)?;
    let mut command = java(jdk, &[Targets::get()?.classes()])?;
    let program = RemoteProcess::program(command.arg("targets.Compiler").arg(&sources).arg(&classes))?;
    Ok(Running { main: "targets.Compiler", program, client: None, turn: "compile 1".to_owned(), _scratch: scratch })
}

fn server(jdk: &Jdk, scratch: TempDir) -> Result<Running> {
    let path = served(jdk, scratch.path())?;
    // Nobody else takes it in the moment until the server does.
    let port = TcpListener::bind("127.0.0.1:0").context("a port")?.local_addr()?.port().to_string();
    let start = |class: &str| RemoteProcess::program(java(jdk, &path)?.arg(class).arg(&port));
    let (program, client) = (start("targets.HttpPages")?, start("targets.HttpLoad")?);
    let turn = format!("ask {REQUESTS}");
    Ok(Running { main: "targets.HttpPages", program, client: Some(client), turn, _scratch: scratch })
}

/// The class path of server and client.
fn served(jdk: &Jdk, scratch: &Path) -> Result<[PathBuf; 2]> {
    let targets = Targets::get()?.classes();
    let classes = ["HttpPages", "HttpLoad", "TlsClient", "Program"];
    let own = compile_with(jdk, OLDEST_SUPPORTED, &classes, std::slice::from_ref(&targets), &scratch.join("classes"))?;
    Ok([targets, own])
}

fn java(jdk: &Jdk, path: &[PathBuf]) -> Result<Command> {
    let mut command = Command::new(jdk.tool("java"));
    command.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS").args(HEAP);
    // Else an answer waits for the client's acknowledgement of its head.
    command.arg("-Dsun.net.httpserver.nodelay=true").arg("-cp").arg(std::env::join_paths(path)?);
    Ok(command)
}
