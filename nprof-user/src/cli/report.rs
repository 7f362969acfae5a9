//! `nprof report`: what a recording says, as text.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::NOTHING_MATCHED;
use super::ps::ListFormat;
use super::recorded;
use super::selection::{SelectionArgs, ThreadArgs};
use super::served::ServedArgs;
use super::terminal::stdout_screen;
use super::view::ViewArgs;
use crate::aggregate::tells_threads;
use crate::render::profile::order::missing;
use crate::render::profile::report::{self, Extent};
use crate::render::{By, Scope, View};

/// Show what a recording, or a service, says: native methods, their calls and times, who calls them, and trees of invocations
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The recording, made by `nprof record`; with --from-serve the first pattern
    #[arg(value_name = "FILE", required_unless_present = "from_serve")]
    file: Option<PathBuf>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// The process id of a JVM that a service knows
    #[arg(short, long, requires = "from_serve")]
    pid: Option<u32>,
    #[command(flatten)]
    served: ServedArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Show this many stacks of each method, the heaviest first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 3)]
    stacks: usize,
    /// Show all methods and the stacks of each, not only of those that do nearly all the work
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Show this many invocations as trees, the slowest first, where they were recorded (`nprof record --tree`); 0 for none
    #[arg(long, value_name = "N", default_value_t = 3)]
    trees: usize,
    /// Show every method of a tree; otherwise those with less than 0.5 % of the time are added up
    #[arg(long)]
    whole: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: ListFormat,
}

impl ReportArgs {
    fn extent(&self) -> Extent {
        let View { order, by, top, .. } = self.view.of(Scope::One);
        Extent { stacks: self.stacks, all: self.all, top, order, by, trees: self.trees, whole: self.whole }
    }
}

