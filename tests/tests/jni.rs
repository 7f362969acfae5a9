//! What natives ask of the VM is what they were told to ask, to the unit, whoever asked.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::jni_report::{
    BuffersRow, CriticalRow, ExceptionsRow, JavaRow, Jni, JniReport, LookUpsRow, ReferencesRow,
};
use nprof_tests::nprof::{self, UNGOVERNED};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use serde_json::Value;

const THREADS: u64 = 3;
const ROUNDS: u64 = 40;
const CALLS: u64 = THREADS * ROUNDS;
const JSON: [&str; 3] = ["--format", "json", "targets.Asking"];
/// What `call` calls.
const CALL: [(&str, u64); 3] = [("CallStaticVoidMethod", 1), ("ExceptionCheck", 1), ("GetVersion", 2)];
/// The functions that look a member up.
const MEMBERS: [&str; 4] = ["GetMethodID", "GetStaticMethodID", "GetFieldID", "GetStaticFieldID"];

/// Has natives called that are traced, each `CALLS` times with its amount.
fn asked(jdk: &Jdk, options: &[&str], natives: &[(&str, u64)]) -> Result<JniReport> {
    let mut target = RemoteProcess::asking(jdk, options)?;
    let jni = Jni::start(target.pid(), &JSON)?;
    for (what, amount) in natives {
        target.run(&format!("ask {what} {THREADS} {ROUNDS} {amount}"))?;
    }
    let report = jni.finish()?;
    target.exit()?;
    let lost: Vec<_> = report.losses.iter().filter(|(_, lost)| **lost > 0).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    Ok(report)
}

/// Check that a native has called these functions so often in each of its calls, and no others.
fn must_call(report: &JniReport, native: &str, each: &[(&str, u64)]) -> Result<()> {
    let expected: BTreeMap<&str, u64> = each.iter().map(|(function, calls)| (*function, calls * CALLS)).collect();
    let calls = report.calls_of(Some(native))?;
    ensure!(calls == expected, "{native}: {calls:?}, not {expected:?}");
    ensure!(report.method(Some(native))?.calls == Some(CALLS), "{native}");
    Ok(())
}

/// Check every number of natives that do all that is told, with several threads at once: the functions by caller, nested ones and those
/// of nobody included, redundant look-ups, references and what only looks like letting go, exceptions left and cleared, and nested
/// critical sections.
#[test]
fn everything_to_the_unit() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let natives = [
            ("lookUp", 0),
            ("lookUpIn", 0),
            ("refer", 5),
            ("clear", 2),
            ("throw", 0),
            ("call", 0),
            ("outside", 7),
            ("read", 9),
        ];
        let report = asked(jdk, &[], &natives)?;
        let members = MEMBERS.map(|function| (function, 1));
        must_call(&report, "lookUpIn", &members)?;
        let look_ups = [("GetMethodID", 2), ("FindClass", 1), ("DeleteLocalRef", 1), ("ExceptionClear", 1)];
        must_call(&report, "lookUp", &[&look_ups[..], &members[1..]].concat())?;
        must_call(&report, "call", &CALL)?;
        must_call(&report, "leaf", &[("GetVersion", 3)])?;
        ensure!(report.method(Some("outside")).is_err() && report.method(Some("read")).is_err(), "{report:?}");
        ensure!(report.calls_of(None)?.get("GetVersion") == Some(&(7 * CALLS)), "{report:?}");
        ensure!(report.functions["GetVersion"].calls == 12 * CALLS, "{:?}", report.functions["GetVersion"]);
        ensure!(report.not_seen.contains(&"GetIntField".to_owned()), "{:?}", report.not_seen);
        must_look_up(&report)?;
        must_refer(&report)?;
        let of = |left, cleared| (Some("java.lang.IllegalStateException"), left * CALLS, cleared * CALLS);
        let not_found = (Some("java.lang.NoSuchMethodError"), 0, CALLS);
        let exceptions = |native| Ok::<_, anyhow::Error>(report.method(Some(native))?.exceptions.clone());
        ensure!(exceptions("fail")? == Some(ExceptionsRow::of(&[of(1, 2)])), "{report:?}");
        ensure!(exceptions("lookUp")? == Some(ExceptionsRow::of(&[not_found])), "{report:?}");
        ensure!(report.exceptions == ExceptionsRow::of(&[of(1, 2), not_found]), "{report:?}");
        Ok(())
    })
}

