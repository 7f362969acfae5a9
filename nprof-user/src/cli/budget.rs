//! `--max-overhead`: what tracing may cost a JVM, the same for every command that traces.

use clap::Args;

use crate::govern;

/// What tracing may cost.
#[derive(Debug, Clone, Args)]
pub(super) struct BudgetArgs {
    /// The most that tracing may cost the JVM, as a share of its CPU time: of hot methods stubs time one of several calls, and
    /// probes count them, or they are estimated from short looks; all are marked. `off` times every call, whatever that costs
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = budget)]
    max_overhead: Budget,
}

/// A share of a JVM's time; `None` for any cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Budget(pub(super) Option<f64>);

impl BudgetArgs {
    /// What it allows, of which one of so many that share it has its part; `None` for any cost.
    pub(super) fn part(&self, parts: f64) -> Option<govern::Budget> {
        self.max_overhead.0.map(|share| govern::Budget::once(share / parts))
    }

    /// The whole of it; `None` for any cost.
    pub(super) fn whole(&self) -> Option<govern::Budget> {
        self.part(1.0)
    }
}

/// Reads a budget.
pub(super) fn budget(text: &str) -> Result<Budget, String> {
    crate::config::share(text).map(Budget)
}
