//! `nprof jni --tree`: single calls of native methods, with what they ask of the VM in layers.

use std::collections::HashSet;
use std::io::{self, BufWriter, Stdout, Write as _};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::terminal::stdout_screen;
use super::tree::{Shown, clock};
use crate::aggregate::{NestedCalls, TreeSums, Trees, summarize_trees};
use crate::discover::Proc;
use crate::model::{
    EndedCall, Invocation, Losses, Method, NativeCode, TreeKind, TreeMethod, TreeThread, VirtAddr, jni,
};
use crate::render::tree::{self, ShownInvocation, TreeContext, TreeRun, step};
use crate::render::units;
use crate::resolve::nearest::nearest;
use crate::resolve::pattern::Pattern;
use crate::trace::JniTracer;

/// How many calls are shown in a second at most: more than anybody reads, and few enough to be written.
const SHOWN_A_SECOND: u32 = 20;
/// How often it is looked for threads that have ended.
const LOOK_FOR_ENDED: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug)]
pub(super) struct TreeWanted {
    /// Calls that take as long are shown, and marked.
    pub(super) min: Option<Duration>,
    /// How many are shown until it ends.
    pub(super) count: Option<u64>,
    /// Which JNI functions are nodes.
    pub(super) filter: FunctionFilter,
    /// Whether small calls have lines of their own.
    pub(super) is_whole: bool,
    pub(super) is_json: bool,
}

/// Which JNI functions are nodes of trees: by name, or by what they are for.
#[derive(Debug, Default)]
pub(super) struct FunctionFilter {
    include: Vec<What>,
    exclude: Vec<What>,
}

#[derive(Debug)]
enum What {
    /// `creation`, `call` or `release`.
    Step(String),
    /// A glob on names.
    Name(Box<Pattern>),
}

/// What functions are for, in the words of users.
const STEPS: [&str; 3] = ["creation", "call", "release"];

/// Whether JNI functions are meant, and not native methods.
pub(super) fn is_function(text: &str) -> bool {
    What::parse(text).is_ok()
}

/// Whether a text can be the name of a JNI function, or a glob on such names; it can also be a class.
pub(super) fn may_be_function(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "*?".contains(c))
}

/// What there is to give instead of a text that is no JNI function: how, and what resembles it.
pub(super) fn instead(text: &str) -> String {
    let known = jni::jni_functions(u32::MAX).map(|(_, name)| name).chain(STEPS).map(|name| Method {
        id: VirtAddr(0),
        class: jni::CLASS.into(),
        name: name.into(),
        signature: "".into(),
        code: NativeCode::Unbound,
    });
    let nearest = nearest(&format!("*::{text}"), &known.collect::<Vec<_>>());
    let names: Vec<&str> = nearest.iter().filter_map(|name| name.rsplit("::").next()).collect();
    let names = if names.is_empty() { String::new() } else { format!("; nearest: {}", names.join(", ")) };
    format!("give a glob on names such as 'Get*ID', or `creation`, `call` or `release`{names}")
}

impl FunctionFilter {
    /// Those of `include`, or all if there is nothing, without those of `exclude`.
    ///
    /// # Errors
    /// For what is neither a kind nor a pattern that some function's name matches.
    pub(super) fn parse(include: &[String], exclude: &[String]) -> anyhow::Result<Self> {
        let all = |texts: &[String]| texts.iter().map(|text| What::parse(text)).collect::<anyhow::Result<Vec<_>>>();
        Ok(Self { include: all(include)?, exclude: all(exclude)? })
    }

