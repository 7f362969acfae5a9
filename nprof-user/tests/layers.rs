//! Checks the direction of the pipeline: a stage uses only what stands left of it in [`ALLOWED`], and the files of a stage do not
//! use each other in circles.
//!
//! The sources are read as tokens, not as a syntax tree, so that paths inside macro calls are seen too. Every path that
//! starts at `crate` or at `super` is followed to the stage that it reaches. What cannot be followed (the crate root
//! renamed, or all of it imported) is a violation as well: a rule that can be stepped around is none.

#[path = "layers/scanner.rs"]
mod scanner;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

use self::scanner::{Reach, Scanner, Target, ident, module_of};

/// The stages and what each may use besides itself, in the order of the pipeline. `*` is everything.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("sys", &["model"]),
    ("elf", &["model", "sys"]),
    ("discover", &["model", "sys", "elf"]),
    ("hotspot", &["model", "sys", "elf"]),
    ("unwind", &["model", "sys", "hotspot"]),
    ("native", &["model", "sys", "elf", "discover"]),
    ("resolve", &["model", "sys", "elf", "native"]),
    ("shim", &["model", "sys", "elf", "discover", "hotspot"]),
    ("config", &["model", "discover", "resolve"]),
    ("classfile", &["hotspot"]),
    ("enhance", &["classfile"]),
    ("calls", &["model", "hotspot", "resolve", "classfile", "enhance"]),
    ("attach", &["model", "sys"]),
    ("collect", &["model", "sys"]),
    ("profile", &["model", "sys", "discover", "hotspot", "unwind", "native", "attach"]),
    ("aggregate", &["model"]),
    ("govern", &["model"]),
    ("render", &["model", "aggregate"]),
    ("diagnose", &["model", "aggregate", "render"]),
    (
        "trace",
        &[
            "model",
            "sys",
            "discover",
            "hotspot",
            "unwind",
            "resolve",
            "shim",
            "attach",
            "collect",
            "profile",
            "aggregate",
            "govern",
            "classfile",
            "enhance",
            "calls",
        ],
    ),
    ("recording", &["model"]),
    ("export", &["model", "sys", "aggregate"]),
    ("push", &["model", "sys", "aggregate", "render"]),
    ("control", &["model", "sys"]),
    (
        "service",
        &[
            "model",
            "sys",
            "discover",
            "resolve",
            "attach",
            "config",
            "aggregate",
            "govern",
            "trace",
            "recording",
            "export",
            "push",
            "control",
        ],
    ),
    ("cli", &["*"]),
];

/// The crates that the stages are in, by their folders. A stage that has files in several is one stage.
const CRATES: [&str; 2] = ["nprof-hotspot", "nprof-user"];

/// The files that only name the stages.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// A use of something that the stage must not know.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// The violations in one file, given by its path below `src` and its text.
fn violations(file: &Path, text: &str) -> Vec<Violation> {
    let violation = |line, what| Violation { file: file.to_path_buf(), line, what };
    let module = module_of(file);
    let stage = module.first().cloned().unwrap_or_default();
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == stage) else {
        return vec![violation(1, format!("`{stage}` is no stage of the pipeline"))];
    };
    let stream = match text.parse::<TokenStream>() {
        Ok(stream) => stream,
        Err(error) => return vec![violation(1, format!("cannot be read: {error}"))],
    };
    let found = Vec::new();
    let mut scanner = Scanner { module, found };
    scanner.scan(stream);
    let mut violations = Vec::new();
    for Reach { line, target, .. } in scanner.found {
        match target {
            Target::Stage(used, _) => {
                let fine = used == stage || allowed.contains(&used.as_str()) || *allowed == ["*"];
                if !fine {
                    violations.push(violation(line, format!("`{stage}` must not use `{used}`")));
                }
            }
            Target::Root => {
                violations.push(violation(line, "the crate's root is imported or renamed as a whole".to_owned()))
            }
        }
    }
    violations
}

