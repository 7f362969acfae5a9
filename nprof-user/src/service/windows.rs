//! The windows of profiles for whoever passes them on: each once, with the labels of its JVM.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Shared;
use super::ended_labels::key_of;
use crate::aggregate::WindowKey;
use crate::model::{JvmLabels, Profile};
use crate::push::NewWindows;

/// How long after its end a window may come: the thread that closes it waits for its JVM.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// Which windows have been passed on: until when, of each JVM.
#[derive(Debug, Default)]
struct PassedOn(HashMap<WindowKey, Timestamp>);

impl PassedOn {
    /// Whether the window of a JVM that ended at `until` is a new one, which it is no more then.
    fn is_new(&mut self, key: WindowKey, until: Timestamp) -> bool {
        let is_new = self.0.get(&key).is_none_or(|last| *last < until);
        if is_new {
            self.0.insert(key, until);
        }
        is_new
    }

    /// Forgets JVMs of which no window can come any more that was over before `since`.
    fn forget(&mut self, since: Timestamp) {
        self.0.retain(|_, last| *last >= since);
    }
}

impl Shared {
    /// What gives the windows that are over from now on, each once; nothing where there are no profiles.
    #[must_use]
    pub fn new_windows(self: &Arc<Self>) -> Option<NewWindows> {
        self.profiles()?;
        let (shared, mut passed_on, start) = (Arc::clone(self), PassedOn::default(), Timestamp::now());
        Some(Box::new(move || shared.windows_not_in(&mut passed_on, start)))
    }

    fn windows_not_in(&self, passed_on: &mut PassedOn, start: Timestamp) -> Vec<(Arc<JvmLabels>, Profile)> {
        let Some(profiles) = self.profiles() else { return Vec::new() };
        let since = Timestamp::now().saturating_sub(LATE).unwrap_or(start).max(start);
        let found = profiles.windows_since(since);
        passed_on.forget(since);
        let new = found.into_iter().filter_map(|(jvm, window)| {
            let about = &window.about;
            let elapsed = SignedDuration::try_from(about.elapsed).ok()?;
            let until = about.started.checked_add(elapsed).ok()?;
            let key = key_of(&jvm);
            if !passed_on.is_new(key, until) {
                return None;
            }
            Some((self.labels_of(key)?, window))
        });
        new.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Pid, StartTime};

    /// Check that each window is new once, of each JVM by itself, also where one comes later than that of another JVM.
    #[test]
    fn each_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (one, other) = ((Pid(1), StartTime(1)), (Pid(2), StartTime(1)));
        let mut passed_on = PassedOn::default();
        assert!(passed_on.is_new(one, at(60)) && !passed_on.is_new(one, at(60)));
        assert!(passed_on.is_new(other, at(59)) && passed_on.is_new(one, at(120)) && !passed_on.is_new(one, at(60)));
        passed_on.forget(at(60));
        assert!(passed_on.is_new(other, at(59)), "it is too old to be asked for again");
        assert!(!passed_on.is_new(one, at(120)));
    }
}
