//! A series and its value, whatever format it is written in.

use std::sync::Arc;

use super::distribution::{By, Distribution};
use super::exemplars::Exemplars;
use super::labels::Labels;

/// One series and its value.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) labels: Arc<Labels>,
    pub(super) value: Value,
}

/// The value of a series.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A number of things.
    Whole(u64),
    /// How many more things there are than there were, or fewer.
    Difference(i64),
    /// A time in nanoseconds, written in seconds.
    Nanoseconds(u64),
    /// A part of a whole: 0.02 is 2 %.
    Share(f64),
    /// A distribution of times, and single ones of them.
    Durations(Arc<Distribution>, Option<Arc<Exemplars>>),
    /// A distribution of bytes.
    Bytes(Arc<Distribution>),
}

impl Value {
    /// As the one kind of number that Protobuf and the crate `prometheus-client` have; `None` for a distribution.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(n) => Some(as_float(*n)),
            Self::Difference(n) => Some(as_signed_float(*n)),
            Self::Nanoseconds(ns) => Some(seconds(*ns)),
            Self::Share(share) => Some(*share),
            Self::Durations(..) | Self::Bytes(_) => None,
        }
    }

    /// What calls are told apart by, and how many there are of each; `None` for a number.
    pub(super) fn distribution(&self) -> Option<(By, &Distribution)> {
        match self {
            Self::Durations(of, _) => Some((By::Time, of)),
            Self::Bytes(of) => Some((By::Bytes, of)),
            Self::Whole(_) | Self::Difference(_) | Self::Nanoseconds(_) | Self::Share(_) => None,
        }
    }

    /// Single calls of a distribution.
    pub(super) fn exemplars(&self) -> Option<&Exemplars> {
        if let Self::Durations(_, exemplars) = self { exemplars.as_deref() } else { None }
    }
}

/// Nanoseconds in seconds, rounded once.
pub(super) fn seconds(ns: u64) -> f64 {
    as_float(ns) / 1e9
}

/// A difference of numbers of things.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn as_signed_float(n: i64) -> f64 {
    n as f64
}

/// A number of things or nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
pub(super) fn as_float(n: u64) -> f64 {
    n as f64
}
