//! Who has called JNI functions, where that is estimated from sampled calls.

use serde::Serialize;

use crate::model::{JniCaller, JniSnapshot};
use crate::render::document::Names;

/// What one caller has of the calls of a JNI function, estimated; without names for what no Java method has called.
#[derive(Serialize)]
pub(super) struct Caller<'a> {
    function: &'a str,
    #[serde(flatten)]
    names: Names<'a>,
    samples: u64,
    calls: u64,
    calls_error: u64,
    self_ns: u64,
    self_error_ns: u64,
    on_cpu_ns: u64,
    on_cpu_error_ns: u64,
}

impl<'a> Caller<'a> {
    pub(super) fn of(jni: &'a JniSnapshot, of: &'a JniCaller) -> Self {
        Self {
            function: jni.function(of.function),
            names: of.caller.as_ref().into(),
            samples: of.samples,
            calls: of.calls.value,
            calls_error: of.calls.error,
            self_ns: of.self_ns.value,
            self_error_ns: of.self_ns.error,
            on_cpu_ns: of.on_cpu_ns.value,
            on_cpu_error_ns: of.on_cpu_ns.error,
        }
    }
}
