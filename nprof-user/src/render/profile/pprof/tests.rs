//! Files are read back with the messages of another project, and checked as pprof checks them.

use std::collections::HashSet;
use std::io::Read;

use flate2::read::GzDecoder;
use libdd_profiling_protobuf::prost_impls::{Location, Profile, ValueType};

use super::*;
use crate::render::profile::testing;

fn bytes(mode: ProfileMode, columns: &[(Weight, Weighed)]) -> Vec<u8> {
    let mut out = Vec::new();
    write(&testing::about(mode), columns, &mut out).unwrap();
    out
}

/// Reads a file; ids and strings' numbers must be such as pprof accepts.
fn read(mode: ProfileMode, columns: &[(Weight, Weighed)]) -> File {
    let mut plain = Vec::new();
    GzDecoder::new(&bytes(mode, columns)[..]).read_to_end(&mut plain).unwrap();
    let profile = Profile::decode(&plain[..]).unwrap();
    assert_eq!(profile.string_table[0], "");
    let strings: HashSet<&String> = profile.string_table.iter().collect();
    assert_eq!(strings.len(), profile.string_table.len());
    let mappings: HashSet<u64> = profile.mappings.iter().map(|mapping| mapping.id).collect();
    let functions: HashSet<u64> = profile.functions.iter().map(|function| function.id).collect();
    let locations: HashSet<u64> = profile.locations.iter().map(|location| location.id).collect();
    assert!(![&mappings, &functions, &locations].iter().any(|ids| ids.contains(&0)));
    assert_eq!((mappings.len(), functions.len()), (profile.mappings.len(), profile.functions.len()));
    assert_eq!(locations.len(), profile.locations.len());
    for location in &profile.locations {
        assert!(mappings.contains(&location.mapping_id) && !location.lines.is_empty());
        assert!(location.lines.iter().all(|line| functions.contains(&line.function_id)));
    }
    for sample in &profile.samples {
        assert_eq!(sample.values.len(), profile.sample_types.len());
        assert!(!sample.location_ids.is_empty() && sample.location_ids.iter().all(|id| locations.contains(id)));
    }
    File(profile)
}

/// A profile with its references followed.
struct File(Profile);

impl File {
    fn string(&self, number: i64) -> &str {
        &self.0.string_table[usize::try_from(number).unwrap()]
    }

