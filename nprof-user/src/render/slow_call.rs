//! Slow calls in JSON: in the document of `trace`, and each as a line of its own.

use serde::Serialize;

use crate::model::{self, Collectors, Jvm, SlowCalls};
use crate::render::arguments::Arguments;
use crate::render::collected::Collected;

/// The slow calls of a JVM; only where they are looked for.
#[derive(Serialize)]
pub(super) struct Slow<'a> {
    threshold_ns: Option<u64>,
    /// Only where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<OfPattern<'a>>,
    total: u64,
    unread: u64,
    calls: Vec<SlowCall<'a>>,
}

#[derive(Serialize)]
struct OfPattern<'a> {
    pattern: &'a str,
    threshold_ns: Option<u64>,
}

/// What is known of one call.
#[derive(Serialize)]
pub(super) struct SlowCall<'a> {
    ended: String,
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    time_ns: u64,
    off_cpu_ns: Option<u64>,
    on_cpu_ns: Option<u64>,
    tid: u32,
    thread: &'a str,
    tier: &'static str,
    callers: &'a [String],
    /// Only where arguments are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Option<Arguments<'a>>>,
    wait: Option<Wait<'a>>,
    /// Only where something is collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    collected: Option<Option<Collected>>,
}

#[derive(Serialize)]
struct Wait<'a> {
    ns: u64,
    kernel: &'a [String],
}

impl<'a> Slow<'a> {
    pub(super) fn of(slow: &'a SlowCalls, collectors: Collectors) -> Self {
        let calls = slow.slowest.iter().map(|call| SlowCall::of(call, collectors)).collect();
        let patterns =
            slow.by_pattern.iter().map(|(pattern, threshold_ns)| OfPattern { pattern, threshold_ns: *threshold_ns });
        Self {
            threshold_ns: slow.threshold_ns,
            patterns: patterns.collect(),
            total: slow.total,
            unread: slow.unread,
            calls,
        }
    }
}

impl<'a> SlowCall<'a> {
    pub(super) fn of(call: &'a model::SlowCall, collectors: Collectors) -> Self {
        Self {
            ended: call.ended.to_string(),
            class: &call.method.class,
            method: &call.method.name,
            signature: &call.method.signature,
            time_ns: call.time_ns,
            off_cpu_ns: call.off_cpu_ns,
            on_cpu_ns: call.off_cpu_ns.map(|off_ns| call.time_ns.saturating_sub(off_ns)),
            tid: call.tid,
            thread: &call.thread,
            tier: if call.by_stub { "stub" } else { "kernel" },
            callers: &call.callers,
            arguments: call.arguments.as_ref().map(|known| known.as_deref().map(Arguments::of)),
            wait: call.wait.as_ref().map(|wait| Wait { ns: wait.ns, kernel: &wait.frames }),
            collected: Collected::of_call(collectors, call.consumed.as_deref()),
        }
    }
}

/// A line about one call: what the document of `trace` says of it, after the JVM's process id and main class or jar.
#[derive(Serialize)]
struct Line<'a> {
    pid: u32,
    main: &'a str,
    #[serde(flatten)]
    call: Option<SlowCall<'a>>,
    dropped: u64,
}

/// A call as a line of JSON. `dropped` slow calls of the JVM were not told before it.
#[must_use]
pub fn slow_call_line(jvm: &Jvm, call: &model::SlowCall, dropped: u64) -> Vec<u8> {
    line(jvm, Some(SlowCall::of(call, Collectors::default())), dropped)
}

/// A line of JSON that says how many slow calls of a JVM were not told.
#[must_use]
pub fn slow_calls_dropped_line(jvm: &Jvm, dropped: u64) -> Vec<u8> {
    line(jvm, None, dropped)
}

fn line(jvm: &Jvm, call: Option<SlowCall<'_>>, dropped: u64) -> Vec<u8> {
    // Numbers and text alone: there is nothing that JSON could not say.
    let mut line = serde_json::to_vec(&Line { pid: jvm.pid.0, main: &jvm.main, call, dropped }).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SlowWait;
    use crate::render::samples;

    /// Check what is said of a call, field by field and in order, of one that nothing else is known of, too.
    #[test]
    fn a_line() {
        let jvm = samples::snapshot().jvm;
        let line = |call: &model::SlowCall| String::from_utf8(slow_call_line(&jvm, call, 3)).unwrap();
        let mut call = model::SlowCall { callers: vec!["a.B::m:1".to_owned()], ..samples::slow_call() };
        let beginning = format!(r#"{{"pid":{},"main":"{}","ended":"#, jvm.pid.0, jvm.main);
        let method = r#""class":"a.A","method":"read","signature":"()V","time_ns":24300000,"#;
        let thread = r#""tid":77,"thread":"pool\u001b-1","#;
        let text = line(&call);
        assert!(text.starts_with(&beginning), "{text}");
        let rest = format!(
            "{method}\"off_cpu_ns\":null,\"on_cpu_ns\":null,{thread}\"tier\":\"kernel\",\"callers\":[\"a.B::m:1\"],\"wait\":null,\"dropped\":3}}\n"
        );
        assert!(text.ends_with(&rest), "{text}");
        (call.off_cpu_ns, call.by_stub) = (Some(24_000_000), true);
        call.wait = Some(SlowWait { ns: 5, frames: vec!["ep_poll".to_owned()] });
        let text = line(&call);
        let rest = format!("{method}\"off_cpu_ns\":24000000,\"on_cpu_ns\":300000,{thread}\"tier\":\"stub\",");
        assert!(text.contains(&rest) && text.contains(r#""wait":{"ns":5,"kernel":["ep_poll"]}"#), "{text}");
        let dropped = String::from_utf8(slow_calls_dropped_line(&jvm, 7)).unwrap();
        assert_eq!(dropped, format!("{{\"pid\":{},\"main\":\"{}\",\"dropped\":7}}\n", jvm.pid.0, jvm.main));
    }
}
