//! Links to probes, which can be closed without waiting for strangers.
//!
//! From Linux 6.13 on a call with a return probe borrows it for a tenth of a second, and who takes away any probe of the host waits until
//! all that is borrowed has been returned. But with each further call that has a return probe the thread may keep what it has borrowed
//! for its other calls a tenth of a second longer. As long as a thread within a native method that calls Java code makes traced calls,
//! for hours perhaps, the kernel ends no removal. The probe itself has long gone by then: first the kernel takes it away, then it waits
//! for the hits that are under way, and for what is borrowed last.
//!
//! So each link is closed by a thread, which is left behind if it waits for the last of these only. That is seen by where in the kernel
//! it sleeps. Everybody else waits no longer than until a link's probes have gone and no hit of them is under way.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};

/// How often it is asked where in the kernel a thread sleeps: an ordinary removal is over by the second time.
const ASK: Duration = Duration::from_millis(50);
/// A thread that sleeps there so long waits for what is borrowed. Where hits are waited for in the same place, which kernels may do, that
/// takes less.
const SURE: Duration = Duration::from_millis(150);
/// What the function of the kernel is called in which it waits for what is borrowed.
const PLACE: &str = "srcu";

/// How often it is asked whether all have ended.
const END_STEP: Duration = Duration::from_millis(10);
/// With so many threads that wait, nothing is taken away that need not be.
const MANY: usize = 16;

/// How many removals have begun and not ended, and of them those whose threads have been left behind.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// Links whose turn has not come, and whether there is a thread that closes one after the other.
static BURIED: Mutex<(Vec<OwnedFd>, bool)> = Mutex::new((Vec::new(), false));

/// Who a closing thread tells when it has ended: nobody any more, once it has been left behind.
const WAITED_FOR: u8 = 0;
const LEFT_BEHIND: u8 = 1;
const ENDED: u8 = 2;

/// A link that the kernel holds probes by. Once this is dropped they have gone, and no hit of them is under way.
#[derive(Debug)]
pub struct ProbeLink(Option<OwnedFd>);

impl ProbeLink {
    pub(super) fn new(link: OwnedFd) -> Self {
        Self(Some(link))
    }

    /// Has the link closed when its turn comes, after all others of which this was said: for one whose probes nobody hits any more, as
    /// its target has ended.
    pub fn bury(mut self) {
        let mut buried = BURIED.lock().unwrap_or_else(PoisonError::into_inner);
        buried.0.extend(self.0.take());
        if !buried.1 {
            buried.1 = thread::Builder::new().spawn(close_buried).is_ok();
        }
    }
}

/// Whether so many removals have not ended, as threads keep what they have borrowed, that no more are to be begun without need.
#[must_use]
pub fn are_many_left() -> bool {
    left() >= MANY
}

/// How many removals have not ended although their probes have gone.
#[must_use]
pub fn left() -> usize {
    LEFT.load(Ordering::Relaxed)
}

/// Waits until all removals have ended, but no longer than `limit`. Returns whether they have.
#[must_use]
pub fn have_ended_within(limit: Duration) -> bool {
    let (began, have_ended) = (Instant::now(), || UNDER_WAY.load(Ordering::Acquire) == 0);
    while !have_ended() && began.elapsed() < limit {
        thread::sleep(END_STEP);
    }
    have_ended()
}

impl Drop for ProbeLink {
    fn drop(&mut self) {
        let Some(link) = self.0.take() else { return };
        let state = Arc::new(AtomicU8::new(WAITED_FOR));
        let (tell, told) = channel();
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        let closer = {
            let state = Arc::clone(&state);
            thread::Builder::new().spawn(move || close(link, &state, &tell))
        };
        match closer {
            Ok(_closer) => wait(&state, &told),
            // It has been closed here, with what the thread was to do.
            Err(error) => {
                UNDER_WAY.fetch_sub(1, Ordering::Release);
                tracing::debug!("no thread to close a link by: {error}");
            }
        }
    }
}

/// Closes a link on this thread. The sender is dropped with it.
fn close(link: OwnedFd, state: &AtomicU8, tell: &Sender<Pid>) {
    tell.send(gettid()).ok();
    drop(link);
    if state.swap(ENDED, Ordering::AcqRel) == LEFT_BEHIND {
        LEFT.fetch_sub(1, Ordering::Relaxed);
    }
    UNDER_WAY.fetch_sub(1, Ordering::Release);
}

/// Waits until a thread has closed its link or is to be left behind.
fn wait(state: &AtomicU8, told: &Receiver<Pid>) {
    let Ok(thread) = told.recv() else { return };
    let mut since = None;
    while told.recv_timeout(ASK) == Err(RecvTimeoutError::Timeout) {
        if !waits_for_the_last(thread) {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() >= SURE {
            LEFT.fetch_add(1, Ordering::Relaxed);
            if state.compare_exchange(WAITED_FOR, LEFT_BEHIND, Ordering::AcqRel, Ordering::Acquire).is_err() {
                LEFT.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
    }
}

/// Whether a thread of this process waits for what is borrowed. `false` as well where the kernel does not say where threads sleep.
fn waits_for_the_last(thread: Pid) -> bool {
    let place = fs::read_to_string(format!("/proc/self/task/{}/wchan", thread.as_raw_nonzero()));
    place.is_ok_and(|place| place.contains(PLACE))
}

/// Closes what is buried, one link after the other.
fn close_buried() {
    loop {
        let mut buried = BURIED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(link) = buried.0.pop() else {
            buried.1 = false;
            return;
        };
        drop(buried);
        drop(link);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _, pipe};

    use super::*;

    /// A link, and what is at its end when it is closed.
    fn link() -> (ProbeLink, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        (ProbeLink::new(writer.into()), reader)
    }

    /// Check that a link is closed once it has been dropped, and one that is buried some time later, as are those that come meanwhile.
    #[test]
    fn all_are_closed() {
        let (dropped, mut end) = link();
        drop(dropped);
        assert_eq!(end.read(&mut [0]).unwrap(), 0);
        let (links, ends): (Vec<_>, Vec<_>) = (0..100).map(|_| link()).unzip();
        links.into_iter().for_each(ProbeLink::bury);
        assert!(ends.into_iter().all(|mut end| end.read(&mut [0]).unwrap() == 0));
        assert!(have_ended_within(Duration::from_secs(60)));
    }

    /// Check that who waits for something else is not left behind, and that one who was is counted until it ends.
    #[test]
    fn only_who_waits_for_strangers_is_left() {
        let (tell, told) = channel::<()>();
        let (mine, its) = channel();
        let waiting = thread::spawn(move || (mine.send(gettid()).unwrap(), told.recv()));
        assert!(!waits_for_the_last(its.recv().unwrap()));
        drop(tell);
        waiting.join().unwrap().1.unwrap_err();
        let (link, _end) = link();
        let before = left();
        for count in [&LEFT, &UNDER_WAY] {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let mut link = link;
        close(link.0.take().unwrap(), &AtomicU8::new(LEFT_BEHIND), &channel().0);
        assert_eq!(left(), before);
    }
}
