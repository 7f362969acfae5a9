//! What nprof can have done, and what follows when it has gone.
//!
//! One command at a time, also where the threads of two connections overlap for a moment: the agent's `work` lock is
//! held by them alone, and never by a thread of the JVM that runs Java code.

use std::sync::{Arc, MutexGuard};

use nprof_common::MethodStats;
use nprof_common::wire::{
    Applied, Bound, FIRST_FUNCTION, FromShim, How, NO_INDEX, SAMPLE, Scanned, Stubbed, ToShim, VERSION, Watch, Welcome,
};

use super::socket::Files;
use super::{Link, Policy, ids, trees};
use crate::agent::Agent;
use crate::jni::Jni;
use crate::methods::StubOptions;
use crate::pool::{self, Mode, Stub};
use crate::records::{Records, Run};
use crate::{clock, rebind, scan};
use crate::{functions, id_cache};

const RECORD: usize = size_of::<MethodStats>();

/// What to do after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for the next.
    Message,
    /// End the connection.
    End,
}

/// Why nprof is not followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this agent speaks version {VERSION} of the protocol, nprof version {0}")]
    Version(u32),
    #[error("records have {RECORD} bytes here, {0} in nprof")]
    RecordSize(u32),
    #[error("the welcome came without a map")]
    NoMap,
    #[error("cannot map the records: {0}")]
    Map(std::io::Error),
    #[error("there is no mode {0}")]
    Mode(u32),
    #[error("nprof has welcomed this agent already")]
    Twice,
    #[error("nprof has not welcomed this agent")]
    Unwelcome,
    #[error("another nprof has taken over")]
    Replaced,
    #[error("the JVM does not let the agent in")]
    NoEntry,
    #[error("stubs cannot be put before methods here: {0}")]
    Unprepared(#[from] rebind::Error),
    #[error("ids are not kept here: {0}")]
    Ids(#[from] id_cache::Error),
    #[error("no trees are followed here: {0}")]
    Trees(#[from] crate::trees::Error),
}

/// Does what one message says.
pub(super) fn follow(agent: &Agent, link: &Arc<Link>, message: ToShim, files: Files) -> Result<Next, Refusal> {
    if let ToShim::Welcome(welcome) = message {
        begin(agent, link, &welcome, files)?;
        return Ok(Next::Message);
    }
    if let ToShim::KeepIds(pending) = message {
        let _work = work_for(agent, link)?;
        visit(agent, |_| {
            // Of a connection that this one has replaced: what is kept is to be before what the VM does.
            agent.functions.leave(agent);
            ids::begin(agent, link, pending.cast_signed())
        })??;
        return Ok(Next::Message);
    }
    if message == ToShim::ForgetIds {
        let _work = work_for(agent, link)?;
        visit(agent, |jni| ids::end(agent, link, jni))?;
        return Ok(Next::Message);
    }
    if trees::is_order(&message) {
        let _work = work_for(agent, link)?;
        visit(agent, |jni| trees::follow(agent, link, jni, message, files))??;
        return Ok(Next::Message);
    }
    if link.policy().is_none() {
        return Err(Refusal::Unwelcome);
    }
    let _work = work_for(agent, link)?;
    match message {
        ToShim::Scan => visit(agent, |jni| scan_all(agent, link, jni))?,
        ToShim::Watch(order) => watch(agent, order)?,
        ToShim::Unwatch(number) => match number.checked_sub(FIRST_FUNCTION) {
            Some(place) => agent.functions.unwatch(place),
            None => agent.methods.unwatch(number),
        },
        ToShim::Apply(serial) => visit(agent, |jni| apply(agent, link, jni, serial))?,
        ToShim::Detach => {
            let left = visit(agent, |jni| detach(agent, link, jni))?;
            link.answer(&FromShim::Detached(left));
            return Ok(Next::End);
        }
        // These are done above.
        _ => {}
    }
    Ok(Next::Message)
}

/// The right to do what a connection says. What is left to read of one that has been replaced means nothing any more: the
/// methods are the other's.
fn work_for<'a>(agent: &'a Agent, link: &Arc<Link>) -> Result<MutexGuard<'a, ()>, Refusal> {
    let work = agent.work();
    let is_current = agent.link().is_some_and(|current| Arc::ptr_eq(&current, link));
    if is_current { Ok(work) } else { Err(Refusal::Replaced) }
}

