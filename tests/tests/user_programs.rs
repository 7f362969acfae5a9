//! Programs of the user's own at calls: they count what they are to count, and go with nprof. The programs are those of the
//! documentation, compiled here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nprof_tests::kernel::BpfObjects;
use nprof_tests::nprof::{self, Trace, UNGOVERNED};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::require::{traced_on_every_jdk, with_tools};
use nprof_tests::target::cargo_target_dir;
use tempfile::TempDir;

const THREADS: u64 = 4;
const ROUNDS: u64 = 50;
const CALLS: u64 = THREADS * ROUNDS;
const AMOUNT: u64 = 5_000;
const MEGABYTE: u64 = CALLS * AMOUNT;
/// Calls of a native that makes one system call: too many for the budget.
const HOT: u64 = 1_000_000;
/// How many of them the probe may see while the program's link is made or closed.
const ON_THEIR_WAY: u64 = HOT / 5;
/// Calls of another native, too few for any budget, however little the JVM does besides.
const FEW: u64 = 20;

/// Runs `test` with an object of the example, in a directory of its own.
fn with_example(test: impl Fn(&Path) -> Result<()>) -> Result<()> {
    with_tools("bpf", &["bpf-linker"], || {
        let directory = tempfile::tempdir()?;
        let object = directory.path().join("bytes.bpf.o");
        let xtask =
            std::env::var_os("NPROF_XTASK").map_or_else(|| cargo_target_dir().join("debug/xtask"), PathBuf::from);
        must_run(Command::new(xtask).args(["bpf", "--example"]).arg(&object))?;
        test(&object)
    })
}

fn must_run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The example in C, compiled as its documentation says.
fn example_in_c(directory: &TempDir) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nprof-ebpf/examples/bytes.bpf.c");
    let object = directory.path().join("bytes.bpf.o");
    let mut command = Command::new("clang");
    command.args(["-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu", "-c"]);
    must_run(command.arg(source).arg("-o").arg(&object))?;
    Ok(object)
}

/// What the programs of an object have counted of a method, which was called so often.
fn value(report: &Report, method: &str, calls: u64) -> Result<Option<u64>> {
    let row = report.methods.iter().find(|row| row.method == method).with_context(|| format!("no row of {method}"))?;
    ensure!(row.calls == calls, "{row:?}");
    row.programs.as_ref().and_then(|programs| programs.get("bytes")).copied().context("no value")
}

/// Has natives called at which the programs of an object run, each at the end and the methods that its rule says.
fn must_count_bytes(target: &mut RemoteProcess, object: &Path, options: &[&str]) -> Result<()> {
    let object = object.display();
    let rules = [
        format!("--on-return=*::take={object}"),
        format!("--on-entry=**={object}"),
        format!("--on-entry=*::c*={object}:given"),
    ];
    let rules = rules.each_ref().map(String::as_str);
    let trace = Trace::start(target.pid(), &[&rules[..], options, &["targets.Consuming"]].concat())?;
    for what in ["take", "copy", "call"] {
        let amount = if what == "call" { 7 } else { AMOUNT };
        target.run(&format!("consume {what} {THREADS} {ROUNDS} {amount}"))?;
    }
    let report = trace.finish()?;
    ensure!(report.losses.values().all(|count| *count == 0), "{:?}", report.losses);
    let found = ["take", "copy", "call"].map(|method| value(&report, method, CALLS));
    let [take, copy, call] = found;
    // By both ends of its calls: it is told as much as it returns.
    ensure!((take?, copy?, call?) == (Some(2 * MEGABYTE), Some(MEGABYTE), Some(7 * CALLS)), "{:?}", report.methods);
    Ok(())
}

/// Check that the example in Rust counts every byte, at both ends of calls of which nprof times each, and of which it only counts
/// each and has no probe on the return itself.
#[test]
fn the_example_counts_bytes() -> Result<()> {
    with_example(|object| {
        traced_on_every_jdk(|jdk| {
            let mut target = RemoteProcess::consuming(jdk)?;
            must_count_bytes(&mut target, object, &UNGOVERNED)?;
            must_count_bytes(&mut target, object, &["--count-only", UNGOVERNED[0], UNGOVERNED[1]])?;
            target.exit()
        })
    })
}

