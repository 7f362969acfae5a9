//! What is drawn: places and widths, names, colours, headings.

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::super::captions::Captions;
use super::super::samples;
use super::write;
use crate::model::{ProfileFrameKind, Unit, Weighed, WeighedStack};

/// A box as the browser gets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Drawn {
    x: u64,
    width: u64,
    y: i64,
    fill: String,
    tooltip: String,
    label: String,
}

fn captions() -> Captions {
    let title = "Native time of <Größe> & \"Co\" (pid 1), 10.0 s".to_owned();
    Captions { title, notes: vec!["First note.".to_owned(), "Second <note>.".to_owned()] }
}

fn svg(weighed: &Weighed) -> String {
    let mut out = Vec::new();
    write(weighed, &captions(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn attributes(element: &BytesStart<'_>) -> HashMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    element.attributes().map(Result::unwrap).map(|a| (text(a.key.as_ref()), text(&a.value))).collect()
}

/// The boxes of a picture, and all text outside of them.
fn read(svg: &str) -> (Vec<Drawn>, Vec<String>) {
    let (mut boxes, mut texts): (Vec<Drawn>, Vec<String>) = Default::default();
    let (mut reader, mut text, mut in_box) = (Reader::from_str(svg), String::new(), false);
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(e) if e.name().as_ref() == b"g" => {
                in_box = true;
                boxes.push(Drawn::default());
            }
            Event::Start(_) => text.clear(),
            Event::Empty(e) if in_box => {
                let a = attributes(&e);
                let last = boxes.last_mut().unwrap();
                (last.x, last.width) = (a["fg:x"].parse().unwrap(), a["fg:w"].parse().unwrap());
                (last.y, last.fill) = (a["y"].parse().unwrap(), a["fill"].clone());
            }
            Event::Text(e) => text += &e.decode().unwrap(),
            Event::GeneralRef(e) => {
                text += &quick_xml::escape::unescape(&format!("&{};", e.decode().unwrap())).unwrap()
            }
            Event::End(e) => match (e.name().as_ref(), in_box) {
                (b"g", _) => in_box = false,
                (b"title", true) => boxes.last_mut().unwrap().tooltip.clone_from(&text),
                (b"text", true) => boxes.last_mut().unwrap().label.clone_from(&text),
                (b"text" | b"tspan", false) => texts.push(text.clone()),
                _ => {}
            },
            Event::Eof => return (boxes, texts),
            _ => {}
        }
    }
}

/// The boxes that stand directly on another one.
fn children<'a>(boxes: &'a [Drawn], below: &Drawn) -> Vec<&'a Drawn> {
    let stands = |b: &&Drawn| b.y == below.y - 17 && b.x >= below.x && b.x + b.width <= below.x + below.width;
    boxes.iter().filter(stands).collect()
}

/// Check names, tooltips and colours of boxes of each kind.
#[test]
fn every_kind() {
    let (boxes, _) = read(&svg(&samples::weighed()));
    let mut text = String::new();
    for Drawn { x, width, y, fill, tooltip, label } in boxes {
        text += &format!("{x}+{width} at {y}, {fill}\n    {tooltip}\n    {label}\n");
    }
    samples::assert_golden("every_kind.frames", include_str!("../golden/every_kind.frames"), &text);
}

/// Check that the heading says everything, and names the kinds that occur and no others.
#[test]
fn heading() {
    let mut weighed = samples::weighed();
    let (_, texts) = read(&svg(&weighed));
    assert!(texts.contains(&captions().title), "{texts:?}");
    for note in captions().notes {
        assert!(texts.contains(&note), "{texts:?}");
    }
    assert!(texts.iter().any(|text| text == "the VM itself"), "{texts:?}");
    weighed.stacks.truncate(2);
    let (_, texts) = read(&svg(&weighed));
    assert!(texts.iter().all(|text| text != "the VM itself"), "{texts:?}");
}

/// Check that widths are those of a tree: the lowest box is the total, and boxes are at least as wide as all that stands
/// on them.
#[test]
fn widths_are_those_of_a_tree() {
    let weighed = many(400);
    let (boxes, _) = read(&svg(&weighed));
    let lowest = boxes.iter().max_by_key(|b| b.y).unwrap();
    assert_eq!((lowest.x, lowest.width), (0, weighed.total));
    let mut standing = 0;
    for below in &boxes {
        let above = children(&boxes, below);
        standing += above.len();
        assert!(above.iter().map(|b| b.width).sum::<u64>() <= below.width, "{below:?}");
    }
    assert_eq!(standing, boxes.len() - 1, "each box but the lowest stands on one");
}

