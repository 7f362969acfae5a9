//! What the log says of pushes: that they fail, once a minute that they still do, and that they work again.

use std::time::{Duration, Instant};

use super::answer::Rejected;
use super::error::Failure;

/// The same is not said again before this.
const SILENCE: Duration = Duration::from_secs(60);

/// What is pushed, in words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    /// What it is, in the plural.
    pub(super) what: &'static str,
    /// What is in one push.
    pub(super) items: &'static str,
    /// What is lost with a push, as a sentence.
    pub(super) loss: &'static str,
}

/// What has been said, and what has happened since.
#[derive(Debug)]
pub(super) struct News {
    subject: Subject,
    trouble: Option<Trouble>,
    told_of_rejected: Option<Instant>,
    told_of_left_out: Option<Instant>,
}

#[derive(Debug)]
struct Trouble {
    since: Instant,
    told: Instant,
    failed: u64,
}

impl News {
    pub(super) fn new(subject: Subject) -> Self {
        Self { subject, trouble: None, told_of_rejected: None, told_of_left_out: None }
    }

    /// Whether the last push failed.
    pub(super) fn is_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// A push has failed: what to say of it.
    pub(super) fn failed(&mut self, to: &str, failure: &Failure, now: Instant) -> Option<String> {
        let Subject { what, loss, .. } = self.subject;
        let Some(trouble) = &mut self.trouble else {
            self.trouble = Some(Trouble { since: now, told: now, failed: 1 });
            return Some(format!("cannot push {what} to {to}: {failure}. {loss}"));
        };
        trouble.failed += 1;
        if now.saturating_duration_since(trouble.told) < SILENCE {
            return None;
        }
        trouble.told = now;
        let (failed, seconds) = (trouble.failed, now.saturating_duration_since(trouble.since).as_secs());
        Some(format!("still cannot push {what} to {to}: {failure}. {failed} pushes in {seconds} s failed"))
    }

    /// A push was taken: what to say of it.
    pub(super) fn delivered(&mut self, to: &str, rejected: &Rejected, now: Instant) -> Vec<String> {
        let Subject { what, items, .. } = self.subject;
        let mut says = Vec::new();
        if let Some(Trouble { failed, .. }) = self.trouble.take() {
            let noun = if failed == 1 { "push" } else { "pushes" };
            says.push(format!("{what} are pushed to {to} again, after {failed} {noun} that failed"));
        }
        if rejected.items > 0 && is_due(&mut self.told_of_rejected, now) {
            let why = if rejected.says.is_empty() { "it does not say why" } else { &rejected.says };
            says.push(format!("{to} rejected {} {items} of a push: {why}", rejected.items));
        }
        says
    }

    /// So many items had no room in a push: what to say of it.
    pub(super) fn left_out(&mut self, left_out: u64, now: Instant) -> Option<String> {
        let Subject { what, items, .. } = self.subject;
        let is_news = left_out > 0 && is_due(&mut self.told_of_left_out, now);
        is_news.then(|| format!("{left_out} {items} are left out of a push of {what}, which has at most 32 MiB"))
    }
}

/// Whether it is time to say something again; notes that it is said now.
fn is_due(told: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = told.is_none_or(|told| now.saturating_duration_since(told) >= SILENCE);
    if is_due {
        *told = Some(now);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that trouble is told at once, then once a minute, and that its end is told with what was lost.
    #[test]
    fn tells_once_a_minute() {
        let mut news = News::new(Subject { what: "metrics", items: "points", loss: "Nothing is lost" });
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let failed =
            |news: &mut News, seconds| news.failed("http://x", &Failure::Silent(Duration::from_secs(10)), at(seconds));
        assert!(news.delivered("http://x", &Rejected::default(), at(0)).is_empty());
        assert_eq!(
            failed(&mut news, 0).unwrap(),
            "cannot push metrics to http://x: no answer in 10 s. Nothing is lost"
        );
        assert_eq!(failed(&mut news, 15), None);
        assert_eq!(failed(&mut news, 59), None);
        let again = failed(&mut news, 60).unwrap();
        assert_eq!(again, "still cannot push metrics to http://x: no answer in 10 s. 4 pushes in 60 s failed");
        assert_eq!(failed(&mut news, 119), None);
        let over = news.delivered("http://x", &Rejected::default(), at(120));
        assert_eq!(over, ["metrics are pushed to http://x again, after 5 pushes that failed"]);
        assert!(news.delivered("http://x", &Rejected::default(), at(121)).is_empty());
        assert!(failed(&mut news, 122).is_some(), "new trouble is news");
    }

    /// Check that what has no room is told, and not at each push.
    #[test]
    fn tells_of_left_out() {
        let mut news = News::new(Subject { what: "metrics", items: "points", loss: "" });
        let start = Instant::now();
        assert_eq!(news.left_out(0, start), None);
        assert!(news.left_out(5, start).unwrap().starts_with("5 points are left out of a push of metrics"));
        assert_eq!(news.left_out(5, start + SILENCE / 2), None);
        assert!(news.left_out(5, start + SILENCE).is_some());
    }

    /// Check that rejected points are told in the receiver's words, and not at each push.
    #[test]
    fn tells_of_rejected() {
        let mut news = News::new(Subject { what: "metrics", items: "points", loss: "" });
        let start = Instant::now();
        let rejected = Rejected { items: 3, says: "too old".to_owned() };
        let mut told = |seconds| news.delivered("http://x", &rejected, start + Duration::from_secs(seconds));
        assert_eq!(told(0), ["http://x rejected 3 points of a push: too old"]);
        assert!(told(59).is_empty());
        assert_eq!(told(60).len(), 1);
    }
}
