//! What the HTTP endpoint shows.

use std::io::{self, Write};
use std::time::Duration;

use super::Shared;
use crate::export::Format;
use crate::export::http::Pages;
use crate::sys::errand;

/// The loop that everything depends on goes round many times a second.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
/// Who takes up JVMs is free again before this, whatever a JVM does.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Pages for Shared {
    fn metrics(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        self.collect(format.shows_exemplars()).write(format, out)
    }

    fn healthy(&self) -> Result<(), String> {
        let silence = self.silent_for();
        if self.was_ready() && silence > LONGEST_SILENCE {
            return Err(format!("nothing has been looked at for {} s", silence.as_secs()));
        }
        let wait = self.joins().longest_wait();
        if wait > LONGEST_WAIT {
            let (jvms, waited) = (self.joins().under_way(), wait.as_secs());
            return Err(format!("joins are stuck: {jvms} JVMs wait to be traced, the first one for {waited} s"));
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        self.healthy()?;
        if self.was_ready() { Ok(()) } else { Err("the JVMs that run are being attached to".to_owned()) }
    }

    fn about(&self) -> Vec<(String, String)> {
        let (jvms, methods) = self.extent();
        let losses = self.losses().read().total();
        let stuck = errand::tally().waiting;
        [
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ("JVMs", jvms.to_string()),
            ("Methods", methods.to_string()),
            ("Losses", losses.to_string()),
            ("JVMs that join", self.joins().under_way().to_string()),
            ("Processes that do not let themselves be read", stuck.to_string()),
            ("Running since", self.started.strftime("%F %T UTC").to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
