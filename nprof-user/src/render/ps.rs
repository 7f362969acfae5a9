//! The list of JVMs, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::grid::{Align, Elastic, Grid, Screen};
use super::names::{cut, printable};
use crate::model::{Jvm, JvmKind};

/// Version of the JSON document.
const SCHEMA: u32 = 1;
/// Digits of a container id in the table, as other tools print it.
const CONTAINER_DIGITS: usize = 12;
/// The most columns that a cell takes; with these a row fits into 120 columns whatever a JVM is called.
const VM_WIDTH: usize = 24;
const VERSION_WIDTH: usize = 25;
const USER_WIDTH: usize = 10;

/// One JVM and what its inventory said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The JVM.
    pub jvm: Jvm,
    /// How many native methods its loaded classes have, and how many of them are bound, or why that is not known.
    pub natives: Result<(usize, usize), Uncounted>,
}

/// Why the native methods of a JVM are not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncounted {
    /// Whether nprof can read VMs like this one, and only did not this time.
    pub supported: bool,
    /// The reason, in words.
    pub reason: String,
}

impl Entry {
    fn is_supported(&self) -> bool {
        self.jvm.kind.is_supported() && self.natives.as_ref().err().is_none_or(|uncounted| uncounted.supported)
    }
}

/// Writes the table. Nothing but the table: what could not be read is the caller's to say.
///
/// # Errors
/// If `out` cannot be written to.
pub fn table(out: &mut impl Write, entries: &[Entry], screen: Screen) -> io::Result<()> {
    let headers = vec![
        ("PID", Align::Right),
        ("MAIN", Align::Left),
        ("VM", Align::Left),
        ("VERSION", Align::Left),
        ("USER", Align::Left),
        ("CONTAINER", Align::Left),
        ("NATIVES", Align::Right),
        ("BOUND", Align::Right),
    ];
    let grid =
        Grid { headers, rows: entries.iter().map(row).collect(), elastic: vec![Elastic::names(1)], expendable: &[] };
    for line in grid.lines(screen) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn row(entry: &Entry) -> Vec<String> {
    let jvm = &entry.jvm;
    let number = |n: Option<usize>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let counts = entry.natives.as_ref().ok();
    let container = jvm.container.as_deref().unwrap_or("-");
    let user = jvm.user.clone().unwrap_or_else(|| jvm.uid.to_string());
    vec![
        jvm.pid.to_string(),
        cell(&jvm.main, usize::MAX),
        cell(&vm(entry), VM_WIDTH),
        cell(&jvm.vm_version, VERSION_WIDTH),
        cell(&user, USER_WIDTH),
        container.chars().take(CONTAINER_DIGITS).collect(),
        number(counts.map(|(natives, _)| *natives)),
        number(counts.map(|(_, bound)| *bound)),
    ]
}

/// A printable text of at most `columns`, or a dash where there is none.
fn cell(text: &str, columns: usize) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    cut(&printable(text), columns)
}

/// The VM's name without the words that all of them share; one that is not supported is marked.
fn vm(entry: &Entry) -> String {
    let jvm = &entry.jvm;
    let kind = match jvm.kind {
        JvmKind::HotSpot => {
            let name = jvm.vm_name.trim_end_matches(" Server VM");
            let name = name.trim_end_matches(" 64-Bit");
            let name = if name.is_empty() { "HotSpot" } else { name };
            if entry.is_supported() {
                return name.to_owned();
            }
            name
        }
        JvmKind::HotSpotMinimal => "minimal",
        JvmKind::OpenJ9 => "OpenJ9",
        JvmKind::NativeImage => "native",
    };
    format!("{kind} (unsupported)")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    nprof: &'static str,
    jvms: Vec<JsonEntry<'a>>,
    unreadable: usize,
}

#[derive(Serialize)]
struct JsonEntry<'a> {
    pid: u32,
    main: &'a str,
    kind: &'static str,
    vm: &'a str,
    version: &'a str,
    user: Option<&'a str>,
    uid: u32,
    container: Option<&'a str>,
    natives: Option<usize>,
    bound: Option<usize>,
    supported: bool,
    problem: Option<&'a str>,
}