/// Check that the example in C does the same.
#[test]
fn the_example_in_c_counts_bytes() -> Result<()> {
    with_tools("clang", &["clang"], || {
        let directory = tempfile::tempdir()?;
        let object = example_in_c(&directory)?;
        traced_on_every_jdk(|jdk| {
            let mut target = RemoteProcess::consuming(jdk)?;
            must_count_bytes(&mut target, &object, &UNGOVERNED)?;
            target.exit()
        })
    })
}

/// Check that a method that becomes too expensive loses its programs with its probes, and that those of the methods which shared its
/// links go on counting every byte.
#[test]
fn the_budget_takes_programs_away() -> Result<()> {
    with_example(|object| {
        traced_on_every_jdk(|jdk| {
            let mut target = RemoteProcess::consuming(jdk)?;
            let rule = format!("--on-entry={}", object.display());
            let trace = Trace::start_as_users_do(target.pid(), &["--max-overhead=1%", &rule, "targets.Consuming"])?;
            target.run(&format!("consume call 1 {HOT} 1"))?;
            target.run(&format!("consume take 1 {FEW} {AMOUNT}"))?;
            let report = trace.finish()?;
            ensure!(value(&report, "take", FEW)? == Some(FEW * AMOUNT), "{:?}", report.methods);
            let hot = report.methods.iter().find(|row| row.method == "call").context("no row of call")?;
            let seen = hot.programs.as_ref().and_then(|programs| programs["bytes"]).context("no value")?;
            ensure!(hot.unwatched_ns > 0 && 0 < seen && seen < HOT, "{hot:?}");
            // Each hit of the probe is one of the program, but those that were on their way while links were made and closed.
            let on_their_way = seen.abs_diff(hot.calls);
            ensure!(on_their_way < ON_THEIR_WAY, "{on_their_way}: {hot:?}");
            target.exit()
        })
    })
}

/// Check that nothing of programs is left in the kernel of an nprof that is killed.
#[test]
fn programs_go_with_nprof() -> Result<()> {
    with_example(|object| {
        traced_on_every_jdk(|jdk| {
            let target = RemoteProcess::consuming(jdk)?;
            let rule = format!("--on-return={}", object.display());
            let trace = Trace::start(target.pid(), &[&rule, "targets.Consuming"])?;
            let held = BpfObjects::held_by(trace.pid())?;
            ensure!(!held.links.is_empty(), "{held:?}");
            trace.kill()?;
            ensure!(held.left_over()? == BpfObjects::default(), "{:?}", held.left_over()?);
            target.exit()
        })
    })
}

/// Check that each mistake is an error in one line that says what is wrong with which file, the verifier's reason included.
#[test]
fn mistakes_are_told() -> Result<()> {
    with_example(|object| {
        traced_on_every_jdk(|jdk| {
            let target = RemoteProcess::consuming(jdk)?;
            let pid = target.pid().to_string();
            let must_say = |args: &[&str], says: &str| -> Result<()> {
                let run = nprof::run(&[&["trace", "--pid", &pid, "-d", "100ms", "targets.Consuming"], args].concat())?;
                ensure!(run.code == Some(2) && run.stderr.contains(says) && run.stderr.lines().count() == 1, "{run:?}");
                Ok(())
            };
            let good = format!("--on-entry={}", object.display());
            must_say(&["--on-entry=/no/such.bpf.o"], "cannot read /no/such.bpf.o: No such file")?;
            must_say(
                &["--on-entry=/bin/true"],
                "/bin/true is no object of BPF programs: it is compiled for another machine",
            )?;
            must_say(
                &[&format!("{good}:take")],
                "has no program `take`; it has `given` (uprobe), `returned` (uretprobe)",
            )?;
            must_say(&[&good, "--tier=stub"], "omit `--tier stub`")?;
            let refused = object.with_file_name("refused.bpf.o");
            fs::write(&refused, with_unknown_call(&fs::read(object)?))?;
            let says =
                format!("this kernel's verifier refuses `given` of {}: invalid func unknown#9999", refused.display());
            must_say(&[&format!("--on-entry={}", refused.display())], &says)?;
            target.exit()
        })
    })
}

/// The object with calls of a function that no kernel has in place of those of `bpf_get_attach_cookie`.
fn with_unknown_call(object: &[u8]) -> Vec<u8> {
    const CALL: u8 = 0x85;
    let call = |function: i32| [&[CALL, 0, 0, 0], &function.to_le_bytes()[..]].concat();
    let (known, unknown) = (call(174), call(9_999));
    object.chunks(8).flat_map(|chunk| if chunk == known { unknown.clone() } else { chunk.to_vec() }).collect()
}
