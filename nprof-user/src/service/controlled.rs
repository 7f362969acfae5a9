//! What the control socket does: reads the state, and switches methods.

use std::collections::BTreeMap;

use super::Shared;
use super::shared::{Living, nanoseconds};
use crate::control::{Answer, Controlled, Mode, Request};
use crate::model::{CallCost, FunctionStatus, JvmStatus, Status, Tracing};
use crate::resolve::select::Selection;

/// Demoted functions that are listed of a JVM.
const DEMOTED_LISTED: usize = 100;

impl Controlled for Shared {
    fn handle(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Status => Ok(Answer { matched: 0, status: Some(self.status()) }),
            Request::Enable { patterns } => self.switch(patterns, Tracing::Timed),
            Request::Disable { patterns } => self.switch(patterns, Tracing::Off),
            Request::Mode { mode: Mode::Count, patterns } => self.switch(patterns, Tracing::Counted),
            Request::Mode { mode: Mode::Time, patterns } => self.switch(patterns, Tracing::Timed),
        }
    }
}

impl Shared {
    fn switch(&self, patterns: Vec<String>, wanted: Tracing) -> Result<Answer, String> {
        if patterns.is_empty() {
            return Err("say which methods, by patterns on class::method; `*` is all of them".to_owned());
        }
        let selection = Selection::parse(&patterns, &[], &[]).map_err(|error| error.to_string())?;
        tracing::info!("methods {} are to be {wanted}", patterns.join(", "));
        Ok(Answer { matched: self.rule(patterns, selection, wanted), status: None })
    }

    fn status(&self) -> Status {
        let costs = self.costs();
        let (counted_ns, timed_ns) = (nanoseconds(costs.counted_ns[0]), nanoseconds(costs.timed_ns[0]));
        let losses = self.losses().read().counts.into_iter();
        Status {
            nprof: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.start.elapsed().as_secs(),
            overhead_budget: self.budget(),
            call_cost: Some(CallCost { counted_ns, timed_ns }),
            jvms: self.living().iter().map(jvm_status).collect(),
            losses: losses.map(|(reason, count)| (reason.to_owned(), count)).collect(),
        }
    }
}

fn jvm_status(living: &Living) -> JvmStatus {
    let (traced_jvm, states) = (&living.traced_jvm, living.traced_jvm.states());
    let spent = traced_jvm.spent();
    let functions: BTreeMap<Tracing, usize> =
        Tracing::ALL.into_iter().zip(states.functions).filter(|(_, count)| *count > 0).collect();
    JvmStatus {
        pid: traced_jvm.jvm().pid.0,
        main: traced_jvm.jvm().main.clone(),
        labels: living.labels.0.iter().cloned().collect(),
        functions,
        demoted: states.demoted,
        cost_share: spent.as_ref().map(|spent| spent.share),
        demoted_functions: demoted_functions(living),
    }
}

fn demoted_functions(living: &Living) -> Vec<FunctionStatus> {
    let demoted = living.traced_jvm.spent().map(|spent| spent.demoted).unwrap_or_default();
    let listed = demoted.into_iter().filter_map(|(index, (rate, why))| {
        let (class, method) = living.traced_jvm.name(index)?;
        // The user may have switched it since the governor last looked.
        let traced = living.traced_jvm.traced(index).filter(|traced| traced.is_demoted())?;
        Some(FunctionStatus { class, method, state: traced.tracing, wanted: traced.wanted, why, rate: Some(rate) })
    });
    listed.take(DEMOTED_LISTED).collect()
}
