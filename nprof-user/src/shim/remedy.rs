//! What to do about a shim that cannot be had.

/// What helps where the shim cannot be had.
#[derive(Debug, Default)]
pub(super) struct Remedy {
    /// So that it can be.
    fix: Option<String>,
    /// Whether probes can be had instead.
    has_other_tier: bool,
}

impl Remedy {
    pub(super) fn just(fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), has_other_tier: false }
    }

    pub(super) fn or_other_tier(fix: &str) -> Self {
        Self { has_other_tier: true, ..Self::just(fix) }
    }

    pub(super) fn other_tier() -> Self {
        Self { fix: None, has_other_tier: true }
    }

    /// Where probes would do as well.
    pub(super) fn with_other_tier(self) -> Option<String> {
        match (self.fix, self.has_other_tier) {
            (Some(fix), true) => Some(format!("{fix}; or use --tier kernel")),
            (None, true) => Some("use --tier kernel, where that works with this JVM".to_owned()),
            (fix, false) => fix,
        }
    }

    /// Where they would not.
    pub(super) fn without_other_tier(self) -> Option<String> {
        self.fix
    }
}
