//! The programs: what they are made of, and how they are started.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nprof_tests::jdk::{Jdk, OLDEST_SUPPORTED};
use nprof_tests::process::RemoteProcess;
use nprof_tests::source_tree::{GENERATED, SourceTree};
use nprof_tests::target::{Targets, cargo_target_dir, compile_with};
use tempfile::TempDir;

/// Where Debian has jars, and native libraries for Java and for others.
const JARS: &str = "/usr/share/java";
const LIBRARIES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/jni", "/usr/lib/x86_64-linux-gnu"];
/// What Tomcat without JSP consists of.
const TOMCAT: [&str; 11] = [
    "tomcat9-annotations-api",
    "tomcat9-api",
    "tomcat9-catalina",
    "tomcat9-coyote",
    "tomcat9-jaspic-api",
    "tomcat9-jni",
    "tomcat9-juli",
    "tomcat9-servlet-api",
    "tomcat9-util",
    "tomcat9-util-scan",
    "tomcat9-el-api",
];
/// The longest that a program runs before it is measured. The JVM has compiled what it will compile.
const WARM_UP: Duration = Duration::from_secs(12);
/// Of the key store that `TlsServer` and `TlsClient` share.
const PASSWORD: &str = "nothing-secret";

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    pub name: &'static str,
    /// Its class, in `tests/targets/programs`.
    class: &'static str,
    /// Jars that it needs: names of Debian's, or the beginning of the name of one that was unpacked into `target/bench-programs`.
    jars: &'static [&'static str],
    /// A native library that it needs.
    library: Option<&'static str>,
    /// Its arguments, made in an empty directory, and who else is needed.
    prepare: fn(&Jdk, &Path) -> Result<Prepared>,
}

/// What a program is started with.
#[derive(Debug, Default)]
struct Prepared {
    arguments: Vec<String>,
    /// Another program that gives it work: class and arguments.
    client: Option<(&'static str, Vec<String>)>,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// What it is called among JVMs.
    pub main: String,
    program: RemoteProcess,
    client: Option<RemoteProcess>,
    _scratch: TempDir,
}

/// What a program has done so far: the CPU time of the threads that do the work, and operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub cpu_ns: f64,
    pub operations: f64,
}

/// All of them.
pub(crate) const PROGRAMS: [Program; 7] = [
    Program {
        name: "Tomcat 9 under TLS (tcnative)",
        class: "TlsServer",
        jars: &TOMCAT,
        library: Some("libtcnative-1.so"),
        prepare: tls,
    },
    Program {
        name: "SQLite through JNA",
        class: "Sqlite",
        jars: &["jna"],
        library: Some("libjnidispatch.system.so"),
        prepare: nothing,
    },
    Program {
        name: "SQLite through JDBC",
        class: "SqliteJdbc",
        jars: &["sqlite-jdbc"],
        library: None,
        prepare: nothing,
    },
    Program {
        name: "RocksDB",
        class: "Rocks",
        jars: &["rocksdbjni"],
        library: None,
        prepare: |_, scratch| Ok(Prepared { arguments: vec![scratch.display().to_string()], client: None }),
    },
    Program { name: "ONNX runtime", class: "Onnx", jars: &["anserini"], library: None, prepare: nothing },
    Program { name: "javac in process", class: "Javac", jars: &[], library: None, prepare: sources },
    Program {
        name: "small natives, two million a second",
        class: "SmallNatives",
        jars: &[],
        library: None,
        prepare: |_, _| {
            let library = Targets::get()?.library("libmany.so").display().to_string();
            Ok(Prepared { arguments: vec![library], client: None })
        },
    },
];

impl Program {
    /// What it needs and this machine does not have.
    pub(crate) fn missing(&self) -> Option<String> {
        let jar = self.jars.iter().find(|name| jar(name).is_none()).map(|name| format!("{name}.jar"));
        let library = self.library.filter(|name| !LIBRARIES.iter().any(|place| Path::new(place).join(name).exists()));
        jar.or(library.map(str::to_owned))
    }

