//! Reads the records and the losses out of the kernel's maps. Nothing is taken out or reset, nothing waits: the maps
//! are mapped memory that the BPF programs keep adding to.

use std::mem::offset_of;
use std::sync::Arc;

use nprof_common::wire::{COUNTS_STRIDE, StubCounts};
use nprof_common::{CallBytes, Consumed, Counter, Loss, MethodStats};

use crate::model::{BytesPerCall, Losses, Sample};
use crate::sys::mapped_array::MappedArray;

const WORDS: usize = size_of::<MethodStats>() / size_of::<u64>();
const BYTES_WORDS: usize = size_of::<CallBytes>() / size_of::<u64>();
const COUNTS_WORDS: usize = size_of::<StubCounts>() / size_of::<u64>();
/// From the counts of one shard to those of the next.
const COUNTS_OF_SHARD: usize = COUNTS_STRIDE / size_of::<u64>();
const CONSUMED_WORDS: usize = size_of::<Consumed>() / size_of::<u64>();

/// Words of 8 bytes that others may be writing.
pub trait Words {
    /// The word at `index`, or `None` beyond the end. What was written before it is seen by later loads.
    fn load(&self, index: usize) -> Option<u64>;
}

impl Words for Arc<MappedArray> {
    fn load(&self, index: usize) -> Option<u64> {
        MappedArray::load(self, index)
    }
}

/// Access to the records of one session.
#[derive(Debug, Clone)]
pub struct Reader<W = Arc<MappedArray>> {
    stats: W,
    losses: W,
    /// What calls have consumed, and at which word it begins.
    consumed: Option<(W, usize)>,
    /// Behind the records in the same memory, how many bytes each call has moved: at which word that begins, and the counters as bits.
    bytes: Option<(usize, u32)>,
    /// Where what is counted is not in the records: at which word of the same memory it begins.
    counts: Option<usize>,
    shards: usize,
}

impl<W: Words> Reader<W> {
    /// A reader of the mapped records, `shards` of them per index, and the mapped losses.
    #[must_use]
    pub fn new(stats: W, losses: W, shards: u32) -> Self {
        Self { stats, losses, consumed: None, bytes: None, counts: None, shards: shards as usize }
    }

    /// The same with what calls have consumed, mapped, in as many shards.
    #[must_use]
    pub fn with_consumed(self, consumed: Option<W>) -> Self {
        Self { consumed: consumed.map(|words| (words, 0)), ..self }
    }

    /// The same behind the records in the same memory, from this word on.
    #[must_use]
    pub fn with_consumed_at(self, first: Option<usize>) -> Self
    where
        W: Clone,
    {
        let consumed = first.map(|first| (self.stats.clone(), first));
        Self { consumed, ..self }
    }

    /// The same with how many bytes each call has moved, behind the records in the same memory.
    #[must_use]
    pub fn with_bytes_at(self, bytes: Option<(usize, u32)>) -> Self {
        Self { bytes, ..self }
    }

    /// The same with what was counted and not timed, behind the records in the same memory.
    #[must_use]
    pub fn with_counts_at(self, first: usize) -> Self {
        Self { counts: Some(first), ..self }
    }

    /// A reader of other records, with the same losses.
    #[must_use]
    pub fn of(&self, stats: W, shards: u32) -> Self
    where
        W: Clone,
    {
        Self::new(stats, self.losses.clone(), shards)
    }

    /// How many shards a record has: what reading one costs.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// What stands in one record; `None` if nothing was, which costs two reads a shard to find out.
    #[must_use]
    pub fn sample(&self, record: u32) -> Option<Sample> {
        let hit =
            self.counted_of(record).any(|counted| counted != 0) || self.entered_of(record).any(|calls| calls != 0);
        hit.then(|| Sample { record, stats: self.sum(record) })
    }

    /// What the timed calls of a record that have ended have consumed; `None` where that is not collected.
    #[must_use]
    pub fn consumed(&self, record: u32) -> Option<Consumed> {
        let (words, begin) = self.consumed.as_ref()?;
        let sum = |offset: usize, counter: usize| -> u64 {
            let place = |first: usize| begin + first / WORDS * CONSUMED_WORDS + offset / size_of::<u64>() + counter;
            self.shards_of(record).map(|first| words.load(place(first)).unwrap_or(0)).sum()
        };
        let counters = |offset| std::array::from_fn(|counter| sum(offset, counter));
        Some(Consumed { total: counters(offset_of!(Consumed, total)), own: counters(offset_of!(Consumed, own)) })
    }

