//! `nprof check`: what this kernel, these permissions and these JVMs allow.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::ps::{ListFormat, say_unreadable};
use super::terminal::stdout_screen;
use crate::attach::in_full;
use crate::config::{Config, ConfigFile, DEFAULT_FILE};
use crate::discover::Proc;
use crate::model::{Finding, Jvm, Pid, Reach};
use crate::render::check::{self, Report};
use crate::sys::hardware_counters::HardwareCounters;
use crate::{shim, trace};

/// Check what this kernel, these permissions and these JVMs allow
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Check this JVM instead of all; may be given several times
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// How to print the findings
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

/// What a JVM's inventory and plan say about tracing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TracingFacts {
    /// Native methods of loaded classes.
    pub(super) natives: usize,
    /// Of these, the bound ones.
    pub(super) bound: usize,
    /// Functions where the kernel single-steps the instruction under the probe; `None` if nobody looked.
    pub(super) single_stepped: Option<usize>,
    /// Methods that are not traced because a probe would reach other processes.
    pub(super) kept_from_others: usize,
}

/// Prints the findings. `uprobe_multi` tries whether the kernel takes an uprobe_multi link and whom its probes reach;
/// `inspect` reads a JVM's inventory.
///
/// Ends with 0 if all that tracing needs is there, with 2 if something is missing, be it only for stacks or stubs.
pub(super) fn run(
    args: &CheckArgs,
    uprobe_multi: impl Fn() -> Result<Reach, String>,
    inspect: impl Fn(&Jvm) -> Result<TracingFacts, String>,
) -> anyhow::Result<ExitCode> {
    let proc = Proc::host();
    let mut host = proc.host_findings();
    host.push(uprobe_multi_finding(uprobe_multi()));
    host.push(hardware_finding(HardwareCounters::of_this_machine()));
    host.extend(config_finding(Path::new(DEFAULT_FILE)));
    let jvms = chosen(&proc, &args.pid)?.into_iter().map(|jvm| {
        let findings = jvm_findings(&proc, &jvm, !args.pid.is_empty(), &inspect);
        (jvm, findings)
    });
    let report = Report { host, jvms: jvms.collect() };

    let mut out = io::stdout().lock();
    match args.format {
        ListFormat::Table => check::table(&mut out, &report, stdout_screen())?,
        ListFormat::Json => check::json(&mut out, &report)?,
    }
    Ok(ExitCode::from(if report.fails() { 2 } else { 0 }))
}

/// The JVMs that were asked for, or all.
fn chosen(proc: &Proc, pids: &[u32]) -> anyhow::Result<Vec<Jvm>> {
    if !pids.is_empty() {
        let jvms: Result<_, _> = pids.iter().map(|pid| proc.jvm(Pid(*pid))).collect();
        return Ok(jvms?);
    }
    let scan = proc.jvms()?;
    say_unreadable(&scan.unreadable);
    Ok(scan.jvms)
}

/// What was found about one JVM. One that was not asked for by its pid fails nothing by being unsupported.
fn jvm_findings(
    proc: &Proc,
    jvm: &Jvm,
    asked_for: bool,
    inspect: impl Fn(&Jvm) -> Result<TracingFacts, String>,
) -> Vec<Finding> {
    if !jvm.kind.is_supported() {
        return vec![unsupported_finding(jvm, asked_for)];
    }
    let mut findings = proc
        .jvm_findings(jvm)
        .unwrap_or_else(|error| vec![Finding::fail("process", error.to_string(), "run nprof check again")]);
    let facts = inspect(jvm);
    findings.push(natives_finding(&facts));
    if facts.is_ok() {
        let mut jvm = jvm.clone();
        // The version that the VM tells decides, where it tells one.
        drop(trace::wait_until_ready(proc, &mut jvm));
        findings.push(stacks_finding(trace::check_stacks(proc, &jvm)));
        findings.push(stubs_finding(trace::check_stubs(proc, &jvm)));
    }
    findings
}

fn stacks_finding(checked: Result<(), trace::Error>) -> Finding {
    const CHECK: &str = "stacks";
    match checked {
        Ok(()) => Finding::ok(CHECK, "can be read: record, flamegraph, --slow"),
        Err(error) => Finding::fail(
            CHECK,
            format!("record, flamegraph and --slow are refused: {}", in_full(&error)),
            error.advice().unwrap_or_else(|| "counts and times work: `nprof trace`".to_owned()),
        ),
    }
}

