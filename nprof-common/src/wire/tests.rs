//! Messages of each kind, whole, cut off, too long, and bytes by chance.

use std::vec;
use std::vec::Vec;

use super::*;

const HELLO: Hello = Hello {
    version: 1,
    stubs: 4_096,
    taken: 7,
    records: 4_096,
    sharding: 2,
    steady_clock: true,
    library_fd: NO_LIBRARY,
    pool_start: 0x7f00_0000_0000,
    pool_end: 0x7f00_0004_0000,
    chosen_site: u64::MAX,
    rowless_site: 7,
};
const BOUND: Bound<'_> = Bound {
    number: 1,
    how: How::Event,
    index: NO_INDEX,
    method: 1 << 40,
    address: 2 << 40,
    class: b"La/B;",
    name: b"m\xc0\x80",
    signature: b"",
};
const WELCOME: Welcome = Welcome {
    version: 1,
    shards: 2,
    record_bytes: 1_536,
    first: 3 << 33,
    records: 5,
    bind_mode: SAMPLE,
    bind_probability: 1 << 28,
    bind_threshold_ns: u64::MAX,
    bind_asked: true,
    tell_binds: true,
    stub_binds: false,
    rows: 2_048,
    consumed: false,
    bytes: 0,
};
const FILE: ClassFile = ClassFile { class: 1, bytes: 1 << 20, error: ClassFile::UNLOADED };

fn from_shim() -> Vec<FromShim<'static>> {
    vec![
        FromShim::Hello(HELLO),
        FromShim::Bound(BOUND),
        FromShim::Bound(Bound { how: How::Found, ..BOUND }),
        FromShim::Scanned(Scanned { found: 1, unreadable: 2 }),
        FromShim::Stubbed(Stubbed { number: 1, index: 2, entry: 3 }),
        FromShim::Applied(Applied { serial: 1, stubbed: 2, restored: 3, failed: 4 }),
        FromShim::Dropped(1 << 63),
        FromShim::Note(b"something"),
        FromShim::Detached(9),
        FromShim::Bye(b""),
        FromShim::IdsKept,
        FromShim::IdFunction(IdFunction {
            function: 3,
            hits: 1,
            misses: 2,
            left: 3,
            timed: 4,
            hit_ns: 5,
            original_ns: 6,
            wrong: u64::MAX,
        }),
        FromShim::IdCaller(IdCaller { address: 1 << 47, hits: 1, misses: 2, left: 3 }),
        FromShim::IdsForgotten(IdsForgotten { behind: 4, untold: 0 }),
        FromShim::TreesReady(true),
        FromShim::ClassesListed(ClassesListed { first: 1, count: 2, total: 3, bytes: 4 }),
        FromShim::MethodsListed(ClassesListed { first: 5, count: 6, total: 7, bytes: 8 }),
        FromShim::ClassFile(FILE),
        FromShim::Enhanced(Enhanced { classes: 3, error: 62 }),
        FromShim::TreesRecorded,
        FromShim::ExceptionClass(ExceptionClass { number: 2, class: b"La/E;" }),
        FromShim::ExceptionsNamed,
        FromShim::TreesEnded(TreesEnded { restored: 5, behind: 1 }),
    ]
}

fn to_shim() -> Vec<ToShim> {
    vec![
        ToShim::Welcome(WELCOME),
        ToShim::Scan,
        ToShim::Watch(Watch { number: 1, mode: 2, probability: 3, threshold_ns: 4, kinds: 5 }),
        ToShim::Unwatch(5),
        ToShim::Unwatch(FIRST_FUNCTION),
        ToShim::Apply(6),
        ToShim::Detach,
        ToShim::KeepIds(7),
        ToShim::ForgetIds,
        ToShim::PrepareTrees(7),
        ToShim::ListClasses(1),
        ToShim::ListMethods(6),
        ToShim::ReadClass(2),
        ToShim::Enhance(3),
        ToShim::NewClassFile(FILE),
        ToShim::RecordTrees(4),
        ToShim::NameExceptions(5),
        ToShim::EndTrees,
    ]
}

/// The packets of all messages; the first so many are the shim's.
fn packets() -> (Vec<Vec<u8>>, usize) {
    let mut buffer = [0; 1_024];
    let mut packets: Vec<_> = from_shim().iter().map(|message| message.encode(&mut buffer).unwrap().to_vec()).collect();
    let of_shim = packets.len();
    packets.extend(to_shim().iter().map(|message| message.encode(&mut buffer).unwrap().to_vec()));
    (packets, of_shim)
}

fn length_field(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap().to_le_bytes()
}

/// Check that every message comes out as it went in, and means nothing in the other direction.
#[test]
fn round_trips() {
    let (packets, of_shim) = packets();
    for (message, packet) in from_shim().into_iter().zip(&packets) {
        assert_eq!(FromShim::decode(packet), Ok(message));
        assert!(matches!(ToShim::decode(packet), Err(Error::Kind(_))));
    }
    for (message, packet) in to_shim().into_iter().zip(&packets[of_shim..]) {
        assert_eq!(ToShim::decode(packet), Ok(message));
        assert!(matches!(FromShim::decode(packet), Err(Error::Kind(_))));
    }
}

