//! What the control socket does: reads the state, and switches methods.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Shared;
use super::shared::{Living, nanoseconds};
use crate::control::{Answer, Controlled, Request, WantedProfile};
use crate::model::{CallCost, FunctionStatus, JvmStatus, Method, Status, Tracing};
use crate::recording;
use crate::resolve::rule::Rule;
use crate::resolve::thresholds::Thresholds;
use crate::trace::{Profiles, WhichJvm};

/// Demoted functions that are listed of a JVM.
const DEMOTED_LISTED: usize = 100;

impl Controlled for Shared {
    fn handle(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Status => Ok(Answer { status: Some(self.status()), ..Answer::default() }),
            Request::Rule { rules } => self.switch(&rules),
            Request::Slow { slow } => self.slow_from(&slow),
            Request::Profile(_) => Err("a profile is made where others need not wait for it".to_owned()),
        }
    }

    fn recording(&self, wanted: &WantedProfile) -> Result<Vec<u8>, String> {
        let profiles = self.profiles().ok_or(
            "this nprof keeps no profiles: start it with `nprof serve --profiles`, or set `profiles = true` in its configuration",
        )?;
        let which = WhichJvm::parse(wanted.pid, wanted.jvm.as_deref()).map_err(|error| error.to_string())?;
        let profile =
            profiles.profile(&which, Duration::from_millis(wanted.last_ms)).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        recording::write(&profile, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}

impl Shared {
    /// Applies rules, all or, if there is one that is none, nothing.
    fn switch(&self, rules: &[String]) -> Result<Answer, String> {
        if rules.is_empty() {
            return Err("say what to do at the calls of which methods: PATTERN=count; `**` is all of them".to_owned());
        }
        let rules: Vec<Rule> =
            rules.iter().map(|rule| Rule::parse(rule)).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        rules.iter().try_for_each(|rule| self.may_be_done(rule))?;
        let mut answer = Answer::default();
        for rule in rules {
            tracing::info!("methods {} are to be {}", rule.pattern, rule.wanted);
            let (pattern, matched) = (rule.pattern.clone(), self.rule(rule));
            answer.matched += matched;
            answer.unmatched.extend((matched == 0).then_some(pattern));
        }
        Ok(answer)
    }

    /// Whether a rule can be done to all methods that it is about, and if not, why.
    fn may_be_done(&self, rule: &Rule) -> Result<(), String> {
        let refusing = self.living().iter().find_map(|living| living.traced_jvm.refuses(rule));
        let Some(Method { class, name, .. }) = refusing else { return Ok(()) };
        let [is, end] = if rule.wanted == Tracing::Returned { ["begin", "return"] } else { ["return", "begin"] };
        Err(format!(
            "calls of {class}::{name} are counted when they {is}, and its probe is not moved while it is called: to count them when they \
             {end}, change `rules` in the configuration and restart nprof"
        ))
    }

    /// Changes from when on calls are slow.
    fn slow_from(&self, texts: &[String]) -> Result<Answer, String> {
        if texts.is_empty() {
            return Err("say from when on calls are slow: 10ms, or PATTERN=1ms for some methods".to_owned());
        }
        // Whether they are right has nothing to do with what was said before.
        let new = Thresholds::parse(texts).map_err(|error| error.to_string())?;
        let living = self.living();
        let of_rule = |rule: &Rule<_>| living.iter().map(|living| living.traced_jvm.concerned(rule)).sum::<usize>();
        let concerned: Vec<usize> = new.rules().iter().map(of_rule).collect();
        let unmatched = new.rules().iter().zip(&concerned).filter(|(_, concerned)| **concerned == 0);
        let unmatched = unmatched.map(|(rule, _)| rule.pattern.clone()).collect();
        let says_usual = texts.iter().any(|text| !text.contains('='));
        let matched = if says_usual {
            living.iter().map(|living| living.traced_jvm.functions()).sum()
        } else {
            concerned.iter().sum()
        };
        self.set_slow_from(texts)?;
        tracing::info!("calls are slow from now on: {}", texts.join(" "));
        Ok(Answer { matched, unmatched, ..Answer::default() })
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
            profiles: self.profiles().map(Profiles::status),
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
