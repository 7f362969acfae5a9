//! What a JVM is called in metrics.

/// The labels that name a JVM in metrics. JVMs with the same labels are one in all series: their numbers are added up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JvmLabels(
    /// Label names and values in the order of output; the first is `jvm`. The names are legal, different from each
    /// other and none of [`JvmLabels::RESERVED`]; the values may hold anything.
    pub Vec<(String, String)>,
);

impl JvmLabels {
    /// The label names that metrics use for other things.
    pub const RESERVED: [&str; 15] = [
        "class",
        "method",
        "library",
        "signature",
        "function",
        "family",
        "kind",
        "exception",
        "state",
        "reason",
        "version",
        "target",
        "outcome",
        "le",
        "quantile",
    ];
}
