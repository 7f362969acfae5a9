//! JNI functions under `nprof serve`: what natives ask of the VM is in the metrics of their JVM, to the unit, and nothing of it stays
//! when the JVM has gone.

use anyhow::{Result, ensure};
use nprof_tests::exposition::Exposition;
use nprof_tests::jdk::Jdk;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::{Serve, UNGOVERNED};

const JVM: &str = "targets.Asking";
const THREADS: u64 = 3;
const ROUNDS: u64 = 40;
const CALLS: u64 = THREADS * ROUNDS;
const FUNCTION_CALLS: &str = "nprof_jni_calls_total";
const REDUNDANT: &str = "nprof_jni_redundant_lookups_total";
const EXCEPTIONS: &str = "nprof_jni_exceptions_total";
const LIVE: &str = "nprof_jni_references_live";
const ILLEGAL_STATE: &str = "java.lang.IllegalStateException";
/// What natives do that leave something behind of every kind that is kept.
const EVERYTHING: [(&str, u64); 6] =
    [("lookUp", 0), ("lookUpIn", 0), ("refer", 5), ("throw", 2), ("hold", 1), ("outside", 7)];

/// A service that traces the natives of these JVMs, and with `--jni-for` JNI functions.
fn serve(options: &[&str]) -> Result<Serve> {
    Serve::start(&[&UNGOVERNED[..], &["--jvm", JVM, "targets.Asking"], options].concat())
}

fn ask(target: &mut RemoteProcess, natives: &[(&str, u64)]) -> Result<()> {
    natives
        .iter()
        .try_for_each(|(what, amount)| target.run(&format!("ask {what} {THREADS} {ROUNDS} {amount}")).map(drop))
}

/// A target in which everything has been done once, so that what libraries look up at their first use is over.
fn warm(jdk: &Jdk, options: &[&str]) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::asking(jdk, options)?;
    for (what, amount) in EVERYTHING {
        target.run(&format!("ask {what} 1 1 {amount}"))?;
    }
    Ok(target)
}

/// The value of a series, which has to be there.
fn must_be(samples: &Exposition, name: &str, labels: &[(&str, &str)], expected: u64) -> Result<()> {
    let value = samples.value(name, labels)?;
    ensure!(value == Some(expected as f64), "{name}{labels:?}: {value:?}, not {expected}");
    Ok(())
}

/// The exceptions of a native, of one class, in a state.
fn exceptions(samples: &Exposition, jvm: &str, native: &str, class: &str, state: &str) -> Result<Option<f64>> {
    let labels = [("jvm", jvm), ("class", JVM), ("method", native), ("exception", class), ("state", state)];
    samples.value(EXCEPTIONS, &labels)
}

/// Waits until exceptions are told: the name of their class is read a moment after they are thrown.
fn with_exceptions(serve: &Serve, jvm: &str, class: &str) -> Result<Exposition> {
    serve.scrape_until("the exceptions", |samples| Ok(exceptions(samples, jvm, "fail", class, "pending")?.is_some()))
}

