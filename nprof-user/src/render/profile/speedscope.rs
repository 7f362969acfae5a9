//! The JSON that <https://www.speedscope.app> opens: one table of frames, and a profile for each weight to choose from.
//!
//! The form is that of <https://www.speedscope.app/file-format-schema.json>. Kinds of frames are not told apart, so a method
//! has one colour however it was compiled.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::names;
use crate::model::{About, ProfileFrame, ProfileMode, Unit, Weighed, Weight};
use crate::render::json;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes a file with a profile for each of `columns`. The one of wall-clock time is shown first. Writes in small pieces:
/// `out` should be buffered.
///
/// # Errors
/// Those of `out`.
pub fn write(about: &About, columns: &[(Weight, Weighed)], mut out: &mut dyn Write) -> io::Result<()> {
    let mut table = FrameTable::default();
    let profiles = columns
        .iter()
        .map(|(weight, weighed)| Profile::of(about.mode, *weight, weighed, table.numbers(&weighed.frames)))
        .collect();
    let file = File {
        schema: SCHEMA,
        exporter: format!("nprof {}", about.nprof),
        name: &about.main,
        active_profile_index: columns.iter().position(|(weight, _)| *weight == Weight::default_of(about)).unwrap_or(0),
        shared: Shared { frames: table.frames },
        profiles,
    };
    json::line(&file, &mut out)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: &'a str,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

/// A frame as speedscope knows it: two with the same content are the same.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame<'a> {
    name: Cow<'a, str>,
    /// The class or the library, where the name does not say it.
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// The frames of all columns, each once.
#[derive(Default)]
struct FrameTable<'a> {
    numbers: HashMap<Frame<'a>, usize>,
    frames: Vec<Frame<'a>>,
}

impl<'a> FrameTable<'a> {
    /// The number in the table of each of these frames.
    fn numbers(&mut self, frames: &'a [ProfileFrame]) -> Vec<usize> {
        frames.iter().map(|frame| self.number(frame)).collect()
    }

    fn number(&mut self, frame: &'a ProfileFrame) -> usize {
        let frame = Frame { name: names::full(frame), file: names::file(frame), line: frame.line };
        if let Some(number) = self.numbers.get(&frame) {
            return *number;
        }
        self.frames.push(frame.clone());
        self.numbers.insert(frame, self.frames.len() - 1);
        self.frames.len() - 1
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Samples<'a>,
    #[serde(serialize_with = "values")]
    weights: &'a Weighed,
}

impl<'a> Profile<'a> {
    fn of(mode: ProfileMode, weight: Weight, weighed: &'a Weighed, numbers: Vec<usize>) -> Self {
        Self {
            kind: "sampled",
            name: match (mode, weight) {
                (ProfileMode::OnCpu, Weight::Time | Weight::SelfTime | Weight::OnCpu) => "CPU time",
                (_, Weight::Time) => "wall-clock time in native methods",
                (_, Weight::Calls) => "calls of native methods",
                (_, Weight::SelfTime) => "self time of native methods",
                (_, Weight::OnCpu) => "on-CPU time in native methods",
                (_, Weight::OffCpu) => "off-CPU time in native methods",
            },
            unit: match weighed.unit {
                Unit::Nanoseconds => "nanoseconds",
                Unit::Calls => "none",
            },
            start_value: 0,
            end_value: weighed.total,
            samples: Samples { weighed, numbers },
            weights: weighed,
        }
    }
}

/// The stacks as lists of numbers in the table of frames, outermost first. They are made while they are written.
struct Samples<'a> {
    weighed: &'a Weighed,
    /// For each frame of `weighed`.
    numbers: Vec<usize>,
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.weighed.stacks.iter().map(|stack| Stack { frames: &stack.frames, of: self }))
    }
}

struct Stack<'a> {
    frames: &'a [u32],
    of: &'a Samples<'a>,
}

impl Serialize for Stack<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.frames.iter().map(|frame| self.of.numbers[*frame as usize]))
    }
}

