//! The trees that a recording holds, with the words of `nprof tree`: the slowest, and what all have in common.

use std::cmp::Reverse;
use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::json::{InvocationLine, Summary};
use super::{ShownInvocation, ShownLimits, TreeContext, TreeRun, tree_notes, tree_summary, tree_text, tree_title};
use crate::aggregate::summarize_trees;
use crate::model::{About, KeptInvocation, Losses, RecordedTrees, SharedStr, TreePlan, TreeSummary};
use crate::render::grid::{Screen, bold};
use crate::render::units;

/// Trees of a recording, ready to be shown.
#[derive(Debug)]
pub struct ShownTrees<'a> {
    about: &'a About,
    trees: &'a RecordedTrees,
    context: TreeContext,
    summary: TreeSummary,
    losses: Losses,
    /// Those that are shown, the slowest first.
    slowest: Vec<&'a KeptInvocation>,
    remark: Option<String>,
}

impl<'a> ShownTrees<'a> {
    /// The trees of a recording, of which so many are shown one by one.
    #[must_use]
    pub fn new(about: &'a About, trees: &'a RecordedTrees, most: usize) -> Self {
        let plan = TreePlan { methods: trees.methods.clone(), ..TreePlan::default() };
        let mut context = TreeContext::new(plan, trees.began);
        for (number, class) in &trees.exceptions {
            context.learn_exception(*number, SharedStr::from(class.as_str()));
        }
        let mut slowest: Vec<&KeptInvocation> = trees.kept.iter().collect();
        slowest.sort_by_key(|kept| (Reverse(kept.invocation.root().total_ns), kept.number));
        slowest.truncate(most);
        let kept = trees.kept.len();
        let remark = (kept > slowest.len())
            .then(|| format!("the recording has the {} as whole trees (--trees {kept} shows them)", slowest_of(kept)));
        let summary = summarize_trees(&trees.totals, trees.unfinished);
        Self { about, trees, context, summary, losses: trees.losses.named(), slowest, remark }
    }

    /// Writes the trees, the slowest first, and what all have in common. With `is_whole` every node has its line.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn text(&self, is_whole: bool, screen: Screen, w: &mut impl Write) -> io::Result<()> {
        if !self.slowest.is_empty() {
            writeln!(w, "{}\n", bold("the slowest invocations", screen.ansi))?;
        }
        for kept in &self.slowest {
            tree_text(&self.context, shown(kept), is_whole, screen, w)?;
        }
        tree_summary(&self.context, &self.run(), true, screen, w)
    }

    /// What a picture of all says about itself: a title, and further lines.
    #[must_use]
    pub fn captions(&self) -> (String, Vec<String>) {
        let run = TreeRun { shown: self.trees.totals.seen, remark: None, ..self.run() };
        (tree_title(&self.context, &run), tree_notes(&self.context, &run))
    }

    fn run(&self) -> TreeRun<'_> {
        TreeRun {
            pid: self.about.pid,
            main: &self.about.main,
            summary: &self.summary,
            elapsed: self.trees.elapsed,
            shown: self.slowest.len() as u64,
            min_ns: None,
            reached: ShownLimits::default(),
            silenced: &self.trees.silenced,
            fewer: "--depth, --package",
            remark: self.remark.as_deref(),
            losses: &self.losses,
        }
    }
}

fn slowest_of(kept: usize) -> String {
    if kept == 1 { "slowest one".to_owned() } else { format!("{} slowest", units::count(kept as u64)) }
}

fn shown(kept: &KeptInvocation) -> ShownInvocation<'_> {
    ShownInvocation {
        number: kept.number,
        invocation: &kept.invocation,
        thread: kept.thread.as_deref(),
        marked_ns: None,
    }
}

/// `{"invocations": […], "summary": {…}}`, of which each is what `nprof tree` prints as a line.
impl Serialize for ShownTrees<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("invocations", &Slowest(self))?;
        map.serialize_entry("summary", &Summary::of(&self.context, &self.run()))?;
        map.end()
    }
}

struct Slowest<'a>(&'a ShownTrees<'a>);

impl Serialize for Slowest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.slowest.len()))?;
        for kept in &self.0.slowest {
            list.serialize_element(&InvocationLine::of(&self.0.context, shown(kept)))?;
        }
        list.end()
    }
}
