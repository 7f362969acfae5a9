//! Which JVM somebody means who asks for a profile.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::aggregate::WindowsOf;
use crate::discover::{FilterError, JvmFilter};
use crate::model::Jvm;

/// How many JVMs an error lists.
const LISTED: usize = 20;

/// The JVM that is meant; with nothing said, the only one that there is.
#[derive(Debug, Clone, Default)]
pub struct WhichJvm {
    /// The process that has this id, or had it.
    pub pid: Option<u32>,
    /// One whose main class or jar matches.
    pub jvm: Option<JvmFilter>,
}

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoProfile {
    /// No JVM is the one that is meant.
    #[error("there is no profile of such a JVM; there are profiles of {there}")]
    Unknown {
        /// Those that there are.
        there: String,
    },
    /// Several are.
    #[error("several JVMs are meant, name one of them with --pid: {there}")]
    Several {
        /// They.
        there: String,
    },
    /// It has only just joined.
    #[error("the first {} of {main} (pid {pid}) are not over yet: try again", span(*.window))]
    TooEarly {
        /// Its process id.
        pid: u32,
        /// Its main class or jar.
        main: String,
        /// The length of a window.
        window: Duration,
    },
    /// It did nothing in that time, for it had ended.
    #[error("nothing is known of {main} (pid {pid}) in that time: what there is ended {} ago, ask for more with --last", span(*.ago))]
    Nothing {
        /// Its process id.
        pid: u32,
        /// Its main class or jar.
        main: String,
        /// How long ago its last window ended.
        ago: Duration,
    },
}

impl WhichJvm {
    /// The JVM that glob and process id say.
    ///
    /// # Errors
    /// For a glob that is none.
    pub fn parse(pid: Option<u32>, jvm: Option<&str>) -> Result<Self, FilterError> {
        let jvm = jvm.map(|glob| JvmFilter::parse(&[glob], &[], &[])).transpose()?;
        Ok(Self { pid, jvm })
    }

    fn means(&self, jvm: &Jvm) -> bool {
        self.pid.is_none_or(|pid| pid == jvm.pid.0) && self.jvm.as_ref().is_none_or(|filter| filter.selects(jvm))
    }

    /// The one that is meant, of those that there are windows of. `living` are all that are traced, with windows or not. Of
    /// several processes with one id the last is meant.
    pub(super) fn one_of(
        &self,
        there: Vec<WindowsOf>,
        living: impl FnOnce() -> Vec<Jvm>,
        window: Duration,
    ) -> Result<WindowsOf, NoProfile> {
        let mut meant: Vec<&WindowsOf> = there.iter().filter(|of| self.means(&of.jvm)).collect();
        if self.pid.is_some() {
            meant.sort_by_key(|of| of.jvm.start_time);
            meant.drain(..meant.len().saturating_sub(1));
        }
        match meant[..] {
            [of] => Ok(of.clone()),
            [] => Err(self.none_of(&there, living(), window)),
            _ => Err(NoProfile::Several { there: listed(meant.iter().map(|of| &of.jvm)) }),
        }
    }

    fn none_of(&self, there: &[WindowsOf], living: Vec<Jvm>, window: Duration) -> NoProfile {
        match living.iter().find(|jvm| self.means(jvm)) {
            Some(jvm) => NoProfile::TooEarly { pid: jvm.pid.0, main: jvm.main.escape_debug().to_string(), window },
            None => NoProfile::Unknown { there: listed(there.iter().map(|of| &of.jvm)) },
        }
    }
}

impl NoProfile {
    pub(super) fn nothing_since(of: &WindowsOf, now: Timestamp) -> Self {
        let (pid, main) = (of.jvm.pid.0, of.jvm.main.escape_debug().to_string());
        let ago = Duration::try_from(now.duration_since(of.until)).unwrap_or_default();
        Self::Nothing { pid, main, ago }
    }
}

/// `1234 (com.acme.Main), 77 (shop.jar)`.
fn listed<'a>(jvms: impl ExactSizeIterator<Item = &'a Jvm>) -> String {
    let more = jvms.len().saturating_sub(LISTED);
    let mut names: Vec<String> =
        jvms.take(LISTED).map(|jvm| format!("{} ({})", jvm.pid, jvm.main.escape_debug())).collect();
    match (names.is_empty(), more) {
        (true, _) => return "none".to_owned(),
        (false, 0) => {}
        (false, more) => names.push(format!("and {more} more")),
    }
    names.join(", ")
}

/// `1m 30s`, in whole seconds where there are some.
fn span(time: Duration) -> String {
    let time = if time.as_secs() > 0 { Duration::from_secs(time.as_secs()) } else { time };
    format!("{:#}", SignedDuration::try_from(time).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JvmKind, Pid, StartTime};

    fn jvm(pid: u32, start: u64, main: &str) -> Jvm {
        Jvm {
            pid: Pid(pid),
            start_time: StartTime(start),
            main: main.to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: String::new(),
            vm_version: String::new(),
            uid: 0,
            user: None,
            container: None,
        }
    }

    fn one(pid: Option<u32>, glob: Option<&str>) -> Result<u64, String> {
        let there = [jvm(7, 1, "com.acme.Shop"), jvm(7, 2, "com.acme.Shop"), jvm(8, 3, "com.acme.Pay")];
        let there = there.map(|jvm| WindowsOf { jvm, until: Timestamp::UNIX_EPOCH }).to_vec();
        let which = WhichJvm::parse(pid, glob).unwrap();
        let living = || vec![jvm(9, 4, "com.acme.New")];
        let meant = which.one_of(there, living, Duration::from_secs(60));
        meant.map(|of| of.jvm.start_time.0).map_err(|error| error.to_string())
    }

    /// Check who is meant: by id the last process that had it, by name the only one; and what is said if it is not clear.
    #[test]
    fn means_one() {
        assert_eq!(one(Some(7), None), Ok(2));
        assert_eq!(one(None, Some("*Pay")), Ok(3));
        let error = one(None, Some("*.Shop")).unwrap_err();
        assert!(error.contains("7 (com.acme.Shop), 7 (com.acme.Shop)") && error.contains("--pid"), "{error}");
        let error = one(Some(5), None).unwrap_err();
        assert!(
            error.contains("there are profiles of 7 (com.acme.Shop), 7 (com.acme.Shop), 8 (com.acme.Pay)"),
            "{error}"
        );
        let error = one(None, Some("*New")).unwrap_err();
        assert_eq!(error, "the first 1m of com.acme.New (pid 9) are not over yet: try again");
    }

    /// Check what is said of a JVM that had ended before the time that was asked for.
    #[test]
    fn nothing_in_that_time() {
        let of = WindowsOf { jvm: jvm(7, 1, "Shop"), until: Timestamp::UNIX_EPOCH };
        let error = NoProfile::nothing_since(&of, Timestamp::from_second(90).unwrap()).to_string();
        assert!(error.contains("Shop (pid 7)") && error.contains("ended 1m 30s ago"), "{error}");
    }
}