/// Checks all that natives have done that were asked for [`EVERYTHING`], so many times, in JVMs of this name.
fn must_have_everything(samples: &Exposition, jvm: &str, calls: u64) -> Result<()> {
    for (function, each) in [
        ("GetVersion", 7),
        ("GetStaticFieldID", 2),
        ("NewWeakGlobalRef", 5),
        ("DeleteWeakGlobalRef", 4),
        ("GetPrimitiveArrayCritical", 2),
        ("ThrowNew", 3),
    ] {
        must_be(samples, FUNCTION_CALLS, &[("jvm", jvm), ("function", function)], each * calls)?;
    }
    for function in ["GetStaticFieldID", "GetStaticMethodID"] {
        // Of two classes.
        must_be(samples, REDUNDANT, &[("jvm", jvm), ("function", function)], 2 * (calls - 1))?;
    }
    must_be(samples, REDUNDANT, &[("jvm", jvm), ("function", "FindClass")], calls - 1)?;
    for kind in ["global", "weak", "utf", "elements"] {
        must_be(samples, LIVE, &[("jvm", jvm), ("kind", kind)], calls)?;
    }
    for (what, each) in [("made", 5), ("released", 4)] {
        let name = format!("nprof_jni_references_{what}_total");
        must_be(samples, &name, &[("jvm", jvm), ("kind", "weak")], each * calls)?;
    }
    must_be(samples, LIVE, &[("jvm", jvm), ("kind", "critical")], 0)?;
    must_be(samples, "nprof_jni_critical_sections_total", &[("jvm", jvm)], calls)?;
    let held = samples.value("nprof_jni_critical_section_seconds_total", &[("jvm", jvm)])?;
    ensure!(held >= Some(calls as f64 * 1e-3), "{held:?} s in critical sections of a millisecond");
    for (native, class, state, each) in [
        ("fail", ILLEGAL_STATE, "pending", 1),
        ("fail", ILLEGAL_STATE, "cleared", 2),
        ("lookUp", "java.lang.NoSuchMethodError", "cleared", 1),
    ] {
        let count = exceptions(samples, jvm, native, class, state)?;
        ensure!(count == Some((each * calls) as f64), "{native}: {count:?} {class} {state}, not {each} x {calls}");
    }
    must_be(samples, "nprof_jni_exceptions_hidden", &[("jvm", jvm)], 0)
}

fn must_be_lossless(samples: &Exposition) -> Result<()> {
    let lost: Vec<_> = samples.with("nprof_losses_total", &[]).filter(|sample| sample.value > 0.0).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    Ok(())
}

/// Check every number of natives that do all that is told, with several threads at once, that times are there, and that JNI functions
/// are no native methods.
#[test]
fn everything_to_the_unit() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = warm(jdk, &[])?;
        let serve = serve(&["--jni-for", JVM])?;
        ask(&mut target, &EVERYTHING)?;
        let samples = with_exceptions(&serve, JVM, ILLEGAL_STATE)?;
        must_have_everything(&samples, JVM, CALLS)?;
        let critical = [("jvm", JVM), ("function", "GetPrimitiveArrayCritical"), ("family", "critical")];
        let time = samples.value("nprof_jni_call_self_seconds_total", &critical)?;
        let parts = ["on_cpu", "off_cpu"].map(|part| format!("nprof_jni_call_{part}_seconds_total"));
        let parts: f64 = parts.iter().filter_map(|name| samples.value(name, &critical).ok().flatten()).sum();
        ensure!(time > Some(0.0) && time.is_some_and(|time| (parts / time - 1.0).abs() < 1e-6), "{time:?}: {parts}");
        let unseen = samples.count("nprof_jni_functions", &[("state", "unseen")])?;
        let timed = samples.count("nprof_jni_functions", &[("state", "timed")])?;
        ensure!((8..20).contains(&unseen) && unseen + timed > 220, "{unseen} and {timed}");
        let of_methods = samples.with("nprof_native_calls_total", &[("class", "JNIEnv")]).count();
        ensure!(of_methods == 0 && samples.with("nprof_demoted_jni_function", &[]).next().is_none());
        let natives: u64 = ["timed", "counted", "off", "detached"]
            .map(|state| samples.count("nprof_methods", &[("state", state)]))
            .into_iter()
            .sum::<Result<u64>>()?;
        let announced = serve.announcement();
        ensure!(announced.ends_with(&format!("tracing {natives} methods of 1 JVM")), "{announced}");
        ensure!(samples.count("nprof_probes", &[])? == natives + timed, "{natives} and {timed}");
        must_be_lossless(&samples)?;
        target.exit()
    })
}

