//! Has the shim in a JVM keep the ids that native code looks up.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nprof_common::wire::ToShim;

use super::sampling::libjvm_of;
use super::stubs::connect;
use super::vm::{ended_or, wait_until_ready};
use super::{Error, TierWanted};
use crate::discover::Proc;
use crate::hotspot;
use crate::model::{IdCacheReport, IdFunctionSum, Jvm, Library, LookUps, VirtAddr};
use crate::shim::{self, Connection, FromShimOwned};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Threads;

/// How long the shim may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The flags of VMs in which no ids are kept, with the reason.
const AGAINST: [(&str, &str); 2] = [
    ("CheckJNICalls", "it runs with -Xcheck:jni, which is to check each call"),
    ("AllowRedefinitionToAddDeleteMethods", "its methods may be deleted (-XX:+AllowRedefinitionToAddDeleteMethods)"),
];

/// A JVM in which ids are kept. They are not any more when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct IdCache {
    proc: Proc,
    jvm: Jvm,
    connection: Option<Connection>,
    started: Timestamp,
    start: Instant,
    libraries: Vec<Library>,
    told: Told,
}

/// What the shim has told.
#[derive(Debug, Default)]
struct Told {
    is_kept: bool,
    functions: [IdFunctionSum; 4],
    callers: Vec<(u64, LookUps)>,
    behind: u32,
    untold: u32,
    is_over: bool,
}

impl IdCache {
    /// Loads the shim, if it is not there, and has it keep ids.
    ///
    /// # Errors
    /// If the shim cannot be had, or ids cannot be kept in this JVM: nothing is changed then but that the shim is loaded.
    pub fn begin(proc: &Proc, mut jvm: Jvm) -> Result<Self, Error> {
        wait_until_ready(proc, &mut jvm)?;
        let pending = possible(proc, &jvm).map_err(|error| ended_or(error, proc, &jvm))?;
        let connection = connect(proc, &jvm, TierWanted::Stub, false)?;
        let libraries = proc.libraries(jvm.pid)?;
        let (started, start) = (Timestamp::now(), Instant::now());
        let mut cache = Self { proc: proc.clone(), jvm, connection, started, start, libraries, told: Told::default() };
        if let Some(connection) = &mut cache.connection {
            connection.send(ToShim::KeepIds(pending))?;
        }
        cache.wait(|told| told.is_kept)?;
        Ok(cache)
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// Takes in what the shim has said meanwhile: that the JVM ends.
    ///
    /// # Errors
    /// If the shim is gone before it has told what came of it.
    pub fn tick(&mut self) -> Result<(), Error> {
        while !self.told.is_over && self.receive(Duration::ZERO)? {}
        Ok(())
    }

    /// Keeps ids no longer, and says what came of it.
    ///
    /// # Errors
    /// As [`Self::tick`].
    pub fn finish(mut self) -> Result<IdCacheReport, Error> {
        self.tick()?;
        let elapsed = self.start.elapsed();
        // What was loaded meanwhile; of a JVM that has ended, what was there at the start.
        if let Ok(libraries) = self.proc.libraries(self.jvm.pid) {
            self.libraries = libraries;
        }
        if !self.told.is_over
            && let Some(connection) = &mut self.connection
        {
            // A JVM that ends at this moment has told, or is about to.
            let _gone = connection.send(ToShim::ForgetIds);
            self.wait(|told| told.is_over)?;
        }
        let Self { jvm, started, libraries, told, .. } = self;
        let callers = told.callers.iter().map(|&(address, asked)| (name(&libraries, address), asked)).collect();
        let Told { functions, behind, untold, .. } = told;
        Ok(IdCacheReport { started, elapsed, jvm, functions, callers, behind, untold })
    }

    fn wait(&mut self, is_done: impl Fn(&Told) -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while !is_done(&self.told) {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.ok_or(shim::Error::Silent { pid: self.jvm.pid })?;
            self.receive(left)?;
        }
        Ok(())
    }

    /// Takes in a message. Returns whether there was one.
    fn receive(&mut self, timeout: Duration) -> Result<bool, Error> {
        let pid = self.jvm.pid;
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let Some(message) = connection.receive(timeout)? else { return Ok(false) };
        match message {
            FromShimOwned::IdsKept => self.told.is_kept = true,
            FromShimOwned::IdFunction(sum) => self.told.function(&sum),
            FromShimOwned::IdCaller(caller) => {
                let look_ups = LookUps { hits: caller.hits, misses: caller.misses, left: caller.left };
                self.told.callers.push((caller.address, look_ups));
            }
            FromShimOwned::IdsForgotten(end) => {
                (self.told.behind, self.told.untold, self.told.is_over) = (end.behind, end.untold, true);
            }
            FromShimOwned::Note(text) => tracing::warn!("process {pid}: {text}"),
            FromShimOwned::Bye(reason) => return Err(shim::Error::Bye { pid, reason }.into()),
            _ => {}
        }
        Ok(true)
    }
}

impl Told {
    fn function(&mut self, sum: &shim::IdFunction) {
        let place = usize::try_from(sum.function).unwrap_or(usize::MAX);
        if let Some(known) = self.functions.get_mut(place) {
            *known = IdFunctionSum {
                look_ups: LookUps { hits: sum.hits, misses: sum.misses, left: sum.left },
                timed: sum.timed,
                hit_ns: sum.hit_ns,
                original_ns: sum.original_ns,
                wrong: sum.wrong,
            };
        }
    }
}

/// Whether ids can be kept in a JVM: then where a thread's pending exception is, from its environment.
fn possible(proc: &Proc, jvm: &Jvm) -> Result<u64, Error> {
    let pid = jvm.pid;
    let refused = |why| Error::IdCache { pid, why };
    let libjvm = libjvm_of(proc, jvm)?;
    let flags = hotspot::flags(ProcessMemory::new(pid), &libjvm, AGAINST.map(|(flag, _)| flag))?;
    for (flag, (_, why)) in flags.iter().zip(AGAINST) {
        if flag.is_some_and(|flag| flag.is_on) {
            return Err(refused(why));
        }
    }
    let mut threads = Threads::open(ProcessMemory::new(pid), &libjvm)?;
    let env = threads.jni_env().unwrap_or_default();
    let place = env.zip(threads.pending_exception_offset());
    let ((env, _), offset) = place.ok_or_else(|| refused("its VM does not say where pending exceptions are"))?;
    if shim::is_in_use(pid) {
        return Err(refused("another nprof uses the shim in it; end that one first"));
    }
    Ok(offset.wrapping_sub(env))
}

/// The place of an address in a library; `None` for no address.
fn name(libraries: &[Library], address: u64) -> Option<String> {
    if address == 0 {
        return None;
    }
    let address = VirtAddr(address);
    let in_library = libraries.iter().find_map(|library| {
        let mapping = library.mappings.iter().find(|mapping| mapping.contains(address))?;
        Some(format!("{}+{:#x}", library.name(), address.0 - mapping.start.0 + mapping.offset.0))
    });
    Some(in_library.unwrap_or_else(|| format!("{:#x}", address.0)))
}
