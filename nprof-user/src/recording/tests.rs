//! Profiles written and read back, and files that nobody should trust.

mod trees;

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use nprof_common::{Consumed, Counter};
use prost::encoding::{WireType, encode_key};

use super::numbers::UNKNOWNS;
use super::room::{Counted, Room};
use super::unpack::Unpacked;
use super::wire::{self, Part};
use super::{Error, MAGIC, VERSION, limits, pack, read, read_within, write, write_part};
use crate::model::{
    About, ArgumentObject, BytesPerCall, CallObject, CallValue, CallValues, Collectors, CutReason, FunctionTotals,
    Histogram, Profile, ProfileFrame, ProfileFrameKind, ProfileMode, ProfileStack, Quality, Settled, StackTotals,
    ThreadName, TimelineCall, Unseen,
};

/// Written by the first version of the format; see `version_1_stays_readable`.
const VERSION_1: &[u8] = include_bytes!("golden/version-1.nprof");

/// The number of what all trees have in common.
const TREES: u32 = 11;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    fn small(&mut self, limit: u64) -> u32 {
        u32::try_from(self.below(limit)).unwrap()
    }
}

fn written(profile: &Profile) -> Vec<u8> {
    let mut file = Vec::new();
    write(profile, &mut file).unwrap();
    file
}

fn read_back(mut file: &[u8]) -> Result<Profile, Error> {
    read(&mut file)
}

/// A profile with `rows` rows of everything.
fn profile(rows: u32, dice: &mut Dice) -> Profile {
    let limit = u64::from(rows.max(1));
    let text = |what: &str, at: u32| format!("{what} é{at}");
    let count = |dice: &mut Dice| vec![("reason".to_owned(), dice.below(99)), (String::new(), u64::MAX)];
    let mut profile = Profile {
        about: About {
            nprof: "0.1.0".to_owned(),
            started: Timestamp::new(1_700_000_000, 123_456_789).unwrap(),
            elapsed: Duration::new(10, 5),
            mode: if rows.is_multiple_of(2) { ProfileMode::Calls } else { ProfileMode::OnCpu },
            pid: rows,
            main: "com.acme.Main".to_owned(),
            vm: "OpenJDK 25".to_owned(),
            kernel: "6.18".to_owned(),
            host: "box".to_owned(),
            patterns: vec!["java.*".to_owned(), String::new()],
            threads: Vec::new(),
            max_stacks: 1000,
            period_ns: (rows % 2 == 1).then_some(10_000_000),
            off_cpu: rows.is_multiple_of(2),
            native_stacks: rows.is_multiple_of(3),
            collectors: Collectors::default(),
        },
        quality: Quality {
            stacks: 9,
            complete: 8,
            cut: count(dice),
            lost: count(dice),
            timeline_lost: 3,
            losses: count(dice),
            skipped: vec![],
            guessed: 0,
            ..Quality::default()
        },
        ..Profile::default()
    };
    for at in 0..rows {
        let kind = ProfileFrameKind::ALL[dice.index(9)];
        let line = (at.is_multiple_of(2)).then(|| dice.small(99));
        let (scope, name, signature) = (text("scope", at), text("name", at), text("()V", at));
        let (hidden, library) = (at.is_multiple_of(3), String::new());
        profile.frames.push(ProfileFrame { kind, scope, name, signature, line, hidden, library });
        let frames = (0..dice.below(40)).map(|_| dice.small(limit)).collect();
        let cut = (at.is_multiple_of(2)).then(|| CutReason::ALL[dice.index(12)]);
        profile.stacks.push(ProfileStack { frames, cut });
        let (class, method, signature, library) = (text("C", at), text("m", at), text("()", at), text("lib", at));
        let (calls, total_ns, self_ns) = (dice.below(1 << 40), dice.below(1 << 40), dice.below(1 << 40));
        let function =
            FunctionTotals { class, method, signature, library, calls, total_ns, self_ns, ..Default::default() };
        let rest = FunctionTotals { others: 2, untimed: 3, off_cpu_ns: 4, max_ns: u64::MAX, in_flight: 5, ..function };
        profile.functions.push(rest);
        let totals = StackTotals {
            stack: dice.small(limit),
            function: (at % 3 > 0).then(|| dice.small(limit)),
            thread: None,
            samples: dice.below(1000),
            calls: dice.below(1 << 40) as f64 / 3.0,
            time_ns: dice.below(1 << 50) as f64 / 7.0,
            self_ns: 0.0,
            off_cpu_ns: f64::MAX,
        };
        profile.calls.push(totals);
        profile.open.push(StackTotals { samples: 1, ..totals });
        profile.inside.push(StackTotals { function: None, ..totals });
        let stack = (at.is_multiple_of(2)).then(|| dice.small(limit));
        let start_ns = i64::from(at) - 5;
        let function = dice.small(limit);
        profile.timeline.push(TimelineCall { tid: at, function, start_ns, duration_ns: 7, stack, made_with: None });
        profile.threads.push(ThreadName { tid: at, name: text("thread", at) });
    }
    profile
}