fn stubs_finding(checked: Result<(), shim::Refusal>) -> Finding {
    const CHECK: &str = "stubs";
    match checked {
        Ok(()) => Finding::ok(CHECK, "can be used: --tier stub"),
        Err(refusal) => {
            let fix = refusal.advice().unwrap_or_else(|| "use --tier kernel".to_owned());
            Finding::fail(CHECK, format!("--tier stub is refused: {}", in_full(&refusal)), fix)
        }
    }
}

fn uprobe_multi_finding(tried: Result<Reach, String>) -> Finding {
    const CHECK: &str = "uprobe_multi";
    match tried {
        Ok(Reach::Target) => Finding::ok(CHECK, "the kernel takes such links, and keeps each to one process"),
        Ok(Reach::Everyone) => Finding::warn(
            CHECK,
            "the kernel takes such links, but not for one process with threads: counts are exact, but every process that \
             has a probed file mapped gets the probes and pays for them, so only proven functions are traced, and only in \
             files that nobody but root can write",
            "boot Linux 6.10 or later, or an older one with its correction of uprobe_multi's filter",
        ),
        Err(error) => Finding::fail(
            CHECK,
            format!("the kernel does not take such a link: {error}"),
            "mend what fails above; if nothing does, this kernel lacks CONFIG_UPROBE_EVENTS or CONFIG_BPF_EVENTS",
        ),
    }
}

/// Whether CPUs count. Nothing of nprof's needs it: this says what a `perf stat` beside it could add.
fn hardware_finding(counters: HardwareCounters) -> Finding {
    const CHECK: &str = "hw counters";
    Finding::ok(
        CHECK,
        match counters {
            HardwareCounters::There => {
                "the CPUs count cycles: `perf stat --tid TID` has those of a thread; nprof collects none by call \
                 (--collect hw says why)"
                    .to_owned()
            }
            HardwareCounters::Missing => {
                "the CPUs count no cycles here, as in most virtual machines: `perf stat` has none, and nprof, which collects \
                 none by call (--collect hw says why), does not miss them"
                    .to_owned()
            }
            HardwareCounters::Refused(error) => format!(
                "whether the CPUs count cycles is not known ({}); nprof, which collects none by call (--collect hw says why), \
                 does not miss them",
                io::Error::from_raw_os_error(error)
            ),
        },
    )
}

/// What `nprof serve` would say to its configuration file; nothing if there is none.
fn config_finding(path: &Path) -> Option<Finding> {
    const CHECK: &str = "configuration";
    if !path.exists() {
        return None;
    }
    let problem = match ConfigFile::read(path) {
        Ok(file) => {
            let more = Config::try_from(file.settings).err().unwrap_or_default();
            file.problems.into_iter().chain(more).next().map(|problem| problem.to_string())
        }
        Err(error) => Some(error.to_string()),
    };
    Some(match problem {
        None => Finding::ok(CHECK, format!("`nprof serve` can use {}", path.display())),
        // What traces without the file goes on.
        Some(says) => Finding::warn(CHECK, says, "mend it; `nprof serve --check-config` shows every mistake"),
    })
}

fn unsupported_finding(jvm: &Jvm, asked_for: bool) -> Finding {
    const CHECK: &str = "vm";
    let says = format!("{} is not supported", jvm.kind.as_str());
    let fix = "nprof reads the server and client VMs of HotSpot";
    if asked_for { Finding::fail(CHECK, says, fix) } else { Finding::warn(CHECK, says, fix) }
}