/// Check that each member of two classes, and one class, were found once, and all that was looked up later was redundant.
fn must_look_up(report: &JniReport) -> Result<()> {
    for (native, function, each, first) in MEMBERS
        .iter()
        .flat_map(|function| ["lookUp", "lookUpIn"].map(|native| (native, *function, 1, 1)))
        .chain([("lookUp", "FindClass", 1, 1)])
    {
        let made = &report.method(Some(native))?.jni[function];
        ensure!(made.redundant == Some(each * CALLS - first), "{native}: {function}: {made:?}");
        ensure!(made.effective == CALLS && made.redundant_ns <= Some(made.total_ns), "{native}: {function}: {made:?}");
    }
    let LookUpsRow { calls, redundant, not_found, members_told, .. } = report.look_ups;
    ensure!((calls, redundant) == (10 * CALLS, 9 * (CALLS - 1)), "{:?}", report.look_ups);
    ensure!(not_found == CALLS && members_told, "{:?}", report.look_ups);
    Ok(())
}

/// Check what was made and let go of each kind: 5 in a call, of which 1 is kept. Nulls and `JNI_COMMIT` let nothing go. Others, which
/// keep nothing, may make some too.
fn must_refer(report: &JniReport) -> Result<()> {
    let uses = &report.method(Some("refer"))?.jni;
    let effective = |function: &str| uses.get(function).map(|made| (made.calls, made.effective));
    for (kind, makes, lets_go, in_vain) in [
        ("global", "NewGlobalRef", "DeleteGlobalRef", 1),
        ("weak", "NewWeakGlobalRef", "DeleteWeakGlobalRef", 0),
        ("utf", "GetStringUTFChars", "ReleaseStringUTFChars", 0),
        ("elements", "GetIntArrayElements", "ReleaseIntArrayElements", 5),
    ] {
        ensure!(effective(makes) == Some((5 * CALLS, 5 * CALLS)), "{uses:?}");
        ensure!(effective(lets_go) == Some(((4 + in_vain) * CALLS, 4 * CALLS)), "{uses:?}");
        let ReferencesRow { made, released, .. } = report.references[kind];
        ensure!(made >= 5 * CALLS && made - released == CALLS, "{kind}: {:?}", report.references);
    }
    ensure!(effective("NewLocalRef") == Some((5 * CALLS, 5 * CALLS)), "{uses:?}");
    Ok(())
}

/// Check that calls of Java are told by method, in every way in which native code can call, to the unit: overloads and constructors, by native
/// method, by function and in total, whatever collector and however the JVM runs; and the same as rows.
#[test]
fn java_called_back() -> Result<()> {
    const TIMES: u64 = 3 * CALLS;
    const MEMBER: &str = "targets.Asking::member()I";
    traced_on_every_jdk(|jdk| {
        for options in [&["-XX:+UseSerialGC"][..], &["-Xint"], &["-Xcheck:jni"], &["-XX:+UseZGC"]] {
            let report = asked(jdk, options, &[("callEach", 3), ("call", 0)])?;
            let [twice, twice_long] = ["targets.Asking::twice(I)I", "targets.Asking::twice(J)J"];
            let native = report.method(Some("callEach"))?;
            for (function, java) in [
                ("CallIntMethod", MEMBER),
                ("CallIntMethodV", MEMBER),
                ("CallIntMethodA", MEMBER),
                ("CallNonvirtualIntMethod", MEMBER),
                ("CallStaticIntMethod", twice),
                ("CallStaticLongMethodA", twice_long),
                ("NewObject", "targets.Asking::<init>()V"),
            ] {
                let made =
                    native.jni.get(function).with_context(|| format!("{options:?}: no {function}: {native:?}"))?;
                let rows = made.java.as_deref().unwrap_or_default();
                let known: Vec<_> = rows.iter().map(JavaRow::brief).collect();
                ensure!(known == [(java.to_owned(), TIMES)], "{options:?}: {function}: {known:?}");
                let [row] = rows else { continue };
                ensure!((row.timed, row.self_ns, row.max_ns) == (TIMES, made.self_ns, made.max_ns), "{made:?}");
            }
            ensure!(native.jni["DeleteLocalRef"].java.is_none(), "{native:?}");
            let mut all: Vec<_> = report.java.iter().map(JavaRow::brief).collect();
            all.sort();
            let expected = [
                ("<init>()V", TIMES),
                ("back()V", CALLS),
                ("member()I", 4 * TIMES),
                ("twice(I)I", TIMES),
                ("twice(J)J", TIMES),
            ];
            let expected = expected.map(|(name, calls)| (format!("targets.Asking::{name}"), calls));
            ensure!(all == expected, "{options:?}: {all:?}");
        }
        let mut target = RemoteProcess::asking(jdk, &[])?;
        let jni = Jni::start(target.pid(), &["--format", "csv", "targets.Asking"])?;
        target.run(&format!("ask callEach {THREADS} {ROUNDS} 3"))?;
        let rows = jni.text()?;
        let row = format!(
            "\ntargets.Asking,callEach,(I)V,CallStaticIntMethod,calls,targets.Asking,twice,(I)I,{TIMES},{TIMES},"
        );
        ensure!(rows.contains(&row), "{rows}");
        let jni = Jni::start(target.pid(), &["--by", "java", "targets.Asking"])?;
        target.run(&format!("ask callEach {THREADS} {ROUNDS} 3"))?;
        let text = jni.text()?;
        ensure!(text.contains("JAVA METHOD / CALLED BY") && text.contains("targets.Asking::twice(long)\n"), "{text}");
        ensure!(text.contains("Java called: 2,520 calls of 4 methods: "), "{text}");
        target.exit()
    })
}

