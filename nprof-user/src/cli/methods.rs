//! `nprof methods`: the native methods of a JVM, and where each can be probed.

use std::io;
use std::process::ExitCode;

use clap::Args;

use super::NOTHING_MATCHED;
use super::check::TracingFacts;
use super::ps::ListFormat;
use super::selection::SelectionArgs;
use super::terminal::say;
use super::terminal::stdout_screen;
use crate::discover::Proc;
use crate::model::{Jvm, NativeCode, Pid, Plan, PlannedMethod, ProbeCost};
use crate::render::methods::{self, MethodRow};
use crate::resolve::select::Selection;
use crate::trace::{Options, Prepared};

/// List the native methods of a running JVM: where their code is, and whether it can be traced
#[derive(Debug, Args)]
#[command(after_help = crate::resolve::pattern::PATTERN_HELP)]
pub(super) struct MethodsArgs {
    /// The JVM's process id
    #[arg(short, long)]
    pid: u32,
    #[command(flatten)]
    selection: SelectionArgs,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: ListFormat,
}

/// Prints the list.
///
/// # Errors
/// If the JVM cannot be read, or the output cannot be written.
pub(super) fn run(args: &MethodsArgs) -> anyhow::Result<ExitCode> {
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(args.pid))?;
    let prepared = prepare(proc, jvm, args.selection.parse()?)?;
    let unmatched = prepared.unmatched();
    for pattern in &unmatched {
        say(format_args!("{pattern}"));
    }
    if !unmatched.is_empty() {
        return Ok(ExitCode::from(NOTHING_MATCHED));
    }
    let plan = prepared.plan();
    let rows = rows(&plan);
    let mut out = io::stdout().lock();
    match args.format {
        ListFormat::Table => methods::table(&rows, stdout_screen(), &mut out)?,
        ListFormat::Json => methods::json(prepared.jvm(), &rows, &mut out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What `nprof check` says of a JVM's native methods.
///
/// # Errors
/// If they cannot be read, in words.
pub(super) fn facts(jvm: &Jvm) -> Result<TracingFacts, String> {
    let prepared = prepare(Proc::host(), jvm.clone(), Selection::default()).map_err(|error| format!("{error:#}"))?;
    let plan = prepared.plan();
    let rows = rows(&plan);
    let bound = |row: &&MethodRow<'_>| matches!(row.method.method.code, NativeCode::Bound(_));
    let stepped = plan.probes.iter().filter(|probe| probe.site.cost == ProbeCost::SingleStepped);
    Ok(TracingFacts {
        natives: rows.len(),
        bound: rows.iter().filter(bound).count(),
        single_stepped: Some(stepped.count()),
        kept_from_others: plan.skipped.iter().filter(|skipped| skipped.reason.keeps_from_others()).count(),
    })
}

fn prepare(proc: Proc, jvm: Jvm, selection: Selection) -> anyhow::Result<Prepared> {
    Ok(Prepared::new(proc, jvm, Options::by_probes(selection))?)
}

/// One row per method, by class, name and signature.
fn rows(plan: &Plan) -> Vec<MethodRow<'_>> {
    let probed = plan.probes.iter().flat_map(|probe| {
        let site = plan.libraries.get(probe.site.library.0).map(|library| (library, probe.site));
        probe.methods.iter().map(move |method| MethodRow { method, site, reason: None })
    });
    let skipped = plan.skipped.iter();
    let skipped =
        skipped.map(|skipped| MethodRow { method: &skipped.method, site: None, reason: Some(skipped.reason) });
    let mut rows: Vec<MethodRow<'_>> = probed.chain(skipped).collect();
    rows.sort_by(|a, b| key(a.method).cmp(&key(b.method)));
    rows
}

fn key(method: &PlannedMethod) -> (&str, &str, &str) {
    let method = &method.method;
    (&method.class, &method.name, &method.signature)
}