/// Check the bytes of one message: they are what other versions will meet.
#[test]
fn bytes_of_a_message() {
    let mut buffer = [0xff; 64];
    let message = FromShim::Bye(b"why");
    assert_eq!(message.encode(&mut buffer), Some(&b"\x0a\0\0\0\x07\0\0\0\x03\0\0\0why"[..]));
    assert_eq!(ToShim::Apply(0x0102_0304).encode(&mut buffer), Some(&b"\x05\x01\0\0\x04\0\0\0\x04\x03\x02\x01"[..]));
}

/// Check that no message is read from a part of its packet, also if the head says that the part is all, and none with
/// something behind it.
#[test]
fn wrong_lengths_are_refused() {
    let (packets, of_shim) = packets();
    for (at, packet) in packets.iter().enumerate() {
        let decoded = |packet: &[u8]| match at < of_shim {
            true => FromShim::decode(packet).map(drop),
            false => ToShim::decode(packet).map(drop),
        };
        for length in 0..packet.len() {
            assert_eq!(decoded(&packet[..length]), Err(Error::Length));
            if let Some(body) = length.checked_sub(HEAD) {
                let mut shorter = packet[..length].to_vec();
                shorter[4..8].copy_from_slice(&length_field(body));
                assert_eq!(decoded(&shorter), Err(Error::Length));
            }
        }
        let mut longer = packet.clone();
        longer.push(0);
        assert_eq!(decoded(&longer), Err(Error::Length));
        longer[4..8].copy_from_slice(&length_field(packet.len() + 1 - HEAD));
        assert_eq!(decoded(&longer), Err(Error::Length));
    }
}

/// Check that kinds and values without a meaning are refused, and a text that claims to be longer than its packet.
#[test]
fn nonsense_is_refused() {
    let packet = |kind: u32, body: &[u8]| [&kind.to_le_bytes(), &length_field(body.len()), body].concat();
    assert_eq!(ToShim::decode(&packet(0, b"")), Err(Error::Kind(0)));
    assert_eq!(FromShim::decode(&packet(0xffff, b"")), Err(Error::Kind(0xffff)));
    assert_eq!(FromShim::decode(&packet(1 << 16 | 9, &[0; 4])), Err(Error::Value));
    assert_eq!(FromShim::decode(&packet(8, &[0xff; 4])), Err(Error::Length));
    let mut buffer = [0; 256];
    let mut hello = FromShim::Hello(HELLO).encode(&mut buffer).unwrap().to_vec();
    let steady_clock = HEAD + 5 * 4;
    hello[steady_clock] = 2;
    assert_eq!(FromShim::decode(&hello), Err(Error::Value));
    let mut bound = FromShim::Bound(BOUND).encode(&mut buffer).unwrap().to_vec();
    bound[HEAD + 4] = 2;
    assert_eq!(FromShim::decode(&bound), Err(Error::Value));
}

/// Check that what does not fit into the buffer, or into any packet, is not written.
#[test]
fn too_long_is_refused() {
    for message in from_shim() {
        let mut buffer = [0; 1_024];
        let length = message.encode(&mut buffer).unwrap().len();
        for short in 0..length {
            assert_eq!(message.encode(&mut vec![0; short]), None);
        }
        assert!(message.encode(&mut vec![0; length]).is_some());
    }
    let text = vec![b'a'; MAX_PACKET];
    let mut buffer = vec![0; 2 * MAX_PACKET];
    assert_eq!(FromShim::Note(&text).encode(&mut buffer), None);
    assert!(FromShim::Note(&text[HEAD + 4..]).encode(&mut buffer).is_some());
    assert_eq!(FromShim::decode(&buffer), Err(Error::Length));
}

/// Check that bytes by chance never do harm, and that what they happen to mean is written back as the same bytes.
#[test]
fn bytes_by_chance() {
    let mut state = 0x6e70_726f_u64;
    let mut below = move |end: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed ^ (mixed >> 27)) >> 32).unwrap() % end
    };
    let (packets, _) = packets();
    let (mut understood, mut buffer) = (0, [0; 1_024]);
    for _ in 0..200_000 {
        // A packet with a few bytes changed comes further than one that is all chance.
        let mut bytes = packets[below(packets.len())].clone();
        for _ in 0..below(4) {
            let (at, values) = (below(bytes.len()), [4, 256][below(2)]);
            bytes[at] = u8::try_from(below(values)).unwrap();
        }
        bytes.truncate(bytes.len() - usize::from(below(16) == 0));
        if let Ok(message) = FromShim::decode(&bytes) {
            assert_eq!(message.encode(&mut buffer), Some(&bytes[..]));
            understood += 1;
        }
        if let Ok(message) = ToShim::decode(&bytes) {
            assert_eq!(message.encode(&mut buffer), Some(&bytes[..]));
            understood += 1;
        }
    }
    assert!((20_000..200_000).contains(&understood), "{understood}");
}