/// Writes the JSON document. `unreadable` is the number of processes that could not be looked into.
///
/// # Errors
/// If `out` cannot be written to.
pub fn json(out: &mut impl Write, entries: &[Entry], unreadable: usize) -> io::Result<()> {
    let document = Document {
        schema: SCHEMA,
        nprof: env!("CARGO_PKG_VERSION"),
        jvms: entries.iter().map(json_entry).collect(),
        unreadable,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn json_entry(entry: &Entry) -> JsonEntry<'_> {
    let jvm = &entry.jvm;
    let counts = entry.natives.as_ref().ok();
    JsonEntry {
        pid: jvm.pid.0,
        main: &jvm.main,
        kind: jvm.kind.as_str(),
        vm: &jvm.vm_name,
        version: &jvm.vm_version,
        user: jvm.user.as_deref(),
        uid: jvm.uid,
        container: jvm.container.as_deref(),
        natives: counts.map(|(natives, _)| *natives),
        bound: counts.map(|(_, bound)| *bound),
        supported: entry.is_supported(),
        problem: entry.natives.as_ref().err().map(|uncounted| &*uncounted.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Pid, StartTime};

    fn jvm(pid: u32, main: &str) -> Jvm {
        Jvm {
            pid: Pid(pid),
            start_time: StartTime(1),
            main: main.to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: "OpenJDK 64-Bit Server VM".to_owned(),
            vm_version: "17.0.15+6".to_owned(),
            uid: 1000,
            user: Some("app".to_owned()),
            container: Some("8a2b7cdd9a0c3f4e5d6b7a8c9d0e1f2a".repeat(2)),
        }
    }

    fn uncounted(supported: bool, reason: &str) -> Uncounted {
        Uncounted { supported, reason: reason.to_owned() }
    }

    fn entries() -> Vec<Entry> {
        let mut other = jvm(77, "wing\u{1b}[2J.jar");
        other.kind = JvmKind::OpenJ9;
        (other.user, other.container) = (None, None);
        other.vm_version = String::new();
        vec![
            Entry { jvm: jvm(1234, "com.acme.Main"), natives: Ok((1500, 312)) },
            Entry { jvm: other, natives: Err(uncounted(false, "unsupported VM")) },
        ]
    }

    fn lines(entries: &[Entry], columns: Option<usize>) -> Vec<String> {
        let mut out = Vec::new();
        let screen = Screen { ansi: false, columns };
        table(&mut out, entries, screen).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Check the whole table: a container's id in short, a dash for what is not known, no escape sequence let
    /// through, an unsupported VM marked.
    #[test]
    fn lists_for_people() {
        assert_eq!(
            lines(&entries(), None),
            [
                " PID  MAIN               VM                    VERSION    USER  CONTAINER     NATIVES  BOUND",
                "1234  com.acme.Main      OpenJDK               17.0.15+6  app   8a2b7cdd9a0c     1500    312",
                "  77  wing\\u{1b}[2J.jar  OpenJ9 (unsupported)  -          1000  -                   -      -",
            ]
        );
    }

    /// Check that the widest JVM there can be still fits into 120 columns.
    #[test]
    fn fits_a_terminal() {
        let mut entries = entries();
        let wide = &mut entries[0].jvm;
        wide.pid = Pid(4_194_304);
        wide.main = format!("com.{}.Main", "very.long.".repeat(20));
        wide.vm_name = "A Vendor With Much To Say About Its Machine".to_owned();
        wide.vm_version = "17.0.15+6-Distribution-1deb12u1".to_owned();
        wide.user = Some("a-service-account-of-the-cluster".to_owned());
        for line in lines(&entries, Some(120)) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

    /// Check that a HotSpot VM whose version cannot be read is marked for people and programs, and that one that only
    /// did not answer is not.
    #[test]
    fn marks_versions_that_cannot_be_read() {
        let of = |uncounted| vec![Entry { jvm: jvm(8, "Old"), natives: Err(uncounted) }];
        for (supported, mark) in [(false, true), (true, false)] {
            let entries = of(uncounted(supported, "for a reason"));
            assert_eq!(lines(&entries, None)[1].contains("OpenJDK (unsupported)"), mark);
            let mut out = Vec::new();
            json(&mut out, &entries, 0).unwrap();
            let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(document["jvms"][0]["supported"], supported);
            assert_eq!(document["jvms"][0]["problem"], "for a reason");
        }
    }

    /// Check the JSON document: full container id, the raw name, null for what is not known.
    #[test]
    fn lists_for_programs() {
        let mut out = Vec::new();
        json(&mut out, &entries(), 3).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["schema"], 1);
        assert_eq!(document["unreadable"], 3);
        let expected = serde_json::json!({
            "pid": 77, "main": "wing\u{1b}[2J.jar", "kind": "openj9", "vm": "OpenJDK 64-Bit Server VM",
            "version": "", "user": null, "uid": 1000, "container": null, "natives": null, "bound": null,
            "supported": false, "problem": "unsupported VM",
        });
        assert_eq!(document["jvms"][1], expected);
        assert_eq!(document["jvms"][0]["container"].as_str().unwrap().len(), 64);
        assert_eq!(document["jvms"][0]["natives"], 1500);
    }
}
