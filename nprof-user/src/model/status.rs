//! What a running `nprof serve` says of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Tracing;

/// The state of the whole service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The version of nprof.
    pub nprof: String,
    /// Seconds since it began to serve.
    pub uptime_s: u64,
    /// The most that tracing may cost a JVM, as a share of its time: 0.02 is 2 %. `None` for any cost.
    pub overhead_budget: Option<f64>,
    /// What a probed call costs here, if that has been measured.
    pub call_cost: Option<CallCost>,
    /// The JVMs that are traced.
    pub jvms: Vec<JvmStatus>,
    /// What was not measured as it should have been, by reason.
    pub losses: BTreeMap<String, u64>,
    /// The profiles, if they are wanted.
    #[serde(default)]
    pub profiles: Option<ProfilesStatus>,
}

/// The windows of all JVMs' profiles, and what became of the stacks that were to be in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProfilesStatus {
    /// How many windows there are.
    pub windows: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// How many bytes they may take.
    pub most_bytes: u64,
    /// How many windows were dropped before they were an hour old, because there was no room.
    pub dropped: u64,
    /// Stacks that were taken.
    pub stacks: u64,
    /// Stacks that were chosen and not taken, because there were too many at once.
    pub over_pace: u64,
    /// Stacks for which the ring had no room.
    pub no_room: u64,
    /// Stacks that were taken and that nobody could read any more.
    pub unread: u64,
}

/// What tracing adds to one call, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// To one that is counted.
    pub counted_ns: u64,
    /// To one that is counted and timed.
    pub timed_ns: u64,
}

/// The state of one JVM.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JvmStatus {
    /// Its process id.
    pub pid: u32,
    /// Its main class or jar.
    pub main: String,
    /// Its labels in metrics.
    pub labels: BTreeMap<String, String>,
    /// How many functions are in which state.
    pub functions: BTreeMap<Tracing, usize>,
    /// How many of them are in a lesser state than was asked for.
    pub demoted: usize,
    /// The share of its time that tracing costs at the moment, as estimated.
    pub cost_share: Option<f64>,
    /// The demoted functions, or the first of them where they are many.
    pub demoted_functions: Vec<FunctionStatus>,
}

/// A function that was demoted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// The class of the method that is bound to it.
    pub class: String,
    /// That method's name.
    pub method: String,
    /// What is done at its calls.
    pub state: Tracing,
    /// What was asked for.
    pub wanted: Tracing,
    /// Why they differ, in words.
    pub why: String,
    /// Calls per second when it was last watched.
    pub rate: Option<f64>,
}

#[cfg(test)]
impl Status {
    /// A status with something in every field, for the tests of those that carry and show it.
    pub(crate) fn sample() -> Self {
        let demoted = FunctionStatus {
            class: "java.util.zip.CRC32".to_owned(),
            method: "updateBytes0".to_owned(),
            state: Tracing::Counted,
            wanted: Tracing::Timed,
            why: "over the budget".to_owned(),
            rate: Some(812_345.6),
        };
        let unseen = FunctionStatus {
            class: "java.lang.System".to_owned(),
            method: "nanoTime\u{1b}[2J".to_owned(),
            state: Tracing::Detached,
            rate: None,
            ..demoted.clone()
        };
        let busy = JvmStatus {
            pid: 1234,
            main: "com.acme.shop.Main".to_owned(),
            labels: [("jvm", "com.acme.shop.Main"), ("team", "pay")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
            functions: [(Tracing::Timed, 210), (Tracing::Counted, 1), (Tracing::Detached, 1)].into(),
            demoted: 3,
            cost_share: Some(0.0187),
            demoted_functions: vec![demoted, unseen],
        };
        let idle = JvmStatus {
            pid: 77,
            main: "shop-1.2.jar".to_owned(),
            labels: [("jvm".to_owned(), "shop-1.2.jar".to_owned())].into(),
            functions: [(Tracing::Off, 5)].into(),
            ..JvmStatus::default()
        };
        Self {
            nprof: "0.1.0".to_owned(),
            uptime_s: 5400,
            overhead_budget: Some(0.02),
            call_cost: Some(CallCost { counted_ns: 620, timed_ns: 1240 }),
            jvms: vec![busy, idle],
            losses: [("too-deep", 0), ("unreturned", 3)].map(|(reason, n)| (reason.to_owned(), n)).into(),
            profiles: Some(ProfilesStatus {
                windows: 120,
                bytes: 3 << 20,
                most_bytes: 32 << 20,
                dropped: 4,
                stacks: 50_000,
                over_pace: 70,
                no_room: 0,
                unread: 2,
            }),
        }
    }
}
