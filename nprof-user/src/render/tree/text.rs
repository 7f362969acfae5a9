//! One invocation for people: a line for each node, indented below its caller, in 80 columns.

use std::io::{self, Write};

use crossterm::style::Stylize as _;
use nprof_common::{Consumed, Counters};

use super::handed::{Handed, HandedOver};
use super::json::step;
use super::paragraph::{columns, wrapped};
use super::{ShownInvocation, TreeContext, thread_label};
use crate::model::{Invocation, JniStep, Missing, TreeKind, TreeNode};
use crate::render::collected::in_words;
use crate::render::grid::{Screen, bold};
use crate::render::names::{self, printable, width};
use crate::render::notes::plural;
use crate::render::units;

/// Columns before the names: total, self, line, the mark of the slow path.
const BEFORE: usize = 8 + 2 + 8 + 2 + 5 + 1 + 2;
/// Nodes that are nested deeper say how deep instead of being indented further.
const INDENTED: usize = 12;
/// Nodes that took less of the invocation's time are summed up.
const LEAST_SHARE: u64 = 200;
/// How many nodes of one caller are shown.
const MOST: usize = 20;

/// Writes one invocation. With `is_whole` every node has its line; otherwise small ones are summed up.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_text(
    context: &TreeContext,
    shown: ShownInvocation<'_>,
    is_whole: bool,
    screen: Screen,
    w: &mut impl Write,
) -> io::Result<()> {
    for line in wrapped(&heading(context, shown), columns(screen), 4) {
        writeln!(w, "{}", bold(&line, screen.ansi))?;
    }
    for line in submitted_by(context, shown.invocation).iter().flat_map(|line| wrapped(line, columns(screen), 4)) {
        writeln!(w, "{line}")?;
    }
    let consumed = shown.invocation.consumed().unwrap_or_default();
    for line in consumed_in_all(shown.invocation, &consumed).iter().flat_map(|line| wrapped(line, columns(screen), 4)) {
        writeln!(w, "{line}")?;
    }
    let marked = shown.marked_ns.map_or_else(|| slow_path(shown.invocation), |ns| long_calls(shown.invocation, ns));
    // Where the end was not seen, what is known is compared with the longest that is.
    let longest = || shown.invocation.nodes.iter().map(|node| node.total_ns).max().unwrap_or(0);
    let least_ns = shown.invocation.total_ns().unwrap_or_else(longest) / LEAST_SHARE;
    let handed = HandedOver::of(shown.invocation);
    let tree =
        Tree { context, invocation: shown.invocation, consumed, handed, is_whole, screen, slow: marked, least_ns };
    if shown.invocation.nodes.len() > 1 {
        writeln!(w, "{:>8}  {:>8}  {:>5}", "TOTAL", "SELF", "LINE")?;
    }
    tree.write(w)?;
    for line in missing(&shown.invocation.missing).iter().flat_map(|line| wrapped(line, columns(screen), 4)) {
        writeln!(w, "{line}")?;
    }
    writeln!(w)
}

fn heading(context: &TreeContext, shown: ShownInvocation<'_>) -> String {
    let ShownInvocation { number, invocation, thread, .. } = shown;
    let entry = printable(&context.full(invocation.root().method)).into_owned();
    let took = match (invocation.total_ns(), invocation.failed_by()) {
        (None, _) => "was entered, its end was not seen".to_owned(),
        (Some(ns), None) => format!("took {}{}", units::duration(ns), off(invocation)),
        (Some(ns), Some(by)) => {
            format!("threw {} after {}{}", printable(context.exception(by)), units::duration(ns), off(invocation))
        }
    };
    let at = context.moment(invocation.started_ns).strftime("%H:%M:%S.%3f");
    format!("#{number} {entry} {took} in {}, {at} UTC", thread_label(invocation.thread, thread))
}

/// Who has made the task that it is part of, or started its thread.
fn submitted_by(context: &TreeContext, invocation: &Invocation) -> Option<String> {
    let by = invocation.submitted_by?;
    let what = if by.is_thread { "in a thread that was started by" } else { "submitted by" };
    let before = units::duration(invocation.started_ns.saturating_sub(by.at_ns));
    let (method, number) = (context.short(by.method), units::count(by.invocation));
    Some(format!("{what} {method} in #{number} ({}), {before} before it began", thread_label(by.thread, None)))
}

