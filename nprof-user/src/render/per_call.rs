//! How many bytes each timed call consumed, of a method that is measured or of one in a recording.

use nprof_common::Consumed;

use crate::aggregate::quantile::quantile_with_none;
use crate::model::{BytesPerCall, Column, FunctionTotals, MethodSnapshot};

/// What tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerCall<'a> {
    timed_calls: u64,
    consumed: Option<&'a Consumed>,
    known: Option<&'a [BytesPerCall]>,
}

impl<'a> PerCall<'a> {
    /// That of a method.
    pub(super) fn of(measured: &'a MethodSnapshot) -> Self {
        Self {
            timed_calls: measured.timed_calls(),
            consumed: measured.consumed.as_deref(),
            known: measured.bytes_per_call.as_deref(),
        }
    }

    /// That of a function of a recording.
    pub(super) fn of_recorded(function: &'a FunctionTotals) -> Self {
        Self {
            timed_calls: function.seen_and_timed(),
            consumed: function.consumed.as_deref(),
            known: function.bytes_per_call.as_deref(),
        }
    }

    /// How many of these bytes each timed call consumed that consumed any, and how many calls consumed none; `None` where that is not
    /// known.
    pub(super) fn column(&self, column: &Column) -> Option<(Option<&'a BytesPerCall>, u64)> {
        let ((counter, _), known) = (column.per_call?, self.known?);
        let found = known.iter().find(|of| of.counter == counter);
        // There was no room for those that consumed some.
        if found.is_none() && column.total(self.consumed?) > 0 {
            return None;
        }
        let calls = self.timed_calls;
        (calls > 0).then(|| (found, calls.saturating_sub(found.map_or(0, BytesPerCall::calls))))
    }

    /// A quantile of that, within 10 %.
    pub(super) fn quantile(&self, column: &Column, q: f64) -> Option<u64> {
        match self.column(column)? {
            (Some(of), none) => quantile_with_none(&of.histogram, none, q, of.max),
            (None, _) => Some(0),
        }
    }
}
