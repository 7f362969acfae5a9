//! What is followed and how, and how that begins and ends: what `nprof tree` and `nprof record --tree` share.

use anyhow::bail;
use clap::Args;

use crate::calls::{Limits, Question};
use crate::cli::terminal::{harmless, say};
use crate::cli::trace::Stop;
use crate::discover::Proc;
use crate::model::{Jvm, LeftOut, TreeKind};
use crate::render::tree::left_out_words;
use crate::resolve::pattern::Pattern;
use crate::trace::{self, TreeEnd, TreeTracer, TreeWants};

/// How far to follow entry methods.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct FollowArgs {
    /// ENTRY and --package are regular expressions, on whole names: 'com\.acme\..*::(get|put)'
    #[arg(long, requires = "entries")]
    regex: bool,
    /// How many calls deep to follow what entry methods call
    #[arg(long, value_name = "N", requires = "entries", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(0..=40))]
    depth: u32,
    /// Follow calls into these classes only, as a glob such as 'com.acme.**'; may be given several times [default: the packages of the
    /// entry methods, and those below]
    #[arg(long, value_name = "GLOB", requires = "entries")]
    package: Vec<String>,
    /// Change at most this many methods; those that are called first go first
    #[arg(long, value_name = "N", requires = "entries", default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    max_methods: u32,
}

/// What is to be followed.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Following {
    /// The entry methods, as they were typed.
    entries: Vec<String>,
    question: Question,
    wants: TreeWants,
}

impl FollowArgs {
    /// What is to be followed from these entry methods on.
    ///
    /// # Errors
    /// For a pattern that is none.
    pub(in crate::cli) fn following(&self, entries: &[String], wants: TreeWants) -> anyhow::Result<Following> {
        let read = if self.regex { Pattern::regex } else { Pattern::parse };
        let patterns = |texts: &[String]| texts.iter().map(|text| read(text)).collect::<Result<Vec<_>, _>>();
        let methods = usize::try_from(self.max_methods).unwrap_or(usize::MAX);
        let question = Question {
            entries: patterns(entries)?,
            packages: patterns(&self.package)?,
            depth: self.depth,
            limits: Limits { methods, ..Limits::default() },
        };
        Ok(Following { entries: entries.to_vec(), question, wants })
    }
}

impl Following {
    /// Finds out what is to be changed in a JVM; `None` if nothing that can be entered is selected, which has been said.
    ///
    /// # Errors
    /// If the JVM cannot be followed, or there is a reason to stop before that is known.
    pub(in crate::cli) async fn open(
        &self,
        stop: &mut Stop,
        proc: &Proc,
        jvm: &Jvm,
    ) -> anyhow::Result<Option<TreeTracer>> {
        let (proc, jvm, question, wants) = (proc.clone(), jvm.clone(), self.question.clone(), self.wants);
        let opening = stop.unless_stopped(move || TreeTracer::open(&proc, jvm, &question, wants));
        let Some(opened) = opening.await? else { bail!("stopped before anything was changed") };
        let mut tracer = opened?;
        let has_entries = tracer.plan().methods.iter().any(|method| method.is_entry);
        if !has_entries {
            self.say_nothing_matched(&mut tracer);
        }
        Ok(has_entries.then_some(tracer))
    }

    fn say_nothing_matched(&self, tracer: &mut TreeTracer) {
        let (jvm, left_out) = (tracer.jvm(), &tracer.plan().left_out);
        say(format_args!("no method of {} ({}) is selected that could be followed", jvm.pid, jvm.main));
        for LeftOut { what, why } in left_out.iter().take(5) {
            say(format_args!("left out: {what} ({})", left_out_words(why)));
        }
        if left_out.is_empty() {
            let nearest: Vec<String> = self.entries.iter().flat_map(|entry| tracer.nearest(entry)).collect();
            if !nearest.is_empty() {
                say(format_args!("nearest: {}", nearest.join(", ")));
            }
            say(
                "only methods of classes that are loaded by now can be selected: have the program call it once, or wait",
            );
        }
    }
}

/// Changes the methods of a plan by `change`, where what they tell may cost the JVM such a share of its CPU time; without one, anything.
///
/// # Errors
/// If that is not possible, or there is a reason to stop before.
pub(in crate::cli) async fn begin(
    mut tracer: TreeTracer,
    change: fn(&mut TreeTracer) -> Result<usize, trace::Error>,
    budget: Option<f64>,
    stop: &mut Stop,
    quiet: bool,
) -> anyhow::Result<TreeTracer> {
    tracer.limit(budget);
    let changing = stop.unless_stopped(move || {
        let changed = change(&mut tracer);
        (tracer, changed)
    });
    let Some((tracer, changed)) = changing.await? else { bail!("stopped before all methods were changed") };
    changed?;
    if !quiet {
        announce(&tracer);
    }
    Ok(tracer)
}

/// Says that everything is in place. Scripts wait for this line.
#[expect(clippy::print_stderr, reason = "the announcement has its own form")]
fn announce(tracer: &TreeTracer) {
    let jvm = tracer.jvm();
    let methods = &tracer.plan().methods;
    let native = methods.iter().filter(|method| method.kind == TreeKind::Native).count();
    let java = methods.len() - native;
    eprintln!("following {java} Java and {native} native methods of {} ({})", jvm.pid, harmless(&jvm.main));
}

/// Says what could not be changed back.
pub(in crate::cli) fn tell_end(end: TreeEnd) {
    if end.behind > 0 {
        say(format_args!(
            "{} classes could not be changed back: their methods go on calling nprof's shim, which does nothing then",
            end.behind
        ));
    }
}
