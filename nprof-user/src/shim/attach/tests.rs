//! The protocol against VMs that are played: a real process to be signalled, with a directory for a root.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use rustix::process::{getegid, geteuid};

use super::*;
use crate::discover::test_proc::TestProc;
use crate::discover::{Halted, OnQuit};
use crate::model::{Jvm, Library};
use crate::shim::Wanted;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

/// A process that is taken for a JVM, and how it looks to nprof.
struct Played {
    host: TestProc,
    process: Child,
}

impl Played {
    /// A process that ignores SIGQUIT.
    fn new() -> Self {
        Self::of("ignore")
    }

    /// A process that SIGQUIT ends. A shell leaves the signal ignored in what it starts in the background, tests included: that
    /// would be inherited.
    fn mortal() -> Self {
        Self::of("default")
    }

    /// A process with this disposition of SIGQUIT.
    fn of(disposition: &str) -> Self {
        let mut shell = Command::new("env");
        // It says when the disposition is in place.
        shell.arg(format!("--{disposition}-signal=QUIT")).args(["sh", "-c", "echo; read line"]);
        let mut process = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let host = TestProc::new();
        Self::add(&host, Pid(process.id()));
        Self { host, process }
    }

    fn add(host: &TestProc, pid: Pid) {
        host.process(pid).maps_libjvm().add();
        host.link(format!("proc/{pid}/root"), host.path("inside"));
        host.link(format!("proc/{pid}/cwd"), host.path("inside/home"));
        for directory in ["inside/tmp", "inside/home"] {
            std::fs::create_dir_all(host.path(directory)).unwrap();
        }
    }

    fn pid(&self) -> Pid {
        Pid(self.process.id())
    }

    /// A file in its `/tmp`.
    fn file(&self, name: &str) -> PathBuf {
        self.host.path("inside/tmp").join(format!("{name}{}", self.pid()))
    }

    /// Has it load something; `may_signal` is what [`load`] is given.
    fn load(&self, patience: Duration, may_signal: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        load_into(&self.host, self.pid(), patience, may_signal)
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        // It ends with its input; it is killed in case that it does not read.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn load_into(
    host: &TestProc,
    pid: Pid,
    patience: Duration,
    may_signal: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let proc = host.proc();
    let jvm: Jvm = proc.jvm(pid).unwrap();
    let libjvm: Library = proc.libraries(pid).unwrap().remove(0);
    let (euid, egid) = (geteuid().as_raw(), getegid().as_raw());
    let standing = Standing { ns_pid: pid.0, euid, egid, halted: None::<Halted>, quit: OnQuit::Caught };
    let target =
        Target::open(&Wanted { proc: &proc, jvm: &jvm, libjvm: &libjvm, patience, has_stubs: false }, standing)
            .unwrap();
    load(&target, Path::new("/tmp/l.so"), "connect=/tmp/s", may_signal)
}

fn forbidden() -> Result<(), Error> {
    panic!("no signal is needed")
}

/// This test's own process as a JVM that listens: it reads requests of `length` bytes, answers each and gives the last one.
fn listening(length: usize, answers: &'static [Option<&'static str>]) -> (TestProc, Pid, JoinHandle<Vec<u8>>) {
    let (host, pid) = (TestProc::new(), Pid(std::process::id()));
    Played::add(&host, pid);
    let listener = UnixListener::bind(host.path("inside/tmp").join(format!(".java_pid{pid}"))).unwrap();
    let vm = thread::spawn(move || {
        let mut request = vec![0; length];
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut request).unwrap();
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                // Until nprof hangs up.
                None => drop(stream.read(&mut [0])),
            }
        }
        request
    });
    (host, pid, vm)
}

const REQUEST: &[u8] = b"1\0load\0/tmp/l.so\0true\0connect=/tmp/s\0";