    /// Compiles and starts it.
    pub(crate) fn start(&self, jdk: &Jdk) -> Result<Running> {
        let scratch = tempfile::tempdir()?;
        let work = scratch.path().join("work");
        std::fs::create_dir(&work)?;
        let Prepared { arguments, client } = (self.prepare)(jdk, &work)?;
        let mut path: Vec<PathBuf> = self.jars.iter().filter_map(|name| jar(name)).collect();
        path.push(Targets::get()?.classes());
        let mut classes = vec!["Program", self.class];
        // The two of TLS know each other.
        classes.extend(client.as_ref().map(|(class, _)| *class));
        path.push(compile_with(jdk, OLDEST_SUPPORTED, &classes, &path, &scratch.path().join("classes"))?);
        let start = |class, arguments: &[String]| {
            // Some unpack their libraries into files which they delete only if they end by themselves.
            let unpacked = format!("-Djava.io.tmpdir={}", scratch.path().display());
            RemoteProcess::program(java(jdk, &path, &unpacked).arg(format!("targets.{class}")).args(arguments))
        };
        let program = start(self.class, &arguments)?;
        let client = client.map(|(class, arguments)| start(class, &arguments)).transpose()?;
        Ok(Running { main: format!("targets.{}", self.class), program, client, _scratch: scratch })
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Lets it run until the JVM has compiled what it will compile.
    pub(crate) fn warm_up(&mut self) -> Result<()> {
        sleep(WARM_UP);
        self.log().map(drop)
    }

    /// What it has logged since the last time.
    pub(crate) fn log(&mut self) -> Result<Vec<String>> {
        self.program.run("log")
    }

    /// How far it has come; `None` where no threads of its own do the work.
    pub(crate) fn progress(&mut self) -> Result<Option<Progress>> {
        let answer = self.program.run("progress")?.join("\n");
        let words: Vec<&str> = answer.split(' ').collect();
        let ["progress", cpu_ns, operations] = words[..] else { bail!("no progress: {answer}") };
        let progress = Progress { cpu_ns: cpu_ns.parse()?, operations: operations.parse()? };
        Ok((progress.cpu_ns > 0.0).then_some(progress))
    }

    /// Ends it cleanly.
    pub(crate) fn exit(self) -> Result<()> {
        self.client.map_or(Ok(()), RemoteProcess::exit)?;
        self.program.exit()
    }
}

/// A jar of Debian's, or one that was unpacked into `target/bench-programs`.
fn jar(name: &str) -> Option<PathBuf> {
    let debian = Path::new(JARS).join(format!("{name}.jar"));
    if debian.exists() {
        return Some(debian);
    }
    let mut own = std::fs::read_dir(cargo_target_dir().join("bench-programs")).ok()?.flatten();
    own.find(|file| file.file_name().to_str().is_some_and(|file| file.starts_with(name))).map(|file| file.path())
}

fn java(jdk: &Jdk, path: &[PathBuf], option: &str) -> Command {
    let mut command = Command::new(jdk.tool("java"));
    command.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS").args(["-Xms512m", "-Xmx512m", option]);
    command.arg(format!("-Djava.library.path={}", LIBRARIES.join(":"))).arg("-cp");
    command.arg(path.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":"));
    command
}

fn nothing(_: &Jdk, _: &Path) -> Result<Prepared> {
    Ok(Prepared::default())
}

/// Sources for the compiler that can be compiled one by one.
fn sources(_: &Jdk, scratch: &Path) -> Result<Prepared> {
    let [sources, classes] = ["sources", "classes"].map(|name| scratch.join(name));
    [&sources, &classes].into_iter().try_for_each(std::fs::create_dir)?;
    SourceTree::generate(&sources, GENERATED)?;
    Ok(Prepared { arguments: [sources, classes].map(|path| path.display().to_string()).into(), client: None })
}

/// A key store, a port, and a client for both.
fn tls(jdk: &Jdk, scratch: &Path) -> Result<Prepared> {
    let keys = scratch.join("keys").display().to_string();
    let mut command = Command::new(jdk.tool("keytool"));
    command.args(["-genkeypair", "-alias", "server", "-keyalg", "RSA", "-dname", "CN=localhost", "-validity", "2"]);
    let output = command.args(["-storetype", "PKCS12", "-storepass", PASSWORD, "-keystore", &keys]).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stdout));
    // Nobody else takes it in the moment until the server does.
    let port = TcpListener::bind("127.0.0.1:0").context("a port")?.local_addr()?.port().to_string();
    let arguments = vec![scratch.display().to_string(), keys.clone(), port.clone()];
    Ok(Prepared { arguments, client: Some(("TlsClient", vec![keys, port])) })
}
