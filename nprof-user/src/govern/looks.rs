//! What looks at detached functions may cost, and when the next one is paid for.

/// The part of the budget that looks may use in the long run.
const SHARE_OF_BUDGET: f64 = 0.2;

/// The looks of one JVM. The next one waits until the last one is paid for: nobody knows before a look what it will cost,
/// as it is there to find that out.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// What looks have cost and is not paid for, in nanoseconds.
    debt_ns: f64,
    /// What looks have cost since the last period, in nanoseconds.
    recent_ns: f64,
}

impl Looks {
    /// Whether a look may start.
    pub(super) fn may_start(&self) -> bool {
        self.debt_ns <= 0.0
    }

    /// Notes what a look has cost.
    pub(super) fn charge(&mut self, cost_ns: f64) {
        self.debt_ns += cost_ns;
        self.recent_ns += cost_ns;
    }

    /// What looks have cost since this was last asked, in nanoseconds.
    pub(super) fn take_recent(&mut self) -> f64 {
        std::mem::take(&mut self.recent_ns)
    }

    /// What looks may cost where tracing may cost `limit_ns`.
    pub(super) fn share_of(limit_ns: f64) -> f64 {
        SHARE_OF_BUDGET * limit_ns
    }

    /// Pays for looks out of a period in which tracing could cost `limit_ns`: their part of that, or `left_ns` if it is more.
    pub(super) fn pay(&mut self, limit_ns: f64, left_ns: f64) {
        self.debt_ns = (self.debt_ns - Self::share_of(limit_ns).max(left_ns)).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the next look waits until a fifth of the budget has paid for it.
    #[test]
    fn next_look_waits_for_its_pay() {
        let mut looks = Looks::default();
        assert!(looks.may_start());
        looks.charge(3.5e6);
        assert_eq!(looks.take_recent(), 3.5e6);
        assert_eq!(looks.take_recent(), 0.0);
        let periods = (0..).take_while(|_| {
            looks.pay(10e6, 0.0);
            !looks.may_start()
        });
        assert_eq!(periods.count(), 1);
        looks.charge(3.5e6);
        looks.pay(10e6, 3.5e6);
        assert!(looks.may_start(), "there was more left than that");
    }
}
