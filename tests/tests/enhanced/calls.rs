//! What the search of calls finds, in classes as the compiler makes them.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context, Error, Result, ensure};
use nprof::calls::{Bytecode, Classes, Constants, DeclaredMethod, Limits, LoadedClass, Planned, Question, plan};
use nprof::classfile::{CODE, ClassFile, Code, MethodInfo, Reader, is_intrinsic};
use nprof::model::{LeftOutReason, TreeKind, TreePlan};
use nprof::resolve::pattern::Pattern;
use nprof_tests::require::{on_every_jdk, say};

use super::jvm::{ALL_OF_JDK, Prepared, class_files};

/// Class files in the place of a VM.
struct Files {
    files: Vec<Vec<u8>>,
    with_bootstraps: bool,
}

impl Files {
    fn class(&self, class: u32) -> Option<ClassFile<'_>> {
        ClassFile::parse(self.files.get(class as usize)?).ok()
    }

    fn names(&self) -> Vec<String> {
        let name = |file: &Vec<u8>| {
            let class = ClassFile::parse(file).ok()?;
            Some(String::from_utf8_lossy(class.pool.class(class.this_class)?).into_owned())
        };
        self.files.iter().map(|file| name(file).unwrap_or_default()).collect()
    }
}

impl Classes for Files {
    type Error = Error;

    fn loaded(&mut self) -> Result<Vec<LoadedClass>> {
        let names = self.names();
        let numbers: HashMap<&str, u32> = (0..).zip(&names).map(|(number, name)| (&name[..], number)).collect();
        self.files.iter().zip(&names).map(|(file, name)| loaded(file, name, &numbers)).collect()
    }

    fn methods(&mut self, classes: &[u32]) -> Result<Vec<Vec<DeclaredMethod>>> {
        let of_class = |class: &u32| methods(&self.class(*class).context("a class")?);
        classes.iter().map(of_class).collect()
    }

    fn constants(&mut self, class: u32) -> Result<Option<Constants>> {
        let Some(file) = self.class(class) else { return Ok(None) };
        let bootstraps = file.attributes.iter().find(|one| file.pool.utf8(one.name) == Some(b"BootstrapMethods"));
        let bootstraps = bootstraps.map(|attribute| attribute.content.to_vec()).filter(|_| self.with_bootstraps);
        let bytes = self.files[class as usize][ClassFile::POOL_COUNT_AT + 2..file.pool_end].to_vec();
        Ok(Some(Constants { count: file.pool_count, bytes, bootstraps }))
    }

    fn bytecode(&mut self, class: u32, method: u32) -> Result<Option<Bytecode>> {
        let Some(file) = self.class(class) else { return Ok(None) };
        let Some(code) = file.methods[method as usize].attribute(&file.pool, CODE) else { return Ok(None) };
        let code = Code::parse(code.content)?;
        let mut lines = Vec::new();
        if let Some(table) = code.attributes.iter().find(|one| file.pool.utf8(one.name) == Some(b"LineNumberTable")) {
            let mut reader = Reader::new(table.content);
            for _ in 0..reader.u16()? {
                lines.push((reader.u16()?, reader.u16()?));
            }
        }
        Ok(Some(Bytecode { bytes: code.bytes.to_vec(), lines }))
    }

    fn intrinsics(&mut self, class: u32) -> Result<Vec<u32>> {
        let Some(file) = self.class(class) else { return Ok(Vec::new()) };
        let methods = (0..).zip(&file.methods);
        Ok(methods.filter(|(_, method)| is_intrinsic(method, &file.pool)).map(|(place, _)| place).collect())
    }
}

/// A class as a VM would list it.
fn loaded(file: &[u8], name: &str, numbers: &HashMap<&str, u32>) -> Result<LoadedClass> {
    let class = ClassFile::parse(file)?;
    let number = |at| numbers.get(&*String::from_utf8_lossy(class.pool.class(at)?)).copied();
    Ok(LoadedClass {
        name: name.replace('/', ".").into(),
        loader: 0,
        superclass: number(class.super_class),
        interfaces: class.interfaces.iter().filter_map(|at| number(*at)).collect(),
        flags: class.flags,
        is_modifiable: true,
    })
}

fn methods(class: &ClassFile<'_>) -> Result<Vec<DeclaredMethod>> {
    let text = |at| class.pool.text(at).context("a text");
    let method = |method: &MethodInfo<'_>| {
        let (name, signature) = (text(method.name)?.into(), text(method.descriptor)?.into());
        Ok(DeclaredMethod { name, signature, flags: method.flags })
    };
    class.methods.iter().map(method).collect()
}

fn question(entry: &str, package: &str, depth: u32) -> Result<Question> {
    let entries = vec![Pattern::parse(entry)?];
    Ok(Question { entries, packages: vec![Pattern::parse(package)?], depth, limits: Limits::default() })
}