/// What it consumed besides time, if that was collected.
fn consumed_in_all(invocation: &Invocation, consumed: &[Consumed]) -> Option<String> {
    if invocation.collectors.is_empty() {
        return None;
    }
    let Some(all) = consumed.first() else {
        return Some("what it consumed is not known".to_owned());
    };
    let words = in_words(invocation.collectors, &all.total);
    let nothing = format!("nothing of {}", invocation.collectors);
    Some(format!("consumed {}", if words.is_empty() { nothing } else { words }))
}

/// How long the thread did not run, if that is worth a word.
fn off(invocation: &Invocation) -> String {
    let off_ns = invocation.off_ns().and_then(|off_ns| off_ns.first().copied());
    match off_ns.filter(|&off_ns| is_much(off_ns, invocation)) {
        Some(off_ns) => format!(" ({} off-CPU)", units::duration(off_ns)),
        None => String::new(),
    }
}

/// Whether a time is at least half a percent of the invocation's.
fn is_much(ns: u64, invocation: &Invocation) -> bool {
    ns > 0 && ns.saturating_mul(LEAST_SHARE) >= invocation.root().total_ns
}

/// The nodes on which most of the time was spent: from each the one that took the most, if that is at least half.
fn slow_path(invocation: &Invocation) -> Vec<u32> {
    let node = |place: u32| &invocation.nodes[place as usize];
    let mut path = vec![0];
    loop {
        let last = node(path[path.len() - 1]);
        let longest = last.children.iter().copied().max_by_key(|child| node(*child).total_ns);
        match longest {
            Some(child) if node(child).total_ns > 0 && node(child).total_ns >= last.total_ns.div_ceil(2) => {
                path.push(child)
            }
            _ => break,
        }
    }
    // An entry method alone is no path.
    if path.len() == 1 { Vec::new() } else { path }
}

/// The nodes of which a call took so long.
fn long_calls(invocation: &Invocation, least_ns: u64) -> Vec<u32> {
    let long = (0..).zip(&invocation.nodes).filter(|(_, node)| node.max_ns >= least_ns);
    long.map(|(place, _)| place).collect()
}

/// What is not in the numbers, a line for each kind.
fn missing(missing: &Missing) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |n: u64, what: &str| {
        if n > 0 {
            lines.push(format!("{}{what}", units::count(n)));
        }
    };
    say(missing.lost, " events were lost: what came behind them is not in this tree");
    say(missing.lost_calls, " calls could not be told: their time is part of their callers' SELF");
    say(missing.unended, " calls did not tell of their end: their time is part of their callers' SELF");
    say(missing.unbegun, " calls ended that had not told of their beginning: they are not in this tree");
    say(
        missing.cut,
        " calls were nested too deep, or there were too many different ones: their time is part of their callers' SELF",
    );
    say(u64::from(missing.is_after_loss), " other invocation may be around this one: events were lost before it");
    lines.iter().map(|line| format!("! {line}")).collect()
}

/// An invocation as it is drawn.
struct Tree<'a> {
    context: &'a TreeContext,
    invocation: &'a Invocation,
    /// Of each node; of none if it is not known.
    consumed: Vec<Consumed>,
    handed: HandedOver,
    is_whole: bool,
    screen: Screen,
    slow: Vec<u32>,
    /// What nodes take at least that have lines of their own.
    least_ns: u64,
}

/// What is written next: a node with its depth and its caller's method, or nodes that are summed up.
enum Step {
    Node(u32, usize, Option<u32>),
    Others(Vec<u32>, usize),
}

