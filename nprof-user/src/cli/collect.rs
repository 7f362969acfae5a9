//! `--collect`: what calls consume besides time.

use anyhow::bail;
use clap::Args;

use crate::config::collector;
use crate::model::Collectors;

/// The collector that needs no more than a return.
const RESULTS: &str = "results";
/// Those that probes on functions count, on allocators' and on returns.
const ONLY_BY_PROBES: [&str; 2] = ["alloc", RESULTS];

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

    /// What is collected of invocations of methods.
    ///
    /// # Errors
    /// As [`Self::named`]; and for what only probes tell.
    pub(super) fn of_trees(&self) -> anyhow::Result<Collectors> {
        let collectors = self.named(false, true)?;
        let by_probes = collectors.iter().find(|collector| ONLY_BY_PROBES.contains(&collector.name));
        match by_probes {
            Some(collector) => {
                bail!(
                    "`--collect {}` is for `nprof trace`: only probes tell it, and a tree is told by its methods",
                    collector.name
                )
            }
            None => Ok(collectors),
        }
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
