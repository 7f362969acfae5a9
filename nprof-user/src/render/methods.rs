//! The list of `methods`: every native method, where it is bound, and whether it can be traced.

use std::io::{self, Write};

use serde::Serialize;

use super::grid::{Align, Elastic, Grid, Screen};
use super::json::{self, SCHEMA, Target};
use super::{names, units, words};
use crate::model::descriptor;
use crate::model::{Jvm, Library, PlannedMethod, Site, SkipReason};

/// One method, with its site if it has one and the reason if it cannot be traced.
#[derive(Debug, Clone, Copy)]
pub struct MethodRow<'a> {
    /// The method.
    pub method: &'a PlannedMethod,
    /// The library that holds its code and the place that would be probed.
    pub site: Option<(&'a Library, Site)>,
    /// Why it cannot be traced; `None` where it can.
    pub reason: Option<SkipReason>,
}

impl MethodRow<'_> {
    /// Whether a probe can be set on the method now.
    fn is_traceable(&self) -> bool {
        self.reason.is_none() && self.site.is_some()
    }
}

/// Writes the methods as a table, in the order given, and a line with how many there are and can be traced.
///
/// # Errors
/// What writing to `w` gives.
pub fn table(rows: &[MethodRow<'_>], screen: Screen, w: &mut impl Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(w, "no native methods");
    }
    let grid = Grid {
        headers: vec![
            ("CLASS", Align::Left),
            ("METHOD", Align::Left),
            ("SIGNATURE", Align::Left),
            ("LIBRARY", Align::Left),
            ("OFFSET", Align::Right),
            ("BOUND", Align::Left),
            ("COST", Align::Left),
            ("TRACEABLE", Align::Left),
        ],
        rows: rows.iter().map(cells).collect(),
        elastic: vec![Elastic::names(0)],
        expendable: &[],
    };
    for line in grid.lines(screen) {
        writeln!(w, "{line}")?;
    }
    let traceable = rows.iter().filter(|row| row.is_traceable()).count();
    writeln!(w)?;
    writeln!(w, "{} of {} methods can be traced", units::count(traceable as u64), units::count(rows.len() as u64))
}

fn cells(row: &MethodRow<'_>) -> Vec<String> {
    let method = &row.method.method;
    let site = |text: &dyn Fn(&Library, Site) -> String| row.site.map_or_else(String::new, |(l, s)| text(l, s));
    let signature = descriptor::short(&method.signature).unwrap_or_else(|| method.signature.to_string());
    let traceable = match row.reason {
        Some(reason) => format!("no: {}", words::skip(reason)),
        None if row.site.is_none() => "no".to_owned(),
        None => "yes".to_owned(),
    };
    vec![
        names::printable(&method.class).into_owned(),
        names::printable(&method.name).into_owned(),
        names::printable(&signature).into_owned(),
        names::printable(&site(&|library, _| library.name())).into_owned(),
        site(&|_, site| site.offset.to_string()),
        row.method.bound.to_string(),
        site(&|_, site| site.cost.to_string()),
        traceable,
    ]
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    target: Target<'a>,
    methods: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    library: Option<String>,
    offset: Option<u64>,
    entry: Option<u64>,
    bound: String,
    traceable: bool,
    reason: Option<&'static str>,
    cost: Option<String>,
}

/// Writes the methods as one JSON document on one line. Offsets are numbers; what a method does not have is `null`.
///
/// # Errors
/// What writing to `w` gives.
pub fn json(jvm: &Jvm, rows: &[MethodRow<'_>], w: &mut impl Write) -> io::Result<()> {
    let methods = rows.iter().map(entry).collect();
    json::line(&Document { schema: SCHEMA, target: Target::of(jvm), methods }, w)
}

fn entry<'a>(row: &MethodRow<'a>) -> Entry<'a> {
    let method = &row.method.method;
    Entry {
        class: &method.class,
        method: &method.name,
        signature: &method.signature,
        library: row.site.map(|(library, _)| library.name()),
        offset: row.site.map(|(_, site)| site.offset.0),
        entry: row.site.map(|(_, site)| site.entry.0),
        bound: row.method.bound.to_string(),
        traceable: row.is_traceable(),
        reason: row.reason.map(SkipReason::as_str),
        cost: row.site.map(|(_, site)| site.cost.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{MethodRow, json, table};
    use crate::model::{Bound, FileId, FileOffset, Library, LibraryId, PlannedMethod, ProbeCost, Site, SkipReason};
    use crate::render::grid::Screen;
    use crate::render::samples;

    fn library() -> Library {
        Library {
            file: FileId { major: 8, minor: 1, inode: 42 },
            path: PathBuf::from("/usr/lib/jvm/lib/libzip.so"),
            deleted: false,
            open_path: PathBuf::new(),
            mappings: Vec::new(),
        }
    }

    fn methods() -> Vec<PlannedMethod> {
        let mut methods = vec![
            samples::planned("java.util.zip.Deflater", "deflate", "(J[BLjava/lang/String;)I"),
            samples::planned("é.日本", "späť\u{1b}", "()V"),
            samples::planned("p.Broken", "m", "(broken"),
        ];
        methods[1].bound = Bound::Unbound;
        methods
    }

    fn rows<'a>(methods: &'a [PlannedMethod], library: &'a Library) -> Vec<MethodRow<'a>> {
        let site =
            |offset, cost| Site { library: LibraryId(0), offset: FileOffset(offset), entry: FileOffset(0x4d0), cost };
        vec![
            MethodRow { method: &methods[0], site: Some((library, site(0x4d4, ProbeCost::Emulated))), reason: None },
            MethodRow { method: &methods[1], site: None, reason: Some(SkipReason::Unbound) },
            MethodRow {
                method: &methods[2],
                site: Some((library, site(0x4d0, ProbeCost::SingleStepped))),
                reason: Some(SkipReason::RefusedByKernel),
            },
        ]
    }

    /// Check the whole table.
    #[test]
    fn table_of_methods() {
        let (methods, library) = (methods(), library());
        let mut out = Vec::new();
        table(&rows(&methods, &library), Screen::default(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), include_str!("golden/methods.txt"));
        let mut empty = Vec::new();
        table(&[], Screen::default(), &mut empty).unwrap();
        assert_eq!(empty, b"no native methods\n");
    }

    /// Check the whole document.
    #[test]
    fn json_of_methods() {
        let (methods, library) = (methods(), library());
        let mut out = Vec::new();
        json(&samples::snapshot().jvm, &rows(&methods, &library), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), samples::one_line(include_str!("golden/methods.json")));
    }
}
