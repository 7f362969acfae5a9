//! The plan: the methods to be enhanced, and what was left out and why.

use std::io::{self, Write};

use serde::Serialize;

use super::kind;
use crate::model::TreeMethod;
use crate::render::json::{SCHEMA, line};
use crate::render::tree::TreeContext;
use crate::render::tree::plan::{left_out, reason};

/// Writes the plan as one line.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_plan_json(context: &TreeContext, w: &mut impl Write) -> io::Result<()> {
    let plan = context.plan();
    let left_out = left_out(plan).into_iter().map(|(why, found)| LeftOut {
        reason: reason(why).1,
        detail: reason(why).2,
        count: found.len(),
        examples: found,
    });
    let plan = Plan {
        methods: plan.methods.iter().map(|method| PlannedMethod::of(context, method)).collect(),
        left_out: left_out.collect(),
        limit: plan.limit.as_deref(),
        for_tasks: &plan.for_tasks,
        drops_code: plan.drops_code,
    };
    line(&PlanLine { schema: SCHEMA, plan }, w)
}

#[derive(Serialize)]
struct PlanLine<'a> {
    schema: u32,
    plan: Plan<'a>,
}

#[derive(Serialize)]
struct Plan<'a> {
    methods: Vec<PlannedMethod<'a>>,
    left_out: Vec<LeftOut<'a>>,
    limit: Option<&'a str>,
    /// Methods of the JDK that are changed so that tasks are known again.
    for_tasks: &'a [String],
    /// Whether the VM drops all code that it has compiled.
    drops_code: bool,
}

#[derive(Serialize)]
struct PlannedMethod<'a> {
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    kind: &'static str,
    entry: bool,
    depth: u32,
    callers: Vec<Caller<'a>>,
}

#[derive(Serialize)]
struct Caller<'a> {
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    lines: &'a [u16],
}

#[derive(Serialize)]
struct LeftOut<'a> {
    reason: &'static str,
    detail: Option<&'a str>,
    count: usize,
    examples: Vec<&'a str>,
}

impl<'a> PlannedMethod<'a> {
    fn of(context: &'a TreeContext, of: &'a TreeMethod) -> Self {
        let callers = of.callers.iter().filter_map(|caller| {
            let method = context.method(caller.method)?;
            let (class, name, signature) = (&*method.class, &*method.method, &*method.signature);
            Some(Caller { class, method: name, signature, lines: &caller.lines })
        });
        Self {
            class: &of.class,
            method: &of.method,
            signature: &of.signature,
            kind: kind(of.kind),
            entry: of.is_entry,
            depth: of.depth,
            callers: callers.collect(),
        }
    }
}
