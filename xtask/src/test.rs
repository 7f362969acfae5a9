//! `cargo xtask test`: every test of nprof, and the counts as the last line.
//!
//! Everything is built by the ordinary user; only the test binaries that need the kernel run as root.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bpf;
use crate::cargo::{self, Build, TestProgram};
use crate::lint;
use crate::machine::Machine;
use crate::process;
use crate::setup::{self, Purpose};
use crate::slowest::Slowest;
use crate::tally::Tally;

/// The crates whose tests need neither root nor a JVM.
const UNIT_PACKAGES: [&str; 5] = ["nprof-common", "nprof-hotspot", "nprof-shim", "nprof-user", "xtask"];
/// The package of the tests that need both, and where it is.
const REAL_PACKAGE: &str = "nprof-tests";
const REAL_DIRECTORY: &str = "tests";

/// What a first answer comes from, of the real tests: the programs in the kernel, what is found in a JVM, counts, losses.
const QUICK: &[&str] = &["kernel::", "inventory::", "inflight::", "losses::"];

/// The modules of the real tests, and the beginnings of names of single ones, that disturb nobody and that nobody disturbs: they run beside
/// each other, [`LANES`] at a time. All others run alone, so that a new module is safe without a word here. What is here may have no test that
///
/// - holds a time, a rate or a share against a bound (a deadline for what comes anyway is none);
/// - looks at what neighbours have too: all JVMs (`--all`, `serve` but of JVMs by the name of the test's own jar), all BPF objects, `/tmp`,
///   what the test process holds;
/// - does anything to a process or a file that it has not made itself.
const SIDE_BY_SIDE: &[&str] = &[
    "browser::",
    "by_thread::each_",
    "by_thread::no_",
    "by_thread::recordings_",
    "cli::",
    "collectors::by_one_",
    "collectors::bytes_",
    "collectors::everything_",
    "collectors::how_",
    "collectors::nested_",
    "containers::",
    "cycles::",
    "enhanced::",
    "errors::",
    "exact::",
    "formats::",
    "hidden::",
    "hostile::",
    "id_cache::",
    "inflight::",
    "interrupted::",
    "inventory::",
    "jni::",
    "jni_leaks::",
    "jni_libraries::",
    "jni_stubs::",
    "kernels::",
    "losses::",
    "marks::",
    "native::",
    "packaging::",
    "profiles::refusals_",
    "promql::",
    "record_cli::",
    "record_trees::",
    "recordings::",
    "rules::",
    "shim_link::ends::",
    "shim_link::orders::",
    "shim_link::told::",
    "slow::of_methods_",
    "slow::what_calls_",
    "stub_stress::",
    "stubs::",
    "targets::",
    "tiers::",
    "timeline_args::",
    "tree::",
    "tree_beside::",
    "tree_cli::",
    "tree_tasks::",
    "unwind::",
    "user_programs::",
    "versions::",
    "weights::widths_",
    "weights::without_",
];
/// They wait more than they compute: one more than the CPUs of the smallest machine.
const LANES: usize = 3;

const UNIT_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Three quarters of an hour are enough on a quiet machine. This only ends what hangs, also beside the work of others.
const REAL_LIMIT: Duration = Duration::from_secs(90 * 60);

/// Which tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selection {
    /// An answer in minutes: those that need neither root nor a JVM, and [`QUICK`], with a debug build.
    Quick,
    /// Those that need neither root nor a JVM.
    Unit,
    /// Those in the module `kernel` of the real tests: they need root, but no JVM.
    Kernel,
    /// The rest of the real tests.
    Jvm,
    /// All of them, after the lints.
    All,
}

