//! `--collect`: what calls consume besides time.

use anyhow::bail;
use clap::Args;

use crate::config::collector;
use crate::model::Collectors;

/// The collector that needs no more than a return.
const RESULTS: &str = "results";

/// What is collected.
#[derive(Debug, Clone, Args)]
pub(super) struct CollectArgs {
    /// What to collect of each timed call besides its time, separated by commas: the difference of the thread's own counters
    /// between entry and return
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = collector())]
    collect: Vec<String>,
}

impl CollectArgs {
    /// Whether anything is.
    pub(super) fn is_wanted(&self) -> bool {
        !self.collect.is_empty()
    }

    /// What is collected, whoever counts: with how calls end where some are seen at their return alone. Of these nothing else is known,
    /// and if none is timed of no call at all.
    ///
    /// # Errors
    /// If there is no such word; or for what needs a call's beginning.
    pub(super) fn named(&self, has_exits: bool, timed: bool) -> anyhow::Result<Collectors> {
        let mut names: Vec<&str> = self.collect.iter().map(String::as_str).collect();
        if has_exits {
            names.push(RESULTS);
        }
        if has_exits
            && !timed
            && let Some(name) = names.iter().find(|name| **name != RESULTS)
        {
            bail!(
                "`--collect {name}` is the difference between a call's beginning and its end: omit `--exit-only`, or have a rule time \
                 some methods"
            );
        }
        let Ok(collectors) = Collectors::named(&names) else { bail!("`--collect {}`: no such word", names.join(",")) };
        Ok(collectors)
    }
}