/// `1 Calling::leaf <- entry`, for each method: depth, class without the outer one, who calls it.
fn written(plan: &TreePlan) -> Vec<String> {
    let name = |number: usize| {
        let method = &plan.methods[number];
        let class = method.class.rsplit(['.', '$']).next().unwrap_or_default().to_owned();
        format!("{class}::{}{}", method.method, method.signature.split(')').next().unwrap_or_default())
    };
    let mut lines: Vec<String> = plan
        .methods
        .iter()
        .enumerate()
        .map(|(number, method)| {
            let mut callers: Vec<String> = method.callers.iter().map(|caller| name(caller.method as usize)).collect();
            callers.sort();
            format!("{} {}) <- {}", method.depth, name(number), callers.join(" ")).replace("Ltargets/Calling$", "")
        })
        .collect();
    lines.sort();
    lines
}

fn calling(with_bootstraps: bool, question: &Question) -> Result<Planned> {
    let prepared = Prepared::new(&["Calling"])?;
    let files = class_files(&prepared.classes())?.iter().map(std::fs::read).collect::<Result<_, _>>()?;
    plan(&mut Files { files, with_bootstraps }, question)
}

/// What the entry method of `Calling.java` reaches with two calls.
const REACHED: [&str; 9] = [
    "0 Calling::entry(Worker;) <- ",
    "1 Calling::entry(I) <- Calling::entry(I Calling::entry(Worker;",
    "1 Calling::lambda$entry$0() <- Calling::entry(Worker;",
    "1 Own::<init>() <- Calling::entry(Worker;",
    "1 Own::work(I) <- Calling::entry(Worker;",
    "1 Plain::work(I) <- Calling::entry(Worker;",
    "1 Worker::rest() <- Calling::entry(Worker; Own::work(I",
    "2 Calling::deeper(I) <- Calling::entry(I Plain::work(I",
    "2 Calling::leaf() <- Calling::lambda$entry$0( Worker::rest(",
];

/// Check that overriding methods, inherited implementations, default methods, lambdas, method references and recursion are followed, whether or not
/// the table of bootstrap methods is known; and that what is too deep, reflection and what is elsewhere is named.
#[test]
fn calls_of_every_kind_are_followed() -> Result<()> {
    let question = question("targets.Calling::entry(Ltargets/Calling$Worker;)I", "targets.**", 2)?;
    for with_bootstraps in [true, false] {
        let planned = calling(with_bootstraps, &question)?;
        let found = written(&planned.plan);
        ensure!(found == REACHED, "{with_bootstraps}: {found:#?}");
        let left_out = |what: &str, why: LeftOutReason| {
            let rows = &planned.plan.left_out;
            let has = rows.iter().any(|row| row.what.contains(what) && row.why == why);
            ensure!(has, "{what} is not left out: {rows:#?}");
            Ok(())
        };
        left_out("Calling::deepest(I)I", LeftOutReason::Depth)?;
        left_out("java.lang.reflect.Method::invoke", LeftOutReason::Reflection)?;
        left_out("java.lang.System::arraycopy", LeftOutReason::Package)?;
        left_out("java.lang.Object::hashCode", LeftOutReason::Package)?;
        let wanted: usize = planned.classes.iter().map(|class| class.wanted.len()).sum();
        ensure!(wanted == REACHED.len() && planned.plan.limit.is_none(), "{wanted}: {:?}", planned.plan.limit);
    }
    Ok(())
}

/// Check a plan for the compiler in all classes of a JDK: natives are leaves that their callers tell of, a limit is said, and a native method
/// as entry finds its callers.
#[test]
fn a_whole_jdk() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut files = Vec::new();
        Prepared::new(&["Transformed"])?.transform(jdk, &ALL_OF_JDK, &mut |file| {
            files.push(file.to_vec());
            Ok(None)
        })?;
        let mut files = Files { files, with_bootstraps: false };
        let mut deep = question("com.sun.tools.javac.main.Main::compile", "com.sun.tools.javac.**", 5)?;
        let begin = Instant::now();
        let planned = plan(&mut files, &deep)?.plan;
        let (chosen, left_out) = (planned.methods.len(), planned.left_out.len());
        say(&format!(
            "{jdk}: {chosen} methods of {} classes, {left_out} left out, {:?}, in {:?} with a debug build",
            files.files.len(),
            planned.limit,
            begin.elapsed()
        ));
        ensure!(chosen > 300 && planned.methods.iter().all(|method| method.depth <= 5), "{chosen}");
        deep.limits.methods = 100;
        let few = plan(&mut files, &deep)?.plan;
        ensure!(few.methods.len() == 100 && few.limit.as_deref() == Some("100 methods were chosen"), "{:?}", few.limit);

        let zip = plan(&mut files, &question("java.util.zip.CRC32::update(I)V", "java.util.zip.*", 1)?)?;
        let native = zip.plan.methods.iter().position(|m| m.kind == TreeKind::Native).context("a native method")?;
        let calls = zip.classes.iter().flat_map(|class| &class.wanted).flat_map(|wanted| &wanted.native_calls);
        ensure!(calls.clone().count() == 1 && calls.clone().all(|call| call.number as usize == native), "{zip:?}");

        let entry = plan(&mut files, &question("java.lang.System::arraycopy", "java.util.*", 1)?)?;
        let callers: Vec<_> = entry.classes.iter().flat_map(|class| &class.wanted).collect();
        ensure!(entry.plan.methods.len() == 1 && callers.len() > 20, "{} callers", callers.len());
        ensure!(callers.iter().all(|wanted| wanted.number.is_none() && wanted.native_calls.len() == 1));
        Ok(())
    })
}