    /// Native methods always are: without them nobody knows whose functions they were.
    fn wants(&self, method: &TreeMethod) -> bool {
        let TreeKind::Jni(_) = method.kind else { return true };
        let any = |what: &[What]| what.iter().any(|what| what.is(method));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

impl What {
    fn parse(text: &str) -> anyhow::Result<Self> {
        if STEPS.contains(&text) {
            return Ok(Self::Step(text.to_owned()));
        }
        let pattern = may_be_function(text).then(|| Pattern::parse(&format!("*::{text}"))).transpose()?;
        let is_known =
            |pattern: &Pattern| jni::jni_functions(u32::MAX).any(|(_, name)| pattern.matches_method(name, ""));
        match pattern.filter(is_known) {
            Some(pattern) => Ok(Self::Name(Box::new(pattern))),
            None => bail!("`{text}` is no JNI function: {}", instead(text)),
        }
    }

    fn is(&self, method: &TreeMethod) -> bool {
        match self {
            Self::Step(name) => step(method.kind) == Some(name),
            Self::Name(pattern) => pattern.matches_method(&method.method, ""),
        }
    }
}

/// Makes trees of calls, and prints them.
#[derive(Debug)]
pub(super) struct TreeOutput {
    wanted: TreeWanted,
    context: TreeContext,
    nested: NestedCalls,
    trees: Trees,
    sums: TreeSums,
    is_node: Vec<bool>,
    looked: Instant,
    shown: Shown,
    out: BufWriter<Stdout>,
}

impl TreeOutput {
    /// Before the first call.
    pub(super) fn begin(wanted: TreeWanted) -> Self {
        let context = TreeContext::new(crate::model::TreePlan::default(), clock());
        let shown = Shown::new(wanted.min, wanted.count, Some(SHOWN_A_SECOND));
        Self {
            wanted,
            context,
            nested: NestedCalls::default(),
            trees: Trees::new(&[], false),
            sums: TreeSums::default(),
            is_node: Vec::new(),
            looked: Instant::now(),
            shown,
            out: BufWriter::new(io::stdout()),
        }
    }

    /// Takes over the calls that have ended, and prints those that are shown. Returns whether there is no more to be shown.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn read(&mut self, tracer: &mut JniTracer) -> io::Result<bool> {
        let mut calls: Vec<EndedCall> = Vec::new();
        tracer.read_calls(|call| calls.push(call));
        self.learn_methods(tracer.told_methods());
        for call in calls {
            let (mut ended, is_node, trees) = (Vec::new(), &self.is_node, &mut self.trees);
            let wants = |method: u32| is_node.get(method as usize).copied().unwrap_or(false);
            self.nested.take(call, wants, |event| ended.extend(trees.take(&event)));
            for invocation in ended {
                self.take(&invocation, tracer)?;
            }
        }
        if self.looked.elapsed() >= LOOK_FOR_ENDED {
            self.looked = Instant::now();
            self.forget_ended(tracer);
        }
        self.out.flush()?;
        Ok(self.shown.has_all())
    }

    fn learn_methods(&mut self, methods: &[TreeMethod]) {
        if methods.len() == self.is_node.len() {
            return;
        }
        self.is_node = methods.iter().map(|method| self.wanted.filter.wants(method)).collect();
        self.trees.know(methods);
        self.context.learn_methods(methods);
    }

    /// What threads that are gone have told of calls that will not end any more.
    fn forget_ended(&mut self, tracer: &JniTracer) {
        let (proc, pid) = (Proc::host(), tracer.tracer().jvm().pid);
        let is_gone = |thread: &TreeThread| match thread {
            TreeThread::Platform(tid) => proc.thread(pid, *tid).is_none(),
            TreeThread::Contained(_) | TreeThread::Virtual(_) => false,
        };
        let gone: Vec<TreeThread> = self.nested.inside().filter(is_gone).collect();
        gone.into_iter().for_each(|thread| self.nested.thread_ended(thread));
    }

    fn take(&mut self, invocation: &Invocation, tracer: &mut JniTracer) -> io::Result<()> {
        let number = invocation.number;
        self.sums.add(invocation);
        if !self.shown.lets_through(invocation) {
            return Ok(());
        }
        for sum in invocation.nodes.iter().flat_map(|node| &node.exceptions) {
            if let Some(name) = tracer.exception_name(sum.exception) {
                self.context.learn_exception(sum.exception, name.into());
            }
        }
        let thread = match invocation.thread {
            TreeThread::Platform(tid) => Proc::host().thread(tracer.tracer().jvm().pid, tid).map(|thread| thread.name),
            TreeThread::Contained(_) | TreeThread::Virtual(_) => None,
        };
        let shown = ShownInvocation { number, invocation, thread: thread.as_deref(), marked_ns: self.shown.min_ns() };
        if self.wanted.is_json {
            tree::tree_json(&self.context, shown, &mut self.out)
        } else {
            tree::tree_text(&self.context, shown, self.wanted.is_whole, stdout_screen(), &mut self.out)
        }
    }

    /// Prints what is said at the end. Probes are detached by now.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish(mut self, tracer: &mut JniTracer) -> io::Result<()> {
        self.read(tracer)?;
        let snapshot = tracer.snapshot();
        let demoted: HashSet<[&str; 3]> =
            snapshot.demoted().map(|of| [&*of.class, &*of.name, &*of.signature]).collect();
        let is_demoted =
            |of: &TreeMethod| of.callee.is_none() && demoted.contains(&[&*of.class, &*of.method, &*of.signature]);
        let silenced: Vec<u32> =
            (0..).zip(tracer.told_methods()).filter(|(_, of)| is_demoted(of)).map(|(n, _)| n).collect();
        let mut losses: Losses = snapshot.snapshot.losses.clone();
        losses.counts.push(("tree-calls", tracer.lost_calls()));
        let summary = summarize_trees(self.sums.totals(), self.trees.unfinished());
        let inside_ns = snapshot.snapshot.methods.iter().map(|row| row.price.inside_ns).max().unwrap_or(0);
        let remark = format!(
            "probes are part of these times: each call has about {} more, and its callers about twice that",
            units::duration(inside_ns)
        );
        let run = TreeRun {
            pid: tracer.tracer().jvm().pid.0,
            main: &tracer.tracer().jvm().main,
            summary: &summary,
            elapsed: snapshot.snapshot.elapsed,
            shown: self.shown.count(),
            min_ns: self.shown.min_ns(),
            reached: self.shown.reached(),
            silenced: &silenced,
            fewer: "PATTERN, --exclude",
            remark: Some(&remark),
            losses: &losses,
        };
        if self.wanted.is_json {
            tree::tree_summary_json(&self.context, &run, &mut self.out)?;
        } else {
            tree::tree_summary(&self.context, &run, false, stdout_screen(), &mut self.out)?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JniStep;

    fn method(name: &str, kind: TreeKind) -> TreeMethod {
        TreeMethod {
            class: "JNIEnv".into(),
            method: name.into(),
            signature: "".into(),
            kind,
            is_entry: false,
            depth: 0,
            callers: Vec::new(),
            callee: None,
        }
    }

    /// Check that functions are nodes by name and by what they are for, native methods always, and that what is neither is refused.
    #[test]
    fn which_functions() {
        let parse = |include: &[&str], exclude: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            FunctionFilter::parse(&texts(include), &texts(exclude))
        };
        let all = [
            method("NewGlobalRef", TreeKind::Jni(JniStep::Creation)),
            method("DeleteGlobalRef", TreeKind::Jni(JniStep::Release)),
            method("GetMethodID", TreeKind::Jni(JniStep::Call)),
            method("run", TreeKind::Native),
        ];
        let wanted = |include: &[&str], exclude: &[&str]| {
            let filter = parse(include, exclude).unwrap();
            all.iter().filter(|method| filter.wants(method)).map(|method| method.method.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[], &[]).len(), 4);
        assert_eq!(wanted(&["creation", "Get*ID"], &[]), ["NewGlobalRef", "GetMethodID", "run"]);
        assert_eq!(wanted(&["*GlobalRef"], &["release"]), ["NewGlobalRef", "run"]);
        for (wrong, nearest) in
            [("a.B::c", ""), ("create", "; nearest: creation"), ("GetMethodId", "; nearest: GetMethodID")]
        {
            for error in [parse(&[wrong], &[]), parse(&[], &[wrong])].map(|parsed| parsed.unwrap_err().to_string()) {
                let says = format!("`{wrong}` is no JNI function: give a glob on names such as 'Get*ID', ");
                assert!(error.starts_with(&says) && error.contains(nearest), "{error}");
            }
        }
        let known = ["release", "Get*ID", "NewGlobalRef", "a.B", "Main", "a.B::get*"].map(is_function);
        assert_eq!(known, [true, true, true, false, false, false]);
    }
}
