//! Makes invocations of what threads tell, as they end: whoever shows them and whoever keeps them takes them from here.

use std::time::{Duration, Instant};

use super::{TreeEnd, TreeTracer};
use crate::aggregate::Trees;
use crate::model::{Invocation, TreeEvent, TreeThread, Unfinished};
use crate::trace::Error;

/// With so many events there will be more at once: a thread's room holds some thousand.
const BUSY: usize = 256;
/// How long to go on with that until it is looked whether to stop.
const LONGEST: Duration = Duration::from_millis(50);
/// In so many rounds what an invocation came of is seen after it: rings are read one after another, and what virtual threads tell is passed on in the
/// round after.
const ROUNDS: u32 = 4;
/// In so many rounds it is seen what has come of an invocation until its end, for the same reason.
const SETTLED: u32 = 2;

/// A JVM that is followed, and its invocations that have not ended.
#[derive(Debug)]
pub struct TreeCollector {
    tracer: TreeTracer,
    trees: Trees,
    events: Vec<TreeEvent>,
    /// Those that have ended before it was seen what they came of, and what came of them, and how many rounds there were since then.
    waiting: Vec<(Invocation, u32)>,
}

impl TreeCollector {
    /// How often [`Self::read`] is to be called.
    pub const LOOK: Duration = Duration::from_millis(2);
    /// How often [`Self::find_ended`] is to be called.
    pub const LOOK_FOR_ENDED: Duration = Duration::from_secs(1);

    /// The invocations of a JVM that is followed by now, with their single calls where these are to be kept.
    #[must_use]
    pub fn new(tracer: TreeTracer, keeps_calls: bool) -> Self {
        let trees = Trees::new(&tracer.plan().methods, keeps_calls).knowing_off(tracer.knows_off());
        let trees = trees.collecting(tracer.collectors());
        Self { tracer, trees, events: Vec::new(), waiting: Vec::new() }
    }

    /// Who follows it.
    #[must_use]
    pub fn tracer(&self) -> &TreeTracer {
        &self.tracer
    }

    /// What has not become an invocation so far.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        self.trees.unfinished()
    }

    /// Takes over what threads have told, and goes on as long as they tell much. Returns why that is not possible any longer.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn read<E>(
        &mut self,
        take: &mut impl FnMut(&Invocation, &TreeTracer) -> Result<(), E>,
    ) -> Result<Option<Error>, E> {
        let begun = Instant::now();
        loop {
            let events = &mut self.events;
            let told = self.tracer.tick(&mut |event| events.push(event));
            let is_busy = self.events.len() >= BUSY;
            // What was told before an error counts.
            self.hand_on(ROUNDS, take)?;
            if let Err(error) = told {
                return Ok(Some(error));
            }
            if !is_busy || begun.elapsed() >= LONGEST {
                return Ok(None);
            }
        }
    }

    /// Finds threads that have ended inside of an invocation: their numbers may be given to others.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn find_ended<E>(&mut self, take: &mut impl FnMut(&Invocation, &TreeTracer) -> Result<(), E>) -> Result<(), E> {
        let gone: Vec<TreeThread> = self.trees.inside().filter(|&thread| self.tracer.is_gone(thread)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // What they told before; an error comes again.
        self.read(take)?;
        for thread in gone {
            self.trees.thread_ended(thread);
        }
        Ok(())
    }

    /// Has nothing recorded any more, and takes over what was told until then.
    ///
    /// # Errors
    /// Those of `take`; within, those of [`TreeTracer::pause`].
    pub fn pause<E>(
        &mut self,
        take: &mut impl FnMut(&Invocation, &TreeTracer) -> Result<(), E>,
    ) -> Result<Result<(), Error>, E> {
        let events = &mut self.events;
        let paused = self.tracer.pause(&mut |event| events.push(event));
        self.hand_on(0, take)?;
        Ok(paused)
    }

    /// Has everything changed back, and takes over what was told until then, also where the JVM is gone.
    ///
    /// # Errors
    /// Those of `take`; within, those of [`TreeTracer::stop`].
    pub fn stop<E>(
        &mut self,
        take: &mut impl FnMut(&Invocation, &TreeTracer) -> Result<(), E>,
    ) -> Result<Result<TreeEnd, Error>, E> {
        let events = &mut self.events;
        let end = self.tracer.stop(&mut |event| events.push(event));
        self.hand_on(0, take)?;
        Ok(end)
    }

    /// Makes trees of what threads have told, and hands on those that have ended. One of which it has not been seen what it came of waits for so many
    /// rounds at most.
    fn hand_on<E>(
        &mut self,
        rounds: u32,
        take: &mut impl FnMut(&Invocation, &TreeTracer) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut ended = std::mem::take(&mut self.waiting);
        for event in self.events.drain(..) {
            ended.extend(self.trees.take(&event).map(|invocation| (invocation, 0)));
        }
        for (mut invocation, waited) in ended {
            let is_linked = self.trees.link(&mut invocation);
            let is_settled = invocation.handed_over.is_empty() || waited >= SETTLED;
            if waited >= rounds || is_linked && is_settled {
                take(&invocation, &self.tracer)?;
            } else {
                self.waiting.push((invocation, waited + 1));
            }
        }
        Ok(())
    }
}
