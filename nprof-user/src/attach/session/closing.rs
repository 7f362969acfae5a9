//! The links of one target that are being closed, while nobody waits for the kernel.

use std::thread::{self, JoinHandle};

use crate::attach::links::close;

/// Links that are on their way out.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Those whose sites other links hold by now. There are two lanes: a third link to a site would count what one of the others
    /// counts.
    replaced: Vec<JoinHandle<()>>,
    /// Those whose sites nobody else holds.
    last: Vec<JoinHandle<()>>,
}

impl Closing {
    /// Closes links whose sites no other link holds.
    pub(super) fn last<L: Send + 'static>(&mut self, links: Vec<L>) {
        start(&mut self.last, links);
    }

    /// Closes links whose sites others hold by now, all or some.
    pub(super) fn replaced<L: Send + 'static>(&mut self, links: Vec<L>) {
        start(&mut self.replaced, links);
    }

    /// Takes in what somebody else has begun to close.
    pub(super) fn extend(&mut self, closing: impl IntoIterator<Item = JoinHandle<()>>) {
        self.last.extend(closing);
    }

    /// How many times links are being closed.
    pub(super) fn under_way(&mut self) -> usize {
        let lists = [&mut self.replaced, &mut self.last];
        lists.into_iter().map(|list| (list.retain(|closing| !closing.is_finished()), list.len()).1).sum()
    }

    /// Whether none are.
    pub(super) fn is_over(&self) -> bool {
        self.replaced.iter().chain(&self.last).all(JoinHandle::is_finished)
    }

    /// Waits until the links are gone whose sites others hold: these may be linked once more then.
    pub(super) fn wait_for_replaced(&mut self) {
        wait_for(&mut self.replaced);
    }

    /// Waits until all are gone: any site may be linked anew then.
    pub(super) fn wait(&mut self) {
        [&mut self.replaced, &mut self.last].into_iter().for_each(wait_for);
    }
}

fn start<L: Send + 'static>(list: &mut Vec<JoinHandle<()>>, links: Vec<L>) {
    list.retain(|closing| !closing.is_finished());
    if !links.is_empty() {
        list.push(thread::spawn(move || close(links)));
    }
}

fn wait_for(list: &mut Vec<JoinHandle<()>>) {
    for closing in list.drain(..) {
        // A panic there has been reported by its thread.
        drop(closing.join());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A link that takes the kernel until somebody says so.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().ok();
        }
    }

    /// Check that what is linked elsewhere can be waited for without what is gone for good, and that all can be.
    #[test]
    fn some_are_waited_for() {
        let mut closing = Closing::default();
        let [(last, gone), (replaced, handed)] = [channel(), channel()];
        closing.last(vec![Slow(gone)]);
        closing.replaced(vec![Slow(handed)]);
        assert!(!closing.is_over() && closing.under_way() == 2);
        drop(replaced);
        closing.wait_for_replaced();
        assert!(!closing.is_over() && closing.under_way() == 1);
        drop(last);
        closing.wait();
        assert!(closing.is_over() && closing.under_way() == 0);
    }
}