/// The same with what some of the calls were made with: a value of each kind.
fn with_values(profile: Profile) -> Profile {
    let mut profile = profile;
    for at in 0..u32::try_from(profile.timeline.len()).unwrap() {
        let class = ArgumentObject { class: format!("class {at}"), length: Some(at), fd: Some(-1), contents: None };
        let object = (at.is_multiple_of(2)).then_some(class);
        profile.objects.push(CallObject { object, file: Some(format!("file {at}")) });
        let known = [CallValue::Number(u64::MAX - u64::from(at)), CallValue::Null, CallValue::File(at, at)];
        let values = known.into_iter().chain([CallValue::Object(0)]).chain(UNKNOWNS.map(CallValue::Unknown)).collect();
        let values = CallValues { this: (at.is_multiple_of(2)).then_some(at), values };
        profile.timeline[at as usize].made_with = (at.is_multiple_of(3)).then(|| Box::new(values));
    }
    profile
}

/// The same with trees.
fn with_trees(rows: u32, seed: u64) -> Profile {
    let mut dice = Dice(seed);
    Profile { trees: Some(Box::new(trees::trees(rows, &mut dice))), ..profile(rows, &mut dice) }
}

/// Two numbers of bytes, of several calls each.
fn bytes_per_call() -> Vec<BytesPerCall> {
    let of = |counter, buckets: &[(i32, u64)]| BytesPerCall {
        counter,
        max: u64::MAX,
        histogram: Histogram { buckets: buckets.to_vec() },
    };
    vec![of(Counter::ReadBytes, &[(0, 7), (40, u64::MAX), (180, 1)]), of(Counter::AllocBytes, &[])]
}

