//! `nprof diff`: two recordings compared, as a table or a picture.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::NOTHING_MATCHED;
use super::picture::{PictureFormat, WeightArg, trees_of};
use super::recorded;
use super::save::Destination;
use super::selection::{SelectionArgs, ThreadArgs};
use super::terminal::{say, stdout_screen};
use crate::aggregate::{Detail, compare_trees, weigh, weigh_comparison};
use crate::model::{Profile, Weighed, Weight};
use crate::render::profile::diff::{self, Base, DiffOrder, Difference, Names, Shown};
use crate::render::tree::{tree_difference, tree_difference_notes};

/// Compare two recordings: which native methods take more or less time than before
///
/// Prints a table, the largest change first, and where both have trees of invocations, what an invocation of each entry method does now that
/// it did not before. With --output it draws a flame graph instead: red for what became more, blue
/// for what became less. Recordings of different length are compared per second or, with --per, per call of a method.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The first recording: before
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The second recording: after
    #[arg(value_name = "B")]
    after: PathBuf,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Compare per call of the methods that this pattern selects, and not per second: two runs never do the same work
    #[arg(long, value_name = "PATTERN")]
    per: Option<String>,
    /// Draw a picture into this file instead (.svg, .folded), `-` for stdout
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// The format of the picture [default: by the ending of PATH, else svg]
    #[arg(short, long, value_enum, requires = "output")]
    format: Option<DiffFormat>,
    /// What the widths of the picture stand for [default: on-cpu, or time where waiting was not told from work in both; with --trees time]
    #[arg(short, long, value_enum, requires = "output")]
    weight: Option<WeightArg>,
    /// Draw the widths of A instead of B, to see what is only there; the colours stay
    #[arg(long, requires = "output")]
    negate: bool,
    /// Draw the invocations that the recordings hold (`nprof record --tree`) instead of native methods: exact times of Java methods and of
    /// what they call, of as many invocations of each entry method in A as there are in B
    #[arg(long, requires = "output", conflicts_with_all = ["per", "threads"])]
    trees: bool,
    /// The column that rows are ordered by: what was collected by how much it changed [default: change]
    #[arg(long, value_name = "COLUMN", value_parser = order(), conflicts_with = "output")]
    sort: Option<DiffOrder>,
    /// Print this many rows of the table; 0 for all
    #[arg(short, long, value_name = "N", default_value_t = 30, conflicts_with = "output")]
    top: usize,
}

/// The formats that can hold a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// A flame graph for browsers (.svg)
    Svg,
    /// A line per stack with both numbers, for scripts (.folded)
    Folded,
}

