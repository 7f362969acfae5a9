//! What the user wants to be done at the calls of which methods.

use std::collections::HashSet;

use super::TracedJvm;
use crate::model::{Method, Probe, Tracing};
use crate::resolve::rule::Rule;

impl TracedJvm {
    /// Says what is to be done at the calls of some methods that are there now. With probes it is done when this returns, unless
    /// one has to be attached for it first; the shim has been told of it by then, and does it when it reads that. Returns how
    /// many functions that concerns.
    pub fn obey(&self, rule: &Rule) -> usize {
        let listed = self.listed();
        let stubs = listed.stubs.iter().filter(|stub| rule.selects(&stub.about.method.method));
        let (records, only_stubbed) = stubs.fold((HashSet::new(), 0), |(mut records, only), stub| {
            records.insert(stub.about.record);
            (records, only + usize::from(stub.probe.is_none()))
        });
        if let Some(stubs) = &self.stubs {
            stubs.switches.want(|record| records.contains(&record), rule.wanted);
        }
        self.obey_for(rule, &listed.probes) + only_stubbed
    }

    /// How many functions a rule is about that are there now, those that only stubs see included.
    #[must_use]
    pub fn concerned<W>(&self, rule: &Rule<W>) -> usize {
        let listed = self.listed();
        let stubs = listed.stubs.iter().filter(|stub| stub.probe.is_none() && rule.selects(&stub.about.method.method));
        listed.probes.iter().filter(|probe| concerns(rule, probe)).count() + stubs.count()
    }

    /// A method that this rule is about and that it cannot be done to while it is traced: its calls are counted at their other end.
    #[must_use]
    pub fn refuses(&self, rule: &Rule) -> Option<Method> {
        let (listed, wanted) = (self.listed(), self.possible(rule.wanted));
        let refuses = |probe: &&Probe| concerns(rule, probe) && !self.switches.may_become(probe.index, wanted);
        let refusing = listed.probes.iter().find(refuses)?;
        refusing.methods.iter().map(|known| &known.method).find(|method| rule.selects(method)).cloned()
    }

    /// Replaces all rules: what is done at the calls of each method is what the last one of these says that selects it, or what is
    /// usual.
    pub fn obey_only(&self, rules: Vec<Rule>) {
        let usual = if self.known.timed { Tracing::Timed } else { Tracing::Counted };
        let last = |concerns: &dyn Fn(&Rule) -> bool| {
            rules.iter().rev().find(|rule| concerns(rule)).map_or(usual, |rule| self.possible(rule.wanted))
        };
        let listed = self.listed();
        for probe in listed.probes.iter() {
            self.switches.want([probe.index], last(&|rule| concerns(rule, probe)));
        }
        for (stubs, stub) in self.stubs.iter().flat_map(|stubs| listed.stubs.iter().map(move |stub| (stubs, stub))) {
            let wanted = last(&|rule| rule.selects(&stub.about.method.method));
            stubs.switches.want(|record| record == stub.about.record, wanted);
        }
        self.set_rules(rules);
    }

    /// Sets the rules for methods that are bound from now on; later ones count.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        if let Some(stubs) = &self.stubs {
            stubs.switches.set_rules(rules.clone());
        }
        self.lock().rules = rules;
    }

    /// Applies the rules to functions that are new, and those about slow calls, before they get a probe.
    pub(in crate::trace) fn obey_all(&self, probes: &[Probe]) {
        let rules = self.lock().rules.clone();
        for probe in probes {
            if let Some(slow) = self.slow.get() {
                slow.begin_function(probe);
            }
            if let Some(rule) = rules.iter().rev().find(|rule| concerns(rule, probe)) {
                self.switches.begin_as(probe.index, self.possible(rule.wanted));
            }
        }
    }

    fn obey_for(&self, rule: &Rule, probes: &[Probe]) -> usize {
        let concerned: Vec<u32> =
            probes.iter().filter(|probe| concerns(rule, probe)).map(|probe| probe.index).collect();
        self.switches.want(concerned.iter().copied(), self.possible(rule.wanted));
        concerned.len()
    }

    /// What can be done: what only counts from the start has no probes on returns.
    fn possible(&self, wanted: Tracing) -> Tracing {
        if self.known.timed { wanted } else { wanted.min(Tracing::Counted) }
    }
}

/// Whether a rule is about a function: one of its methods.
fn concerns<W>(rule: &Rule<W>, probe: &Probe) -> bool {
    probe.methods.iter().any(|known| rule.selects(&known.method))
}