/// Check that bytes of calls that cannot be are found: of functions that are not there or have none, in buckets that are none or in no
/// order, and twice.
#[test]
fn bytes_per_call_are_checked() {
    let with = |bytes: Vec<wire::BytesPerCall>| {
        let mut unpacked = Unpacked::default();
        let about = Some(wire::About { mode: 1, ..wire::About::default() });
        let functions =
            vec![wire::Function { knows_bytes: true, ..wire::Function::default() }, wire::Function::default()];
        unpacked.add(Part { about, functions, bytes_per_call: bytes, ..Part::default() })?;
        unpacked.finish()
    };
    let of = |buckets: &[u32]| wire::BytesPerCall {
        counter: 5,
        buckets: buckets.to_vec(),
        calls: vec![1; buckets.len()],
        ..wire::BytesPerCall::default()
    };
    let read = with(vec![of(&[3, 180]), wire::BytesPerCall { counter: 99, ..of(&[]) }]).unwrap();
    let buckets = vec![(3, 1), (180, 1)];
    let expected = BytesPerCall { counter: Counter::ReadBytes, max: 0, histogram: Histogram { buckets } };
    assert_eq!(read.functions[0].bytes_per_call, Some(vec![expected]));
    for damaged in [
        vec![wire::BytesPerCall { function: 2, ..of(&[]) }],
        vec![wire::BytesPerCall { function: 1, ..of(&[]) }],
        vec![of(&[181])],
        vec![of(&[4, 3])],
        vec![of(&[4, 4])],
        vec![wire::BytesPerCall { calls: vec![1], ..of(&[]) }],
        vec![of(&[1]), of(&[2])],
    ] {
        let error = with(damaged.clone()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{damaged:?}: {error}");
    }
}

/// Check that any profile comes back as it was, small ones, empty ones and those of many parts.
#[test]
fn comes_back_as_it_was() {
    assert_eq!(read_back(&written(&Profile::default())).unwrap(), Profile::default());
    let mut dice = Dice(1);
    for rows in (0..40).chain([1000]) {
        let mut profile = with_values(profile(rows, &mut dice));
        // Younger than the file that `version_1_stays_readable` reads.
        profile.frames.iter_mut().step_by(2).for_each(|frame| frame.library = "libé.so".to_owned());
        profile.functions.iter_mut().step_by(2).for_each(|function| function.single_stepped = true);
        profile.quality.guessed = u64::from(rows);
        profile.functions.iter_mut().step_by(2).for_each(|of| (of.probe_ns, of.probe_error_ns) = (7, 8));
        let unseen = Unseen {
            calls: 9,
            error_calls: 10,
            total_ns: 11,
            error_ns: Some(12),
            settled: Settled { calls: 9, total_ns: 11 },
        };
        profile.functions.iter_mut().step_by(2).for_each(|of| of.unseen = Some(unseen));
        (profile.quality.open_unsplit, profile.quality.narrowed) = (9, true);
        profile.functions.iter_mut().for_each(|of| (of.counted, of.unseen_off_ns) = (7, 8));
        profile.about.threads = vec!["pool-*".to_owned()];
        let Profile { calls, threads, .. } = &mut profile;
        calls.iter_mut().zip(0..).zip(threads).step_by(3).for_each(|((of, at), _)| of.thread = Some(at));
        profile.functions.iter_mut().for_each(|of| (of.traced_after_ns, of.unwatched_ns) = (9, 10));
        let consumed = Consumed { own: std::array::from_fn(|at| at as u64), total: [u64::MAX; nprof_common::COUNTERS] };
        profile.functions.iter_mut().step_by(2).for_each(|of| of.consumed = Some(Box::new(consumed)));
        profile.about.collectors = Collectors::named(&["io", "faults"]).unwrap();
        profile.functions.iter_mut().step_by(2).for_each(|of| of.bytes_per_call = Some(Vec::new()));
        profile.functions.iter_mut().step_by(4).for_each(|of| of.bytes_per_call = Some(bytes_per_call()));
        profile.functions.iter_mut().step_by(3).for_each(|of| (of.sampled, of.only_counted) = (true, true));
        // As in recordings of before the error of a time was known: none is made up.
        profile.functions.iter_mut().step_by(4).for_each(|of| of.unseen = Some(Unseen { error_ns: None, ..unseen }));
        profile.trees = rows.is_multiple_of(2).then(|| Box::new(trees::trees(rows, &mut dice)));
        assert_eq!(read_back(&written(&profile)).unwrap(), profile, "{rows} rows");
    }
}

/// Check that what the first version wrote can be read, and says the same as it did.
#[test]
fn version_1_stays_readable() {
    let expected = profile(4, &mut Dice(4));
    assert_eq!(read_back(VERSION_1).unwrap(), expected);
}

/// Check that what is no recording, or one of the future, is told apart from a damaged one.
#[test]
fn says_what_a_file_is_not() {
    for file in [&b""[..], b"nprof", b"PK\x03\x04 something else entirely"] {
        assert!(matches!(read_back(file), Err(Error::NotARecording)), "{file:?}");
    }
    let mut newer = written(&Profile::default());
    newer[MAGIC.len()] = 2;
    let error = read_back(&newer).unwrap_err();
    assert!(matches!(error, Error::Newer { version: 2, known: VERSION }), "{error}");
}

/// Check that a recording that ends early is never taken for a whole one, wherever it ends.
#[test]
fn notices_a_missing_end() {
    let file = written(&with_trees(3, 2));
    for end in MAGIC.len()..file.len() {
        let error = read_back(&file[..end]).unwrap_err();
        assert!(matches!(error, Error::CutShort), "cut after {end} of {}: {error}", file.len());
    }
}

/// Check that a changed byte is an error, that nothing panics over it, and that nothing may follow the end.
#[test]
fn notices_a_changed_byte() {
    let profile = with_trees(2, 3);
    let file = written(&profile);
    let header = MAGIC.len() + 4;
    // Of gzip's own header, which no checksum covers, only the magic matters.
    for at in (0..header + 2).chain(header + 10..file.len()) {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[at] ^= 1 << bit;
            // The last bits of the compressed data may mean nothing.
            let is_noticed = read_back(&changed).map_or(true, |read| read == profile);
            assert!(is_noticed, "bit {bit} of byte {at}");
        }
    }
    let longer = [file.as_slice(), b"x"].concat();
    assert!(matches!(read_back(&longer), Err(Error::Damaged { what: "data after its end" })));
}