/// Check that nobody's are only the calls of natives that were running when a trace began, wherever natives are when it begins and ends.
#[test]
fn nobody_calls_at_either_end() -> Result<()> {
    const EACH: u64 = 3;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &[])?;
        target.run("ask leaf 1 1 0")?;
        target.leave_to(&format!("ask leaf {THREADS} {} 0", i32::MAX))?;
        let pid = target.pid().to_string();
        // Ended as soon as it has begun, it may have seen nothing.
        let traced = [&["jni", "--pid", &pid, "-d", "500ms"], &UNGOVERNED[..], &JSON].concat();
        for trace in 0..5 {
            let ended = nprof::run(&traced)?;
            ensure!(ended.code == Some(0), "{ended:?}");
            let report: JniReport = serde_json::from_str(&ended.stdout)?;
            let nobodys = report.calls_of(None).ok().and_then(|calls| calls.get("GetVersion").copied());
            ensure!(nobodys <= Some(THREADS * EACH), "trace {trace}: {nobodys:?} calls of nobody");
            let calls = report.method(Some("leaf"))?.calls;
            ensure!(calls > Some(10 * THREADS), "trace {trace}: hardly anything was called: {calls:?}");
        }
        target.kill()
    })
}

/// Check that look-ups are known by what they are about where nobody has read the names before the VM does.
#[test]
fn names_that_nobody_has_read() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let report = asked(jdk, &["-XX:+UseSerialGC"], &[("lookUpUntouched", 0)])?;
        let native = report.method(Some("lookUpUntouched"))?;
        for function in ["FindClass", "GetMethodID"] {
            ensure!(native.jni[function].redundant == Some(CALLS - 1), "{function}: {:?}", native.jni[function]);
        }
        Ok(())
    })
}

/// Check that calls of methods whose classes come and go are all there, under the right name or none.
#[test]
fn java_that_was_unloaded() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let report = asked(jdk, &["-XX:+UseSerialGC", "-Xmx64m"], &[("callFresh", 0)])?;
        let native = report.method(Some("callBackOf"))?;
        let rows = native.jni["CallStaticVoidMethod"].java.as_deref().unwrap_or_default();
        let known: Vec<_> = rows.iter().map(JavaRow::brief).collect();
        let is_right = |name: &str| ["targets.Asking$Other::back()V", "::"].contains(&name);
        ensure!(known.iter().map(|(_, calls)| calls).sum::<u64>() == CALLS, "{known:?}");
        ensure!(known.iter().all(|(name, _)| is_right(name)), "{known:?}");
        Ok(())
    })
}

/// Check that of 120 exceptions that are left and 90 that are cleared each class is told, whoever throws: the VM, Java that was called back, or
/// the native. With a collector whose references are no addresses only how many there are is.
#[test]
fn exceptions_by_class() -> Result<()> {
    const NAMES: [&str; 3] =
        ["java.lang.IllegalStateException", "java.lang.NoSuchMethodError", "targets.Asking$Failure"];
    traced_on_every_jdk(|jdk| {
        let [serial, shenandoah, z] = ["-XX:+UseSerialGC", "-XX:+UseShenandoahGC", "-XX:+UseZGC"];
        for options in [&[serial][..], &["-XX:+UseG1GC", "-Xint"], &["-Xcheck:jni"], &[shenandoah], &[z]] {
            let mut target = RemoteProcess::asking(jdk, options)?;
            let jni = Jni::start(target.pid(), &JSON)?;
            target.run("ask raiseAndLeave 4 10 0")?;
            target.run("ask raiseAndClear 3 10 0")?;
            let report = jni.finish()?;
            target.exit()?;
            let is_known = !options.contains(&z);
            let known = NAMES.map(|class| (Some(class), 40, 30));
            let expected = ExceptionsRow::of(if is_known { &known } else { &[(None, 120, 90)] });
            ensure!(report.method(Some("raise"))?.exceptions.as_ref() == Some(&expected), "{options:?}: {report:?}");
            ensure!(report.exceptions == expected, "{options:?}: {report:?}");
        }
        Ok(())
    })
}