    /// How many bytes each of these calls has moved, of the counters by which they have moved any; `None` where that is not in the memory
    /// of the records. `consumed` was read before. What nothing was written to is not read: it would become memory by that.
    #[must_use]
    pub fn bytes_per_call(&self, record: u32, consumed: &Consumed) -> Option<Vec<BytesPerCall>> {
        let (begin, wanted) = self.bytes?;
        let of_each = wanted.count_ones() as usize * BYTES_WORDS;
        let counters = Counter::ALL.into_iter().filter(|counter| wanted & counter.bit() != 0);
        let firsts = (begin + record as usize * of_each..).step_by(BYTES_WORDS);
        let moved = counters.zip(firsts).filter(|(counter, _)| consumed.total[*counter as usize] > 0);
        Some(moved.filter_map(|(counter, first)| BytesPerCall::of(counter as u32, &self.bytes_at(first))).collect())
    }

    fn bytes_at(&self, first: usize) -> CallBytes {
        let word = |offset: usize| self.word(first, offset);
        let calls = std::array::from_fn(|bucket| word(offset_of!(CallBytes, calls) + bucket * size_of::<u64>()));
        CallBytes { max: word(offset_of!(CallBytes, max)), calls }
    }

    /// How many calls have begun, counted or timed; cheaper than a sample.
    #[must_use]
    pub fn begun(&self, record: u32) -> u64 {
        self.counted_of(record).sum::<u64>() + self.entered_of(record).sum::<u64>()
    }

    /// The same for each shard: a CPU, or several that share one.
    #[must_use]
    pub fn begun_by_shard(&self, record: u32) -> Vec<u64> {
        self.counted_of(record).zip(self.entered_of(record)).map(|(counted, entered)| counted + entered).collect()
    }

    /// The time of the calls that have ended, without that of the traced calls which they made, in nanoseconds; cheaper
    /// than a sample.
    #[must_use]
    pub fn self_ns(&self, record: u32) -> u64 {
        let sum = |offset| -> u64 { self.shards_of(record).map(|first| self.word(first, offset)).sum() };
        sum(offset_of!(MethodStats, total_ns)).saturating_sub(sum(offset_of!(MethodStats, child_ns)))
    }

