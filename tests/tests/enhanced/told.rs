//! What enhanced methods tell: exactly what they do.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nprof::classfile::{ClassFile, flag};
use nprof::enhance::{NativeCall, Wanted, enhance};
use nprof_tests::require::on_every_jdk;

use super::jvm::{HOOKS, Prepared, class_files, succeed};

/// The native methods whose calls are told of.
const NATIVES: [(&str, &str, &str); 2] = [
    ("java/lang/System", "nanoTime", "()J"),
    ("java/lang/System", "arraycopy", "(Ljava/lang/Object;ILjava/lang/Object;II)V"),
];

/// What each shape of `Told.java` tells: `+` is an entry, `-` a return, `!` an exception. An exception out of the call of `super` or `this` leaves a constructor
/// without a word: the VM allows no handler there.
const EXPECTED: &str = "\
loop: +spin -spin
caught: +catching +failing !failing +leaf -leaf +failing -failing -catching
passed: +swallow +passing +passing +passing +failing !failing !passing !passing !passing -swallow
constructors: +Derived +Derived +Base -Base -Derived -Derived
broken: +swallow +Derived +Derived +Base !Base -swallow
before: +swallow +Derived +refused !refused -swallow
recursion: +fibonacci +fibonacci +fibonacci -fibonacci +fibonacci -fibonacci -fibonacci +fibonacci -fibonacci -fibonacci
locks: +locking +locked +failing !failing !locked +leaf -leaf +locked +failing -failing -locked -locking
switches: +switching +dense -dense +sparse -sparse +dense +leaf -leaf -dense +sparse -sparse +dense -dense +sparse -sparse +dense -dense \
+sparse +leaf -leaf -sparse +dense -dense +sparse -sparse -switching
lambda: +lambdas +applied +lambda$lambdas +adding -adding -lambda$lambdas -applied -lambdas
results: +results +aLong -aLong +aDouble -aDouble +aFloat -aFloat +anObject -anObject -results
finish: +finishing +leaf -leaf -finishing
inner: +nested +failing !failing +failing -failing -nested
natives: +natives +nanoTime -nanoTime +arraycopy !arraycopy +from -from +arraycopy -arraycopy -natives
";

/// The names behind the numbers that methods give to the hooks.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn add(&mut self, name: String) -> Result<u32> {
        self.0.push(name);
        Ok(u32::try_from(self.0.len() - 1)?)
    }

    /// `+3 -3` with names instead of numbers.
    fn translate(&self, said: &str) -> Result<String> {
        let mut out = String::new();
        for line in said.lines() {
            let (shape, told) = line.split_once(": ").context("a line has a name")?;
            out.push_str(shape);
            out.push(':');
            for event in told.split(' ') {
                let (kind, number) = event.split_at(1);
                out.push_str(&format!(" {kind}{}", self.0.get(number.parse::<usize>()?).context("a number")?));
            }
            out.push('\n');
        }
        Ok(out)
    }
}

/// Changes all methods of a class that have code, but `main` and the bodies of the lambdas that it makes.
fn change(file: &[u8], natives: &[NativeCall], names: &mut Names) -> Result<Vec<u8>> {
    let class = ClassFile::parse(file)?;
    let this = class.pool.class(class.this_class).context("a name")?;
    let this = String::from_utf8(this.to_vec())?;
    let simple = this.rsplit(['/', '$']).next().unwrap_or_default();
    let mut wanted = Vec::new();
    for method in class.methods.iter().filter(|method| method.flags & (flag::ABSTRACT | flag::NATIVE) == 0) {
        let text = |at| class.pool.text(at).context("a name");
        let (name, signature) = (text(method.name)?, text(method.descriptor)?);
        let shown = match &name[..] {
            "main" | "<clinit>" => continue,
            lambda if lambda.starts_with("lambda$main$") => continue,
            "<init>" => simple.to_owned(),
            other => other.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('$').to_owned(),
        };
        let number = Some(names.add(shown)?);
        wanted.push(Wanted { name, signature, number, native_calls: natives.to_vec(), task: None });
    }
    let enhanced = enhance(file, &wanted, &HOOKS)?;
    ensure!(enhanced.refused.is_empty() && enhanced.changed == wanted.len(), "{:?}", enhanced.refused);
    Ok(enhanced.class_file)
}

/// Check that loops, exceptions, constructors, locks, switches, lambdas and native calls are told of in their order, interpreted and compiled.
#[test]
fn methods_tell_what_they_do() -> Result<()> {
    let prepared = Prepared::new(&["Told"])?;
    let mut names = Names::default();
    let natives = NATIVES.map(|(class, name, signature)| {
        let number = names.add(name.to_owned())?;
        let (class, signature) = (class.to_owned(), signature.to_owned());
        Ok(NativeCall { class, name: name.to_owned(), signature, number })
    });
    let natives = natives.into_iter().collect::<Result<Vec<_>>>()?;
    for file in class_files(&prepared.classes())? {
        let changed = change(&std::fs::read(&file)?, &natives, &mut names)?;
        std::fs::write(&file, changed)?;
    }
    on_every_jdk(|jdk| {
        let modes: BTreeMap<&str, (&[&str], &str)> = BTreeMap::from([
            ("interpreted", (&["-Xint"][..], "20")),
            ("C1", (&["-XX:TieredStopAtLevel=1"][..], "3000")),
            ("C2", (&["-XX:-TieredCompilation", "-XX:CompileThreshold=100"][..], "3000")),
            ("tiered", (&[][..], "3000")),
        ]);
        for (mode, (options, rounds)) in modes {
            let mut java = prepared.java(jdk);
            java.args(options).arg("-cp").arg(prepared.classes()).args(["targets.Told", rounds]);
            let told = names.translate(&succeed(&mut java)?)?;
            ensure!(told == EXPECTED, "{mode}:\n{told}");
        }
        Ok(())
    })
}
