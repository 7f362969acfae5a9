//! How long threads do not run, and what they consume: the programs of the kernel that keep a row of each thread of a target, which its shim maps and reads.

use std::sync::Arc;

use nprof_common::Loss;
use nprof_common::rows::ROWS;

use crate::attach::{Collect, Engine, RowMap, in_full};
use crate::collect::Reader;
use crate::discover::Proc;
use crate::model::{Jvm, VirtAddr};
use crate::trace::Error;
use crate::trace::rowless::Rows;
use crate::trace::tree::TreeWants;

/// What keeps the rows of one JVM. They are not kept any more when this is dropped.
#[derive(Debug)]
pub(super) struct ThreadRows {
    rows: Rows,
    reader: Reader,
    _engine: Arc<Engine>,
}

impl ThreadRows {
    /// Has rows kept of the threads of a JVM, which pass `site` in its shim to get theirs. `None` where none are wanted, and where the kernel cannot
    /// say how long threads do not run, or nprof may not ask, which is said.
    ///
    /// # Errors
    /// The same where something is to be collected: nobody has asked for times off the CPU.
    pub(super) fn begin(proc: &Proc, jvm: &Jvm, site: VirtAddr, wants: TreeWants) -> Result<Option<Self>, Error> {
        if !wants.off_cpu && wants.collectors.is_empty() {
            return Ok(None);
        }
        match Self::try_begin(proc, jvm, site, wants) {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if wants.collectors.is_empty() => {
                tracing::warn!("not known how long threads wait: {}", in_full(&error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn try_begin(proc: &Proc, jvm: &Jvm, site: VirtAddr, wants: TreeWants) -> Result<Self, Error> {
        let TreeWants { off_cpu, collectors } = wants;
        let counters = collectors.counters();
        let collect = Collect { target: jvm.pid, off_cpu, counters, rows: ROWS, only_rows: true, ..Collect::nothing() };
        let (engine, _feeds) = Engine::load_collecting(1, &collect)?;
        let maps = engine.row_maps().ok_or(Error::NoRows { pid: jvm.pid })?;
        let map = maps.make(proc.threads(jvm.pid)?)?;
        let rows = Rows::give(map, (proc, jvm), &engine, site)?;
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
        Ok(Self { rows, reader, _engine: engine })
    }

    /// What the JVM is to map.
    pub(super) fn map(&self) -> &RowMap {
        self.rows.map()
    }

    /// How many times it was not known how long a thread did not run.
    pub(super) fn lost(&self) -> u64 {
        let losses = self.reader.losses();
        losses.counts.iter().filter(|(reason, _)| *reason == Loss::NoOffCpu.as_str()).map(|(_, count)| count).sum()
    }
}
