//! JNI functions that are watched: what is wanted of each, its stub, and that in the VM's table.
//!
//! A function is known by its place in the table. It keeps its stub for as long as the process lives. Who has the right to work for nprof
//! has this to itself: no thread of the JVM that runs Java code comes here, and the stubs do not.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nprof_common::jni::fixed_arguments;

use crate::agent::Agent;
use crate::function_table::Place;
use crate::jvmti::{self, FunctionTable};
use crate::methods::StubOptions;
use crate::pool::{Behind, Mode, Stub};
use crate::records;
use crate::vm::Vm;

/// More places than the table has in any VM, for long.
const MOST: usize = 512;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Functions(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By place in the table.
    list: Vec<Function>,
    /// The connection that they are watched for, by its address.
    owner: usize,
}

#[derive(Debug, Default)]
struct Function {
    place: Place,
    stub: Option<Stub>,
    /// Where its calls are recorded.
    record: Option<(records::Place, u32)>,
    options: Option<StubOptions>,
    /// Whether the table is to be made what is wanted.
    is_pending: bool,
    /// Whether its stub has been put into the table, and not been taken out.
    is_there: bool,
    /// It takes any number of arguments, and nobody else makes a call of such of a list of them.
    is_untimed: bool,
}

/// What came of what was wanted.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The places that have the stubs that they were to get, with the number of the record.
    pub(crate) stubbed: Vec<(u32, u32, Stub)>,
    /// How many have what was there before.
    pub(crate) restored: usize,
    /// How many have not what they should.
    pub(crate) failed: usize,
    /// How many are counted only, because another agent's function is behind them.
    pub(crate) untimed: usize,
}

impl Functions {
    /// A function is to be watched. If it has a stub that counts, that does so at once.
    pub(crate) fn watch(&self, place: u32, options: StubOptions) {
        let mut inner = self.lock();
        if let Some(function) = inner.at(place) {
            (function.options, function.is_pending) = (Some(options), true);
            function.obey();
        }
    }

    /// A function is no longer to be watched: nothing is recorded of calls that begin from now on.
    pub(crate) fn unwatch(&self, place: u32) {
        let mut inner = self.lock();
        if let Some(function) = inner.at(place) {
            (function.options, function.is_pending) = (None, true);
            function.obey();
        }
    }

    /// None is watched any more, and all records are forgotten.
    pub(crate) fn start_over(&self) {
        self.lock().forget();
    }

    /// Puts the stubs of those that are watched into the table, and takes those of others out. The connection `owner` is who wants it.
    ///
    /// # Errors
    /// If the VM does not let its table be replaced.
    pub(crate) fn apply(&self, agent: &Agent, owner: usize) -> Result<Outcome, jvmti::Error> {
        let (mut inner, mut outcome) = (self.lock(), Outcome::default());
        if !inner.list.iter().any(|function| function.is_pending) {
            return Ok(outcome);
        }
        inner.owner = owner;
        let mut table = agent.jvmti.function_table()?;
        for place in 0..inner.list.len() {
            if !std::mem::take(&mut inner.list[place].is_pending) {
                continue;
            }
            match inner.list[place].options {
                Some(_) => match inner.put(agent, &mut table, place) {
                    Some((index, stub)) => outcome.stubbed.push((u32::try_from(place).unwrap_or(0), index, stub)),
                    None => outcome.failed += 1,
                },
                None => outcome.restored += usize::from(inner.list[place].take_out(&mut table, place)),
            }
        }
        table.write()?;
        let watched = inner.list.iter().filter(|function| function.options.is_some());
        outcome.untimed = watched.filter(|function| function.is_untimed).count();
        Ok(outcome)
    }

    /// Whether they are watched for this connection.
    pub(crate) fn are_of(&self, owner: usize) -> bool {
        self.lock().owner == owner
    }