/// Check that each call of a native method is a tree of what it calls, natives that Java calls meanwhile included, with exceptions where they
/// come from; that functions which are left out are in none; and that nothing is lost.
#[test]
fn trees_of_calls() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &["-XX:+UseSerialGC"])?;
        // Natives are looked up when they are called first, by natives that call JNI functions.
        target.run("ask call 1 1 0")?;
        let args = ["--tree", "--format", "json", "--exclude", "Exception*", "targets.Asking"];
        let jni = Jni::start(target.pid(), &args)?;
        target.run("ask call 1 2 0")?;
        target.run("ask raiseAndLeave 1 1 0")?;
        target.run("ask raiseAndClear 1 1 0")?;
        target.run("ask refer 1 1 3")?;
        let text = jni.text()?;
        target.exit()?;
        let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let (last, trees) = lines.split_last().context("nothing printed")?;
        let trees: Vec<String> = trees.iter().map(|tree| outline(&tree["root"])).collect();
        let call = "call[CallStaticVoidMethod(targets.Asking::back()V)[leaf[GetVersion*3]] GetVersion*2]";
        let [ours, java, vm] = ["IllegalStateException", "Failure", "NoSuchMethodError"];
        let raise = |how: &str, exception: &str, ended: &str| format!("raise{ended}{exception}[{how}!{exception}]");
        let raised = |ended| {
            [("GetMethodID", vm), ("CallStaticVoidMethod(targets.Asking::failing()V)", java), ("ThrowNew", ours)]
                .map(|(how, of)| raise(how, of, ended))
        };
        let refer = "refer[NewLocalRef*3+ NewGlobalRef*3+ NewWeakGlobalRef*3+ GetStringUTFChars*3+ GetIntArrayElements*3+ DeleteLocalRef*3- \
                     ReleaseIntArrayElements*5- DeleteGlobalRef*3- DeleteWeakGlobalRef*2- ReleaseStringUTFChars*2-]";
        let expected: Vec<String> = [call, call]
            .map(str::to_owned)
            .into_iter()
            .chain(raised("!"))
            .chain(raised("?"))
            .chain([refer.to_owned()])
            .collect();
        ensure!(trees == expected, "{trees:#?}");
        let losses = last["summary"]["losses"].as_object().context("no losses")?;
        ensure!(losses.values().all(|lost| lost == 0) && losses.contains_key("tree-calls"), "{losses:?}");
        ensure!(last["summary"]["shown"] == trees.len(), "{last}");
        Ok(())
    })
}

/// Check that what names no JNI function is refused, before anything is attached: it would hide everything, or nothing. What it resembles is
/// named.
#[test]
fn words_that_name_nothing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::asking(jdk, &[])?;
        let pid = target.pid().to_string();
        for (option, word, says) in [
            (
                "--include",
                "create",
                "`create` is no JNI function: give a glob on names such as 'Get*ID', or `creation`, ",
            ),
            ("--include", "GetMethodId*", "; nearest: GetMethodID"),
            ("--exclude", "release", ""),
            (
                "--exclude",
                "create",
                "pattern `create` matches no native method, and no JNI function, so --exclude leaves",
            ),
        ] {
            let ended = nprof::run(&["jni", "--pid", &pid, "--tree", "-d", "100ms", option, word])?;
            let expected = if says.is_empty() { Some(0) } else { Some(2) };
            ensure!(ended.code == expected && ended.stderr.contains(says), "{option} {word}: {ended:?}");
            ensure!(says.is_empty() || !ended.stderr.contains("tracing"), "{option} {word}: {ended:?}");
        }
        target.exit()
    })
}

