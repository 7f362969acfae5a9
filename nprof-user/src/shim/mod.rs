//! The shim in a running JVM: getting it there, and talking to it.
//!
//! ```text
//! check ─> load: a library and a socket in a directory of the target's ─> the JVM's attach socket: "load" ─> Connection
//! ```
//!
//! What is done to the target is what the JDK's own tools do (`jcmd PID JVMTI.agent_load`), with more caution: everything
//! that stands against it is found out first ([`check`]), nothing is waited for without a limit, and no file stays that is not
//! needed.

mod allowance;
mod attach;
mod check;
mod connection;
mod error;
mod library;
mod message;
mod mounted;
mod place;
mod records;
mod refusal;
mod remedy;
mod stand_in;
mod target;
mod tree_memory;

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

pub use connection::{Connection, Sender};
pub use error::Error;
pub use library::{BYTES, Loaded, NAME as LIBRARY, among, find, is_in_use, is_own};
pub use message::{
    Applied, Bound, ClassFile, ClassesListed, Enhanced, FromShimOwned, Hello, How, IdCaller, IdFunction, IdsForgotten,
    Scanned, Stubbed, TreesEnded,
};
pub use records::{Choices, Records};
pub use refusal::{Refusal, Warning};
pub use tree_memory::TreeMemory;

use crate::discover::{Proc, Standing};
use crate::model::{Jvm, Library};
use check::Facts;
use place::Place;
use target::Target;

/// A JVM that is to get the shim.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Where the JVM is looked at.
    pub proc: &'a Proc,
    /// The JVM.
    pub jvm: &'a Jvm,
    /// Its VM's library.
    pub libjvm: &'a Library,
    /// How long to wait for each of its answers.
    pub patience: Duration,
    /// Whether there are stubs that an earlier nprof has left, which only the shim can take away.
    pub has_stubs: bool,
}

/// How long a JVM may take to start, and how often it is looked whether it has.
const STARTING: Duration = Duration::from_secs(5);
const STARTING_STEP: Duration = Duration::from_millis(20);

/// What stands against loading the shim, before anything is done: an error if it must not be, else what the user should
/// know.
///
/// # Errors
/// See [`Refusal`]; each says what to do.
pub fn check(wanted: &Wanted<'_>) -> Result<Vec<Warning>, Refusal> {
    Facts::gather(wanted)?.judge()
}

/// The same of a JVM that may be starting: it gets the time to take SIGQUIT, which asks it to listen, for its own.
///
/// # Errors
/// As [`check`].
pub fn check_when_started(wanted: &Wanted<'_>) -> Result<Vec<Warning>, Refusal> {
    let is_starting = || wanted.proc.age(wanted.jvm).is_some_and(|age| age < STARTING);
    loop {
        match check(wanted) {
            Err(refusal) if refusal.may_pass() && is_starting() => thread::sleep(STARTING_STEP),
            checked => return checked,
        }
    }
}

/// Loads the shim, or has the one that is loaded connect again; [`check`] is part of it.
///
/// This takes normally tens of milliseconds, and a few times [`Wanted::patience`] at the most.
///
/// # Errors
/// See [`Error`]. Where it is a [`Error::Refused`], nothing has been done to the target.
pub fn load(wanted: &Wanted<'_>) -> Result<Connection, Error> {
    let Wanted { proc, jvm, patience, .. } = *wanted;
    let facts = Facts::gather(wanted)?;
    facts.judge()?;
    let target = Target::open(wanted, facts.standing)?;
    // A mount is made as root, and only where nothing else will do.
    let connected = match connect_from_directory(&target, &facts) {
        Err(Error::NoPlace { tried, .. }) if facts.loaded.is_none() => connect_from_mount(&target, &facts, tried),
        connected => connected,
    };
    connected
        .and_then(|socket| Connection::begin(socket, jvm.pid, Instant::now() + patience))
        // What failed for want of the target is no news.
        .map_err(|error| if proc.is_same(jvm) { error } else { Error::Ended { pid: jvm.pid } })
}

/// Has the target load the library from one of its directories, unless it has one, and connect.
fn connect_from_directory(target: &Target<'_>, facts: &Facts) -> Result<OwnedFd, Error> {
    let (pid, is_new) = (target.pid(), facts.loaded.is_none());
    as_target(target, || {
        let place = Place::make(target.directories(), is_new).map_err(|tried| Error::NoPlace { pid, tried })?;
        let socket = connect(target, facts, &place)?;
        if is_new && !target.has_proc {
            match place.keep_library() {
                Ok(path) => tracing::info!("process {pid} has no /proc, so {} stays there", path.display()),
                Err(error) => tracing::warn!("the shim's library cannot stay in process {pid}: {error}"),
            }
        }
        Ok(socket)
    })
}

/// The same where no directory takes the library: from a file system that is mounted over one. `tried` is why none does.
fn connect_from_mount(target: &Target<'_>, facts: &Facts, mut tried: Vec<String>) -> Result<OwnedFd, Error> {
    let pid = target.pid();
    let make = || Place::make(target.directories(), false).map_err(|tried| Error::NoPlace { pid, tried });
    let mut place = as_target(target, make)?;
    let mounted = place.mount(target).and_then(|()| {
        let Standing { euid, egid, .. } = target.standing;
        stand_in::as_user(euid, egid, || place.write_library())?
    });
    if let Err(error) = mounted {
        tried.push(format!("a file system mounted there: {error}"));
        return Err(Error::NoPlace { pid, tried });
    }
    let connected = as_target(target, || connect(target, facts, &place));
    place.unmount();
    connected
}

/// Has the target load the library and connect. Done as the target's user.
fn connect(target: &Target<'_>, facts: &Facts, place: &Place<'_>) -> Result<OwnedFd, Error> {
    let pid = target.pid();
    let listener = place.listen().map_err(|source| Error::Socket { pid, source })?;
    let library = facts.loaded.clone().unwrap_or_else(|| place.library());
    let options = format!("connect={}", place.socket().display());
    let may_signal = || {
        // Who took the signal when it was checked may have stopped to.
        Ok(facts.judge_signal(target.proc.standing(pid)?.quit)?)
    };
    attach::load(target, &library, &options, may_signal)?;
    connection::accept(&listener, target)
}

/// Does something as the target's user.
fn as_target<T: Send>(target: &Target<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let (pid, Standing { euid, egid, .. }) = (target.pid(), target.standing);
    stand_in::as_user(euid, egid, work).map_err(|source| Error::OtherUser { pid, uid: euid, source })?
}
