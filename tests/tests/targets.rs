//! The targets tell the truth: what the Java code made is what the C code counted. Needs no nprof.

use std::process::Command;

use anyhow::{Result, ensure};
use nprof_tests::child::{Child, Stream};
use nprof_tests::process::{Called, RemoteProcess};
use nprof_tests::require::on_every_jdk;
use nprof_tests::target::Targets;

fn both_sides_agree(called: &[Called]) -> Result<()> {
    ensure!(!called.is_empty(), "nothing was called");
    ensure!(called.iter().all(|function| function.made == function.counted && function.made > 0), "{called:?}");
    Ok(())
}

/// Check that both sides agree for all shapes, from many threads at a time.
#[test]
fn all_shapes() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let called = target.calls("all", 64, 50)?;
        ensure!(called.len() == 24, "{} functions were called", called.len());
        both_sides_agree(&called)?;
        target.exit()
    })
}

/// Check that deep recursion, jumps and threads that die are counted alike, and that the VM outlives them.
#[test]
fn shapes_that_end_badly() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        for (shape, threads, rounds) in [("locked", 2, 100), ("deep", 2, 5), ("jumping", 4, 100), ("dying", 2, 10)] {
            both_sides_agree(&target.calls(shape, threads, rounds)?)?;
            target.run("collect")?;
        }
        target.exit()
    })
}

/// Check that the natives' own measurements are at least as long as what they were asked for.
#[test]
fn self_timed_natives() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let slept = target.self_timed("sleep", 5, 2_000_000)?;
        ensure!(slept.total_ns >= 10_000_000 && slept.max_ns >= 2_000_000, "{slept:?}");
        let worked = target.self_timed("work", 5, 100_000)?;
        ensure!(worked.total_ns > 5_000 && worked.max_ns <= worked.total_ns, "{worked:?}");
        target.exit()
    })
}

/// Check that blocked threads stay inside until they are released.
#[test]
fn blocked_natives() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        target.run("block 3")?;
        target.run("block 2")?;
        target.run("release")?;
        target.run("block 1")?;
        target.exit()
    })
}

/// Check that natives fail before their library is loaded, work after, and that classes come and go with theirs.
#[test]
fn late_libraries() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        ensure!(target.run("late 1").is_err(), "the library is loaded already");
        target.run("load")?;
        both_sides_agree(&target.run_and_count("late 10")?)?;
        for _ in 0..2 {
            target.run("welcome")?;
            both_sides_agree(&target.run_and_count("guest 10")?)?;
            target.run("dismiss")?;
        }
        target.exit()
    })
}

/// Check that a target that is asked for nonsense says so.
#[test]
fn unknown_commands_fail() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let error = target.run("nonsense").expect_err("an unknown command was obeyed");
        ensure!(error.to_string().contains("unknown command"), "{error}");
        target.exit()
    })
}

/// Check that what stands first in the assembler natives is what their names promise.
#[test]
fn entries_are_what_they_are_called() -> Result<()> {
    let library = Targets::get()?.library("libshapes.so");
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(library).output()?;
    let listing = String::from_utf8(output.stdout)?;
    for (function, first) in [
        ("pushFirst", "push"),
        ("movFirst", "mov"),
        ("movThenPush", "mov"),
        ("movThenLoop", "mov"),
        ("testThenBranch", "test"),
        ("endbrFirst", "endbr64"),
        ("subThenCall", "sub"),
        ("lockFirst", "lock"),
    ] {
        let (_, body) = listing.split_once(&format!("<Java_targets_Entries_{function}>:\n")).expect("is exported");
        let instruction = body.lines().next().and_then(|line| line.split_whitespace().nth(1));
        ensure!(instruction == Some(first), "{function} begins with {instruction:?}");
    }
    Ok(())
}

/// Check that the demo says who it is and ends by itself.
#[test]
fn the_demo_runs_and_ends() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut command = Command::new(jdk.tool("java"));
        command.arg("-cp").arg(Targets::get()?.demo_classes()).args(["Demo", "--seconds", "3"]);
        let mut demo = Child::spawn("demo", &mut command)?;
        demo.line_with_prefix(Stream::Stdout, &format!("demo: pid {}", demo.pid()))?;
        let (status, rest) = demo.wait()?;
        ensure!(status.success() && rest.contains("bytes archived"), "{}", demo.failure(&status.to_string()));
        Ok(())
    })
}