impl Selection {
    /// Whether those that need neither root nor a JVM are among them.
    fn has_unit_tests(self) -> bool {
        matches!(self, Self::Quick | Self::Unit | Self::All)
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    selection: Selection,
    /// Arguments for the test binaries.
    extra: Vec<String>,
}

/// The command.
///
/// # Errors
/// When the arguments are wrong or what the tests need cannot be installed. A failing test is a failed check.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let request = parse(arguments)?;
    setup::ensure(Purpose::Test)?;
    let mut tally = Tally::default();
    let nprof = thread::scope(|scope| {
        // Beside the lints: neither needs what the other compiles, and each leaves CPUs idle at times.
        let release = (request.selection != Selection::Quick).then(|| scope.spawn(cargo::build_release));
        if request.selection == Selection::All {
            lint::check_all(&mut tally);
            tally.check("the BPF object is what its sources say", bpf::check);
        }
        match release {
            Some(build) => tally.check("release build", || cargo::nprof(&joined(build)?)),
            None => tally.check("debug build", || cargo::nprof(&cargo::build_debug()?)),
        }
    });
    if matches!(request.selection, Selection::Unit | Selection::All) {
        tally.check("a second build does nothing", no_op_build);
    }
    match cargo::build(&mut tests_of(request.selection, &["--no-run"])) {
        Ok(build) => run_all(&mut tally, &request, &build, nprof.as_deref()),
        Err(error) => tally.fail("build of the tests", &error),
    }
    Ok(tally.finish())
}

