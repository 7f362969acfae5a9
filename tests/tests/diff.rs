//! `nprof diff` on two real recordings: what became more and what became less is said with the right sign.

use anyhow::{Context, Result, ensure};
use nprof_tests::nprof::run;
use nprof_tests::require::traced_on_every_jdk;

use crate::callers::{Callers, NATIVES, Recorded, Recording, function};

/// What is called in each recording. `work` sleeps for 2 ms a call; each native's rate differs far more between the two than
/// their lengths can.
const BEFORE: [&str; 3] = ["nap4:1 1 200 60000", "direct:1 1 20 60000", "locked:1 1 100 60000"];
const AFTER: [&str; 3] = ["nap4:1 1 4 60000", "direct:1 1 20000 60000", "own:1 1 100 60000"];

/// Records a target while it goes along all of `paths`.
fn recorded(target: &mut Callers, paths: &[&str]) -> Result<Recorded> {
    let recording = Recording::start(target.pid(), &["targets.CallerNatives::*"])?;
    for path in paths {
        target.run(&format!("go {path}"))?;
    }
    recording.finish_file()
}

/// Runs `nprof diff` and returns what it prints.
fn compared(before: &Recorded, after: &Recorded, args: &[&str]) -> Result<String> {
    let files = [before.file(), after.file()];
    let text = |at: usize| files[at].to_str().context("a temporary directory's name is text");
    let run = run(&[&["diff", text(0)?, text(1)?], args].concat())?;
    ensure!(run.code == Some(0) && run.stderr.is_empty(), "{args:?}: {run:?}");
    Ok(run.stdout)
}

/// The change and its share of a native, as the table says them.
fn change(table: &str, native: &str) -> Result<(String, String)> {
    let label = format!("{NATIVES}::{native}");
    // Behind the name there may be marks.
    let is_it = |line: &&str| line.split(' ').any(|word| word == label);
    let row = table.lines().find(is_it).with_context(|| format!("no {native}: {table}"))?;
    // The cells are two spaces apart, or more.
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let [.., change, share, _] = cells[..] else { anyhow::bail!("not a row: {row}") };
    Ok((change.to_owned(), share.to_owned()))
}

/// The width of a native's own frame in both recordings.
fn widths(folded: &str, native: &str) -> Result<(u64, u64)> {
    let frame = format!(";{NATIVES}.{native}");
    let mut sums = (0, 0);
    for line in folded.lines() {
        let [after, before, stack] = line.rsplitn(3, ' ').collect::<Vec<_>>()[..] else { anyhow::bail!("{line}") };
        if stack.ends_with(&frame) {
            sums.0 += before.parse::<u64>()?;
            sums.1 += after.parse::<u64>()?;
        }
    }
    Ok(sums)
}

/// Check that a native that took more time has a plus, one that took less a minus, that those of one recording alone are new or
/// gone, and that the other way round all of it is the other way round; as a table and as stacks.
#[test]
fn changes_have_the_right_sign() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        let before = recorded(&mut target, &BEFORE)?;
        let after = recorded(&mut target, &AFTER)?;
        for (a, b, less, more, [gone, new]) in
            [(&before, &after, "work", "tick", ["locked", "own"]), (&after, &before, "tick", "work", ["own", "locked"])]
        {
            let table = compared(a, b, &[])?;
            for (native, sign) in [(less, '-'), (more, '+'), (gone, '-'), (new, '+')] {
                let (change, share) = change(&table, native)?;
                ensure!(change.starts_with(sign), "{native}: {change} ({share}): {table}");
            }
            let shares = [change(&table, gone)?.1, change(&table, new)?.1];
            ensure!(shares == ["gone", "new"], "{shares:?}: {table}");
            let folded = compared(a, b, &["--format", "folded", "-o", "-"])?;
            let of = |native: &str| widths(&folded, native);
            ensure!(of(less)?.0 > of(less)?.1 && of(more)?.0 < of(more)?.1, "{folded}");
            ensure!(of(gone)?.0 > 0 && of(gone)?.1 == 0 && of(new)?.0 == 0 && of(new)?.1 > 0, "{folded}");
        }
        target.exit()
    })
}

/// Check that the numbers are those of the recordings, for each second of them: of two recordings of the same load, one of
/// which goes on for longer, the longer one has less.
#[test]
fn recordings_of_other_length_are_compared_per_second() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        let load = ["nap4:1 1 100 60000"];
        let short = recorded(&mut target, &load)?;
        // Nothing is traced of what the second path does, but it takes its time.
        let long = recorded(&mut target, &[load[0], "java3:1 1 1000000000 1500"])?;
        let work = |of: &Recorded| -> Result<f64> {
            let profile = of.profile()?;
            let function = function(&profile, "work")?;
            ensure!(function.calls == 100, "{function:?}");
            Ok(function.total_ns as f64 / profile.about.elapsed.as_secs_f64())
        };
        let by_time = ["--weight", "time", "--format", "folded", "-o", "-"];
        let (per_second, expected) = (compared(&short, &long, &by_time)?, work(&long)?);
        let ((before, after), ratio) = (widths(&per_second, "work")?, work(&short)? / expected);
        let found = before as f64 / after as f64;
        ensure!(ratio > 1.5 && (found / ratio - 1.0).abs() < 0.01, "{found} instead of {ratio}: {per_second}");
        let (change, share) = change(&compared(&short, &long, &[])?, "work")?;
        ensure!(change.starts_with('-') && share.starts_with('-'), "{change} {share}");
        target.exit()
    })
}
