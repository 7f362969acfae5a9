//! What the kernel keeps of a function's calls besides its record, where that is wanted: by thread, and by bytes.

use std::collections::HashMap;
use std::sync::Arc;

use nprof_common::{CallBytes, ThreadCalls};
use zerocopy::transmute;

use crate::attach::{ByteTable, Engine, ThreadTable};
use crate::model::BytesPerCall;

/// Where it is kept; `None` where it is not wanted.
#[derive(Debug)]
pub(super) struct Tables {
    threads: Option<Arc<ThreadTable>>,
    bytes: Option<Arc<ByteTable>>,
}

/// What has been read of it, by record.
#[derive(Debug, Default)]
pub(super) struct Read {
    threads: Option<HashMap<u32, Vec<(u32, ThreadCalls)>>>,
    bytes: Option<HashMap<u32, Vec<BytesPerCall>>>,
}

/// What there is of one record; `None` where it is not wanted.
#[derive(Debug)]
pub(super) struct OfRecord {
    /// The calls by thread.
    pub threads: Option<Vec<(u32, ThreadCalls)>>,
    /// How many bytes each moved.
    pub bytes_per_call: Option<Vec<BytesPerCall>>,
}

impl Tables {
    /// Those of an engine.
    pub(super) fn of(engine: &Engine) -> Self {
        Self { threads: engine.threads(), bytes: engine.bytes() }
    }

    /// Reads all of it.
    pub(super) fn read(&self) -> Read {
        let threads = self.threads.as_ref().map(|threads| {
            let calls = |(tid, entry): (u32, _)| -> (u32, ThreadCalls) { (tid, transmute!(entry)) };
            threads.read().into_iter().map(|(record, of)| (record, of.into_iter().map(calls).collect())).collect()
        });
        let bytes = self.bytes.as_ref().map(|bytes| {
            let calls = |(counter, entry): (u32, _)| {
                let bytes: CallBytes = transmute!(entry);
                BytesPerCall::of(counter, &bytes)
            };
            bytes.read().into_iter().map(|(record, of)| (record, of.into_iter().filter_map(calls).collect())).collect()
        });
        Read { threads, bytes }
    }
}

impl Read {
    /// Takes out what is of a record.
    pub(super) fn take(&mut self, record: u32) -> OfRecord {
        let threads = self.threads.as_mut().map(|threads| threads.remove(&record).unwrap_or_default());
        let bytes_per_call = self.bytes.as_mut().map(|bytes| bytes.remove(&record).unwrap_or_default());
        OfRecord { threads, bytes_per_call }
    }
}