/// Prints the table or draws the picture.
///
/// # Errors
/// If a recording cannot be read, they cannot be compared, or the result cannot be written.
pub(super) fn run(args: &DiffArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    if args.trees && !args.selection.is_empty() {
        bail!("`--trees` draws all invocations: omit what selects native methods");
    }
    let picture = args.output.as_deref().map(|path| picture(args, path)).transpose()?;
    let (before, after) = (recorded::open(&args.before)?, recorded::open(&args.after)?);
    if let (Some(picture), true) = (&picture, args.trees) {
        draw_trees(args, picture, (&before, &after), quiet)?;
        return Ok(ExitCode::SUCCESS);
    }
    if before.about.mode != after.about.mode {
        bail!("one of the recordings is of calls, the other of the CPU (`--on-cpu`): compare two of the same kind");
    }
    let Some(base) = base(args, &before, &after)? else { return Ok(ExitCode::from(NOTHING_MATCHED)) };
    let Some([before, after]) = recorded::select([before, after], &args.selection, &args.threads)? else {
        return Ok(ExitCode::from(NOTHING_MATCHED));
    };
    let Some(picture) = picture else {
        let order = args.sort.unwrap_or_default();
        if let Some(why) = order.missing(before.about.collectors.shared_with(after.about.collectors)) {
            bail!("`--sort` by that column is not possible for these recordings: {why}");
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        diff::table((&before, &after), &base, Shown { order, top: args.top }, stdout_screen(), &mut out)?;
        if let (Some(before), Some(after)) = (&before.trees, &after.trees) {
            writeln!(out)?;
            tree_difference(&compare_trees(before, after), args.top, stdout_screen(), &mut out)?;
        }
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    };
    draw_natives(args, &picture, (&before, &after), &base, quiet)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the word for a column.
fn order() -> impl TypedValueParser<Value = DiffOrder> {
    PossibleValuesParser::new(DiffOrder::words()).try_map(|word| DiffOrder::of(&word).ok_or("no such word"))
}

/// What makes the recordings comparable; `None` if nothing is what `--per` says, which has been said.
///
/// # Errors
/// If one of them has no call of that.
fn base(args: &DiffArgs, before: &Profile, after: &Profile) -> anyhow::Result<Option<Base>> {
    let Some(per) = &args.per else { return Ok(Some(Base::seconds(before, after))) };
    let Some(calls) = recorded::calls_of([before, after], per)? else { return Ok(None) };
    for (calls, path) in calls.iter().zip([&args.before, &args.after]) {
        if *calls == 0 {
            bail!("{} has no call of `{per}`: choose a method that both recordings have calls of", path.display());
        }
    }
    Ok(Some(Base::calls(per, calls)))
}

/// Format and place of a picture.
type Picture = (DiffFormat, Destination);

fn picture(args: &DiffArgs, path: &Path) -> anyhow::Result<Picture> {
    let destination = Destination::of(path)?;
    let format = match (args.format, &destination) {
        (Some(format), _) => format,
        (None, Destination::Stdout) => DiffFormat::Svg,
        (None, Destination::File(path)) => match PictureFormat::of(path)? {
            PictureFormat::Svg => DiffFormat::Svg,
            PictureFormat::Folded => DiffFormat::Folded,
            _ => bail!("the format of {} cannot hold a comparison: use .svg or .folded", path.display()),
        },
    };
    Ok((format, destination))
}

fn draw_natives(
    args: &DiffArgs,
    picture: &Picture,
    (before, after): (&Profile, &Profile),
    base: &Base,
    quiet: bool,
) -> anyhow::Result<()> {
    let weight = args.weight.map_or_else(|| diff::weight(before, after), Weight::from);
    let weighed = |profile: &Profile| -> anyhow::Result<Weighed> { Ok(weigh(profile, weight, Detail::default())?) };
    let (old, new) = (weighed(before)?, weighed(after)?);
    draw(args, picture, &Difference::new(&old, &new, base), quiet)
}

/// Draws the trees of both.
fn draw_trees(
    args: &DiffArgs,
    picture: &Picture,
    (before, after): (&Profile, &Profile),
    quiet: bool,
) -> anyhow::Result<()> {
    let trees = |profile, path: &Path| trees_of(profile).with_context(|| path.display().to_string());
    let comparison = compare_trees(trees(before, &args.before)?, trees(after, &args.after)?);
    let weighed = weigh_comparison(&comparison, args.weight.map_or(Weight::Time, Weight::from))?;
    let is_scaled = comparison.entries.iter().map(|entry| &entry.difference).any(|difference| {
        let invocations = [difference.others, difference.these].map(|group| group.invocations);
        invocations[0] != invocations[1] && !invocations.contains(&0)
    });
    draw(args, picture, &Difference::of_trees(&weighed, is_scaled), quiet)?;
    if !quiet {
        tree_difference_notes(&comparison).iter().for_each(|note| say(format_args!("{note}")));
    }
    Ok(())
}

fn draw(args: &DiffArgs, (format, destination): &Picture, difference: &Difference, quiet: bool) -> anyhow::Result<()> {
    if *format == DiffFormat::Folded {
        destination.save(|out| difference.folded(out))?;
    } else {
        let (before, after) = (args.before.to_string_lossy(), args.after.to_string_lossy());
        if difference.is_empty(args.negate) {
            let (empty, hint) = if args.negate { (before, "omit --negate") } else { (after, "add --negate") };
            bail!("{empty} has nothing to draw: {hint} for the widths of the other recording");
        }
        let names = Names { before: &before, after: &after };
        destination.save(|out| difference.svg(&names, args.negate, out))?;
    }
    if let (Destination::File(path), false) = (destination, quiet) {
        say(format_args!("wrote {}", path.display()));
    }
    Ok(())
}
