//! Every class of the JDKs, and of the libraries that are installed, goes through the transformer, and the VM verifies what comes out.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nprof::classfile::{ClassFile, flag, tag};
use nprof::enhance::{NativeCall, Refusal, TaskPart, Wanted, enhance};
use nprof_tests::jdk::Jdk;
use nprof_tests::require::{on_every_jdk, on_every_other_jdk, say};

use super::jvm::{HOOKS, Outcome, Prepared};

/// Where Debian's libraries are.
const JARS: &str = "/usr/share/java";

/// Up to this version the VM goes through all loaded classes with each that changes: many JVMs with some classes each are quicker.
const LAST_SLOW: u32 = 12;
const PARTS: u32 = 4;

/// Numbers of three sizes, so that each way to push one is taken.
const NUMBERS: [u32; 5] = [0, 5, 6, 1_000, 70_000];

/// What was done.
#[derive(Debug, Default)]
struct Tally {
    classes: usize,
    changed: usize,
    refused: BTreeMap<String, usize>,
    untold: usize,
}

impl Tally {
    /// Changes every method of a class that has code. With `calls`, every call in it is told of, too.
    fn change(&mut self, file: &[u8], calls: bool) -> Result<Option<Vec<u8>>> {
        let class = ClassFile::parse(file)?;
        let native_calls = if calls { every_call(&class)? } else { Vec::new() };
        let numbers = NUMBERS.into_iter().cycle();
        let with_code = class.methods.iter().filter(|method| method.flags & (flag::ABSTRACT | flag::NATIVE) == 0);
        let parts = [TaskPart::Gives, TaskPart::Hands(0), TaskPart::Runs, TaskPart::RunsMany, TaskPart::Next(None)];
        let parts = [None].into_iter().chain(parts.map(Some)).cycle();
        let wanted = with_code.zip(numbers).zip(parts).map(|((method, number), part)| {
            let text = |at| class.pool.text(at).context("a name");
            let (name, signature) = (text(method.name)?, text(method.descriptor)?);
            let task = part.filter(|_| method.flags & flag::STATIC == 0);
            Ok(Wanted { name, signature, number: Some(number), native_calls: native_calls.clone(), task })
        });
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        self.classes += 1;
        match enhance(file, &wanted, &HOOKS) {
            Ok(enhanced) => {
                self.changed += enhanced.changed;
                self.untold += enhanced.untold.iter().map(|(_, calls)| calls).sum::<usize>();
                for (_, refusal) in enhanced.refused {
                    *self.refused.entry(kind(&refusal)).or_default() += 1;
                }
                Ok(Some(enhanced.class_file))
            }
            // The hooks themselves are among the classes of the JDK.
            Err(Refusal::Hook) => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// A refusal without its numbers.
fn kind(refusal: &Refusal) -> String {
    refusal.to_string().chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn every_call(class: &ClassFile<'_>) -> Result<Vec<NativeCall>> {
    let methods = class.pool.tags().filter(|(_, kind)| matches!(*kind, tag::METHOD | tag::INTERFACE_METHOD));
    let called = methods.filter_map(|(at, _)| class.pool.member(at)).filter(|member| member.name != b"<init>");
    called
        .map(|member| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
            let (class, name) = (text(member.class)?, text(member.name)?);
            Ok(NativeCall { class, name, signature: text(member.descriptor)?, number: 40_000 })
        })
        .collect()
}

/// What is to be changed of a JDK: all of it, by one JVM or several.
fn parts(jdk: &Jdk) -> Vec<Vec<String>> {
    let parts = if jdk.version <= LAST_SLOW { PARTS } else { 1 };
    (0..parts).map(|part| ["jdk".to_owned(), part.to_string(), parts.to_string()].into()).collect()
}

/// With each of `passes` every method is changed; in those that are true, every call is told of, too.
fn must_be_verified(jdk: &Jdk, parts: &[Vec<String>], at_least: usize, passes: &[bool]) -> Result<()> {
    let prepared = Prepared::new(&["Transformed"])?;
    for &calls in passes {
        let mut tally = Tally::default();
        let mut outcome = Outcome::default();
        for what in parts {
            outcome.add(prepared.transform(jdk, what, &mut |file| tally.change(file, calls))?);
        }
        let Outcome { taken, unusable, errors } = outcome;
        let with = if calls { ", with every call told of" } else { "" };
        say(&format!(
            "{jdk} {}: {taken} classes and {} methods changed{with}, {unusable} classes not loadable; refused: {:?}",
            parts[0][0], tally.changed, tally.refused
        ));
        ensure!(errors.is_empty(), "{} of {}:\n{}", errors.len(), tally.classes, errors.join("\n"));
        ensure!(taken >= at_least, "only {taken} classes");
        ensure!(tally.untold == 0, "{} calls are not told of", tally.untold);
        let refused: usize = tally.refused.values().sum();
        ensure!(refused * 1_000 <= tally.changed, "{refused} refused of {}", tally.changed);
    }
    Ok(())
}

/// Check that the VM takes and verifies every class of the JDK with every method changed, and each call in it told of; of the newest also
/// without that, which is a part of it.
#[test]
fn every_class_of_a_jdk_is_verified() -> Result<()> {
    let newest = Jdk::find_all()?.iter().map(|jdk| jdk.version).max();
    on_every_jdk(|jdk| {
        let passes: &[bool] = if Some(jdk.version) == newest { &[false, true] } else { &[true] };
        must_be_verified(jdk, &parts(jdk), 20_000, passes)
    })
}

/// Check the same of the other versions, with each call.
#[test]
fn every_class_of_other_jdks_is_verified() -> Result<()> {
    on_every_other_jdk(|jdk| must_be_verified(jdk, &parts(jdk), 5_000, &[true]))
}

/// Check the same of the libraries that are installed on this machine: of other compilers, and older versions of class files.
#[test]
fn every_class_of_libraries_is_verified() -> Result<()> {
    on_every_jdk(|jdk| must_be_verified(jdk, &[["jars", JARS].map(str::to_owned).into()], 1, &[true]))
}

/// Check that the VM would have said so: the same without frames is refused.
#[test]
fn wrong_frames_are_refused() -> Result<()> {
    on_every_jdk(|jdk| {
        let prepared = Prepared::new(&["Transformed"])?;
        let mut tally = Tally::default();
        let mut spoilt = 0;
        // The package is in the first half.
        let outcome = prepared.transform(jdk, &["jdk", "0", "2"], &mut |file| {
            let class = ClassFile::parse(file)?;
            let name = class.pool.class(class.this_class).unwrap_or_default();
            if !name.starts_with(b"java/util/zip/") {
                return Ok(None);
            }
            let mut changed = tally.change(file, false)?.unwrap_or_default();
            let frames = b"StackMapTable";
            if let Some(at) = changed.windows(frames.len()).position(|bytes| bytes == frames) {
                changed[at] = b's';
                spoilt += 1;
            }
            Ok(Some(changed))
        })?;
        let refused = outcome.errors.iter().filter(|error| error.contains("VerifyError")).count();
        // A class is sent again when a group is halved; one without branches and handlers needs no frames.
        ensure!(refused > 20 && spoilt >= refused, "{refused} refused of {spoilt}: {:?}", outcome.errors.first());
        Ok(())
    })
}