/// What each file of a stage uses of the stage's other files; what tests use does not count.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Adds what a file uses. `exported` says which file of the stage a name comes from that the stage hands on.
fn add_uses(uses: &mut Uses, file: &Path, text: &str, exported: &BTreeMap<String, String>) {
    let module = module_of(file);
    let ([stage, part, ..], Ok(stream)) = (&module[..], text.parse::<TokenStream>()) else { return };
    let (stage, part) = (stage.clone(), part.clone());
    let mut scanner = Scanner { module, found: Vec::new() };
    scanner.scan(stream);
    for Reach { target, in_tests, .. } in scanner.found {
        if let Target::Stage(used, Some(name)) = target
            && used == stage
            && !in_tests
        {
            let name = exported.get(&name).cloned().unwrap_or(name);
            if name != part {
                uses.entry(part.clone()).or_default().insert(name);
            }
        }
    }
}

/// The names that a stage hands on, and from which of its files: what its `use` says.
fn exported(text: &str) -> BTreeMap<String, String> {
    let tokens: Vec<TokenTree> =
        text.parse::<TokenStream>().map(|stream| stream.into_iter().collect()).unwrap_or_default();
    let mut names = BTreeMap::new();
    for at in 0..tokens.len() {
        let from = ident(&tokens, at + 1).filter(|_| ident(&tokens, at).as_deref() == Some("use"));
        let Some(from) = from.filter(|from| !["self", "super", "crate"].contains(&from.as_str())) else { continue };
        match tokens.get(at + 4) {
            Some(TokenTree::Ident(name)) => drop(names.insert(name.to_string(), from)),
            Some(TokenTree::Group(group)) => names.extend(group.stream().into_iter().filter_map(|token| match token {
                TokenTree::Ident(name) => Some((name.to_string(), from.clone())),
                _ => None,
            })),
            _ => {}
        }
    }
    names
}

/// A circle that `part` is in, if it is in one.
fn circle(uses: &Uses, part: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![part.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in uses.get(way.last()?).into_iter().flatten() {
            let way: Vec<String> = way.iter().chain([next]).cloned().collect();
            if next == part && way.len() > 2 {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push(way);
            }
        }
    }
    None
}

/// Check that the files of a stage use each other in one direction: what is below can be read, and moved, by itself.
#[test]
fn files_of_a_stage_are_in_no_circle() {
    for (stage, _) in ALLOWED {
        let parts = || roots().filter(|root| root.join(stage).is_dir());
        let names =
            parts().flat_map(|root| exported(&fs::read_to_string(root.join(stage).join("mod.rs")).unwrap())).collect();
        let mut uses = Uses::new();
        for root in parts() {
            let mut files = BTreeSet::new();
            sources(&root, &root.join(stage), &mut files);
            for file in files.iter().filter(|file| !file.to_string_lossy().contains("test")) {
                add_uses(&mut uses, file, &fs::read_to_string(root.join(file)).unwrap(), &names);
            }
        }
        let circles: Vec<String> =
            uses.keys().filter_map(|part| circle(&uses, part)).map(|way| way.join(" -> ")).collect();
        assert!(circles.is_empty(), "`{stage}`:\n{}", circles.join("\n"));
    }
}

/// Check that a circle is found, also by a name that the stage hands on, and that what only tests use is none.
#[test]
fn circle_is_found() {
    let names = exported("pub use self::a; use crate::b; pub use b::{B, Other};");
    let circle_of = |a: &str, b: &str| {
        let mut uses = Uses::new();
        add_uses(&mut uses, Path::new("trace/a.rs"), a, &names);
        add_uses(&mut uses, Path::new("trace/b.rs"), b, &names);
        circle(&uses, "a").map(|way| way.join(" "))
    };
    let found = Some("a b a".to_owned());
    assert_eq!(circle_of("use super::b::B;", "use super::a::A;"), found);
    assert_eq!(circle_of("use super::{B, c};", "use crate::trace::a::A;"), found);
    assert_eq!(circle_of("fn f() { super::Other::new() }", "use crate::{model::M, trace::{a, c}};"), found);
    assert_eq!(circle_of("use super::b::B;", "mod tests { use super::super::a::A; }"), None);
    assert_eq!(circle_of("use super::b::B;", "use super::c::C;"), None);
}

/// The sources of each crate.
fn roots() -> impl Iterator<Item = PathBuf> {
    CRATES.iter().map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(name).join("src"))
}

/// Every Rust file below `directory`, as paths from `root` on.
fn sources(root: &Path, directory: &Path, into: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the sources can be listed") {
        let path = entry.expect("the sources can be listed").path();
        if path.is_dir() {
            sources(root, &path, into);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let below = path.strip_prefix(root).expect("a path below the root");
            into.insert(below.to_path_buf());
        }
    }
}