/// Check that a VM that listens is asked without a signal, in its own words, that what it answers counts, and that one which has
/// not started yet is asked again.
#[test]
fn asks_who_listens() {
    const EARLY: Option<&str> = Some("100\nDynamic agent loading is only permitted in the live phase\n");
    const LOADED: Option<&str> = Some("0\nreturn code: 0\n");
    let cases: [(&'static [Option<&'static str>], bool); 4] = [
        (&[LOADED], true),
        (&[EARLY, EARLY, LOADED], true),
        (&[EARLY, Some("0\nreturn code: 1\n")], false),
        (&[Some("")], false),
    ];
    for (answer, loaded) in cases {
        let (host, pid, vm) = listening(REQUEST.len(), answer);
        let result = load_into(&host, pid, LONG, forbidden);
        assert_eq!(vm.join().unwrap(), REQUEST);
        match result {
            Ok(()) => assert!(loaded, "{answer:?}"),
            Err(error) => assert!(!loaded && matches!(error, Error::NotLoaded { .. }), "{answer:?}: {error}"),
        }
    }
}

/// Check that a VM that takes the request and never answers is given up.
#[test]
fn gives_up_who_does_not_answer() {
    let (host, pid, vm) = listening(REQUEST.len(), &[None]);
    let error = load_into(&host, pid, SHORT, forbidden).unwrap_err();
    assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
    vm.join().unwrap();
}

/// Check that a VM that does not listen is asked to by a file of its own user's and a signal, given up after a while,
/// and that the file is gone then. A socket that was left over, and one of another process, are not taken for its own.
#[test]
fn gives_up_who_does_not_listen() {
    let played = Played::new();
    let error = played
        .load(SHORT, || {
            let file = std::fs::metadata(played.file(".attach_pid")).unwrap();
            assert_eq!((file.uid(), file.permissions().mode() & 0o777), (geteuid().as_raw(), 0o600));
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::NotListening { .. }), "{error}");
    assert!(!played.file(".attach_pid").exists());
    let of_another = UnixListener::bind(played.file(".java_pid")).unwrap();
    assert!(matches!(played.load(SHORT, || Ok(())), Err(Error::NotListening { .. })));
    drop(of_another);
    assert!(matches!(played.load(SHORT, || Ok(())), Err(Error::NotListening { .. })));
}

/// Check that nothing is sent and no file stays where the signal would do harm.
#[test]
fn no_signal_that_harms() {
    // This one would be ended by it.
    let played = Played::mortal();
    let error = played.load(LONG, || Err(Error::Silent { pid: played.pid() })).unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    assert!(!played.file(".attach_pid").exists());
    let ended = Path::new("/proc").join(played.pid().to_string()).join("stat");
    assert!(!std::fs::read_to_string(ended).unwrap().contains(") Z "));
}

/// Check that the end of the target is noticed at once, not when patience ends.
#[test]
fn notices_the_end() {
    let played = Played::mortal();
    let error = played.load(LONG, || Ok(())).unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
}

/// Check that the working directory is used where the other one is full of another user's files.
#[test]
fn another_directory() {
    if !geteuid().is_root() {
        return;
    }
    let played = Played::new();
    std::fs::write(played.file(".attach_pid"), "").unwrap();
    std::os::unix::fs::chown(played.file(".attach_pid"), Some(54_321), None).unwrap();
    let own = played.host.path("inside/home").join(format!(".attach_pid{}", played.pid()));
    let error = played
        .load(SHORT, || {
            assert!(own.exists());
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::NotListening { .. }), "{error}");
    assert!(!own.exists() && played.file(".attach_pid").exists());
}

/// Check that just the answer of a VM that has loaded the library counts, and that the others are told in one line.
#[test]
fn answers() {
    assert_eq!(judge("0\nreturn code: 0\n"), Ok(()));
    for (answer, said) in [
        ("", "it hung up without an answer"),
        ("101\n", "its answer is 101"),
        ("0\n", "its answer is 0"),
        ("0\nreturn code: 1\n", "return code: 1"),
        ("0\n/l.so was not loaded.\n/l.so: file too short\n", "/l.so was not loaded. /l.so: file too short"),
        ("-1\nDynamic agent loading is not enabled.", "Dynamic agent loading is not enabled."),
        ("0\n\x1b[31m", " [31m"),
    ] {
        assert_eq!(judge(answer), Err(said.to_owned()), "{answer:?}");
    }
    assert_eq!(judge(&format!("1\n{}", "x".repeat(9_000))).unwrap_err().len(), SHOWN);
}