/// A file with this content, whatever it is, under a right checksum.
fn packed(content: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut file = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
    let mut gzip = GzEncoder::new(&mut file, Compression::fast());
    gzip.write_all(content).unwrap();
    gzip.finish().unwrap();
    file
}

/// Check that content which somebody made up does not panic, and that what is read of it can be relied on.
#[test]
fn made_up_content_is_checked() {
    use prost::Message as _;
    let mut content = Vec::new();
    pack::parts(&with_trees(3, 5), |part| write_part(&part.encode_to_vec(), &mut content)).unwrap();
    write_part(&[], &mut content).unwrap();
    let mut dice = Dice(6);
    let mut read_anyway = 0;
    for _ in 0..1000 {
        let mut changed = content.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.index(changed.len());
            changed[at] = u8::try_from(dice.below(256)).unwrap();
        }
        let Ok(profile) = read_back(&packed(&changed)) else { continue };
        read_anyway += 1;
        for totals in profile.calls.iter().chain(&profile.open).chain(&profile.inside) {
            let stack = &profile.stacks[totals.stack as usize];
            assert!(stack.frames.iter().all(|frame| (*frame as usize) < profile.frames.len()));
            assert!(totals.function.is_none_or(|function| (function as usize) < profile.functions.len()));
            assert!(totals.calls.is_finite());
        }
        let Some(trees) = &profile.trees else { continue };
        for kept in &trees.kept {
            let nodes = &kept.invocation.nodes;
            assert!(nodes.iter().all(|node| (node.method as usize) < trees.methods.len()));
            assert!((0..).zip(nodes).all(|(place, node)| node.children.iter().all(|child| *child > place)));
        }
    }
    assert!(read_anyway > 100, "only {read_anyway} were read: the test tests nothing");
}

/// Check that indices which lead nowhere are refused.
#[test]
fn indices_lead_somewhere() {
    let good = with_values(profile(3, &mut Dice(7)));
    let damages: [fn(&mut Profile); 8] = [
        |profile| profile.stacks[1].frames.push(3),
        |profile| profile.calls[0].stack = 3,
        |profile| profile.inside[0].function = Some(u32::MAX),
        |profile| profile.timeline[2].function = 3,
        |profile| profile.timeline[0].made_with.as_mut().unwrap().this = Some(3),
        |profile| profile.timeline[0].made_with.as_mut().unwrap().values[3] = CallValue::Object(3),
        |profile| profile.timeline[0].made_with.as_mut().unwrap().values[2] = CallValue::File(0, 3),
        |profile| profile.open[2].calls = f64::NAN,
    ];
    for (at, damage) in damages.iter().enumerate() {
        let mut profile = good.clone();
        damage(&mut profile);
        assert!(matches!(read_back(&written(&profile)), Err(Error::Damaged { .. })), "damage {at}");
    }
}

/// Rows of one list without a content: two or three bytes each, in as many parts as need be, and the end. That there are trees is said
/// before.
fn empty_rows(list: u32, mut rows: usize) -> Vec<u8> {
    let row = |list: u32| {
        let mut row = Vec::new();
        encode_key(list, WireType::LengthDelimited, &mut row);
        row.push(0);
        row
    };
    let mut content = Vec::new();
    write_part(&row(TREES), &mut content).unwrap();
    while rows > 0 {
        let now = rows.min(1 << 19);
        write_part(&row(list).repeat(now), &mut content).unwrap();
        rows -= now;
    }
    write_part(&[], &mut content).unwrap();
    content
}

fn read_with(room: impl FnOnce(&Rc<Cell<usize>>) -> Room, mut file: &[u8]) -> Result<Profile, Error> {
    let file = Counted::new(&mut file as &mut dyn Read);
    let room = room(file.so_far());
    read_within(room, file)
}