fn values<S: Serializer>(weighed: &Weighed, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(weighed.stacks.iter().map(|stack| stack.value))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::render::profile::testing;

    /// The rules of the format's schema, and that nothing else is written.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Document {
        #[serde(rename = "$schema")]
        schema: String,
        exporter: String,
        name: String,
        active_profile_index: usize,
        shared: SharedFrames,
        profiles: Vec<Sampled>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SharedFrames {
        frames: Vec<NamedFrame>,
    }

    #[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NamedFrame {
        name: String,
        file: Option<String>,
        line: Option<u32>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Sampled {
        #[serde(rename = "type")]
        kind: String,
        name: String,
        unit: ValueUnit,
        start_value: u64,
        end_value: u64,
        samples: Vec<Vec<usize>>,
        weights: Vec<u64>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum ValueUnit {
        None,
        Nanoseconds,
    }

    fn text(mode: ProfileMode, columns: &[(Weight, Weighed)]) -> String {
        let mut out = Vec::new();
        write(&testing::about(mode), columns, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Reads a file and checks what the schema cannot say: indices are in range, sums are right, frames differ.
    fn document(mode: ProfileMode, columns: &[(Weight, Weighed)]) -> Document {
        let document: Document = serde_json::from_str(&text(mode, columns)).unwrap();
        assert_eq!(document.schema, SCHEMA);
        let frames = &document.shared.frames;
        assert_eq!(frames.iter().collect::<std::collections::HashSet<_>>().len(), frames.len());
        assert_eq!(document.profiles.len(), columns.len());
        for (profile, (_, weighed)) in document.profiles.iter().zip(columns) {
            assert_eq!((profile.kind.as_str(), profile.start_value), ("sampled", 0));
            assert_eq!(profile.samples.len(), profile.weights.len());
            assert!(profile.samples.iter().flatten().all(|frame| *frame < frames.len()));
            let sum: u128 = profile.weights.iter().map(|weight| u128::from(*weight)).sum();
            assert_eq!((sum, profile.end_value), (u128::from(weighed.total), weighed.total));
        }
        document
    }

    /// Check names, units and stacks of two columns that share a table of frames.
    #[test]
    fn columns_share_frames() {
        let columns = [(Weight::Calls, testing::calls()), (Weight::Time, testing::times())];
        let document = document(ProfileMode::Calls, &columns);
        assert_eq!((document.name.as_str(), document.exporter.as_str()), ("com.acme.Main", "nprof 0.1.0"));
        assert_eq!(document.active_profile_index, 1);
        let [calls, times] = &document.profiles[..] else { panic!("two columns") };
        assert_eq!((calls.name.as_str(), &calls.unit), ("calls of native methods", &ValueUnit::None));
        assert_eq!((times.name.as_str(), &times.unit), ("wall-clock time in native methods", &ValueUnit::Nanoseconds));
        // `Main.run` → `readBytes`, compiled in one column and interpreted in the other.
        assert_eq!(calls.samples[0], times.samples[3]);
        assert_eq!((calls.weights[0], times.weights[3]), (90, 2_500_000_000));
        let frame = |number: usize| &document.shared.frames[number];
        let names: Vec<&str> = times.samples[2].iter().map(|number| frame(*number).name.as_str()).collect();
        let expected = [
            "com.acme.Main.run",
            "com.acme.Zip.pack",
            "java.util.zip.Deflater.deflate",
            "java.util.zip.Deflater.deflateBytesBytes",
            "deflate",
            "std::fill<char>(char*, char)",
        ];
        assert_eq!(names, expected);
        let outermost =
            NamedFrame { name: "com.acme.Main.run".to_owned(), file: Some("com.acme.Main".to_owned()), line: Some(12) };
        assert_eq!(*frame(times.samples[0][0]), outermost);
        let cut = NamedFrame { name: "[stack cut: the stack is too deep]".to_owned(), file: None, line: None };
        assert_eq!(*frame(times.samples[5][0]), cut);
        assert_eq!(frame(times.samples[5][1]).name, "été.日本$\"\\.<init>");
    }

    /// Check that samples by timer are called what they are.
    #[test]
    fn on_cpu_is_cpu_time() {
        let document = document(ProfileMode::OnCpu, &[(Weight::Time, testing::times())]);
        assert_eq!((document.profiles[0].name.as_str(), document.active_profile_index), ("CPU time", 0));
    }

    /// Check that nothing to show is a valid file, and so is nothing at all.
    #[test]
    fn empty_recording() {
        let nothing = document(ProfileMode::Calls, &[(Weight::Time, Weighed::default())]);
        assert_eq!(nothing.profiles[0].samples.len() + nothing.shared.frames.len(), 0);
        assert_eq!(document(ProfileMode::Calls, &[]).active_profile_index, 0);
    }

    /// Check that the largest number is written in full.
    #[test]
    fn largest_number() {
        let frames = testing::times().frames;
        let largest = testing::weighed(Unit::Nanoseconds, frames, &[(&[0], u64::MAX, 1)]);
        assert_eq!(document(ProfileMode::Calls, &[(Weight::Time, largest)]).profiles[0].weights, [u64::MAX]);
    }

    /// Check that the same recording gives the same bytes.
    #[test]
    fn same_bytes_each_time() {
        let columns = [(Weight::Time, testing::times()), (Weight::Calls, testing::calls())];
        assert_eq!(text(ProfileMode::Calls, &columns), text(ProfileMode::Calls, &columns));
    }
}