    /// The losses up to now.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let count = |loss: Loss| (loss.as_str(), self.losses.load(loss as usize).unwrap_or(0));
        Losses { counts: Loss::ALL.into_iter().map(count).collect() }
    }

    /// The sum over all shards. Ends are read before entries: a call that ends in between is then still in flight,
    /// and never is there an end without its entry.
    fn sum(&self, record: u32) -> MethodStats {
        let mut sum = MethodStats::ZERO;
        for first in self.shards_of(record) {
            for (bucket, count) in sum.histogram.iter_mut().enumerate() {
                *count += self.word(first, offset_of!(MethodStats, histogram) + bucket * size_of::<u64>());
            }
            sum.untimed += self.word(first, offset_of!(MethodStats, untimed));
            sum.total_ns += self.word(first, offset_of!(MethodStats, total_ns));
            sum.child_ns += self.word(first, offset_of!(MethodStats, child_ns));
            sum.off_ns += self.word(first, offset_of!(MethodStats, off_ns));
            sum.max_ns = sum.max_ns.max(self.word(first, offset_of!(MethodStats, max_ns)));
        }
        sum.entered = self.entered_of(record).sum();
        sum.counted = self.counted_of(record).sum();
        sum
    }

    /// The calls that were only counted, in each of a method's shards.
    fn counted_of(&self, record: u32) -> impl Iterator<Item = u64> {
        let counts = self.counts.map(|first| first + record as usize * COUNTS_WORDS);
        let apart = move |(shard, of_record)| match counts {
            Some(first) => (first + shard * COUNTS_OF_SHARD, offset_of!(StubCounts, counted)),
            None => (of_record, offset_of!(MethodStats, counted)),
        };
        self.shards_of(record).enumerate().map(apart).map(|(first, offset)| self.word(first, offset))
    }

    /// The calls that were to be timed.
    fn entered_of(&self, record: u32) -> impl Iterator<Item = u64> {
        self.shards_of(record).map(|first| self.word(first, offset_of!(MethodStats, entered)))
    }

    /// The first word of each of a method's shards.
    fn shards_of(&self, record: u32) -> impl Iterator<Item = usize> {
        (0..self.shards).map(move |shard| (record as usize * self.shards + shard) * WORDS)
    }

    fn word(&self, first: usize, offset: usize) -> u64 {
        self.stats.load(first + offset / size_of::<u64>()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use nprof_common::histogram::BUCKETS;

    use nprof_common::COUNTERS;

    use super::*;

    /// Memory that notes in which order it is read.
    #[derive(Default, Clone)]
    struct Recorded(Rc<RefCell<State>>);

    #[derive(Default)]
    struct State {
        words: Vec<u64>,
        read: Vec<usize>,
    }

    impl Recorded {
        fn new(records: &[MethodStats]) -> Self {
            let recorded = Self::default();
            recorded.0.borrow_mut().words = records.iter().flat_map(words_of).collect();
            recorded
        }

        /// Which fields were read, by their offset in a record, in this order.
        fn fields_read(&self) -> Vec<usize> {
            self.0.borrow().read.iter().map(|index| index % WORDS * 8).collect()
        }
    }

    impl Words for Recorded {
        fn load(&self, index: usize) -> Option<u64> {
            let mut state = self.0.borrow_mut();
            state.read.push(index);
            state.words.get(index).copied()
        }
    }

    fn words_of(stats: &MethodStats) -> Vec<u64> {
        let head =
            [stats.switch, stats.counted, stats.entered, stats.untimed, stats.total_ns, stats.child_ns, stats.max_ns];
        [&head[..], &[stats.off_ns, stats.probability, stats.brief, stats.probability_per_ns], &stats.histogram]
            .concat()
    }

    /// A record in which every field has its own value.
    fn stats(seed: u64) -> MethodStats {
        let histogram = std::array::from_fn::<u64, BUCKETS, _>(|bucket| seed * 1_000 + bucket as u64);
        let [counted, entered, untimed, total_ns, child_ns, max_ns, off_ns] =
            [1, 2, 3, 4, 5, 6, 7].map(|field| seed * field);
        MethodStats { counted, entered, untimed, total_ns, child_ns, max_ns, off_ns, histogram, ..MethodStats::ZERO }
    }

    fn reader(records: &[MethodStats], shards: u32) -> (Reader<Recorded>, Recorded) {
        let memory = Recorded::new(records);
        (Reader::new(memory.clone(), Recorded::default(), shards), memory)
    }

    /// Check that every field is summed over the shards of its own index, and the maximum is their maximum.
    #[test]
    fn sums_shards() {
        let records = [stats(1), stats(2), stats(10), stats(30), stats(5), stats(6)];
        let (reader, _) = reader(&records, 2);
        let sum = reader.sample(1).unwrap();
        let mut expected = stats(40);
        expected.max_ns = stats(30).max_ns;
        for (bucket, count) in expected.histogram.iter_mut().enumerate() {
            *count = 40_000 + 2 * bucket as u64;
        }
        assert_eq!((sum.record, sum.stats), (1, expected));
    }

    /// Check that an index that was never hit gives nothing and costs two reads a shard.
    #[test]
    fn untouched_is_cheap() {
        let (reader, memory) = reader(&[MethodStats::ZERO; 8], 4);
        assert_eq!(reader.sample(1), None);
        assert_eq!(memory.0.borrow().read.len(), 8);
    }

    /// Check that one hit in one shard, timed or only counted, is enough for a sample.
    #[test]
    fn any_shard_counts() {
        for hit in [MethodStats { counted: 1, ..MethodStats::ZERO }, MethodStats { entered: 1, ..MethodStats::ZERO }] {
            let (reader, _) = reader(&[MethodStats::ZERO, MethodStats::ZERO, MethodStats::ZERO, hit], 4);
            assert_eq!(reader.sample(0).unwrap().stats, hit);
        }
    }

    /// Check that the entries of all shards are read after the ends of all shards: a call may begin on one CPU and end
    /// on another, and one that is in between must be in flight, never ended without having begun.
    #[test]
    fn ends_before_entries() {
        let (reader, memory) = reader(&[stats(1), stats(2), stats(3), stats(4)], 4);
        memory.0.borrow_mut().read.clear();
        let _sum = reader.sum(0);
        let begins = [offset_of!(MethodStats, entered), offset_of!(MethodStats, counted)];
        let read = memory.fields_read();
        let first_begin = read.iter().position(|field| begins.contains(field)).unwrap();
        assert!(read[first_begin..].iter().all(|field| begins.contains(field)), "{read:?}");
        assert_eq!(read.len() - first_begin, 8);
    }

    /// Check that what stubs have counted, apart from the records, is theirs, and no other method's.
    #[test]
    fn counted_apart() {
        let mut timed = stats(3);
        timed.counted = 0;
        let (reader, memory) = reader(&[MethodStats::ZERO, MethodStats::ZERO, timed, MethodStats::ZERO], 2);
        let first = 4 * WORDS;
        let mut counts = vec![0; COUNTS_OF_SHARD + 2 * COUNTS_WORDS];
        // Of the second word nobody is told.
        for (shard, record, counted) in [(0, 1, 5), (1, 1, 6)] {
            let word = shard * COUNTS_OF_SHARD + record * COUNTS_WORDS;
            (counts[word], counts[word + 1]) = (counted, 99);
        }
        memory.0.borrow_mut().words.extend(counts);
        let reader = reader.with_counts_at(first);
        assert_eq!((reader.sample(0), reader.begun(1), reader.begun_by_shard(1)), (None, 11 + 6, vec![5 + 6, 6]));
        let sum = reader.sample(1).unwrap().stats;
        assert_eq!((sum.counted, sum.entered, sum.total_ns), (11, timed.entered, timed.total_ns));
    }

    /// Check that an index beyond the map gives nothing.
    #[test]
    fn beyond_the_end() {
        let (reader, _) = reader(&[stats(1)], 1);
        assert_eq!(reader.sample(1), None);
        assert_eq!(reader.sample(u32::MAX), None);
    }

    /// Check that what calls consumed is summed over the shards of its own record, and unknown where it is not collected.
    #[test]
    fn sums_what_was_consumed() {
        let (reader, _) = reader(&[MethodStats::ZERO; 6], 2);
        assert_eq!(reader.consumed(1), None);
        let memory = Recorded::default();
        memory.0.borrow_mut().words = (0..3 * 2 * CONSUMED_WORDS as u64).collect();
        let consumed = reader.with_consumed(Some(memory)).consumed(1).unwrap();
        let (words, place) = (CONSUMED_WORDS as u64, (COUNTERS + 11) as u64);
        assert_eq!((consumed.total[0], consumed.own[11]), (5 * words, 5 * words + 2 * place));
    }

    /// Check that the bytes of each call are those of the record and the counter, that what nothing was consumed of is not even read, and that
    /// nothing is known where it is not recorded.
    #[test]
    fn bytes_of_each_call() {
        let (reader, memory) = reader(&[MethodStats::ZERO; 2], 1);
        let mut consumed = Consumed::default();
        consumed.total[Counter::SentBytes as usize] = 9;
        assert_eq!(reader.bytes_per_call(1, &consumed), None);
        let (begin, wanted) = (2 * WORDS, Counter::ReadBytes.bit() | Counter::SentBytes.bit());
        memory.0.borrow_mut().words.extend((0..4 * BYTES_WORDS as u64).map(|word| u64::from(word % 100 == 0) * word));
        let reader = reader.with_bytes_at(Some((begin, wanted)));
        let sent = reader.bytes_per_call(1, &consumed).unwrap();
        let first = 3 * BYTES_WORDS as u64;
        let buckets = (0..BYTES_WORDS as u64 - 1).filter(|bucket| (first + bucket + 1).is_multiple_of(100));
        let buckets: Vec<_> = buckets.map(|bucket| (i32::try_from(bucket).unwrap(), first + bucket + 1)).collect();
        assert_eq!((sent.len(), sent[0].counter, &sent[0].histogram.buckets), (1, Counter::SentBytes, &buckets));
        memory.0.borrow_mut().read.clear();
        assert_eq!(reader.bytes_per_call(0, &Consumed::default()), Some(Vec::new()));
        assert!(memory.0.borrow().read.is_empty());
    }

    /// Check that every loss is listed under its own name, those that never happened too.
    #[test]
    fn every_loss() {
        let losses = Recorded::default();
        losses.0.borrow_mut().words = (0..Loss::ALL.len() as u64).map(|loss| loss * 7).collect();
        let reader = Reader::new(Recorded::default(), losses, 1);
        let expected: Vec<_> = Loss::ALL.iter().map(|loss| (loss.as_str(), *loss as u64 * 7)).collect();
        assert_eq!(reader.losses().counts, expected);
        let empty = Reader::new(Recorded::default(), Recorded::default(), 1);
        assert_eq!((empty.losses().total(), empty.losses().counts.len()), (0, Loss::ALL.len()));
    }
}
