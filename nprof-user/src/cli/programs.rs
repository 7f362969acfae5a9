//! `--on-entry`, `--on-return`: programs of the user's own at calls.

use anyhow::bail;
use clap::Args;

use super::tier::TierArg;
use crate::model::CallEnd;
use crate::resolve::program_rule::ProgramRule;
use crate::trace::ProgramOptions;

/// Programs of the user's.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ProgramArgs {
    /// Run a BPF program of yours when a method begins; of several that match a method the last one runs
    #[arg(long, value_name = "[PATTERN=]FILE[:PROGRAM]", conflicts_with_all = ["all", "exit_only"])]
    on_entry: Vec<String>,
    /// The same when a method returns
    #[arg(long, value_name = "[PATTERN=]FILE[:PROGRAM]", conflicts_with_all = ["all"])]
    on_return: Vec<String>,
}

impl ProgramArgs {
    /// Whether there are any.
    pub(super) fn are_wanted(&self) -> bool {
        !self.on_entry.is_empty() || !self.on_return.is_empty()
    }

    /// The programs, if there are any.
    ///
    /// # Errors
    /// For what is no rule, for files without such programs, and where no probe is hit.
    pub(super) fn read(&self, tier: TierArg) -> anyhow::Result<Option<ProgramOptions>> {
        if !self.are_wanted() {
            return Ok(None);
        }
        if tier == TierArg::Stub {
            bail!(
                "`--on-entry` and `--on-return` run programs where the kernel's probes are hit, and stubs hit none: omit `--tier stub`"
            );
        }
        let rules = |texts: &[String], end| {
            texts.iter().map(|text| ProgramRule::parse(text, end)).collect::<Result<Vec<_>, _>>()
        };
        let rules = [rules(&self.on_entry, CallEnd::Entry)?, rules(&self.on_return, CallEnd::Return)?].concat();
        Ok(Some(ProgramOptions::read(rules)?))
    }
}
