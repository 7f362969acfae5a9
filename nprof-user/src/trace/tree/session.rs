//! The conversation with the shim about classes: one question at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nprof_common::wire::{self, ToShim};

use super::classes::{ClassList, methods_listed};
use crate::attach::RowMap;
use crate::calls::DeclaredMethod;
use crate::model::Pid;
use crate::shim::{self, ClassFile, Connection, Enhanced, FromShimOwned, TreeMemory, TreesEnded};

/// How long the shim may take for an answer. It stops all threads for a moment to enhance classes, which may have to wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// More classes than any program has.
const MOST_CLASSES: usize = 4 << 20;
/// More bytes of classes and methods than any program has: a target may say anything.
const MOST_LISTED: usize = 256 << 20;
/// So many classes are asked about at once.
const MOST_ASKED: usize = 16_384;

/// A shim that is ready to have classes enhanced.
#[derive(Debug)]
pub(super) struct Session {
    pid: Pid,
    connection: Connection,
    pub(super) memory: TreeMemory,
    exceptions: HashMap<u32, String>,
    /// So many bytes have been listed.
    listed: usize,
    /// Whether the shim was loaded into a running VM, and has changed no class yet.
    pub(super) is_first: bool,
}

/// What becomes of a class when its file is shown: another file, or none.
pub(super) type Change<'a> = &'a mut dyn FnMut(u32, &[u8]) -> Option<Vec<u8>>;

impl Session {
    /// Has the shim make ready, with these rows of threads if there are to be some, and the counters in them of which threads are to tell, as
    /// their bits.
    pub(super) fn begin(
        pid: Pid,
        mut connection: Connection,
        rows: Option<&RowMap>,
        counters: u32,
    ) -> Result<Self, shim::Error> {
        let memory = TreeMemory::new().map_err(|source| shim::Error::Memory { pid, source })?;
        memory.count(counters);
        connection.prepare_trees(memory.memory(), rows.map(|rows| (rows.map(), rows.rows())))?;
        let mut session = Self { pid, connection, memory, exceptions: HashMap::new(), listed: 0, is_first: false };
        session.is_first = session.answer(|message| match message {
            FromShimOwned::TreesReady(is_first) => Some(is_first),
            _ => None,
        })?;
        Ok(session)
    }

    /// The loaded classes.
    pub(super) fn classes(&mut self) -> Result<ClassList, shim::Error> {
        let mut list = ClassList::default();
        loop {
            let first = u32::try_from(list.classes.len()).unwrap_or(u32::MAX);
            self.connection.send(ToShim::ListClasses(first))?;
            let part = self.answer(|message| match message {
                FromShimOwned::ClassesListed(part) => Some(part),
                _ => None,
            })?;
            let bytes = self.listed(part.bytes)?;
            list.add(&part, &bytes).ok_or_else(|| self.nonsense())?;
            let listed = list.classes.len();
            if listed >= part.total as usize {
                return Ok(list);
            }
            if part.count == 0 || listed > MOST_CLASSES {
                return Err(self.nonsense());
            }
        }
    }

    /// The methods of some classes, class by class.
    pub(super) fn methods(&mut self, classes: &[u32]) -> Result<Vec<Vec<DeclaredMethod>>, shim::Error> {
        let mut methods = Vec::with_capacity(classes.len());
        while let Some(left) = classes.get(methods.len()..).filter(|left| !left.is_empty()) {
            let passed = self.pass_numbers(&left[..left.len().min(MOST_ASKED)])?;
            self.connection.send(ToShim::ListMethods(passed))?;
            let part = self.answer(|message| match message {
                FromShimOwned::MethodsListed(part) => Some(part),
                _ => None,
            })?;
            let is_sound = part.count > 0 && part.count <= passed;
            let bytes = self.listed(part.bytes)?;
            let listed = methods_listed(part.count, &bytes).filter(|_| is_sound).ok_or_else(|| self.nonsense())?;
            methods.extend(listed);
        }
        Ok(methods)
    }

    /// What has been listed in the area.
    fn listed(&mut self, bytes: u32) -> Result<Vec<u8>, shim::Error> {
        let bytes = self.memory.passed(bytes);
        self.listed += bytes.len();
        if self.listed > MOST_LISTED { Err(self.nonsense()) } else { Ok(bytes) }
    }

    /// Puts the numbers of classes into the area, and says how many these are.
    fn pass_numbers(&self, classes: &[u32]) -> Result<u32, shim::Error> {
        let numbers: Vec<u8> = classes.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(self.memory.pass(&numbers).ok_or_else(|| self.nonsense())? / 4)
    }