/// Check that with handles that are no addresses nothing is said of what is not known: which look-ups of members are the same, and which
/// class exceptions are of.
#[test]
fn what_is_not_known() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = warm(jdk, &["-XX:+UseZGC"])?;
        let serve = serve(&["--jni-for", JVM])?;
        ask(&mut target, &EVERYTHING)?;
        let samples = with_exceptions(&serve, JVM, "unknown")?;
        let told: Vec<_> = samples.with(REDUNDANT, &[]).collect();
        ensure!(told.len() == 1, "{told:?}");
        must_be(&samples, REDUNDANT, &[("jvm", JVM), ("function", "FindClass")], CALLS - 1)?;
        let left = exceptions(&samples, JVM, "fail", "unknown", "pending")?;
        ensure!(left == Some(CALLS as f64), "{left:?} exceptions");
        must_be(&samples, LIVE, &[("jvm", JVM), ("kind", "weak")], CALLS)?;
        must_be_lossless(&samples)?;
        target.exit()
    })
}

/// Check that two JVMs at the same time have their own numbers, those of nobody's calls included, and that nothing of them stays in
/// the kernel when they have gone: JVMs that come later get their places and begin at nothing.
#[test]
fn side_by_side_and_one_after_the_other() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let serve = serve(&["--jni-for", "*", "--label", "jvm={property:side}"])?;
        let kept = |serve: &Serve| -> Result<[usize; 4]> {
            let held = BpfObjects::held_by(serve.pid())?;
            Ok([
                held.entries::<u64, [u64; 40]>("NPROF_JNI")?,
                held.entries::<u64, u64>("NPROF_LOOK_UPS")?,
                held.entries::<[u64; 2], u64>("NPROF_THROWN")?,
                held.entries::<u32, [u64; 3]>("NPROF_HOLDS")?,
            ])
        };
        for round in ["a", "b", "c"] {
            let names = [format!("left-{round}"), format!("right-{round}")];
            let [left, right] = [names[0].as_str(), names[1].as_str()];
            let mut targets = Vec::new();
            for name in &names {
                let mut target = RemoteProcess::asking(jdk, &[&format!("-Dside={name}")])?;
                // The natives are found later than the functions.
                let native = [("jvm", name.as_str()), ("class", JVM), ("method", "outside")];
                let of = [("jvm", name.as_str()), ("function", "GetVersion")];
                serve.scrape_until("the first calls", |samples| {
                    target.run("ask outside 1 1 1")?;
                    let calls = samples.count("nprof_native_calls_total", &native)?;
                    Ok(calls > 0 && samples.value(FUNCTION_CALLS, &of)?.is_some())
                })?;
                targets.push(target);
            }
            // What a JVM looks up at its start is part of its numbers.
            let before = serve.samples()?;
            ask(&mut targets[0], &EVERYTHING)?;
            ask(&mut targets[1], &[("outside", 3), ("throw", 1)])?;
            let samples = with_exceptions(&serve, left, ILLEGAL_STATE)?;
            let rose = |name, labels: &[(&str, &str)]| {
                Ok::<_, anyhow::Error>(
                    samples.value(name, labels)?.unwrap_or(0.0) - before.value(name, labels)?.unwrap_or(0.0),
                )
            };
            for (name, labels, expected) in [
                (FUNCTION_CALLS, [("jvm", left), ("function", "GetVersion")], 7 * CALLS),
                (FUNCTION_CALLS, [("jvm", right), ("function", "GetVersion")], 3 * CALLS),
                (REDUNDANT, [("jvm", left), ("function", "GetStaticFieldID")], 2 * (CALLS - 1)),
                (REDUNDANT, [("jvm", right), ("function", "GetStaticFieldID")], 0),
                (LIVE, [("jvm", left), ("kind", "weak")], CALLS),
                (LIVE, [("jvm", right), ("kind", "weak")], 0),
            ] {
                let rose = rose(name, &labels)?;
                ensure!(rose == expected as f64, "{round}: {name}{labels:?} rose by {rose}, not {expected}");
            }
            for (name, sections) in [(left, CALLS), (right, 0)] {
                let rose = rose("nprof_jni_critical_sections_total", &[("jvm", name)])?;
                ensure!(rose == sections as f64, "{round}: {rose} critical sections of {name}");
            }
            let samples = with_exceptions(&serve, right, ILLEGAL_STATE)?;
            for (name, each) in [(left, 2), (right, 1)] {
                let cleared = exceptions(&samples, name, "fail", ILLEGAL_STATE, "cleared")?;
                ensure!(cleared == Some((each * CALLS) as f64), "{round}: {cleared:?} cleared in {name}");
            }
            must_be_lossless(&samples)?;
            ensure!(kept(&serve)?[..3].iter().all(|entries| *entries > 0), "nothing is kept of what was done");
            targets.into_iter().try_for_each(RemoteProcess::exit)?;
            // Nothing says when: the records are given to others once the process is gone.
            serve.scrape_until("nothing kept", |_| Ok(kept(&serve)? == [0; 4]))?;
            // What has ended stays in the metrics.
            let weak = [("jvm", left), ("kind", "weak")];
            let samples = serve.samples()?;
            must_be(&samples, LIVE, &weak, 0)?;
            must_be(&samples, "nprof_jni_references_made_total", &weak, 5 * CALLS)?;
        }
        ensure!(serve.finish()?.success(), "the service has not ended well");
        Ok(())
    })
}