/// Prints the report.
///
/// # Errors
/// If the recording cannot be read or fetched, or the output cannot be written.
pub(super) fn run(args: &ReportArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    args.view.check_order_of_groups()?;
    let mut selection = args.selection.clone();
    let profile = match &args.file {
        Some(file) if !args.served.is_wanted() => recorded::open(file)?,
        first => {
            selection.patterns.splice(..0, first.iter().map(|pattern| pattern.to_string_lossy().into_owned()));
            args.served.profile(args.pid, quiet)?
        }
    };
    let selected = recorded::select([profile], &selection, &args.threads)?;
    let Some([profile]) = selected else { return Ok(ExitCode::from(NOTHING_MATCHED)) };
    if args.view.by() == Some(By::Thread) {
        tells_threads(&profile)?;
    }
    let order = args.view.of(Scope::One).order;
    if let Some(why) = missing(&profile, order) {
        bail!("`--sort {}` is not possible for this recording: {why}", order.word());
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.format {
        ListFormat::Table => report::table(&profile, args.extent(), stdout_screen(), &mut out)?,
        ListFormat::Json => report::json(&profile, args.extent(), &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use nprof_common::histogram::BUCKETS;

    use crate::aggregate::{compare_trees, trees_by_time, weigh_trees_all};
    use crate::model::{
        AlikeTotals, EntryTotals, Invocation, InvocationGroup, KeptInvocation, Missing, NodeException, NodeUse,
        PathSum, Profile, RecordedTrees, SlowestInvocation, TreeKind, TreeMethod, TreeNode, TreeThread, TreeWay,
    };
    use crate::recording;
    use crate::render::grid::Screen;
    use crate::render::profile::report::{self, Extent};
    use crate::render::tree::tree_difference;

    /// Numbers that look random and are the same in every run; every fourth is one at which something may end.
    struct Dice(u64);

    impl Dice {
        fn number(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = self.0 >> 20;
            const ENDS: [u64; 5] = [0, 1, u64::MAX >> 2, u64::MAX >> 1, u64::MAX];
            if random.is_multiple_of(4) { ENDS[self.below(5) as usize] } else { random % 1_000 }
        }

        fn below(&mut self, limit: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((self.0 >> 20) % u64::from(limit)).unwrap()
        }
    }

    fn node(dice: &mut Dice) -> TreeNode {
        let max_ns = dice.number();
        let exception = |dice: &mut Dice| NodeException {
            exception: dice.below(2),
            left: dice.number(),
            threw: dice.number(),
            caught: dice.number(),
        };
        let calls = dice.number();
        TreeNode {
            method: dice.below(4),
            children: Vec::new(),
            calls,
            unended: dice.number().min(calls),
            total_ns: max_ns.max(dice.number()),
            min_ns: dice.number().min(max_ns),
            max_ns,
            nested_ns: dice.number(),
            off_ns: dice.number(),
            used: (0..dice.below(3)).map(|counter| NodeUse { counter, amount: dice.number() }).collect(),
            exceptions: (0..dice.below(3)).map(|_| exception(dice)).collect(),
        }
    }

    fn kept(dice: &mut Dice) -> KeptInvocation {
        let mut nodes = vec![node(dice)];
        for place in 1..=dice.below(6) {
            nodes.push(node(dice));
            let caller = dice.below(place) as usize;
            nodes[caller].children.push(place);
        }
        let missing = Missing { lost: dice.number(), unended: dice.number(), ..Missing::default() };
        let (thread, started_ns, knows_off) = (TreeThread::Virtual(dice.number()), dice.number(), dice.below(2) == 0);
        let invocation = Invocation { started_ns, knows_off, missing, ..Invocation::new(thread, nodes) };
        KeptInvocation { number: dice.number(), thread: Some("\u{1b}[2J".to_owned()), invocation }
    }

    /// Trees as nobody has recorded them: numbers that are no times and names that are none.
    fn senseless(dice: &mut Dice) -> RecordedTrees {
        let name = |dice: &mut Dice| [".....", "a\u{1b}[2J.B", "", "a.B/0x.1"][dice.below(4) as usize].into();
        let method = |dice: &mut Dice| TreeMethod {
            class: name(dice),
            method: name(dice),
            signature: name(dice),
            callee: None,
            kind: TreeKind::Java,
            is_entry: true,
            depth: dice.below(9),
            callers: Vec::new(),
        };
        let ways = [(None, 0), (Some(0), 1), (Some(1), 2), (Some(0), 0)];
        let mut trees = RecordedTrees { methods: (0..4).map(|_| method(dice)).collect(), ..RecordedTrees::default() };
        trees.totals.ways = ways.map(|(before, method)| TreeWay { before, method }).to_vec();
        (trees.totals.seen, trees.began.monotonic_ns) = (dice.number(), dice.number());
        let mut of_entry = EntryTotals { failed: dice.number(), endless: dice.number(), ..EntryTotals::default() };
        let thread = TreeThread::Platform(dice.below(9));
        let (number, total_ns, started_ns) = (dice.number(), dice.number(), dice.number());
        of_entry.slowest = Some(SlowestInvocation { number, total_ns, thread, started_ns });
        for _ in 0..dice.below(4) {
            let (max_ns, invocations) = (dice.number(), dice.number());
            let group = InvocationGroup {
                invocations,
                total_ns: dice.number(),
                min_ns: dice.number().min(max_ns),
                max_ns,
                off_ns: dice.number(),
                unknown_off: dice.number().min(invocations),
            };
            let sum = |dice: &mut Dice| PathSum { calls: dice.number(), self_ns: dice.number(), off_ns: dice.number() };
            let ways = (0..4).map(|way| (way, sum(dice))).collect();
            let bucket = dice.below(u32::try_from(BUCKETS).unwrap());
            of_entry.alike.insert(bucket, AlikeTotals { group, ways });
        }
        trees.totals.entries.insert(0, of_entry);
        trees.kept = (0..dice.below(3)).map(|_| kept(dice)).collect();
        trees
    }

    /// Check that whatever a file says of trees is refused or can be shown: as text, to programs, as a picture and compared.
    #[test]
    fn whatever_is_read_can_be_shown() {
        let (mut dice, mut shown) = (Dice(5), 0);
        for _ in 0..2_000 {
            let trees = Some(Box::new(senseless(&mut dice)));
            let (mut file, mut out) = (Vec::new(), Vec::new());
            recording::write(&Profile { trees, ..Profile::default() }, &mut file).unwrap();
            let Ok(profile) = recording::read(&mut &file[..]) else { continue };
            shown += 1;
            let extent = Extent { trees: 9, ..Extent::default() };
            report::table(&profile, extent, Screen::default(), &mut out).unwrap();
            assert!(!out.contains(&0x1b), "a terminal could be commanded");
            report::table(
                &profile,
                Extent { whole: true, ..extent },
                Screen { ansi: true, columns: Some(40) },
                &mut out,
            )
            .unwrap();
            report::json(&profile, extent, &mut out).unwrap();
            let trees = profile.trees.as_ref().unwrap();
            let by_time = trees_by_time(&trees.totals, &trees.methods);
            let all = weigh_trees_all(&trees.totals, &trees.methods);
            assert!(all.len() >= 2 && all[1].1 == by_time, "{all:?}");
            tree_difference(&compare_trees(trees, trees), 1, Screen::default(), &mut out).unwrap();
        }
        assert!(shown > 100, "only {shown} were read: the test tests nothing");
    }
}