/// Stacks of pseudo-random frames and values, from a fixed seed.
fn many(count: usize) -> Weighed {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let frames = (0..12).map(|n| samples::frame(ProfileFrameKind::C2, "a.B", &format!("m{n}"))).collect();
    let mut stack = |_| WeighedStack {
        frames: (0..=random(9)).map(|_| u32::try_from(random(12)).unwrap()).collect(),
        value: 1_000 + random(1_000),
        samples: 1,
    };
    let stacks: Vec<_> = (0..count).map(&mut stack).collect();
    let total = stacks.iter().map(|stack| stack.value).sum();
    Weighed { unit: Unit::Nanoseconds, frames, stacks, total }
}

/// Check that neither the order of stacks nor chance changes a byte.
#[test]
fn same_stacks_give_the_same_bytes() {
    let weighed = many(100);
    let mut turned = weighed.clone();
    turned.stacks.reverse();
    assert_eq!(svg(&weighed), svg(&turned));
}

/// Check that a recording without calls gives a picture that says so.
#[test]
fn nothing_is_said() {
    let (boxes, texts) = read(&svg(&Weighed { unit: Unit::Calls, ..Weighed::default() }));
    let labels: Vec<&str> = boxes.iter().map(|b| b.label.as_str()).collect();
    assert!(labels.contains(&"No native method was called."), "{labels:?}");
    assert!(texts.contains(&captions().title), "{texts:?}");
    assert!(!texts.contains(&"no code".to_owned()), "nothing to explain: {texts:?}");
}

/// Check that stacks of which each is too narrow on its own are a picture too.
#[test]
fn many_narrow_stacks() {
    let frames = (0..20_000).map(|n| samples::frame(ProfileFrameKind::Native, "a", &format!("m{n}"))).collect();
    let stacks = (0..20_000).map(|n| WeighedStack { frames: vec![n], value: 1, samples: 1 }).collect();
    let (boxes, _) = read(&svg(&Weighed { frames, stacks, total: 20_000, ..Weighed::default() }));
    assert_eq!(boxes.iter().map(|b| b.width).max(), Some(20_000));
}

/// Check a stack of a thousand frames, each in its own row.
#[test]
fn deep_stacks() {
    let frame = |n| samples::frame(ProfileFrameKind::Interpreted, "a.B", &format!("m{n}"));
    let weighed = Weighed {
        frames: (0..1000).map(frame).collect(),
        stacks: vec![WeighedStack { frames: (0..1000).collect(), value: 7, samples: 1 }],
        total: 7,
        ..Weighed::default()
    };
    let (boxes, _) = read(&svg(&weighed));
    let mut rows: Vec<i64> = boxes.iter().map(|b| b.y).collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), 1001);
    assert!(rows[0] > 0, "the highest is in the picture");
}

/// Check that values beyond what scripts can count, wrong indices and names that are no XML are drawn all the same.
#[test]
fn strange_input() {
    let mut weighed = samples::weighed();
    for stack in &mut weighed.stacks {
        stack.value = u64::MAX / 4;
        stack.frames.push(99);
    }
    weighed.frames[0].name = "\0\u{ffff}]]>&lt;<script>".to_owned();
    let (boxes, _) = read(&svg(&weighed));
    assert!(boxes.iter().all(|b| b.x + b.width < 1 << 53));
    assert!(boxes.iter().any(|b| b.tooltip.contains("\\u{0}\u{fffd}]]>&lt;<script> (Java, interpreted")), "{boxes:?}");
}

/// Check that boxes too narrow to be seen are left out, and that this is said.
#[test]
fn narrow_boxes_are_counted() {
    let frames = (0..3).map(|n| samples::frame(ProfileFrameKind::C2, "a", &format!("m{n}"))).collect();
    let stack = |frames: &[u32], value| WeighedStack { frames: frames.to_vec(), value, samples: 1 };
    let stacks = vec![stack(&[0], 999_999), stack(&[0, 1, 2], 1)];
    let (boxes, texts) = read(&svg(&Weighed { frames, stacks, total: 1_000_000, ..Weighed::default() }));
    assert_eq!(boxes.len(), 2, "{boxes:?}");
    assert_eq!(boxes.iter().map(|b| b.width).collect::<Vec<_>>(), [1_000_000; 2]);
    assert!(texts.iter().any(|text| text.starts_with("Not drawn: 2 boxes")), "{texts:?}");
}
