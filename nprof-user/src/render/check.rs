//! What `nprof check` found, for people and for programs.

use std::io::{self, Write};

use crossterm::style::Stylize as _;
use serde::Serialize;

use super::grid::{Screen, bold};
use super::names::{cut, printable, width};
use crate::model::{Finding, Jvm, Verdict};

/// Version of the JSON document.
const SCHEMA: u32 = 1;
/// Columns of the longest verdict and of the longest name of a check.
const VERDICT_WIDTH: usize = 4;
const CHECK_WIDTH: usize = 14;
/// Where the text of a finding begins.
const TEXT_COLUMN: usize = VERDICT_WIDTH + 2 + CHECK_WIDTH + 2;
/// The least width that text is broken to.
const LEAST_WIDTH: usize = 40;

/// All findings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Those about the kernel and nprof's permissions.
    pub host: Vec<Finding>,
    /// Those about each JVM.
    pub jvms: Vec<(Jvm, Vec<Finding>)>,
}

impl Report {
    /// Whether anything was found that prevents tracing.
    #[must_use]
    pub fn fails(&self) -> bool {
        let of_jvms = self.jvms.iter().flat_map(|(_, findings)| findings);
        self.host.iter().chain(of_jvms).any(|finding| finding.verdict == Verdict::Fail)
    }
}

/// Writes one line for each finding, and the fix below it where there is one.
///
/// # Errors
/// If `out` cannot be written to.
pub fn table(out: &mut impl Write, report: &Report, screen: Screen) -> io::Result<()> {
    findings(out, &report.host, screen)?;
    for (jvm, found) in &report.jvms {
        let columns = screen.columns.unwrap_or(usize::MAX);
        let title = format!("JVM {} ({})", jvm.pid, printable(&jvm.main));
        writeln!(out, "\n{}", bold(&cut(&title, columns), screen.ansi))?;
        findings(out, found, screen)?;
    }
    Ok(())
}

fn findings(out: &mut impl Write, findings: &[Finding], screen: Screen) -> io::Result<()> {
    let columns = screen.columns.map_or(usize::MAX, |c| c.saturating_sub(TEXT_COLUMN).max(LEAST_WIDTH));
    for finding in findings {
        let verdict = coloured(finding.verdict, screen.ansi);
        write!(out, "{verdict}  {:CHECK_WIDTH$}  ", finding.check)?;
        for (i, line) in broken(&printable(&finding.says), columns).iter().enumerate() {
            let indent = if i == 0 { 0 } else { TEXT_COLUMN };
            writeln!(out, "{:indent$}{line}", "")?;
        }
        if let Some(fix) = &finding.fix {
            for line in broken(&format!("fix: {}", printable(fix)), columns) {
                writeln!(out, "{:TEXT_COLUMN$}{line}", "")?;
            }
        }
    }
    Ok(())
}

/// The verdict in its full width, in green, yellow or red where `ansi` says so.
fn coloured(verdict: Verdict, ansi: bool) -> String {
    let text = format!("{verdict:VERDICT_WIDTH$}");
    if !ansi {
        return text;
    }
    match verdict {
        Verdict::Ok => text.green(),
        Verdict::Warn => text.yellow(),
        Verdict::Fail => text.red(),
    }
    .to_string()
}

/// The text in lines of at most `columns`, broken between words; a longer word has its own line.
fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        if used > 0 && used + 1 + width(word) > columns {
            lines.push(String::new());
            used = 0;
        }
        // There is always a line: one is pushed before the loop.
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += width(word);
        }
    }
    lines
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    nprof: &'static str,
    ok: bool,
    host: Vec<JsonFinding<'a>>,
    jvms: Vec<JsonJvm<'a>>,
}

#[derive(Serialize)]
struct JsonJvm<'a> {
    pid: u32,
    main: &'a str,
    kind: &'static str,
    findings: Vec<JsonFinding<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    check: &'a str,
    verdict: String,
    message: &'a str,
    fix: Option<&'a str>,
}

/// Writes the JSON document.
///
/// # Errors
/// If `out` cannot be written to.
pub fn json(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let jvms = report.jvms.iter().map(|(jvm, findings)| JsonJvm {
        pid: jvm.pid.0,
        main: &jvm.main,
        kind: jvm.kind.as_str(),
        findings: json_findings(findings),
    });
    let document = Document {
        schema: SCHEMA,
        nprof: env!("CARGO_PKG_VERSION"),
        ok: !report.fails(),
        host: json_findings(&report.host),
        jvms: jvms.collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn json_findings(findings: &[Finding]) -> Vec<JsonFinding<'_>> {
    findings
        .iter()
        .map(|finding| JsonFinding {
            check: finding.check,
            verdict: finding.verdict.to_string().to_lowercase(),
            message: &finding.says,
            fix: finding.fix.as_deref(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JvmKind, Pid, StartTime};

    fn report() -> Report {
        let jvm = Jvm {
            pid: Pid(42),
            start_time: StartTime(1),
            main: "com.acme.\u{1b}Main".to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: String::new(),
            vm_version: String::new(),
            uid: 0,
            user: None,
            container: None,
        };
        Report {
            host: vec![
                Finding::ok("kernel", "6.18 has uprobe_multi links"),
                Finding::fail("capabilities", "missing: CAP_BPF", "run nprof as root (sudo)"),
            ],
            jvms: vec![(jvm, vec![Finding::warn("seccomp", "a filter", "use --count-only")])],
        }
    }

    fn text(screen: Screen) -> String {
        let mut out = Vec::new();
        table(&mut out, &report(), screen).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check the whole page: aligned, each fix below its finding, nothing of the target's that moves the cursor.
    #[test]
    fn reports_to_people() {
        assert_eq!(
            text(Screen::default()),
            "OK    kernel          6.18 has uprobe_multi links\n\
             FAIL  capabilities    missing: CAP_BPF\n                      fix: run nprof as root (sudo)\n\
             \n\
             JVM 42 (com.acme.\\u{1b}Main)\n\
             WARN  seccomp         a filter\n                      fix: use --count-only\n"
        );
    }

    /// Check that colours come only where they are allowed.
    #[test]
    fn colours_on_request() {
        assert!(!text(Screen::default()).contains('\u{1b}'));
        let screen = Screen { ansi: true, columns: None };
        assert!(text(screen).contains('\u{1b}'));
    }

    /// Check that text is broken between words and no word is lost.
    #[test]
    fn breaks_long_text() {
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
        assert_eq!(broken("extraordinary x", 5), ["extraordinary", "x"]);
        assert_eq!(broken("", 5), [""]);
    }

    /// Check the JSON document, and that one failure makes it not ok.
    #[test]
    fn reports_to_programs() {
        let mut out = Vec::new();
        json(&mut out, &report()).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["ok"], false);
        let expected = serde_json::json!({
            "check": "seccomp", "verdict": "warn", "message": "a filter", "fix": "use --count-only",
        });
        assert_eq!(document["jvms"][0]["findings"][0], expected);
        assert_eq!(document["host"][0]["fix"], serde_json::Value::Null);
    }
}