impl Tree<'_> {
    fn node(&self, place: u32) -> &TreeNode {
        &self.invocation.nodes[place as usize]
    }

    fn write(&self, w: &mut impl Write) -> io::Result<()> {
        let notable = self.notable();
        let mut left = vec![Step::Node(0, 0, None)];
        while let Some(step) = left.pop() {
            match step {
                Step::Node(place, depth, caller) => {
                    self.line(place, depth, caller, w)?;
                    left.extend(self.below(place, depth, &notable).into_iter().rev());
                }
                Step::Others(places, depth) => self.others(&places, depth, w)?,
            }
        }
        Ok(())
    }

    /// For each node, whether it has to be seen however little time it took: something was thrown or is missing there or below, or came of it.
    fn notable(&self) -> Vec<bool> {
        let has_led_on = |place: u32| self.handed.at(place).is_some_and(Handed::has_invocations);
        let nodes = (0..).zip(&self.invocation.nodes);
        let is_notable =
            |(place, node): (u32, &TreeNode)| !node.exceptions.is_empty() || node.unended > 0 || has_led_on(place);
        let mut notable: Vec<bool> = nodes.map(is_notable).collect();
        // Children stand behind their parents.
        for (place, node) in self.invocation.nodes.iter().enumerate().rev() {
            notable[place] |= node.children.iter().any(|child| notable[*child as usize]);
        }
        notable
    }

    /// What comes below a node: its children as they were first called, then the small ones together.
    fn below(&self, place: u32, depth: usize, notable: &[bool]) -> Vec<Step> {
        let node = self.node(place);
        let (mut shown, mut others) = (node.children.clone(), Vec::new());
        if !self.is_whole {
            let is_large = |child: &u32| notable[*child as usize] || self.node(*child).total_ns >= self.least_ns;
            let mut large: Vec<u32> = shown.iter().copied().filter(is_large).collect();
            large.sort_by_key(|child| (!notable[*child as usize], std::cmp::Reverse(self.node(*child).total_ns)));
            large.truncate(MOST);
            others = shown.iter().copied().filter(|child| !large.contains(child)).collect();
            // One line for one node says more.
            let is_leaf = |child: &u32| self.node(*child).children.is_empty();
            if others.len() == 1 && others.iter().all(is_leaf) && large.len() < MOST {
                others.clear();
            } else {
                shown.retain(|child| large.contains(child));
            }
        }
        let mut steps: Vec<Step> =
            shown.into_iter().map(|child| Step::Node(child, depth + 1, Some(node.method))).collect();
        if !others.is_empty() {
            steps.push(Step::Others(others, depth + 1));
        }
        steps
    }

    fn line(&self, place: u32, depth: usize, caller: Option<u32>, w: &mut impl Write) -> io::Result<()> {
        let node = self.node(place);
        let ended = node.calls > node.unended;
        let total = if ended { units::duration(node.total_ns) } else { "-".to_owned() };
        // All of a leaf's time is its own.
        let own = if node.children.is_empty() || !ended { String::new() } else { units::duration(node.self_ns()) };
        let lines = caller.map_or_else(String::new, |caller| lines(self.context.lines(node.method, caller)));
        let is_slow = self.slow.contains(&place);
        let mark = if is_slow { '>' } else { ' ' };
        let before = format!("{total:>8}  {own:>8}  {lines:>5} {mark} ");
        let indent = indent(depth);
        let kind = self.context.method(node.method).map_or(TreeKind::Java, |method| method.kind);
        let mut name = self.context.short(node.method).to_owned();
        if let Some(columns) = self.screen.columns {
            name = names::cut(&name, columns.saturating_sub(BEFORE + width(&indent)).max(16));
        }
        let remarks = self.remarks(place, kind);
        let painted = self.paint(&name, kind, is_slow);
        let room = columns(self.screen).saturating_sub(BEFORE + width(&indent));
        if remarks.is_empty() {
            return writeln!(w, "{before}{indent}{painted}");
        }
        if width(&name) + 2 + width(&remarks) <= room {
            return writeln!(w, "{before}{indent}{painted}: {remarks}");
        }
        // What does not fit stands below, with the indentation of the name.
        writeln!(w, "{before}{indent}{painted}:")?;
        let below = " ".repeat(BEFORE + width(&indent) + 2);
        wrapped(&remarks, room.saturating_sub(2).max(16), 0).iter().try_for_each(|line| writeln!(w, "{below}{line}"))
    }

    fn paint(&self, name: &str, kind: TreeKind, is_slow: bool) -> String {
        if !self.screen.ansi {
            return name.to_owned();
        }
        let styled = match kind {
            TreeKind::Java | TreeKind::Intrinsic => name.stylize(),
            TreeKind::Native => name.cyan(),
            TreeKind::Jni(JniStep::Creation) => name.green(),
            TreeKind::Jni(JniStep::Call) => name.blue(),
            TreeKind::Jni(JniStep::Release) => name.magenta(),
        };
        if is_slow { styled.bold().to_string() } else { styled.to_string() }
    }

    fn remarks(&self, place: u32, kind: TreeKind) -> String {
        let node = self.node(place);
        let mut remarks: Vec<String> = match kind {
            TreeKind::Java => Vec::new(),
            TreeKind::Native => vec!["native".to_owned()],
            TreeKind::Jni(_) => step(kind).map(str::to_owned).into_iter().collect(),
            TreeKind::Intrinsic => vec!["intrinsic".to_owned()],
        };
        if node.calls > 1 {
            remarks.push(format!("×{}", units::count(node.calls)));
            if node.calls - node.unended > 1 {
                remarks.push(range(node.min_ns, node.max_ns));
            }
        }
        let off_ns = node.self_off_ns();
        if self.invocation.knows_off && is_much(off_ns, self.invocation) {
            let of = if node.children.is_empty() { "" } else { " of SELF" };
            remarks.push(format!("off-CPU {}{of}", units::duration(off_ns)));
        }
        let consumed =
            self.consumed.get(place as usize).map(|consumed| in_words(self.invocation.collectors, &consumed.own));
        if let Some(consumed) = consumed.filter(|consumed| !consumed.is_empty()) {
            let of = if node.children.is_empty() { "" } else { " of SELF" };
            remarks.push(format!("{consumed}{of}"));
        }
        if node.unended > 0 {
            let of = if node.calls > 1 { format!("of {} ", units::count(node.unended)) } else { String::new() };
            remarks.push(format!("the end {of}was not seen"));
        }
        remarks.extend(self.handed.at(place).map(Handed::words));
        for sum in &node.exceptions {
            let class = printable(self.context.exception(sum.exception)).into_owned();
            let of = |n: u64| {
                if node.calls > 1 { format!(" in {} of {}", units::count(n), node.calls) } else { String::new() }
            };
            let times = |n: u64| if n > 1 { format!(" {} times", units::count(n)) } else { String::new() };
            if sum.threw > 0 {
                remarks.push(format!("threw {class}{}", of(sum.threw)));
            }
            if sum.left > sum.threw {
                remarks.push(format!("let {class} pass{}", of(sum.left - sum.threw)));
            }
            if sum.caught > 0 {
                remarks.push(format!("caught {class}{}", times(sum.caught)));
            }
        }
        remarks.join(", ")
    }

    fn others(&self, places: &[u32], depth: usize, w: &mut impl Write) -> io::Result<()> {
        let total_ns: u64 = places.iter().map(|place| self.node(*place).total_ns).sum();
        let calls: u64 = places.iter().map(|place| self.node(*place).calls).sum();
        let (total, count) = (units::duration(total_ns), plural(places.len() as u64, "other method"));
        let mut all = Counters::default();
        for consumed in places.iter().filter_map(|place| self.consumed.get(*place as usize)) {
            all.iter_mut().zip(consumed.total).for_each(|(all, more)| *all = all.saturating_add(more));
        }
        let consumed = in_words(self.invocation.collectors, &all);
        let remarks = if consumed.is_empty() { consumed } else { format!(": {consumed}") };
        let before = format!("{total:>8}  {:>8}  {:>5}   {}", "", "", indent(depth));
        writeln!(w, "{before}({count}, {}){remarks}", plural(calls, "call"))
    }
}

/// What stands before a name at a depth.
fn indent(depth: usize) -> String {
    if depth <= INDENTED { "  ".repeat(depth) } else { format!("{}({depth}) ", "  ".repeat(INDENTED)) }
}

/// The lines where a method is called, in five columns.
fn lines(lines: &[u16]) -> String {
    match lines {
        [] => String::new(),
        [line] => line.to_string(),
        [first, ..] => format!("{first}…"),
    }
}

/// From the shortest to the longest: `1.02–3.40 ms`, `800 us–3.40 ms`.
fn range(min_ns: u64, max_ns: u64) -> String {
    let (min, max) = (units::duration(min_ns), units::duration(max_ns));
    if min == max {
        return format!("{min} each");
    }
    match (min.split_once(' '), max.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}–{max}"),
        _ => format!("{min}–{max}"),
    }
}
