//! How much a shim may say in a while: a real one stays far below, and one that a target plays must not fill nprof's
//! memory, its time or its log.

use std::time::Instant;

/// Messages at once: all natives of the largest program, told five times over; and a second, for classes that come and go.
const MESSAGES: Bucket = Bucket::new(1 << 18, 1 << 14);
/// Bytes at once and a second.
const BYTES: Bucket = Bucket::new(64 << 20, 4 << 20);
/// Notes at once and a second. A shim has one to say now and then.
const NOTES: Bucket = Bucket::new(8, 1);
/// How much of a note is kept, in characters.
const NOTE: usize = 300;

/// What a shim may still say.
#[derive(Debug)]
pub(super) struct Allowance {
    messages: Bucket,
    bytes: Bucket,
    notes: Bucket,
    /// Notes that were left out since the last that was not.
    unsaid: u64,
    /// When it was last reckoned.
    at: Instant,
}

impl Allowance {
    pub(super) fn new(now: Instant) -> Self {
        Self { messages: MESSAGES, bytes: BYTES, notes: NOTES, unsaid: 0, at: now }
    }

    /// Whether another message, of so many bytes, is one too many.
    pub(super) fn is_exceeded(&mut self, bytes: usize, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        for bucket in [&mut self.messages, &mut self.bytes, &mut self.notes] {
            bucket.fill(seconds);
        }
        !(self.messages.take(1) && self.bytes.take(bytes))
    }

    /// A note as it is passed on; `None` where there were too many, which the next one says.
    pub(super) fn note(&mut self, text: &str) -> Option<String> {
        if !self.notes.take(1) {
            self.unsaid += 1;
            return None;
        }
        let mut note: String = text.chars().take(NOTE).collect();
        let unsaid = std::mem::take(&mut self.unsaid);
        if unsaid > 0 {
            note.push_str(&format!(" ({unsaid} more notes were left out)"));
        }
        Some(note)
    }
}

/// So much at once, and so much a second.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    most: f64,
    per_second: f64,
}

impl Bucket {
    const fn new(most: u32, per_second: u32) -> Self {
        Self { left: most as f64, most: most as f64, per_second: per_second as f64 }
    }

    fn fill(&mut self, seconds: f64) {
        self.left = (self.left + seconds * self.per_second).min(self.most);
    }

    /// Takes so much, if there is.
    fn take(&mut self, amount: usize) -> bool {
        // Packets are small: the number is exact.
        let left = self.left - amount as f64;
        if left >= 0.0 {
            self.left = left;
        }
        left >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Check that a scan of a large program and a steady stream pass, and that a flood, of messages or of bytes, does not.
    #[test]
    fn floods_are_too_much() {
        let begin = Instant::now();
        let mut large = Allowance::new(begin);
        assert!((0..65_536).all(|_| !large.is_exceeded(300, begin)), "all natives of a large program");
        let mut steady = Allowance::new(begin);
        let later = |millis| begin + Duration::from_millis(millis);
        assert!((0..600_000).all(|millis| (0..10).all(|_| !steady.is_exceeded(200, later(millis)))));

        let count = |bytes| {
            let mut flood = Allowance::new(begin);
            (0..).take_while(|_| !flood.is_exceeded(bytes, begin)).count()
        };
        assert_eq!((count(50), count(192 << 10)), (1 << 18, 341));
    }

    /// Check that notes beyond a few are left out and counted, and that a long one is cut.
    #[test]
    fn notes_are_few() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(begin);
        let said = (0..1000).filter_map(|_| allowance.note(&"é".repeat(1000))).collect::<Vec<_>>();
        assert_eq!((said.len(), said[0].chars().count()), (8, NOTE));
        assert!(!allowance.is_exceeded(10, begin + Duration::from_secs(1)));
        assert_eq!(allowance.note("well").as_deref(), Some("well (992 more notes were left out)"));
        assert_eq!(allowance.note("again"), None);
    }
}
