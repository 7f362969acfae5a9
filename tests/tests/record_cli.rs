//! `nprof record` and `nprof flamegraph --pid` as their users meet them: how a recording ends, where it goes, what is said.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::Stream;
use nprof_tests::code::{probed, still_probed};
use nprof_tests::jdk::Jdk;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::nprof::{Outcome, UNGOVERNED, methods, outcome, run, spawn};
use nprof_tests::require::traced_on_every_jdk;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::callers::{COUNTED, Callers, FoldedStack, Recording, function, read};

/// So many calls of one method from one stack, and nothing else.
const TURNS: u64 = 300;
const GO: &str = "go direct:1 1 300 60000";
const LIBRARY: &str = "libcallers.so";

fn path(directory: &TempDir, name: &str) -> Result<String> {
    Ok(directory.path().join(name).to_str().context("a temporary directory's name is text")?.to_owned())
}

/// Draws the target while it makes its calls, ends that with Ctrl-C, and returns what was said and written.
fn drawn(target: &mut Callers, args: &[&str]) -> Result<Outcome> {
    let pid = target.pid().to_string();
    let mut nprof = spawn(&[&["flamegraph", "--pid", &pid], &UNGOVERNED[..], &COUNTED[..], args].concat())?;
    let announcement = nprof.line_with_prefix(Stream::Stderr, "recording ")?;
    ensure!(announcement.ends_with(&format!("of {pid} (targets.Callers)")), "{announcement}");
    target.run(GO)?;
    nprof.signal(Signal::INT)?;
    let run = outcome(nprof)?;
    ensure!(run.code == Some(0), "{run:?}");
    Ok(run)
}

/// Records, ends the recording by `end`, and looks for what is left in the target and in the kernel.
fn leaves_nothing(jdk: &Jdk, args: &[&str], end: impl Fn(Recording) -> Result<()>) -> Result<()> {
    let mut target = Callers::start(jdk, &[])?;
    let listed = methods(target.pid(), &["targets.CallerNatives::*"])?.methods;
    let mut sites: Vec<u64> = listed.iter().filter_map(|listed| listed.offset).collect();
    sites.sort_unstable();
    let recording = Recording::start(target.pid(), args)?;
    target.run("go all 4 400 5000")?;
    let held = BpfObjects::held_by(recording.pid())?;
    ensure!(!held.programs.is_empty() && !held.maps.is_empty(), "nprof holds nothing: {held:?}");
    let is_probed = !args.contains(&"--on-cpu");
    ensure!(
        (probed(target.pid(), LIBRARY, &sites)? == sites) == is_probed,
        "probes where there should be none, or none"
    );
    end(recording)?;
    ensure!(still_probed(target.pid(), LIBRARY, &sites)?.is_empty(), "probes are left in the target");
    let left = held.left_over()?;
    ensure!(left == BpfObjects::default(), "left in the kernel: {left:?}");
    target.run("go all 4 100 5000")?;
    target.exit()
}

/// Check that Ctrl-C and SIGTERM end a recording whose file is complete, and that nothing stays, whatever was collected.
#[test]
fn signals_end_a_recording() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for (args, signal) in [
            (&[][..], Signal::INT),
            (&["--native-stacks", "--timeline"], Signal::TERM),
            (&["--no-off-cpu"], Signal::INT),
            (&["--on-cpu"], Signal::TERM),
        ] {
            leaves_nothing(jdk, args, |recording| {
                let profile = recording.finish_by(signal)?;
                ensure!(profile.quality.stacks > 0, "{args:?}: no stacks: {:?}", profile.quality);
                Ok(())
            })
            .with_context(|| format!("{args:?} ended by {signal:?}"))?;
        }
        Ok(())
    })
}

/// Check that nothing stays after SIGKILL either, in the target, in the kernel, and where the file was to be.
#[test]
fn sigkill_leaves_nothing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        leaves_nothing(jdk, &["--native-stacks"], Recording::kill)?;
        leaves_nothing(jdk, &["--on-cpu"], Recording::kill)
    })
}

/// Check that a recording whose JVM is killed has all that was counted until then, and every stack that was named in time.
#[test]
fn target_is_killed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for args in [&[][..], &["--native-stacks"], &["--on-cpu"]] {
            let mut target = Callers::start(jdk, &[])?;
            let is_on_cpu = args.contains(&"--on-cpu");
            let selected = if is_on_cpu { args.to_vec() } else { [&COUNTED, args].concat() };
            let recording = Recording::start(target.pid(), &selected)?;
            target.run("go direct:3,spin16:1 2 3000 60000")?;
            let truth = target.truth()?;
            target.kill()?;
            let (profile, said) = recording.wait()?;
            ensure!(!said.stderr.contains("error") && said.stderr.contains("wrote "), "{args:?}: {}", said.stderr);
            ensure!(profile.quality.stacks > 0, "{args:?}: {:?}", profile.quality);
            if !is_on_cpu {
                let calls = function(&profile, "tick")?.calls;
                ensure!(calls == truth.calls("tick"), "{args:?}: {calls} of {} calls", truth.calls("tick"));
            }
        }
        Ok(())
    })
}

