//! What a diagnosis says: faults of a program with what each costs, what was looked at, and what is not known.

/// What a cost is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostKind {
    /// Threads ran for so long.
    Cpu,
    /// Threads waited for so long.
    Wait,
    /// Collections could not begin for so long.
    Held,
    /// What tracing itself has cost.
    Tracing,
}

impl CostKind {
    /// The word for documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wait => "wait",
            Self::Held => "held",
            Self::Tracing => "tracing",
        }
    }
}

/// How well a cost is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// It was measured, of every call.
    Measured,
    /// It is estimated from a part of the calls.
    About,
    /// It is no less.
    AtLeast,
    /// It is no more.
    AtMost,
}

impl Certainty {
    /// The word for documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::About => "about",
            Self::AtLeast => "at-least",
            Self::AtMost => "at-most",
        }
    }
}

/// What a fault costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCost {
    /// Nanoseconds in each second, of all threads together.
    pub ns_per_s: u64,
    /// Of what.
    pub kind: CostKind,
    /// How well that is known.
    pub certainty: Certainty,
}

/// Something that a program does at a cost, and could do without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The rule that has found it.
    pub rule: &'static str,
    /// The native method, by class and name, or what else it is about.
    pub method: String,
    /// What it costs.
    pub cost: FaultCost,
    /// What it is, in a sentence.
    pub what: String,
    /// The numbers that it is concluded from.
    pub evidence: String,
    /// Who called, the innermost first, where one call was looked at.
    pub stack: Vec<String>,
    /// What to change.
    pub advice: String,
}

/// What was found in one JVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The dearest first.
    pub faults: Vec<Fault>,
    /// What was looked for: each rule, and what it finds.
    pub rules: Vec<(&'static str, &'static str)>,
    /// How many native methods have been called, and how many JNI functions.
    pub called: [usize; 2],
    /// How many calls of both there were.
    pub calls: u64,
    /// From which cost on something is a fault, in nanoseconds in each second.
    pub least_ns_per_s: u64,
    /// What is not known, and why.
    pub unknown: Vec<String>,
}