    /// The file of a class as the VM has it, with the changes of other agents; or the number of the reason why there is none
    /// ([`ClassFile`]).
    pub(super) fn class_file(&mut self, class: u32) -> Result<Result<Vec<u8>, u32>, shim::Error> {
        self.connection.send(ToShim::ReadClass(class))?;
        let file = self.answer(|message| match message {
            FromShimOwned::ClassFile(file) if file.class == class => Some(file),
            _ => None,
        })?;
        Ok(if file.bytes > 0 { Ok(self.memory.passed(file.bytes)) } else { Err(file.error) })
    }

    /// Has classes enhanced. The VM shows the file of each.
    pub(super) fn enhance(&mut self, classes: &[u32], change: Change<'_>) -> Result<Enhanced, shim::Error> {
        enum Said {
            File(ClassFile),
            Done(Enhanced),
        }
        let passed = self.pass_numbers(classes)?;
        self.connection.send(ToShim::Enhance(passed))?;
        loop {
            let said = self.answer(|message| match message {
                FromShimOwned::ClassFile(file) => Some(Said::File(file)),
                FromShimOwned::Enhanced(done) => Some(Said::Done(done)),
                _ => None,
            })?;
            let shown = match said {
                Said::File(shown) => shown,
                Said::Done(done) => return Ok(done),
            };
            if shown.bytes == 0 {
                continue;
            }
            let new = change(shown.class, &self.memory.passed(shown.bytes));
            let bytes = new.and_then(|file| self.memory.pass(&file)).unwrap_or(0);
            self.connection.send(ToShim::NewClassFile(ClassFile { class: shown.class, bytes, error: 0 }))?;
        }
    }

    /// Has events recorded, from the next call of one of so many entry methods on; with none, no more.
    pub(super) fn record(&mut self, entries: u32) -> Result<(), shim::Error> {
        self.connection.send(ToShim::RecordTrees(entries))?;
        self.answer(|message| matches!(message, FromShimOwned::TreesRecorded).then_some(()))
    }

    /// The class of an exception.
    pub(super) fn exception(&self, number: u32) -> Option<&str> {
        self.exceptions.get(&number).map(String::as_str)
    }

    /// Asks for the classes of exceptions that are not known yet.
    pub(super) fn name_exceptions(&mut self) -> Result<(), shim::Error> {
        let from = self.exceptions.keys().max().map_or(1, |known| known.saturating_add(1));
        self.connection.send(ToShim::NameExceptions(from))?;
        self.answer(|message| matches!(message, FromShimOwned::ExceptionsNamed).then_some(()))
    }

    /// Has nothing recorded any more, and all classes restored.
    pub(super) fn end(&mut self) -> Result<TreesEnded, shim::Error> {
        self.connection.send(ToShim::EndTrees)?;
        self.answer(|message| match message {
            FromShimOwned::TreesEnded(end) => Some(end),
            _ => None,
        })
    }

    /// Takes in what the shim has said without being asked: that it is gone, for example.
    pub(super) fn listen(&mut self) -> Result<(), shim::Error> {
        while let Some(message) = self.connection.receive(Duration::ZERO)? {
            self.take_in(message)?;
        }
        Ok(())
    }

    /// Waits for an answer.
    fn answer<T>(&mut self, is_it: impl Fn(FromShimOwned) -> Option<T>) -> Result<T, shim::Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.ok_or(shim::Error::Silent { pid: self.pid })?;
            let Some(message) = self.connection.receive(left)? else { continue };
            if let Some(message) = self.take_in(message)?
                && let Some(answer) = is_it(message)
            {
                return Ok(answer);
            }
        }
    }

    /// Takes in a message; what may be an answer is given back.
    fn take_in(&mut self, message: FromShimOwned) -> Result<Option<FromShimOwned>, shim::Error> {
        match message {
            FromShimOwned::ExceptionClass(number, class) => {
                self.exceptions.insert(number, class);
            }
            FromShimOwned::Note(text) => tracing::warn!("process {}: {text}", self.pid),
            FromShimOwned::Bye(reason) => return Err(shim::Error::Bye { pid: self.pid, reason }),
            message => return Ok(Some(message)),
        }
        Ok(None)
    }

    fn nonsense(&self) -> shim::Error {
        shim::Error::NoMessage { pid: self.pid, source: wire::Error::Value }
    }
}
