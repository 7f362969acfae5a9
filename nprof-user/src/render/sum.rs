//! What rows add up to that belong together, and what that goes by.

use std::cmp::Reverse;
use std::fmt;

use super::names;
use super::order::Order;
use super::rows::Row;
use super::uncertain::Uncertain;

/// What the rows of a group add up to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Sum {
    pub(super) functions: u64,
    pub(super) calls: Uncertain,
    /// The own time in which threads ran; of rows of which that is not known, all of it.
    pub(super) ran: Uncertain,
    /// The own time, so that no time is counted twice. Of rows of which that is not known it has the calls that they made in it.
    pub(super) own: Uncertain,
}

impl Sum {
    /// Adds what another one has.
    pub(super) fn add(&mut self, more: Self) {
        let plus = |sum: Uncertain, more: Uncertain| [sum, more].into_iter().sum();
        self.functions += more.functions;
        self.calls = plus(self.calls, more.calls);
        self.ran = plus(self.ran, more.ran);
        self.own = plus(self.own, more.own);
    }

    pub(super) fn of(row: &Row<'_>) -> Self {
        let own = match row.own() {
            Some(own) if row.measured.unseen.is_none() && row.measured.estimated_ns.is_none() => own,
            _ => row.total(),
        };
        Self { functions: 1, calls: row.all_calls(), ran: row.worked().unwrap_or(own), own }
    }

    /// What groups are ordered by, behind which those that it does not tell apart are in the default order; `None` for their names.
    pub(super) fn key(&self, order: Order) -> Option<Reverse<[u64; 4]>> {
        let Self { functions, calls, ran, own } = self;
        let first = match order {
            Order::Name => return None,
            Order::Functions => *functions,
            Order::Calls => calls.value,
            Order::CallsError => calls.error_in_millionths(),
            Order::Error => ran.error_in_millionths(),
            Order::SelfTime => own.value,
            _ => ran.value,
        };
        Some(Reverse([first, ran.value, own.value, calls.value]))
    }
}

/// What a group goes by: a name, and of a thread that is told from others of its name its number, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name<'a> {
    pub(super) name: &'a str,
    pub(super) tid: Option<u32>,
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, tid: None }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = names::printable(self.name);
        match self.tid {
            Some(tid) => write!(f, "{tid} ({name})"),
            None => f.write_str(&name),
        }
    }
}
