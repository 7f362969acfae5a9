//! A large tree of Java sources for a compiler to compile: its own, where the JDK has brought its sources with it, or one
//! that is made up here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::jdk::Jdk;

/// The module with the compiler, and the part of it that is taken.
const MODULE: &str = "jdk.compiler";
const PART: &str = "jdk.compiler/com/sun/tools/javac";
/// How many classes are made up for a large one.
pub const GENERATED: usize = 250;
/// Members of each kind that a class has of these.
const MEMBERS: usize = 8;

/// Sources, and how they are compiled.
#[derive(Debug)]
pub struct SourceTree {
    /// Where they are.
    pub directory: PathBuf,
    /// What the compiler has to be told.
    pub options: Vec<String>,
    /// What they are, for people.
    pub name: String,
}

impl SourceTree {
    /// Writes one into a directory that is there and empty.
    ///
    /// # Errors
    /// When it cannot be unpacked or written.
    pub fn write(jdk: &Jdk, into: &Path) -> Result<Self> {
        let archive = jdk.home.join("lib/src.zip");
        if archive.exists() { Self::unpack(jdk, &archive, into) } else { Self::generate(into, GENERATED) }
    }

    fn unpack(jdk: &Jdk, archive: &Path, into: &Path) -> Result<Self> {
        let mut command = Command::new(jdk.tool("jar"));
        let output = command.current_dir(into).arg("--extract").arg("--file").arg(archive).arg(PART).output()?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let root = into.join(MODULE).display().to_string();
        let options = vec!["--patch-module".to_owned(), format!("{MODULE}={root}")];
        Self::described(into.join(PART), options, "the compiler's own sources")
    }

    /// Makes so many classes up, in a directory that is there and empty.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn generate(into: &Path, classes: usize) -> Result<Self> {
        Self::make_up(into, classes, MEMBERS)
    }

    /// Makes one small class up, likewise.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn generate_small(into: &Path) -> Result<Self> {
        Self::make_up(into, 1, 1)
    }

    fn make_up(into: &Path, classes: usize, members: usize) -> Result<Self> {
        for number in 0..classes {
            fs::write(into.join(format!("Class{number}.java")), source(number, classes, members))?;
        }
        Self::described(into.to_owned(), Vec::new(), "made-up classes (the JDK has no src.zip)")
    }

    fn described(directory: PathBuf, options: Vec<String>, what: &str) -> Result<Self> {
        let (files, lines) = size(&directory).with_context(|| format!("{}", directory.display()))?;
        ensure!(files > 0, "no source in {}", directory.display());
        Ok(Self { directory, options, name: format!("{what}, {files} files of {lines} lines") })
    }
}

/// How many Java files are below a directory, and how many lines they have.
fn size(directory: &Path) -> Result<(usize, usize)> {
    let (mut files, mut lines) = (0, 0);
    for entry in directory.read_dir()? {
        let path = entry?.path();
        let (more_files, more_lines) = if path.is_dir() {
            size(&path)?
        } else if path.extension().is_some_and(|extension| extension == "java") {
            (1, fs::read(&path)?.split(|&byte| byte == b'\n').count())
        } else {
            (0, 0)
        };
        files += more_files;
        lines += more_lines;
    }
    Ok((files, lines))
}

/// A class of the size and with the features of many: generics, lambdas, nested types, switches, text, and two other
/// classes that it uses.
fn source(number: usize, classes: usize, members: usize) -> String {
    let others = [(number + 1) % classes, (7 * number + 3) % classes];
    let members: String = (0..members).map(|member| MEMBER.replace("@M", &member.to_string())).collect();
    let text = format!("{HEAD}{members}}}\n");
    let text = text.replace("@N", &number.to_string());
    text.replace("@A", &others[0].to_string()).replace("@B", &others[1].to_string())
}

const HEAD: &str = r#"package generated;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/** Number @N. */
public class Class@N<T extends Comparable<T>> {
    enum Kind { SMALL, MIDDLE, LARGE }

    record Pair<A, B>(A first, B second) {}

    private final Map<String, List<T>> values = new HashMap<>();
    private Class@A<T> next;
    private int changes;

    public Kind kind() {
        return switch (values.size() / 10) {
            case 0 -> Kind.SMALL;
            case 1, 2, 3 -> Kind.MIDDLE;
            default -> Kind.LARGE;
        };
    }
"#;

const MEMBER: &str = r#"
    /** Adds values under the name of another, and says which are new. */
    public <R> Map<String, R> add@M(String name, List<? extends T> more, Function<? super T, R> map) {
        List<T> known = values.computeIfAbsent(name + "-@M", key -> new ArrayList<>());
        Map<String, R> added = new HashMap<>();
        for (T value : more) {
            if (known.contains(value)) {
                continue;
            }
            known.add(value);
            changes += 1 + value.toString().length() % 3;
            added.put(name + ":" + value + "/" + changes, map.apply(value));
        }
        known.sort((left, right) -> kind() == Kind.SMALL ? left.compareTo(right) : right.compareTo(left));
        return added;
    }

    public Pair<T, Integer> most@M(Class@B<T> other) {
        try {
            T best = values.values().stream().flatMap(List::stream).max(T::compareTo).orElseThrow();
            int rest = other == null || next == null ? changes : next.sum@M(other.text@M(best), changes);
            return new Pair<>(best, rest);
        } catch (IllegalStateException | java.util.NoSuchElementException e) {
            throw new IllegalArgumentException("nothing in " + other, e);
        }
    }

    public String text@M(T value) {
        StringBuilder text = new StringBuilder("@N.@M ").append(value);
        for (int i = 0; i < changes && text.length() < 80; i++) {
            text.append(i % 2 == 0 ? '+' : '-').append(values.keySet().stream().sorted().collect(Collectors.joining(",")));
        }
        return text.toString();
    }

    public int sum@M(String text, int start) {
        int sum = start;
        int[] parts = {text.length(), text.hashCode(), changes, @M};
        for (int part : parts) {
            sum = 31 * sum + (part >>> 3) * (part & 0xff) - (part == 0 ? 1 : sum % part);
        }
        Runnable change = () -> changes++;
        change.run();
        return sum;
    }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that made-up classes are compiled, are different, and are as many as they say.
    #[test]
    fn made_up_classes_are_java() -> Result<()> {
        let Some(jdk) = Jdk::find_all()?.into_iter().next() else {
            return Ok(());
        };
        let directory = tempfile::tempdir()?;
        let tree = SourceTree::generate(directory.path(), GENERATED)?;
        assert!(tree.name.contains(&format!(" {GENERATED} files of ")), "{}", tree.name);
        let sources = (0..GENERATED).map(|number| directory.path().join(format!("Class{number}.java")));
        let mut command = Command::new(jdk.tool("javac"));
        let output = command.arg("-d").arg(directory.path().join("classes")).args(sources).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(directory.path().join("classes/generated/Class249$Pair.class").exists());
        Ok(())
    }

    /// Check that the text of a class has no gap left.
    #[test]
    fn every_gap_is_filled() {
        let text = source(249, GENERATED, MEMBERS);
        assert!(!text.contains('@') && text.contains("Class0<T> next") && text.contains("class Class249<"), "{text}");
    }
}