/// Check that without the option, and in JVMs that it does not name, no JNI function has a probe or a metric.
#[test]
fn off_by_default() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = warm(jdk, &[])?;
        for options in [&[][..], &["--jni-for", "targets.Other"]] {
            let serve = serve(options)?;
            ask(&mut target, &[("throw", 2), ("hold", 1)])?;
            let samples = serve.samples()?;
            let metrics: Vec<_> = samples.types.keys().filter(|name| name.contains("jni")).collect();
            ensure!(metrics.is_empty(), "{options:?}: {metrics:?}");
            let natives = samples.with("nprof_methods", &[]).map(|sample| sample.value).sum::<f64>();
            ensure!(samples.value("nprof_probes", &[])? == Some(natives), "{options:?}: other probes than {natives}");
            let fail = [("class", JVM), ("method", "fail")];
            must_be(&samples, "nprof_native_calls_total", &fail, CALLS)?;
            ensure!(serve.finish()?.success(), "the service has not ended well");
        }
        target.exit()
    })
}

/// Check that JNI functions are under the budget: what is too expensive is demoted, which the metrics say, and how many references there are
/// is not told any more once a call was not seen that makes or releases them.
#[test]
fn within_the_budget() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = warm(jdk, &[])?;
        let options = ["--max-overhead", "0.5%", "--jvm", JVM, "--jni-for", JVM, "targets.Asking"];
        let serve = Serve::start(&options)?;
        let weak = [("jvm", JVM), ("kind", "weak")];
        let demoted = |samples: &Exposition, function| {
            samples.with("nprof_demoted_jni_function", &[("function", function)]).next().is_some()
        };
        serve.scrape_until("a demoted function", |samples| {
            target.run("ask outside 2 20 5000")?;
            Ok(demoted(samples, "GetVersion"))
        })?;
        // Of others nothing was missed.
        must_be(&serve.samples()?, LIVE, &weak, 0)?;
        let samples = serve.scrape_until("references that are not watched", |samples| {
            target.run("ask refer 2 2000 5")?;
            Ok(samples.value(LIVE, &weak)?.is_none())
        })?;
        let unwatched = ["NewWeakGlobalRef", "DeleteWeakGlobalRef"].map(|function| {
            let of = [("function", function)];
            let gap = samples.with("nprof_jni_unwatched_seconds_total", &of).next().is_some();
            gap || samples.with("nprof_jni_calls_untimed_total", &of).next().is_some()
        });
        ensure!(unwatched.contains(&true), "nothing says why");
        target.exit()
    })
}