fn parse(arguments: &[String]) -> Result<Request> {
    let end = arguments.iter().position(|word| word == "--");
    let (own, extra) = match end {
        Some(end) => (&arguments[..end], &arguments[end + 1..]),
        None => (arguments, &[][..]),
    };
    let selection = match own {
        [] => Selection::All,
        [word] => match word.as_str() {
            "quick" => Selection::Quick,
            "unit" => Selection::Unit,
            "kernel" => Selection::Kernel,
            "jvm" => Selection::Jvm,
            "all" => Selection::All,
            _ => bail!("unknown tests `{word}`; there are quick, unit, kernel, jvm and all"),
        },
        _ => bail!("name one of quick, unit, kernel, jvm and all"),
    };
    Ok(Request { selection, extra: extra.to_vec() })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Build scripts that run again for no reason cost every developer a minute a day.
fn no_op_build() -> Result<()> {
    let build = cargo::build_release()?;
    if !build.compiled.is_empty() {
        bail!("the second build compiled {} again", build.compiled.join(", "));
    }
    Ok(())
}

/// `cargo test` of all packages whose tests are wanted. Which features dependencies have is decided for all packages together: with others
/// they, and nprof, would be compiled once more.
fn tests_of(selection: Selection, options: &[&str]) -> Command {
    let mut command = cargo::command("test");
    command.args(options);
    if selection.has_unit_tests() {
        command.args(UNIT_PACKAGES.map(|package| format!("--package={package}")));
    }
    if selection != Selection::Unit {
        command.args(["--package", REAL_PACKAGE]);
    }
    if !selection.has_unit_tests() {
        // Without the unit tests of the harness.
        command.args(["--test", "*"]);
    }
    command
}

/// Runs what was built.
fn run_all(tally: &mut Tally, request: &Request, build: &Build, nprof: Option<&Path>) {
    let (real, unit): (Vec<&TestProgram>, Vec<&TestProgram>) =
        build.tests.iter().partition(|program| program.directory == cargo::workspace().join(REAL_DIRECTORY));
    if request.selection.has_unit_tests() {
        unit_tests(tally, request, &unit);
    }
    let Some(nprof) = nprof.filter(|_| request.selection != Selection::Unit) else { return };
    // The unit tests of the harness are for who changes it.
    let wanted = real.into_iter().filter(|program| request.selection == Selection::All || program.is_integration);
    if let Err(error) = real_tests(tally, request, &wanted.collect::<Vec<_>>(), nprof) {
        tally.fail(REAL_PACKAGE, &error);
    }
}

/// Runs the programs as Cargo would, and the examples in the documentation by it.
fn unit_tests(tally: &mut Tally, request: &Request, programs: &[&TestProgram]) {
    for program in programs {
        let mut command = Command::new(&program.path);
        command.args(&request.extra).current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
        let _ = run_tests(tally, &format!("unit tests, {}", program.name), &mut command, UNIT_LIMIT);
    }
    let mut examples = tests_of(request.selection, &["--doc"]);
    let _ = run_tests(tally, "examples", examples.arg("--").args(&request.extra), UNIT_LIMIT);
}

/// Runs the binaries of the real tests, which this user has built, as root.
fn real_tests(tally: &mut Tally, request: &Request, programs: &[&TestProgram], nprof: &Path) -> Result<()> {
    let machine = Machine::this();
    authorise(&machine)?;
    let before = tally.ran();
    let passes = programs
        .iter()
        .flat_map(|program| passes(request, program.is_integration).into_iter().map(move |pass| (program, pass)));
    for (program, pass) in passes {
        let mut command = as_root(&machine);
        command
            .arg(format!("NPROF_BIN={}", nprof.display()))
            .arg(format!("NPROF_XTASK={}", std::env::current_exe()?.display()))
            .arg("NPROF_TEST_REQUIRE=kernel,guest,jvm,11,17,21,25,26,bpf,clang,musl,package,prometheus,browser")
            // What is not run is said on stderr, past the test runner.
            .args(["sh", "-c", "exec \"$0\" \"$@\" 2>&1"])
            .arg(&program.path)
            .args(&pass.arguments)
            .current_dir(&program.directory);
        let slowest = run_tests(tally, &format!("{}, {}", program.name, pass.name), &mut command, REAL_LIMIT);
        if pass.threads == 1 {
            println!("the longest of them:\n{slowest}");
        }
    }
    if tally.ran() == before {
        bail!("not one test ran");
    }
    Ok(())
}

/// Makes sure that [`as_root`] will work without asking.
fn authorise(machine: &Machine) -> Result<()> {
    if machine.is_root {
        return Ok(());
    }
    machine.program("sudo").context("these tests load BPF programs: run them as root, or install sudo")?;
    // Asks for the password here, on the terminal: the tests run in their own process group, without one.
    let mut command = Command::new("sudo");
    let status = command.arg("--validate").status()?;
    process::check(&command, status)
}

/// `env`, which sets variables and starts a program, as root.
fn as_root(machine: &Machine) -> Command {
    if machine.is_root {
        return Command::new("env");
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", "env"]);
    command
}

/// One start of a binary of the real tests.
#[derive(Debug)]
struct Pass {
    name: &'static str,
    /// How many tests run beside each other.
    threads: usize,
    arguments: Vec<String>,
}

impl Pass {
    /// Tests whose name has one of `words` in it, all if there are none, and none of `skipped`.
    fn new(name: &'static str, threads: usize, words: &[&str], skipped: &[&str]) -> Self {
        let mut arguments: Vec<String> = words.iter().copied().map(str::to_owned).collect();
        arguments.extend(skipped.iter().flat_map(|word| ["--skip".to_owned(), (*word).to_owned()]));
        arguments.push(format!("--test-threads={threads}"));
        Self { name, threads, arguments }
    }
}

/// How a binary of the real tests is started. Each test that is asked for runs in one pass.
fn passes(request: &Request, is_integration: bool) -> Vec<Pass> {
    if !is_integration && request.extra.is_empty() {
        // Those of the harness itself are of what they have made.
        return vec![Pass::new("side by side", LANES, &[], &[])];
    }
    // Those without a JVM are in the module `kernel`.
    let (wanted, skipped): (&[&str], &[&str]) = match request.selection {
        Selection::Quick => (QUICK, &[]),
        Selection::Kernel => (&["kernel::"], &[]),
        Selection::Jvm => (&[], &["kernel::"]),
        Selection::Unit | Selection::All => (&[], &[]),
    };
    if !request.extra.is_empty() {
        // They may name tests too, which the binary adds to those that are named already.
        let mut alone = Pass::new("each alone", 1, wanted, skipped);
        alone.arguments.extend_from_slice(&request.extra);
        return vec![alone];
    }
    let (beside, alone): (Vec<&str>, Vec<&str>) = wanted.iter().partition(|word| SIDE_BY_SIDE.contains(word));
    let beside = if wanted.is_empty() { SIDE_BY_SIDE.to_vec() } else { beside };
    let mut passes = Vec::new();
    // Without a word, a binary would run all its tests.
    if !beside.is_empty() {
        passes.push(Pass::new("side by side", LANES, &beside, skipped));
    }
    if wanted.is_empty() || !alone.is_empty() {
        passes.push(Pass::new("each alone", 1, &alone, &[skipped, SIDE_BY_SIDE].concat()));
    }
    passes
}

/// Runs test binaries, shows and counts their tests. A run that fails without a failed test (it did not compile,
/// crashed, took too long) is a separate failure. Returns what took longest, as far as tests ran one after the other.
fn run_tests(tally: &mut Tally, name: &str, command: &mut Command, limit: Duration) -> Slowest {
    println!("\n== {name}");
    let before = tally.failed();
    let mut slowest = Slowest::new(Instant::now());
    let result = process::run_lines(command, limit, |line| {
        println!("{line}");
        tally.read(line);
        slowest.read(line, Instant::now());
    })
    .and_then(|status| process::check(command, status));
    if let Err(error) = result
        && tally.failed() == before
    {
        tally.fail(name, &error);
    }
    slowest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Check that the selection is read and that what follows `--` is kept for the test binaries.
    #[test]
    fn arguments_are_read() {
        let all = parse(&[]).unwrap();
        assert_eq!((all.selection, all.extra.len()), (Selection::All, 0));
        let jvm = parse(&words("jvm -- exact --nocapture")).unwrap();
        assert_eq!(jvm.selection, Selection::Jvm);
        assert_eq!(jvm.extra, ["exact", "--nocapture"]);
        assert_eq!(parse(&words("-- x")).unwrap().selection, Selection::All);
        assert!(parse(&words("jvms")).is_err());
        assert!(parse(&words("jvm kernel")).is_err());
    }

    /// Whether the binary of tests runs this one when it is told so.
    fn runs(pass: &Pass, test: &str) -> bool {
        let mut words = pass.arguments.iter().filter(|word| !word.starts_with("--test-threads"));
        let (mut wanted, mut is_among) = (0, false);
        while let Some(word) = words.next() {
            if word == "--skip" {
                if words.next().is_some_and(|word| test.contains(word)) {
                    return false;
                }
            } else {
                wanted += 1;
                is_among |= test.contains(word);
            }
        }
        wanted == 0 || is_among
    }

    /// Check that each module's tests run once if they are wanted, and in no company that they are not declared to bear.
    #[test]
    fn each_test_runs_in_one_pass() {
        let modules = include_str!("../../tests/tests/main.rs").lines();
        let modules = modules.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect::<Vec<_>>();
        assert!(modules.len() > 40 && modules.contains(&"kernel"), "{modules:?}");
        for (selection, wanted) in [
            (Selection::All, modules.clone()),
            (Selection::Jvm, modules.iter().copied().filter(|module| *module != "kernel").collect()),
            (Selection::Kernel, vec!["kernel"]),
            (Selection::Quick, QUICK.iter().map(|word| word.trim_end_matches("::")).collect()),
        ] {
            let passes = passes(&Request { selection, extra: Vec::new() }, true);
            for module in &modules {
                let test = format!("{module}::of_no_other_name");
                let of: Vec<_> = passes.iter().filter(|pass| runs(pass, &test)).collect();
                assert_eq!(of.len(), usize::from(wanted.contains(module)), "{module}: {of:?}");
                let is_beside = SIDE_BY_SIDE.contains(&format!("{module}::").as_str());
                assert!(of.iter().all(|pass| (pass.name == "side by side") == is_beside), "{module}: {of:?}");
            }
        }
        for word in SIDE_BY_SIDE {
            assert!(modules.iter().any(|module| word.starts_with(&format!("{module}::"))), "{word} is in no module");
        }
        let of_harness = passes(&Request { selection: Selection::All, extra: Vec::new() }, false);
        assert!(of_harness.len() == 1 && runs(&of_harness[0], "kernel::tests::of_no_other_name"), "{of_harness:?}");
        let named = passes(&Request { selection: Selection::Jvm, extra: words("exact:: --nocapture") }, true);
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(named[0].arguments.contains(&"--test-threads=1".to_owned()), "{named:?}");
    }

    /// Check that a test run that fails as a whole is counted even if no test did, and only once if one did.
    #[test]
    fn failing_run_is_counted_once() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let limit = Duration::from_secs(20);
        let mut tally = Tally::default();
        run_tests(&mut tally, "crash", &mut shell("exit 101"), limit);
        assert_eq!(tally.to_string(), "0 passed, 1 failed, 0 skipped");
        let script = "echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; exit 101";
        run_tests(&mut tally, "failure", &mut shell(script), limit);
        assert_eq!(tally.to_string(), "3 passed, 2 failed, 0 skipped");
    }
}
