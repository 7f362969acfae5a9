//! Keeps the invocations of a JVM for a recording: sums of all, and the slowest as trees.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use super::{TreeCollector, TreeEnd, TreeTracer};
use crate::aggregate::{SlowestTrees, TreeSums};
use crate::model::{Invocation, RecordedTrees, TreeClock};
use crate::trace::Error;

/// A JVM that is followed, on a thread of its own: what else a recording does must not have the JVM's threads find no room.
#[derive(Debug)]
pub struct TreeRecorder {
    stop: Option<Sender<()>>,
    paused: Receiver<()>,
    thread: Option<JoinHandle<Recorded>>,
}

/// What was recorded, and how changing everything back went.
type Recorded = (RecordedTrees, Result<TreeEnd, Error>);

impl TreeRecorder {
    /// Takes over what the methods of a JVM tell since that moment.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub fn start(tracer: TreeTracer, began: TreeClock) -> Result<Self, Error> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (pauses, paused) = mpsc::channel::<()>();
        let follow = move || {
            let mut keeper = Keeper { sums: TreeSums::default(), slowest: SlowestTrees::default(), began };
            let mut collector = TreeCollector::new(tracer, false);
            let mut looked = Instant::now();
            let mut take = |invocation: &Invocation, tracer: &TreeTracer| {
                keeper.take(invocation, tracer);
                Ok::<(), Infallible>(())
            };
            let failed = loop {
                match stopped.recv_timeout(TreeCollector::LOOK) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break None,
                    Ok(()) => {
                        let Ok(end) = collector.pause(&mut take);
                        // Who asks has to wait, and may have stopped to.
                        let (_asked, _ended) = (pauses.send(()), stopped.recv());
                        break end.err();
                    }
                }
                let Ok(read) = collector.read(&mut take);
                if let Some(error) = read {
                    break Some(error);
                }
                if looked.elapsed() >= TreeCollector::LOOK_FOR_ENDED {
                    looked = Instant::now();
                    let Ok(()) = collector.find_ended(&mut take);
                }
            };
            let Ok(end) = collector.stop(&mut take);
            (keeper.finish(&collector), failed.map_or(end, Err))
        };
        let thread = Builder::new().name("nprof-trees".to_owned()).spawn(follow);
        let thread =
            thread.map_err(|error| Error::Defect { what: format!("there can be no thread for trees: {error}") })?;
        Ok(Self { stop: Some(stop), paused, thread: Some(thread) })
    }

    /// Has nothing recorded any more, when this returns. Restoring classes, which stops the JVM for a moment, is left to [`Self::finish`].
    pub fn pause(&self) {
        if let Some(stop) = &self.stop
            && stop.send(()).is_ok()
        {
            // A thread that has ended records nothing, either.
            let _paused = self.paused.recv();
        }
    }

    /// Has everything in the JVM changed back. Also returns how that went; an error is also why trees end before the recording does.
    ///
    /// # Errors
    /// If a part of nprof has failed, which is a defect.
    pub fn finish(mut self) -> Result<(RecordedTrees, Result<TreeEnd, Error>), Error> {
        let recorded = self.end().and_then(Result::ok);
        recorded.ok_or_else(|| Error::Defect { what: "the thread that reads trees has failed".to_owned() })
    }

    fn end(&mut self) -> Option<std::thread::Result<Recorded>> {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for TreeRecorder {
    /// Whoever records nothing after all leaves nothing, either.
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// What is kept.
#[derive(Debug)]
struct Keeper {
    sums: TreeSums,
    slowest: SlowestTrees,
    began: TreeClock,
}

impl Keeper {
    fn take(&mut self, invocation: &Invocation, tracer: &TreeTracer) {
        let number = invocation.number;
        self.sums.add(invocation);
        let thread = || tracer.thread_name(invocation.thread);
        self.slowest.add(number, invocation, thread, |exception| tracer.exception_name(exception).map(str::to_owned));
    }

    fn finish(self, collector: &TreeCollector) -> RecordedTrees {
        let tracer = collector.tracer();
        let (kept, exceptions) = self.slowest.finish();
        RecordedTrees {
            began: self.began,
            elapsed: tracer.recorded_for(),
            methods: tracer.plan().methods.clone(),
            exceptions,
            totals: self.sums.into_totals(),
            unfinished: collector.unfinished(),
            losses: tracer.losses(),
            silenced: tracer.silenced().to_vec(),
            kept,
        }
    }
}