/// A node and what is below it: `name*calls`, `+` for what is made and `-` for what is let go, `!` with what it threw or let pass, `?` with
/// what it caught, and which Java method a function calls.
fn outline(node: &Value) -> String {
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
    let calls = node["calls"].as_u64().filter(|calls| *calls > 1).map(|calls| format!("*{calls}")).unwrap_or_default();
    let step = match node["step"].as_str() {
        Some("creation") => "+",
        Some("release") => "-",
        _ => "",
    };
    let short =
        |class: &Value| class.as_str().unwrap_or_default().rsplit(['.', '$']).next().unwrap_or_default().to_owned();
    let exceptions = node["exceptions"].as_array().into_iter().flatten().map(|of| {
        let how = if of["caught"].as_u64() > Some(0) { "?" } else { "!" };
        format!("{how}{}", short(&of["class"]))
    });
    let below: Vec<String> = node["children"].as_array().into_iter().flatten().map(outline).collect();
    let below = if below.is_empty() { String::new() } else { format!("[{}]", below.join(" ")) };
    let callee = node["callee"].as_str().map(|callee| format!("({callee})")).unwrap_or_default();
    format!("{}{callee}{calls}{step}{}{below}", text("method"), exceptions.collect::<String>())
}

/// Check that a critical section within another is no section of its own, and that the longest lasted as long as its native slept.
#[test]
fn critical_sections() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let report = asked(jdk, &[], &[("hold", 2)])?;
        must_call(&report, "hold", &[("GetPrimitiveArrayCritical", 2), ("ReleasePrimitiveArrayCritical", 2)])?;
        let critical = report.critical.context("no critical section")?;
        let CriticalRow { sections, total_ns, longest_ns } = critical;
        ensure!(sections == CALLS && longest_ns >= 2_000_000 && total_ns >= 2_000_000 * CALLS, "{critical:?}");
        ensure!(report.method(Some("hold"))?.critical == report.critical, "{report:?}");
        let ReferencesRow { made, released, .. } = report.references["critical"];
        ensure!(made >= 2 * CALLS && made == released, "{:?}", report.references);
        Ok(())
    })
}

/// Check that direct buffers are counted with their bytes, for the native method that has made them.
#[test]
fn direct_buffers() -> Result<()> {
    const EACH: u64 = 20;
    traced_on_every_jdk(|jdk| {
        for options in [&[][..], &["-Xcheck:jni"]] {
            let report = asked(jdk, options, &[("buffers", EACH), ("call", 0)])?;
            let expected = BuffersRow { made: EACH * CALLS, bytes: CALLS * EACH * (EACH + 1) / 2, largest_bytes: EACH };
            let of_native = report.method(Some("buffers"))?.direct_buffers;
            ensure!((of_native, report.direct_buffers) == (expected, expected), "{options:?}: {report:?}");
            ensure!(report.method(Some("call"))?.direct_buffers.made == 0, "{report:?}");
        }
        Ok(())
    })
}

/// Check that functions which the VM checks (`-Xcheck:jni`) are counted as they are called, and that with a collector whose handles are no
/// addresses everything but redundant look-ups of members is.
#[test]
fn checked_and_coloured() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let natives = [("lookUp", 0), ("call", 0), ("refer", 5), ("read", 9)];
        let checked = asked(jdk, &["-Xcheck:jni", "-XX:+UseSerialGC"], &natives)?;
        must_call(&checked, "call", &CALL)?;
        must_call(&checked, "read", &[("GetIntField", 9)])?;
        must_refer(&checked)?;
        ensure!(checked.not_seen.is_empty(), "{:?}", checked.not_seen);
        let coloured = asked(jdk, &["-XX:+UseZGC"], &natives)?;
        must_refer(&coloured)?;
        let look_up = &coloured.method(Some("lookUp"))?.jni;
        ensure!(look_up["GetFieldID"].redundant.is_none() && !coloured.look_ups.members_told, "{look_up:?}");
        ensure!(look_up["FindClass"].redundant == Some(CALLS - 1), "{look_up:?}");
        Ok(())
    })
}

/// Check the table: the rows of both views, and that the last line says what would be won.
#[test]
fn tables() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &[])?;
        for (by, row) in [("method", "lookUp (120 calls"), ("function", "GetMethodID")] {
            let jni = Jni::start(target.pid(), &["--by", by, "targets.Asking"])?;
            target.run(&format!("ask lookUp {THREADS} {ROUNDS} 0"))?;
            let text = jni.text()?;
            ensure!(text.contains(row) && text.contains(": 119 redundant, "), "{text}");
            let last = text.lines().last().unwrap_or_default();
            ensure!(last.starts_with("would be won by keeping what was looked up: "), "{text}");
            ensure!(text.contains("not seen: GetBooleanField, ") && text.contains("losses: none"), "{text}");
        }
        target.exit()
    })
}