/// Check that a file which unpacks to very much is given up, and that a part of any length is not even read.
#[test]
fn gives_up_on_too_much() {
    let file = packed(&empty_rows(3, 30_000));
    let error = read_with(|read| Room::within(1 << 20, 1 << 30, read), &file).unwrap_err();
    assert!(matches!(error, Error::TooLarge), "{error}");
    let error = read_back(&packed(&u32::MAX.to_le_bytes())).unwrap_err();
    assert!(matches!(error, Error::Damaged { what: "the length of a part" }), "{error}");
}

/// Check that a small file takes little memory, whatever it has rows of, and that it is said why it is not read.
#[test]
fn small_files_stay_small() {
    for list in (1..=19).chain([21]) {
        let file = packed(&empty_rows(list, 3_000_000));
        assert!(file.len() < 200 << 10, "{} bytes", file.len());
        let error = read_back(&file).unwrap_err();
        // These are no lists: nothing is kept but the latest, or nothing but one can be.
        let is_one = matches!(list, 1 | 10 | TREES) && matches!(error, Error::Damaged { .. });
        assert!(is_one || matches!(error, Error::Inflated), "list {list}: {error}");
        assert!(is_one || error.to_string().contains("64 MiB"), "{error}");
    }
}

/// Check that what is reckoned before is no less than what a profile takes, so that the bound is one.
#[test]
fn nothing_is_reckoned_too_small() {
    let profile = with_values(with_trees(500, 8));
    let of_values = |call: &TimelineCall| {
        call.made_with.as_deref().map_or(0, |values| size_of_val(values) + size_of_val(&*values.values))
    };
    let of_object = |of: &CallObject| {
        let texts = [of.object.as_ref().map(|object| &object.class), of.file.as_ref()];
        size_of_val(of) + texts.into_iter().flatten().map(String::len).sum::<usize>()
    };
    let texts = |texts: &[&String]| texts.iter().map(|text| text.len()).sum::<usize>();
    let held = profile.frames.iter().map(|f| size_of_val(f) + texts(&[&f.scope, &f.name, &f.signature])).sum::<usize>()
        + profile.stacks.iter().map(|s| size_of_val(s) + 4 * s.frames.len()).sum::<usize>()
        + profile.functions.iter().map(|f| size_of_val(f) + texts(&[&f.class, &f.method, &f.library])).sum::<usize>()
        + [&profile.calls, &profile.open, &profile.inside]
            .map(|rows| size_of_val(rows.as_slice()))
            .iter()
            .sum::<usize>()
        + size_of_val(profile.timeline.as_slice())
        + profile.timeline.iter().map(of_values).sum::<usize>()
        + profile.objects.iter().map(of_object).sum::<usize>()
        + profile.threads.iter().map(|t| size_of_val(t) + t.name.len()).sum::<usize>()
        + trees::held(profile.trees.as_ref().unwrap());
    let file = written(&profile);
    assert!(read_with(|read| Room::within(held, held, read), &file).is_err());
    assert_eq!(read_with(|read| Room::within(4 * held, 4 * held, read), &file).unwrap(), profile);
}

/// Check that a large recording is read: as many calls on a timeline as in a long run, and stacks as deep as they can be.
#[test]
fn large_recordings_are_read() {
    let mut dice = Dice(9);
    let mut large = profile(10, &mut dice);
    large.timeline = (0..100_000)
        .map(|at| TimelineCall {
            tid: dice.small(16),
            function: dice.small(10),
            start_ns: at * 1000,
            duration_ns: dice.below(4),
            stack: None,
            made_with: None,
        })
        .collect();
    let frames = |dice: &mut Dice| (0..1000).map(|at| if at < 4 { dice.small(10) } else { 3 }).collect();
    large.stacks.extend((0..2_000).map(|_| ProfileStack { frames: frames(&mut dice), cut: None }));
    // So that the size of the file counts, not the floor.
    let read = read_with(|read| Room::within(limits::MOST, 1 << 20, read), &written(&large)).unwrap();
    assert_eq!(read, large);
}

/// Check that an error of the file itself stays one.
#[test]
fn reading_can_fail() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    }
    assert!(matches!(read(&mut Broken), Err(Error::Io { .. })));
}
