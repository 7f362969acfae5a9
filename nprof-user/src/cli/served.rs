//! What a running `nprof serve --profiles` knows of a JVM, for the commands that otherwise read recordings.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::terminal::say;
use crate::config::{DEFAULT_CONTROL, duration};
use crate::control::{Request, WantedProfile, fetch};
use crate::model::Profile;
use crate::recording;
use crate::render::units;

/// How far back a service knows anything.
const KEPT: Duration = Duration::from_secs(3600);

/// Which profile of a service.
#[derive(Debug, Clone, Args)]
pub(super) struct ServedArgs {
    /// Take what a running `nprof serve --profiles` knows: of --pid, of --jvm, or of the only JVM that there is
    #[arg(long)]
    from_serve: bool,
    /// The JVM whose main class or jar matches this glob, running or ended
    #[arg(long, value_name = "GLOB", requires = "from_serve", conflicts_with = "pid")]
    jvm: Option<String>,
    /// The time up to now, an hour at most [default: 5m]
    #[arg(long, value_name = "TIME", requires = "from_serve", value_parser = last)]
    last: Option<Duration>,
    /// The control socket of `nprof serve`
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    control: PathBuf,
}

impl ServedArgs {
    /// Whether a service is to be asked.
    pub(super) fn is_wanted(&self) -> bool {
        self.from_serve
    }

    /// Asks for the profile of a JVM.
    ///
    /// # Errors
    /// If nobody answers, or there is no such profile.
    pub(super) fn profile(&self, pid: Option<u32>, quiet: bool) -> anyhow::Result<Profile> {
        let last = self.last.unwrap_or(Duration::from_secs(300));
        let last_ms = u64::try_from(last.as_millis()).unwrap_or(u64::MAX);
        let wanted = WantedProfile { pid, jvm: self.jvm.clone(), last_ms };
        let mut bytes = fetch(&self.control, &Request::Profile(wanted))?;
        let profile = recording::read(&mut bytes).with_context(|| self.control.display().to_string())?;
        if !quiet && profile.about.elapsed < last / 2 {
            let elapsed = u64::try_from(profile.about.elapsed.as_nanos()).unwrap_or(u64::MAX);
            say(format_args!("of that time {} are known", units::duration(elapsed)));
        }
        Ok(profile)
    }

    /// Refuses what would have no meaning beside it.
    ///
    /// # Errors
    /// If a service is asked and something else is said of how to record.
    pub(super) fn alone(&self, says_how: bool) -> anyhow::Result<()> {
        if self.from_serve && says_how {
            bail!("`--from-serve` takes what was recorded already: omit the options of how to record");
        }
        Ok(())
    }
}

fn last(text: &str) -> Result<Duration, String> {
    let last = duration::parse(text)?;
    if last > KEPT { Err("a service keeps the last hour".to_owned()) } else { Ok(last) }
}
