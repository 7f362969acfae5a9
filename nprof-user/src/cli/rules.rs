//! What is to be done at the calls of which methods: the option that commands share.

use clap::Args;

use super::terminal::say;
use crate::model::Tracing;
use crate::resolve::rule::{Rule, with_default};

/// What is to be done at calls.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RuleArgs {
    /// Only count calls: no times, no probe on returns, about 60 % of the cost
    #[arg(long, conflicts_with = "collect")]
    pub(super) count_only: bool,
    /// See calls at their return alone, and count there how they ended: with zero, false or null, with a negative number, or with an
    /// exception pending
    #[arg(long, conflicts_with_all = ["count_only", "all", "slow"])]
    exit_only: bool,
    /// What to do at the calls of some methods: PATTERN=time, PATTERN=count, PATTERN=exit or PATTERN=off; may be given several times,
    /// of which the last one that matches a method counts
    #[arg(long = "rule", value_name = "PATTERN=WHAT")]
    rules: Vec<String>,
}

impl RuleArgs {
    /// The rules, and whether any call is timed.
    ///
    /// # Errors
    /// For what is no rule.
    pub(super) fn parse(&self) -> anyhow::Result<(Vec<Rule>, bool)> {
        let rules: Vec<Rule> = self.rules.iter().map(|rule| Rule::parse(rule)).collect::<Result<_, _>>()?;
        let default = match (self.exit_only, self.count_only) {
            (true, _) => Tracing::Returned,
            (_, true) => Tracing::Counted,
            _ => Tracing::Timed,
        };
        Ok(with_default(rules, default))
    }
}

/// Says which rules are about nothing.
pub(super) fn tell_idle(idle: &[String]) {
    idle.iter().for_each(say);
}
