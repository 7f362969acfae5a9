//! What stubs of a target are to do at calls, and how that is said.

use nprof_common::Mode;
use nprof_common::wire::{self, Watch};

use crate::model::{Method, StubPrice, argument_kinds};
use crate::trace::chosen::Choice;

/// What stubs do at calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::trace) struct StubOptions {
    pub mode: Mode,
    /// Which calls are chosen, where nothing else is said of a method.
    pub choice: Choice,
    /// One of so many calls of a method is timed, once it has been called often.
    pub time_every: u32,
    /// What that costs in the target.
    pub price: StubPrice,
    /// What is collected of calls that are timed.
    pub collected: Collected,
    /// Whether every method that is bound is wanted, and by the same choice: then a stub has not to be told so.
    pub wants_all: bool,
}

/// What stubs collect of calls besides their times: by the rows of threads, and in their own frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::trace) struct Collected {
    /// How long threads do not run.
    pub off_cpu: bool,
    /// What the user has asked for.
    pub consumed: bool,
    /// Of which counters of bytes, as bits, how much each call consumes.
    pub bytes: u32,
    /// What calls are made with.
    pub args: bool,
}

impl Collected {
    /// Whether rows are read for it: then it is also known which calls are nested in which.
    pub(in crate::trace) fn is_any(self) -> bool {
        self.off_cpu || self.consumed
    }
}

impl StubOptions {
    /// The order to time one of so many calls: all with 1, none with 0; with `None` the stub does nothing.
    pub(super) fn watch(&self, number: u32, every: Option<u32>) -> Watch {
        let (mode, probability) = match every {
            None => (Mode::Off as u32, 0),
            Some(0) => (Mode::Count as u32, 0),
            Some(1) => (Mode::Time as u32, 0),
            Some(every) => (wire::SAMPLE, wire::probability_of(every)),
        };
        Watch { number, mode, probability, threshold_ns: self.choice.threshold_ns(), kinds: 0 }
    }

    /// What a stub of this method is to know of the arguments that it keeps; 0 if it keeps none.
    pub(super) fn kinds(&self, method: &Method) -> u64 {
        if self.collected.args { argument_kinds([method]) } else { 0 }
    }

    /// The same for what is done unless somebody says otherwise.
    pub(super) fn usual(&self, number: u32) -> Watch {
        self.watch(number, Some(u32::from(self.mode == Mode::Time)))
    }
}
