//! The last hour of all JVMs of a host, in windows of a minute or so: small enough to be kept in memory.
//!
//! A window is a [`Profile`] whose frames, stacks and names are shared with all others. Windows of one JVM add up to the profile of
//! the time from the first to the last. What is older than an hour goes, and the oldest goes where there is no room.

mod compact;
mod merge;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use self::compact::{Pool, Window};
use crate::model::{Jvm, Pid, Profile, StartTime};

/// What names a JVM for good.
pub type WindowKey = (Pid, StartTime);

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// How old a window gets.
    pub age: Duration,
    /// How many bytes all of them may take.
    pub bytes: usize,
}

/// The windows of all JVMs, those that have ended included.
#[derive(Debug)]
pub struct Windows {
    limits: WindowLimits,
    jvms: BTreeMap<WindowKey, OfJvm>,
    pool: Pool,
    /// What the windows take by themselves.
    own_bytes: usize,
    dropped: u64,
}

#[derive(Debug)]
struct OfJvm {
    jvm: Jvm,
    windows: VecDeque<Window>,
}

/// A JVM that there are windows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowsOf {
    /// The JVM.
    pub jvm: Jvm,
    /// When its last window has ended.
    pub until: Timestamp,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowsTally {
    /// How many windows there are.
    pub windows: usize,
    /// How many bytes they take.
    pub bytes: usize,
    /// How many bytes they may take.
    pub most_bytes: usize,
    /// How many were dropped before they were old, because there was no room.
    pub dropped: u64,
}

impl Windows {
    /// No windows.
    #[must_use]
    pub fn new(limits: WindowLimits) -> Self {
        Self { limits, jvms: BTreeMap::new(), pool: Pool::default(), own_bytes: 0, dropped: 0 }
    }

    /// Adds the next window of a JVM. Returns how many windows had to go for it, of whichever JVM.
    pub fn add(&mut self, jvm: &Jvm, profile: Profile) -> u64 {
        let window = self.pool.compact(profile);
        let now = window.until();
        self.own_bytes += window.bytes();
        let new = || OfJvm { jvm: jvm.clone(), windows: VecDeque::new() };
        self.jvms.entry((jvm.pid, jvm.start_time)).or_insert_with(new).windows.push_back(window);
        self.expire(now);
        let before = self.dropped;
        while self.bytes() > self.limits.bytes && self.drop_oldest() {
            self.dropped += 1;
            self.pool.sweep();
        }
        self.dropped - before
    }

    /// Drops what is too old at this time.
    pub fn expire(&mut self, now: Timestamp) {
        let age = SignedDuration::try_from(self.limits.age).unwrap_or(SignedDuration::MAX);
        let mut expired = 0;
        for OfJvm { windows, .. } in self.jvms.values_mut() {
            while let Some(window) = windows.front()
                && now.duration_since(window.until()) >= age
            {
                expired += window.bytes();
                windows.pop_front();
            }
        }
        if expired > 0 {
            self.own_bytes -= expired;
            self.jvms.retain(|_, of| !of.windows.is_empty());
            self.pool.sweep();
        }
    }

    /// The JVMs that there are windows of.
    #[must_use]
    pub fn jvms(&self) -> Vec<WindowsOf> {
        let of = |of: &OfJvm| Some(WindowsOf { jvm: of.jvm.clone(), until: of.windows.back()?.until() });
        self.jvms.values().filter_map(of).collect()
    }

    /// What a JVM did in the windows that have ended after `since`; `None` if there are none.
    #[must_use]
    pub fn profile(&self, key: WindowKey, since: Timestamp) -> Option<Profile> {
        let windows = self.jvms.get(&key)?.windows.iter();
        let windows: Vec<&Window> = windows.filter(|window| window.until() > since).collect();
        (!windows.is_empty()).then(|| merge::merge(&windows))
    }

    /// What a JVM did in its last window; `None` if there is none.
    #[must_use]
    pub fn last(&self, key: WindowKey) -> Option<Profile> {
        self.jvms.get(&key)?.windows.back().map(|window| merge::merge(&[window]))
    }

    /// Each window of each JVM that has ended after `since`, by itself.
    #[must_use]
    pub fn ended_after(&self, since: Timestamp) -> Vec<(Jvm, Profile)> {
        let of = |OfJvm { jvm, windows }: &OfJvm| {
            let windows = windows.iter().filter(|window| window.until() > since);
            windows.map(|window| (jvm.clone(), merge::merge(&[window]))).collect::<Vec<_>>()
        };
        self.jvms.values().flat_map(of).collect()
    }

    /// How much there is.
    #[must_use]
    pub fn tally(&self) -> WindowsTally {
        WindowsTally {
            windows: self.jvms.values().map(|of| of.windows.len()).sum(),
            bytes: self.bytes(),
            most_bytes: self.limits.bytes,
            dropped: self.dropped,
        }
    }

    fn bytes(&self) -> usize {
        self.own_bytes + self.pool.bytes()
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = |(key, of): (&WindowKey, &OfJvm)| Some((of.windows.front()?.until(), *key));
        let Some((_, key)) = self.jvms.iter().filter_map(oldest).min() else { return false };
        let Some(OfJvm { windows, .. }) = self.jvms.get_mut(&key) else { return false };
        self.own_bytes -= windows.pop_front().map_or(0, |window| window.bytes());
        if windows.is_empty() {
            self.jvms.remove(&key);
        }
        true
    }
}