    /// Takes all stubs out of the table. Tells how many stay behind functions of another agent, where they do nothing.
    pub(crate) fn leave(&self, agent: &Agent) -> usize {
        let mut inner = self.lock();
        inner.owner = 0;
        inner.forget();
        let there = inner.list.iter().filter(|function| function.is_there).count();
        if there == 0 {
            return 0;
        }
        inner.take_all_out(agent).unwrap_or_else(|error| {
            agent.note(Err(error));
            there
        })
    }

    /// The same where the VM is not to be asked: what is there does nothing but to pass calls on.
    pub(crate) fn be_quiet(&self) {
        self.lock().forget();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn at(&mut self, place: u32) -> Option<&mut Function> {
        let place = place as usize;
        if place >= MOST {
            return None;
        }
        if self.list.len() <= place {
            self.list.resize_with(place + 1, Function::default);
        }
        self.list.get_mut(place)
    }

    fn forget(&mut self) {
        for function in &mut self.list {
            (function.options, function.is_pending, function.record) = (None, false, None);
            function.obey();
        }
    }

    /// Puts the stub of a function that is watched before what is there. `None` where there is nothing, no stub, or no record for it.
    fn put(&mut self, agent: &Agent, table: &mut FunctionTable, place: usize) -> Option<(u32, Stub)> {
        let behind = self.behind(agent.vm, table, place)?;
        let function = &mut self.list[place];
        let record = match function.record {
            Some(record) => record,
            None => agent.methods.next_record()?,
        };
        function.record = Some(record);
        let stub = match function.stub {
            Some(stub) => stub,
            None => Stub::take_before(behind, record)?,
        };
        stub.set_behind(behind);
        function.stub = Some(stub);
        function.is_untimed = behind.fixed.is_some() && behind.twin.is_none();
        stub.set_place(record.0, record.1, true);
        function.obey();
        function.place.put(table, place, stub.entry());
        function.is_there = true;
        Some((record.1, stub))
    }

    /// What is behind the stub at a place, or will be. `None` where the table has nothing.
    fn behind(&self, vm: Vm, table: &FunctionTable, place: usize) -> Option<Behind> {
        let original = self.original(table, place);
        let fixed = fixed_arguments(place);
        // Another agent's function may do something else than its twin does.
        let twin = fixed.map(|_| self.original(table, place + 1));
        let twin = twin.filter(|twin| [original, *twin].iter().all(|function| vm.has_function(*function)));
        (original != 0).then_some(Behind { original, fixed, twin })
    }

    fn original(&self, table: &FunctionTable, place: usize) -> usize {
        let there = table.at(place);
        let ours = self.list.get(place).and_then(|function| Some((function, function.stub?)));
        ours.map_or(there, |(function, stub)| function.place.behind_ours(there, stub.entry()))
    }

    fn take_all_out(&mut self, agent: &Agent) -> Result<usize, jvmti::Error> {
        let mut table = agent.jvmti.function_table()?;
        let functions = self.list.iter().enumerate().filter(|(_, function)| function.is_there);
        let behind = functions.filter(|(place, function)| !function.put_back(&mut table, *place)).count();
        table.write()?;
        self.list.iter_mut().for_each(|function| function.is_there = false);
        Ok(behind)
    }
}

impl Function {
    /// Has its stub do what is wanted, if it has one.
    fn obey(&self) {
        let Some(stub) = self.stub else { return };
        let options = self.options.filter(|_| self.record.is_some());
        stub.set_threshold_ns(options.map_or(u64::MAX, |options| options.threshold_ns));
        stub.set_mode(match options.map(|options| options.mode) {
            None => Mode::Off,
            Some(Mode::Time | Mode::Sample(_)) if self.is_untimed => Mode::Count,
            Some(mode) => mode,
        });
    }

    /// Takes its stub out of the table if it is there. Tells whether what was there before is there again.
    fn take_out(&mut self, table: &mut FunctionTable, place: usize) -> bool {
        std::mem::take(&mut self.is_there) && self.put_back(table, place)
    }

    fn put_back(&self, table: &mut FunctionTable, place: usize) -> bool {
        self.stub.is_some_and(|stub| !self.place.put_back(table, place, stub.entry()))
    }
}