/// Check that no stage uses a later one.
#[test]
fn stages_use_only_what_stands_before_them() {
    let mut stages = BTreeSet::new();
    let mut found = Vec::new();
    for root in roots() {
        let mut files = BTreeSet::new();
        sources(&root, &root, &mut files);
        for file in &files {
            if ROOTS.iter().any(|name| file == Path::new(name)) {
                continue;
            }
            let text = fs::read_to_string(root.join(file)).unwrap();
            found.extend(violations(file, &text));
            stages.extend(module_of(file).into_iter().next());
        }
    }
    let lines: Vec<String> = found.iter().map(Violation::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    for (stage, _) in ALLOWED {
        assert!(stages.contains(*stage), "the table names `{stage}`, which is not there");
    }
}

/// Check that the table itself runs in one direction: nothing but `*` names a later row.
#[test]
fn table_has_no_cycle() {
    for (row, (stage, allowed)) in ALLOWED.iter().enumerate() {
        for used in allowed.iter().filter(|used| **used != "*") {
            let earlier = ALLOWED[..row].iter().any(|(name, _)| name == used);
            assert!(earlier, "`{stage}` is before `{used}`");
        }
    }
}

fn complaints(file: &str, text: &str) -> Vec<String> {
    violations(Path::new(file), text).iter().map(Violation::to_string).collect()
}

/// Check that a later stage is found however it is written, and with its line.
#[test]
fn violation_is_found() {
    let expected = |line: usize| vec![format!("resolve/elf.rs:{line}: `resolve` must not use `render`")];
    for text in [
        "\nuse crate::render::Table;",
        "\nuse crate::{model::Plan, render::Table};",
        "\nuse crate::{model::{Plan, Site}, render};",
        "\nuse super::super::render::Table;",
        "\nuse super::super::{model, render};",
        "\npub(in crate::render) fn f() {}",
        "\nfn f() { crate::render::table() }",
        "\nfn f() { assert!(crate::render::table() == vec![1]); }",
        "\nmod tests { use super::super::super::render; }",
        "\nmacro_rules! m { () => { $crate::render::table() } }",
        "\nuse nprof_hotspot::render::Table;",
        "\nuse {::nprof_hotspot::{model::Pid, render}};",
    ] {
        assert_eq!(complaints("resolve/elf.rs", text), expected(2), "{text}");
    }
    let from_mod = complaints("resolve/mod.rs", "use super::render;");
    assert_eq!(from_mod, ["resolve/mod.rs:1: `resolve` must not use `render`"]);
}

/// Check that what is allowed, and what only looks like a path, passes.
#[test]
fn allowed_is_not_a_violation() {
    let text = r#"
        //! Talks about crate::render in words.
        use crate::{model::Plan, sys};
        use super::{Error, name};
        use self::inner::Thing;
        pub(crate) struct A;
        pub(super) fn f(self_: &A) -> usize { "crate::render".len() }
        impl A { fn g(self) -> Self { self.h(); crate::resolve::f(); self } }
        mod tests { use super::*; use super::super::name; }
    "#;
    assert_eq!(complaints("resolve/elf.rs", text), [""; 0]);
    let cli = "use crate::render::Table; use crate::attach;";
    assert_eq!(complaints("cli/trace.rs", cli), [""; 0]);
}

/// Check that ways around the rule are violations too.
#[test]
fn detours_are_violations() {
    for text in [
        "use crate::*;",
        "use crate as all;",
        "use crate::{self as all};",
        "use super::super::*;",
        "use super::super as all;",
        "use nprof_hotspot::*;",
        "use nprof_hotspot as all;",
        "extern crate nprof_hotspot as all;",
    ] {
        let found = complaints("resolve/elf.rs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains("crate's root"), "{found:?}");
    }
    let unknown = complaints("extra/mod.rs", "");
    assert_eq!(unknown, ["extra/mod.rs:1: `extra` is no stage of the pipeline"]);
    let reexport = complaints("resolve/elf.rs", "use crate::Table;");
    assert_eq!(reexport, ["resolve/elf.rs:1: `resolve` must not use `Table`"]);
}