fn visit<T>(agent: &Agent, work: impl FnOnce(Jni) -> T) -> Result<T, Refusal> {
    agent.stage.wait_until_live();
    agent.vm.visit(work).ok_or(Refusal::NoEntry)
}

/// Maps the records that nprof reads. All methods start over, unwatched.
fn begin(agent: &Agent, link: &Arc<Link>, welcome: &Welcome, files: Files) -> Result<(), Refusal> {
    if welcome.version != VERSION {
        return Err(Refusal::Version(welcome.version));
    }
    if welcome.record_bytes as usize != RECORD {
        return Err(Refusal::RecordSize(welcome.record_bytes));
    }
    let binds = options(welcome.bind_mode, welcome.bind_probability, welcome.bind_threshold_ns)?;
    let binds = StubOptions { is_asked: welcome.bind_asked, ..binds };
    let policy = Policy { binds: welcome.stub_binds.then_some(binds) };
    // The records may get the addresses of those of an earlier run, whose calls are not to come to them.
    pool::end_run();
    let records = records(welcome, files)?;
    let _work = work_for(agent, link)?;
    if link.policy().is_some() {
        return Err(Refusal::Twice);
    }
    agent.start_over(Some(records));
    link.policy.get_or_init(|| policy);
    visit(agent, |jni| {
        // Of a connection that this one has replaced, which may not have come to it.
        let _told_to_nobody = id_cache::end(agent, jni);
        agent.functions.leave(agent);
        // What is bound later could have stubs all the same, but they could not be taken away.
        agent.prepare(jni)?;
        agent.refine_clock();
        agent.note(agent.jvmti.notice_binds(welcome.tell_binds));
        agent.adopt_early(jni);
        Ok(())
    })?
}

fn watch(agent: &Agent, Watch { number, mode, probability, threshold_ns, kinds }: Watch) -> Result<(), Refusal> {
    let options = options(mode, probability, threshold_ns)?;
    match number.checked_sub(FIRST_FUNCTION) {
        Some(place) => agent.functions.watch(place, options),
        None => agent.methods.watch(number, StubOptions { kinds, ..options }),
    }
    Ok(())
}

/// Maps the records, and the rows if there are to be some.
fn records(welcome: &Welcome, [file, rows]: Files) -> Result<Records, Refusal> {
    let &Welcome { first, records, shards, consumed, bytes, .. } = welcome;
    let records = Records::map_run(file.ok_or(Refusal::NoMap)?, Run { first, records, shards, consumed, bytes });
    let records = records.map_err(Refusal::Map)?;
    if welcome.rows == 0 {
        return Ok(records);
    }
    let with_rows = |rows| records.with_rows(rows, welcome.rows).map_err(Refusal::Map);
    let with_rows = rows.ok_or(Refusal::NoMap).and_then(with_rows);
    // What cannot be used is not kept. If not even that can be done, its addresses are left alone.
    with_rows.inspect_err(|_unusable| drop(records.let_go()))
}

/// What a mode's numbers mean. Without a steady clock nothing is timed.
fn options(mode: u32, probability: u32, threshold_ns: u64) -> Result<StubOptions, Refusal> {
    const OFF: u32 = nprof_common::Mode::Off as u32;
    const COUNT: u32 = nprof_common::Mode::Count as u32;
    const TIME: u32 = nprof_common::Mode::Time as u32;
    let mode = match mode {
        OFF => Mode::Off,
        COUNT => Mode::Count,
        TIME | SAMPLE if !clock::is_steady() => Mode::Count,
        TIME => Mode::Time,
        SAMPLE => Mode::Sample(probability),
        unknown => return Err(Refusal::Mode(unknown)),
    };
    Ok(StubOptions { mode, threshold_ns, kinds: 0, is_asked: true })
}

