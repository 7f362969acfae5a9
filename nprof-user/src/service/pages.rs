//! What the HTTP endpoint shows.

use std::time::Duration;

use super::Shared;
use crate::export::Format;
use crate::export::http::Pages;

/// The loop that everything depends on goes round many times a second.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

impl Pages for Shared {
    fn metrics(&self, format: Format) -> Vec<u8> {
        self.collect().encode(format)
    }

    fn healthy(&self) -> Result<(), String> {
        let silence = self.silent_for();
        if self.was_ready() && silence > LONGEST_SILENCE {
            return Err(format!("nothing has been looked at for {} s", silence.as_secs()));
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
        [
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ("JVMs", jvms.to_string()),
            ("Methods", methods.to_string()),
            ("Losses", losses.to_string()),
            ("Running since", self.started.strftime("%F %T UTC").to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