fn natives_finding(facts: &Result<TracingFacts, String>) -> Finding {
    const CHECK: &str = "natives";
    match facts {
        Err(problem) => Finding::fail(
            CHECK,
            format!("the native methods cannot be read: {problem}"),
            "mend what fails above; if nothing does, this is a VM that nprof does not know yet",
        ),
        Ok(facts) => {
            let says = format!("{} native methods, {} bound", facts.natives, facts.bound);
            if facts.kept_from_others > 0 {
                return Finding::warn(
                    CHECK,
                    format!(
                        "{says}; {} are not traced: this kernel would put their probes into other processes too",
                        facts.kept_from_others
                    ),
                    "`nprof methods` names them and the reason; trace them on Linux 6.10 or later, or by --tier stub",
                );
            }
            match facts.single_stepped {
                Some(n) if n > 0 => Finding::warn(
                    CHECK,
                    format!("{says}; at {n} functions a hit is single-stepped, at about ten times the cost"),
                    "leave those out that are called often (--exclude; `nprof methods` shows the cost)",
                ),
                _ => Finding::ok(CHECK, says),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verdict;

    /// Check that a configuration is judged where there is one, and that the first mistake is told.
    #[test]
    fn judges_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nprof.toml");
        assert_eq!(config_finding(&path), None);
        std::fs::write(&path, "max-series = 10\n").unwrap();
        assert_eq!(config_finding(&path).unwrap().verdict, Verdict::Ok);
        for (wrong, says) in [("max-series = 0\n", "max-series: 0"), ("max-serie = 10\n", "nearest: max-series")] {
            std::fs::write(&path, wrong).unwrap();
            let finding = config_finding(&path).unwrap();
            assert_eq!(finding.verdict, Verdict::Warn);
            assert!(finding.says.contains(says), "{}", finding.says);
        }
    }

    /// Check that only functions that are single-stepped make a warning, and an unreadable inventory a failure.
    #[test]
    fn judges_the_natives() {
        let verdict = |facts| natives_finding(&facts).verdict;
        let facts = |single_stepped| TracingFacts { natives: 300, bound: 200, single_stepped, kept_from_others: 0 };
        let kept = natives_finding(&Ok(TracingFacts { kept_from_others: 7, ..facts(Some(3)) }));
        assert_eq!((kept.verdict, kept.says.contains("7 are not traced")), (Verdict::Warn, true), "{}", kept.says);
        assert_eq!(verdict(Ok(facts(None))), Verdict::Ok);
        assert_eq!(verdict(Ok(facts(Some(0)))), Verdict::Ok);
        assert_eq!(verdict(Ok(facts(Some(3)))), Verdict::Warn);
        assert_eq!(verdict(Err("no tables".to_owned())), Verdict::Fail);
    }

    /// Check that stacks and stubs that will be refused fail the check, which says why and what works instead.
    #[test]
    fn judges_stacks_and_stubs() {
        assert_eq!(stacks_finding(Ok(())).verdict, Verdict::Ok);
        assert_eq!(stubs_finding(Ok(())).verdict, Verdict::Ok);
        let stacks = stacks_finding(Err(crate::hotspot::Error::NoTables.into()));
        assert!(stacks.says.contains("no tables"), "{}", stacks.says);
        assert!(stacks.fix.as_ref().unwrap().contains("nprof trace"));
        let refusal = shim::Refusal::AttachDisabled { pid: Pid(7) };
        let advice = refusal.advice();
        let stubs = stubs_finding(Err(refusal));
        assert!(stubs.says.contains("DisableAttachMechanism"), "{}", stubs.says);
        assert_eq!(stubs.fix, advice);
        for finding in [stacks, stubs] {
            assert!(Report { host: vec![finding], jvms: Vec::new() }.fails());
        }
    }

    /// Check that each answer about hardware counters is told in words of its own, and that nobody's check fails for want of them.
    #[test]
    fn tells_of_hardware_counters() {
        let refused = HardwareCounters::Refused(libc::EACCES);
        for (counters, says) in [
            (HardwareCounters::There, "the CPUs count cycles: `perf stat"),
            (HardwareCounters::Missing, "count no cycles here"),
            (refused, "Permission denied"),
        ] {
            let finding = hardware_finding(counters);
            assert_eq!((finding.verdict, finding.fix), (Verdict::Ok, None));
            assert!(finding.says.contains(says) && finding.says.contains("--collect hw"), "{}", finding.says);
        }
    }

    /// Check that a kernel that refuses the trial fails the check, with its reason, and one that lets probes out is told
    /// from one that does not.
    #[test]
    fn judges_the_trial() {
        assert_eq!(uprobe_multi_finding(Ok(Reach::Target)).verdict, Verdict::Ok);
        assert_eq!(uprobe_multi_finding(Ok(Reach::Everyone)).verdict, Verdict::Warn);
        let finding = uprobe_multi_finding(Err("EINVAL".to_owned()));
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.says.contains("EINVAL"));
    }
}
