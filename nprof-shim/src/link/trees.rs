//! Trees, for nprof: its orders about classes, and what came of them.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nprof_common::tree::AREA_BYTES;
use nprof_common::wire::{ClassFile, ClassesListed, Enhanced, ExceptionClass, FromShim, ToShim, TreesEnded};

use super::Link;
use super::socket::Files;
use crate::agent::Agent;
use crate::jni::Jni;
use crate::trees::{self, Classes, Error, Memory, Restored};

/// How long nprof may take to make the new file of a class.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is kept while trees are followed.
#[derive(Debug)]
pub(super) struct Session {
    memory: Memory,
    classes: Classes,
}

/// Does what one message says; `None` for a message that is about something else.
pub(super) fn follow(agent: &Agent, link: &Arc<Link>, jni: Jni, message: ToShim, files: Files) -> Result<(), Error> {
    match message {
        ToShim::PrepareTrees(rows) => {
            let memory = trees::prepare(agent, jni, files, rows)?;
            *session(link) = Some(Session { memory, classes: Classes::default() });
            link.answer(&FromShim::TreesReady(agent.is_late() && !trees::has_changed_classes()));
        }
        ToShim::ListClasses(first) => list(agent, link, jni, first)?,
        ToShim::ListMethods(wanted) => list_methods(agent, link, jni, wanted)?,
        ToShim::ReadClass(class) => read(agent, link, jni, class)?,
        ToShim::Enhance(count) => enhance(agent, link, jni, count)?,
        ToShim::RecordTrees(entries) => {
            match entries {
                0 => trees::pause(agent),
                _ => trees::record(agent, entries)?,
            }
            link.answer(&FromShim::TreesRecorded);
        }
        ToShim::NameExceptions(from) => {
            for named in trees::exceptions(from) {
                link.answer(&FromShim::ExceptionClass(ExceptionClass { number: named.number, class: &named.class }));
            }
            link.answer(&FromShim::ExceptionsNamed);
        }
        ToShim::EndTrees => {
            let ended = end(agent, link, jni).unwrap_or_default();
            let (restored, behind) = (count(ended.restored), count(ended.behind));
            link.answer(&FromShim::TreesEnded(TreesEnded { restored, behind }));
        }
        // An answer that came too late.
        _ => {}
    }
    Ok(())
}

/// Whether a message is one of these.
pub(super) fn is_order(message: &ToShim) -> bool {
    matches!(
        message,
        ToShim::PrepareTrees(_)
            | ToShim::ListClasses(_)
            | ToShim::ListMethods(_)
            | ToShim::ReadClass(_)
            | ToShim::Enhance(_)
            | ToShim::NewClassFile(_)
            | ToShim::RecordTrees(_)
            | ToShim::NameExceptions(_)
            | ToShim::EndTrees
    )
}

fn list(agent: &Agent, link: &Link, jni: Jni, first: u32) -> Result<(), Error> {
    let mut session = session(link);
    let Session { memory, classes } = session.as_mut().ok_or(Error::Unprepared)?;
    if first == 0 {
        classes.list(agent.jvmti, jni)?;
    }
    let (bytes, listed) = classes.rows(first as usize);
    memory.put(&bytes);
    let (listed, total, bytes) = (count(listed), count(classes.count()), count(bytes.len()));
    link.answer(&FromShim::ClassesListed(ClassesListed { first, count: listed, total, bytes }));
    Ok(())
}

fn list_methods(agent: &Agent, link: &Link, jni: Jni, wanted: u32) -> Result<(), Error> {
    let session = session(link);
    let Session { memory, classes } = session.as_ref().ok_or(Error::Unprepared)?;
    let (bytes, listed) = classes.methods(agent.jvmti, jni, &numbers(*memory, wanted));
    memory.put(&bytes);
    let (listed, bytes) = (count(listed), count(bytes.len()));
    link.answer(&FromShim::MethodsListed(ClassesListed { first: 0, count: listed, total: wanted, bytes }));
    Ok(())
}

fn read(agent: &Agent, link: &Link, jni: Jni, class: u32) -> Result<(), Error> {
    let session = session(link);
    let Session { memory, classes } = session.as_ref().ok_or(Error::Unprepared)?;
    let read = classes.read(agent.jvmti, jni, class);
    link.answer(&FromShim::ClassFile(passed(*memory, class, read.as_deref().map_err(|&error| error))));
    Ok(())
}

/// Puts the file of a class into the area, and says what is there.
fn passed(memory: Memory, class: u32, file: Result<&[u8], u32>) -> ClassFile {
    match file {
        Ok(file) if file.len() > AREA_BYTES => ClassFile { class, bytes: 0, error: ClassFile::TOO_LONG },
        Ok(file) => {
            memory.put(file);
            ClassFile { class, bytes: count(file.len()), error: 0 }
        }
        Err(error) => ClassFile { class, bytes: 0, error },
    }
}

fn enhance(agent: &Agent, link: &Arc<Link>, jni: Jni, wanted: u32) -> Result<(), Error> {
    let mut session = session(link);
    let Session { memory, classes } = session.as_mut().ok_or(Error::Unprepared)?;
    let memory = *memory;
    let numbers = numbers(memory, wanted);
    let asked = Arc::clone(link);
    let ask = move |class: u32, file: &[u8]| ask(&asked, memory, class, file);
    let enhanced = match classes.enhance(agent.jvmti, jni, &numbers, ask) {
        Ok(enhanced) => Enhanced { classes: count(enhanced), error: 0 },
        Err(error) => Enhanced { classes: 0, error },
    };
    link.answer(&FromShim::Enhanced(enhanced));
    Ok(())
}

/// The numbers of so many classes that nprof has put into the area.
fn numbers(memory: Memory, wanted: u32) -> Vec<u32> {
    let bytes = memory.taken((wanted as usize).saturating_mul(4).min(AREA_BYTES));
    bytes.as_chunks().0.iter().map(|&number| u32::from_le_bytes(number)).collect()
}

/// Has nprof make the new file of a class. `None` if it is to stay as it is, or no answer comes in time.
fn ask(link: &Link, memory: Memory, class: u32, file: &[u8]) -> Option<Vec<u8>> {
    let shown = passed(memory, class, Ok(file));
    if !link.answer(&FromShim::ClassFile(shown)) || shown.bytes == 0 {
        return None;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        // One that is about another class came too late.
        match link.receive_within(left)? {
            ToShim::NewClassFile(new) if new.class == class => {
                let bytes = new.bytes as usize;
                return (1..=AREA_BYTES).contains(&bytes).then(|| memory.taken(bytes));
            }
            _ => {}
        }
    }
}

/// Records no more, and restores all classes. `None` if nothing was prepared.
pub(super) fn end(agent: &Agent, link: &Link, jni: Jni) -> Option<Restored> {
    let mut ended = session(link).take()?;
    trees::pause(agent);
    let restored = ended.classes.restore(agent.jvmti, jni);
    ended.classes.forget(jni);
    agent.note(trees::end());
    Some(restored)
}

/// The same when nobody listens any more.
pub(super) fn orphaned(agent: &Agent, link: &Link) {
    if session(link).is_none() {
        return;
    }
    trees::pause(agent);
    if agent.stage.is_live() {
        // If the VM does not let us in, enhanced methods call a hook that does nothing.
        let _ended = agent.vm.visit(|jni| end(agent, link, jni));
    }
}

fn session(link: &Link) -> MutexGuard<'_, Option<Session>> {
    link.trees.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