/// Check that an existing file is replaced as a whole, and untouched as long as the recording goes on.
#[test]
fn existing_file_is_replaced() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        let directory = TempDir::new()?;
        let file = path(&directory, "flame.nprof")?;
        fs::write(&file, "older")?;
        let pid = target.pid().to_string();
        let mut nprof = spawn(&[&["flamegraph", "--pid", &pid, "-o", &file], &UNGOVERNED[..], &COUNTED[..]].concat())?;
        nprof.line_with_prefix(Stream::Stderr, "recording ")?;
        target.run(GO)?;
        ensure!(fs::read_to_string(&file)? == "older" && fs::read_dir(directory.path())?.count() == 1);
        nprof.signal(Signal::INT)?;
        let said = outcome(nprof)?;
        // Where nprof waits for a CPU, not each call has a stack, and that is said first.
        let mut lines: Vec<&str> = said.stderr.lines().collect();
        let wrote = lines.pop().is_some_and(|last| last == format!("nprof: wrote {file}"));
        ensure!(said.code == Some(0) && wrote && lines.iter().all(|line| line.contains("stack")), "{said:?}");
        ensure!(function(&read(Path::new(&file))?, "tick")?.calls == TURNS);
        ensure!(fs::read_dir(directory.path())?.count() == 1, "something else is left beside the file");
        target.exit()
    })
}

/// Check that what cannot work is said before anything is recorded, with the object named and what to do.
#[test]
fn mistakes_are_told_before_recording() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = Callers::start(jdk, &[])?;
        let (pid, own) = (target.pid().to_string(), std::process::id().to_string());
        let dead = {
            let mut other = Callers::start(jdk, &[])?;
            other.kill()?;
            other.pid().to_string()
        };
        for (args, words) in [
            (
                vec!["record", "--pid", &pid, "-o", "/nonexistent/run.nprof"],
                vec!["/nonexistent/run.nprof", "cannot be written"],
            ),
            (vec!["record", "--pid", &pid, "-o", "/tmp"], vec!["/tmp", "name a file in it"]),
            (vec!["record", "--pid", &dead], vec!["no process", &dead]),
            (vec!["record", "--pid", &own], vec!["JVM", &own]),
            (vec!["flamegraph", "--pid", &own, "--on-cpu"], vec!["JVM", &own]),
            (vec!["flamegraph", "--pid", &pid, "-o", "a.png"], vec!["a.png", ".svg"]),
            (vec!["flamegraph", "--pid", &pid, "--on-cpu", "--weight", "calls"], vec!["--on-cpu", "--weight"]),
            (vec!["flamegraph", "--pid", &pid, "--on-cpu", "targets.*::*"], vec!["--on-cpu"]),
            (vec!["flamegraph", "--pid", &pid, "--on-cpu", "-o", "/tmp/t.trace.json"], vec!["--on-cpu"]),
            (vec!["record", "--pid", &pid, "--args"], vec!["--args", "--timeline"]),
            (vec!["flamegraph", "--pid", &pid, "--args", "-o", "/tmp/t.svg"], vec!["--args", ".trace.json"]),
            (vec!["record", "--pid", &pid, "--stack-size", "1g"], vec!["1g", "32k"]),
            (vec!["record", "--pid", &pid, "--max-stacks", "0"], vec!["0"]),
        ] {
            // One that did record would do so until the target ends.
            let run = run(&[&args[..], &["--duration", "300ms"]].concat())?;
            ensure!(run.code == Some(2) && run.stdout.is_empty(), "{args:?}: {run:?}");
            ensure!(!run.stderr.contains("recording ") && !run.stderr.contains("sampling "), "{args:?}: {run:?}");
            for word in words {
                ensure!(run.stderr.contains(word), "{args:?}: no '{word}' in: {}", run.stderr);
            }
        }
        let run = run(&["record", "--pid", &pid, "targets.CallerNatives::tock"])?;
        ensure!(run.code == Some(1) && run.stderr.contains("targets.CallerNatives::tick"), "{run:?}");
        target.exit()
    })
}

/// Check that `--quiet` says nothing, and that stdout gets the picture and nothing else.
#[test]
fn quiet_and_stdout() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = Callers::start(jdk, &[])?;
        let pid = target.pid().to_string();
        for args in [["--format", "svg"], ["--format", "folded"], ["--on-cpu", "--format=folded"]] {
            let args = [&["flamegraph", "--pid", &pid, "-q", "-o", "-", "-d", "300ms"], &args[..]].concat();
            let run = run(&args)?;
            ensure!(run.code == Some(0) && run.stderr.is_empty(), "{args:?}: {run:?}");
            ensure!(!args.contains(&"svg") || run.stdout.trim_end().ends_with("</svg>"), "{args:?}: {}", run.stdout);
        }
        target.exit()
    })
}

/// Check that what is drawn from a recording is what is drawn live: the same calls, the same frames.
#[test]
fn recorded_and_live_are_the_same() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        // In the interpreter alone, so that no frame is compiled in between.
        let mut target = Callers::start(jdk, &["-Xint"])?;
        let live = drawn(&mut target, &["--weight", "calls", "--format", "folded"])?;
        target.truth()?;
        let (recorded, _) = target.recorded_file(&[], GO.trim_start_matches("go "))?;
        let live: Vec<FoldedStack> = live.stdout.lines().map(FoldedStack::read).collect::<Result<_>>()?;
        let later = recorded.folded("calls")?;
        ensure!(live == later && live.len() == 1 && live[0].value == TURNS, "{live:?}\n{later:?}");
        target.exit()
    })
}
