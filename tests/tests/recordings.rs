//! Recordings are looked at without privileges, without a JVM and without the machine that they were made on.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use nprof_tests::nprof::{Outcome, run};

/// A recording of the format's first version.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nprof-user/src/recording/golden/version-1.nprof");

/// A separate directory for a test.
fn directory(test: &str) -> Result<PathBuf> {
    let directory = std::env::temp_dir().join(format!("nprof-recordings-{}-{test}", std::process::id()));
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn succeeded(args: &[&str]) -> Result<Outcome> {
    let run = run(args)?;
    ensure!(run.code == Some(0), "{args:?}: {run:?}");
    Ok(run)
}

/// Check that a report has the functions of the recording, for people and for programs.
#[test]
fn report() -> Result<()> {
    let table = succeeded(&["report", RECORDING])?;
    ensure!(table.stdout.contains("C é2::m é2") && table.stderr.is_empty(), "{table:?}");
    let document: serde_json::Value =
        serde_json::from_str(&succeeded(&["report", "--format", "json", RECORDING])?.stdout)?;
    ensure!(document["functions"].as_array().is_some_and(|functions| functions.len() == 4), "{document}");
    Ok(())
}

/// Check that a recording compared with itself shows no change, and that a picture of that can be drawn.
#[test]
fn diff() -> Result<()> {
    let table = succeeded(&["diff", RECORDING, RECORDING])?;
    ensure!(table.stdout.contains("CHANGE") && table.stdout.contains(" 0.0 %"), "{table:?}");
    let directory = directory("diff")?;
    let file = directory.join("d.svg");
    succeeded(&["diff", RECORDING, RECORDING, "-o", &file.to_string_lossy()])?;
    ensure!(fs::read_to_string(&file)?.trim_end().ends_with("</svg>"));
    Ok(fs::remove_dir_all(directory)?)
}

/// Check that a picture replaces a file as a whole, that stdout is where it goes in a pipe, and that a recording can be
/// written again as it was.
#[test]
fn flamegraph() -> Result<()> {
    let directory = directory("flamegraph")?;
    let file = directory.join("copy.nprof");
    fs::write(&file, "something older")?;
    succeeded(&["flamegraph", RECORDING, "-o", &file.to_string_lossy()])?;
    ensure!(fs::read(&file)? == fs::read(RECORDING)?);
    ensure!(fs::read_dir(&directory)?.count() == 1);
    let piped = succeeded(&["flamegraph", RECORDING, "--format", "folded"])?;
    ensure!(piped.stderr.is_empty(), "{piped:?}");
    Ok(fs::remove_dir_all(directory)?)
}

/// Check that methods are selected in a recording as they are in a JVM, by every command that reads one, and that a pattern
/// without a match ends with 1 and says what comes near.
#[test]
fn some_methods_only() -> Result<()> {
    let methods = |args: &[&str]| -> Result<Vec<String>> {
        let document: serde_json::Value =
            serde_json::from_str(&succeeded(&[&["report", "--format", "json", RECORDING], args].concat())?.stdout)?;
        let functions = document["functions"].as_array().cloned().unwrap_or_default();
        Ok(functions.iter().filter_map(|function| Some(function["method"].as_str()?.to_owned())).collect())
    };
    ensure!(methods(&["C é2::*"])? == ["m é2"] && methods(&["--library", "lib é1"])? == ["m é1"]);
    let three = methods(&["--exclude", "C é2::m é2"])?;
    ensure!(three.len() == 3 && !three.contains(&"m é2".to_owned()), "{three:?}");
    let folded =
        |args: &[&str]| Ok::<_, anyhow::Error>(succeeded(&[&["flamegraph", RECORDING], args].concat())?.stdout);
    let (all, one) = (folded(&["-f", "folded"])?, folded(&["C é2::m é2", "-f", "folded", "-w", "calls"])?);
    ensure!(all.lines().count() > one.lines().count() && !one.is_empty(), "{one}");
    let table = succeeded(&["diff", RECORDING, RECORDING, "C é2::*"])?.stdout;
    ensure!(table.contains("m é2") && !table.contains("m é1"), "{table}");
    let per = succeeded(&["diff", RECORDING, RECORDING, "--per", "C é2::*"])?.stdout;
    ensure!(per.contains("all numbers are per call of C é2::*") && per.contains("CALLS A"), "{per}");
    for args in [
        &["report", RECORDING, "C é2::x"][..],
        &["diff", RECORDING, RECORDING, "C é2::x"],
        &["diff", RECORDING, RECORDING, "--per", "C é2::x"],
    ] {
        let run = run(args)?;
        ensure!(run.code == Some(1) && run.stderr.contains("nearest: C é2::m é2"), "{args:?}: {run:?}");
    }
    Ok(())
}

/// Check that what cannot work ends with 2, says why and what to do, and says nothing of privileges.
#[test]
fn mistakes_are_explained() -> Result<()> {
    for (args, words) in [
        (["report", "/etc/passwd", "-t", "1"], "not a recording of nprof"),
        (["report", RECORDING, "--thread", "main"], "does not tell threads apart"),
        (["report", RECORDING, "--by", "thread"], "does not tell threads apart"),
        (["report", RECORDING, "--sort", "tier"], "it has no such column"),
        (["report", RECORDING, "--sort", "functions"], "for rows that are added up"),
        (["report", "/nonexistent/run.nprof", "-t", "1"], "/nonexistent/run.nprof"),
        (["flamegraph", RECORDING, "-o", "flame.png"], ".svg .folded"),
        (["flamegraph", RECORDING, "-o", "/tmp"], "name a file in it"),
        (["flamegraph", RECORDING, "-o", "/nonexistent/a.svg"], "cannot be written"),
    ] {
        let run = run(&args)?;
        ensure!(run.code == Some(2) && run.stdout.is_empty(), "{args:?}: {run:?}");
        ensure!(run.stderr.contains(words) && !run.stderr.contains("sudo"), "{args:?}: {}", run.stderr);
    }
    Ok(())
}