    fn kind(&self, value: &ValueType) -> String {
        format!("{}/{}", self.string(value.r#type), self.string(value.unit))
    }

    fn columns(&self) -> Vec<String> {
        self.0.sample_types.iter().map(|value| self.kind(value)).collect()
    }

    fn sum(&self, column: usize) -> i64 {
        self.0.samples.iter().map(|sample| sample.values[column]).sum()
    }

    /// `innermost:line <- … @ file of the mapping`, inlined frames in the location of the one that holds them.
    fn location(&self, location: &Location) -> String {
        let line = |line: &libdd_profiling_protobuf::prost_impls::Line| {
            let function = self.0.functions.iter().find(|function| function.id == line.function_id).unwrap();
            format!("{}:{}", self.string(function.name), line.line)
        };
        let lines: Vec<String> = location.lines.iter().map(line).collect();
        let mapping = self.0.mappings.iter().find(|mapping| mapping.id == location.mapping_id).unwrap();
        format!("{} @ {}", lines.join(" <- "), self.string(mapping.filename))
    }

    /// The values of each sample, and its locations.
    fn samples(&self) -> Vec<(Vec<i64>, Vec<String>)> {
        let location = |id: &u64| self.location(self.0.locations.iter().find(|location| location.id == *id).unwrap());
        let samples = self.0.samples.iter();
        samples.map(|sample| (sample.values.clone(), sample.location_ids.iter().map(location).collect())).collect()
    }
}

fn calls_and_times() -> [(Weight, Weighed); 2] {
    [(Weight::Time, testing::times()), (Weight::Calls, testing::calls())]
}

/// Check that counts come first, time is the default, and each column adds up to its total.
#[test]
fn columns_and_their_sums() {
    let off_cpu = testing::weighed(Unit::Nanoseconds, testing::times().frames, &[(&[0, 6], 33, 2)]);
    let [times, calls] = calls_and_times();
    let columns = [(Weight::OffCpu, off_cpu), times.clone(), (Weight::SelfTime, times.1), calls];
    let file = read(ProfileMode::Calls, &columns);
    assert_eq!(file.columns(), ["calls/count", "wall/nanoseconds", "off-cpu/nanoseconds"]);
    assert_eq!([file.sum(0), file.sum(1), file.sum(2)], [103, 2_500_005_006, 33]);
    assert_eq!(file.string(file.0.default_sample_type), "wall");
    assert_eq!((file.kind(file.0.period_type.as_ref().unwrap()), file.0.period), ("calls/count".to_owned(), 1));
}

/// Check which stacks are one sample, which frames one location, and which file each comes from.
#[test]
fn stacks_of_all_columns() {
    let samples = read(ProfileMode::Calls, &calls_and_times()).samples();
    let main = |text: &str| format!("{text} @ com.acme.Main");
    let run = main("com.acme.Main.run:12");
    let native = main("java.util.zip.Deflater.deflateBytesBytes:0");
    let pack = main("java.util.zip.Deflater.deflate:571 <- com.acme.Zip.pack:40");
    let deflate = "deflate:0 @ libz.so.1".to_owned();
    let fill = "std::fill<char>(char*, char):0 <- deflate:0 @ libz.so.1".to_owned();
    let read_bytes = main("java.io.FileInputStream.readBytes:0");
    let region = "jni_GetByteArrayRegion:0 @ libjvm.so".to_owned();
    let init = main("été.日本$\"\\.<init>:0");
    let stack = |frames: &[&String]| frames.iter().map(|frame| (*frame).clone()).collect::<Vec<String>>();
    let expected = [
        (vec![11, 700], stack(&[&native, &pack, &run])),
        (vec![0, 4_000], stack(&[&deflate, &native, &pack, &run])),
        (vec![0, 300], stack(&[&fill, &native, &pack, &run])),
        (vec![90, 2_500_000_000], stack(&[&read_bytes, &run])),
        (vec![0, 5], stack(&[&region, &read_bytes, &run])),
        (vec![0, 1], stack(&[&init, &main("[stack cut: the stack is too deep]:0")])),
        (vec![2, 0], stack(&[&main("java.lang.Runtime.freeMemory:0"), &main("[no stack taken]:0")])),
    ];
    assert_eq!(samples, expected);
}

/// Check that a native method whose library is known comes from it, and that a function called by its place in a library
/// does not say that again.
#[test]
fn libraries() {
    use crate::model::ProfileFrameKind::{Native, NativeMethod};
    let mut method = testing::java(NativeMethod, "a.B", "call", "()V", 0);
    method.library = "liba.so".to_owned();
    let frames = vec![method, testing::frame(Native, "libz.so.1", "libz.so.1+0x5dc0")];
    let file =
        read(ProfileMode::Calls, &[(Weight::Time, testing::weighed(Unit::Nanoseconds, frames, &[(&[0, 1], 1, 1)]))]);
    let expected = vec!["libz.so.1+0x5dc0:0 @ libz.so.1".to_owned(), "a.B.call:0 @ liba.so".to_owned()];
    assert_eq!(file.samples(), [(vec![1], expected)]);
    let files: Vec<&str> = file.0.functions.iter().map(|function| file.string(function.filename)).collect();
    assert_eq!(files, ["a.B", ""]);
}

/// Check that functions carry their descriptor and class, and that overloads are different functions.
#[test]
fn functions() {
    let native = |signature| testing::java(crate::model::ProfileFrameKind::NativeMethod, "a.B", "call", signature, 0);
    let overloads = vec![native("(I)V"), native("(J)V")];
    let calls = testing::weighed(Unit::Calls, overloads, &[(&[0], 1, 1), (&[1], 2, 1)]);
    let file = read(ProfileMode::Calls, &[(Weight::Calls, calls)]);
    let functions: Vec<[&str; 3]> = file
        .0
        .functions
        .iter()
        .map(|function| [function.name, function.system_name, function.filename].map(|text| file.string(text)))
        .collect();
    assert_eq!(functions, [["a.B.call", "a.B.call(I)V", "a.B"], ["a.B.call", "a.B.call(J)V", "a.B"]]);
    assert_eq!(file.string(file.0.default_sample_type), "calls");
    assert_eq!(file.0.samples.len(), 2);
}

/// Check what the file says of the recording as a whole, and that nobody will look for the files of its mappings.
#[test]
fn recording_as_a_whole() {
    let file = read(ProfileMode::Calls, &calls_and_times());
    assert_eq!((file.0.time_nanos, file.0.duration_nanos), (1_772_366_400_000_000_007, 10_000_000_000));
    let comment = "nprof 0.1.0: com.acme.Main (pid 1234) on box, OpenJDK 64-Bit Server VM 17.0.15";
    assert_eq!(file.0.comment.iter().map(|text| file.string(*text)).collect::<Vec<&str>>(), [comment]);
    assert_eq!(file.string(file.0.mappings[0].filename), "com.acme.Main");
    assert!(file.0.mappings.iter().all(|m| m.has_functions && m.has_filenames && m.has_line_numbers));
}

/// Check the columns of samples by timer.
#[test]
fn on_cpu() {
    let file = read(ProfileMode::OnCpu, &[(Weight::Time, testing::times())]);
    assert_eq!(file.columns(), ["samples/count", "cpu/nanoseconds"]);
    assert_eq!([file.sum(0), file.sum(1)], [53, 2_500_005_006]);
    assert_eq!(file.string(file.0.default_sample_type), "cpu");
    let period = (file.kind(file.0.period_type.as_ref().unwrap()), file.0.period);
    assert_eq!(period, ("cpu/nanoseconds".to_owned(), 10_000_000));
}

/// Check that self time has a column where it is all there is.
#[test]
fn self_time_alone() {
    let file = read(ProfileMode::Calls, &[(Weight::SelfTime, testing::times())]);
    assert_eq!((file.columns(), file.sum(0)), (vec!["self/nanoseconds".to_owned()], 2_500_005_006));
    assert_eq!(file.string(file.0.default_sample_type), "self");
}

/// Check that nothing to show is a valid file, and so is nothing at all.
#[test]
fn empty_recording() {
    for columns in [&[(Weight::Time, Weighed::default())][..], &[]] {
        let file = read(ProfileMode::Calls, columns);
        assert_eq!((file.0.samples.len(), file.0.sample_types.len()), (0, columns.len()));
    }
}

/// Check that numbers beyond the format's own end at its greatest, in a single value and in a sum.
#[test]
fn largest_numbers() {
    let stacks: &[(&[u32], u64, u64)] = &[(&[0], u64::MAX, 1), (&[1], i64::MAX.unsigned_abs(), 1)];
    let mut times = testing::times();
    times.stacks = stacks
        .iter()
        .chain(&stacks[1..])
        .map(|&(frames, value, samples)| WeighedStack { frames: frames.to_vec(), value, samples })
        .collect();
    let file = read(ProfileMode::Calls, &[(Weight::Time, times)]);
    assert_eq!(file.0.samples.iter().map(|sample| sample.values[0]).collect::<Vec<i64>>(), [i64::MAX; 2]);
}

/// Check that the same recording gives the same bytes.
#[test]
fn same_bytes_each_time() {
    assert_eq!(bytes(ProfileMode::Calls, &calls_and_times()), bytes(ProfileMode::Calls, &calls_and_times()));
}