fn scan_all(agent: &Agent, link: &Link, jni: Jni) {
    let (mut found, mut unreadable) = (0, 0);
    let scanned = scan::tell_all(agent, jni, |method| {
        let sent = method.is_some_and(|method| {
            let bound = Bound {
                number: method.number,
                how: How::Found,
                index: agent.methods.index(method.number).unwrap_or(NO_INDEX),
                method: method.pointer as u64,
                address: method.address as u64,
                class: method.name.class.to_bytes(),
                name: method.name.name.to_bytes(),
                signature: method.name.signature.to_bytes(),
            };
            link.answer(&FromShim::Bound(bound))
        });
        found += u32::from(sent);
        unreadable += u32::from(!sent);
    });
    agent.note(scanned);
    link.answer(&FromShim::Scanned(Scanned { found, unreadable }));
}

fn apply(agent: &Agent, link: &Arc<Link>, jni: Jni, serial: u32) {
    let wanted = agent.methods.take_pending();
    let asked = wanted.len();
    let outcome = if asked == 0 { Ok(rebind::Outcome::default()) } else { rebind::apply(agent, jni, wanted) };
    let outcome = outcome.unwrap_or_else(|error| {
        agent.note(Err(error));
        rebind::Outcome { failed: asked, ..rebind::Outcome::default() }
    });
    // Last: what is done for methods asks the VM by functions of its table.
    let functions = agent.functions.apply(agent, name_of(link)).unwrap_or_else(|error| {
        agent.note(Err(error));
        functions::Outcome::default()
    });
    if functions.untimed > 0 {
        let (untimed, why) = (functions.untimed, "another agent has put its own before the VM's");
        let note =
            format!("calls of {untimed} JNI functions with any number of arguments are counted, not timed: {why}");
        link.answer(&FromShim::Note(note.as_bytes()));
    }
    for &(place, index, stub) in &functions.stubbed {
        let (number, entry) = (FIRST_FUNCTION.saturating_add(place), stub.entry() as u64);
        link.answer(&FromShim::Stubbed(Stubbed { number, index, entry }));
    }
    for &(number, stub) in &outcome.stubbed {
        let (index, entry) = (stub.index(), stub.entry() as u64);
        link.answer(&FromShim::Stubbed(Stubbed { number, index, entry }));
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    link.answer(&FromShim::Applied(Applied {
        serial,
        stubbed: count(outcome.stubbed.len() + functions.stubbed.len()),
        restored: count(outcome.restored + functions.restored),
        failed: count(outcome.failed + functions.failed),
    }));
}

/// Leaves all methods alone. Tells how many still have a stub, which does nothing.
fn detach(agent: &Agent, link: &Arc<Link>, jni: Jni) -> u32 {
    agent.disconnect(link);
    trees::end(agent, link, jni);
    agent.methods.unwatch_all();
    agent.be_quiet();
    let behind = agent.functions.leave(agent);
    let left = match rebind::restore(agent, jni) {
        Ok(left) => left,
        Err(error) => {
            link.answer(&FromShim::Note(error.to_string().as_bytes()));
            Stub::all().count()
        }
    };
    // An event that was under way may have had one watched again.
    agent.start_over(None);
    u32::try_from(left + behind).unwrap_or(u32::MAX)
}

/// Which connection it is.
fn name_of(link: &Arc<Link>) -> usize {
    Arc::as_ptr(link).addr()
}

/// nprof has gone without a word. What is watched is counted, in the map that it has left behind, and nothing else is
/// done any more; what threads use is in no map of its any more.
pub(super) fn orphaned(agent: &Agent, link: &Arc<Link>) {
    let _work = agent.work();
    ids::orphaned(agent, link);
    trees::orphaned(agent, link);
    if agent.functions.are_of(name_of(link)) {
        agent.functions.be_quiet();
        if agent.stage.is_live() {
            // If the VM does not let us in, stubs stay in its table that only pass calls on.
            let _left = agent.vm.visit(|_| agent.functions.leave(agent));
        }
    }
    if !agent.disconnect(link) {
        return;
    }
    agent.methods.change(|options| match options.mode {
        Mode::Off => options,
        _ => StubOptions { mode: Mode::Count, kinds: 0, ..options },
    });
    agent.forget_rows();
    if agent.stage.is_live() {
        // If the VM does not let us in, it tells of things that nobody listens to.
        let _quiet = agent.vm.visit(|_| agent.be_quiet());
    }
}
