//! The same profile as a request of OTLP (`opentelemetry.proto.collector.profiles.v1development`).
//!
//! OTLP has pprof's tables, but numbers their rows from 0, where each has a row that says nothing: so pprof's ids are the
//! numbers. A profile has one column there, so each column is a profile of its own, over the same stacks.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles, Sample,
    ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::messages::{self, Part};
use super::{Pieces, pieces};
use crate::model::{About, JvmLabels, Weighed, Weight};

/// A request with a profile for each of `columns`. The JVM's first label is the service's name.
#[must_use]
pub fn otlp(about: &About, labels: &JvmLabels, columns: &[(Weight, Weighed)]) -> Vec<u8> {
    let Pieces { head, samples, tables } = pieces(about, columns);
    let mut stacks = Stacks::new();
    let numbers: Vec<i32> = samples.iter().map(|sample| stacks.of(&sample.location_id)).collect();
    let profile = |column: usize| profile(&head, column, samples.iter().zip(&numbers));
    let profiles = (0..head.sample_type.len()).map(profile).collect();
    let scope = InstrumentationScope {
        name: "nprof".to_owned(),
        version: about.nprof.clone(),
        ..InstrumentationScope::default()
    };
    let scope_profiles = vec![ScopeProfiles { scope: Some(scope), profiles, ..ScopeProfiles::default() }];
    let resource = Some(resource(about, labels));
    let resource_profiles = vec![ResourceProfiles { resource, scope_profiles, ..ResourceProfiles::default() }];
    let dictionary = Some(dictionary(tables, stacks.rows));
    ExportProfilesServiceRequest { resource_profiles, dictionary }.encode_to_vec()
}

/// One column. Stacks that it has nothing of are left out.
fn profile<'a>(head: &Part, column: usize, samples: impl Iterator<Item = (&'a messages::Sample, &'a i32)>) -> Profile {
    let with_value = samples.filter_map(|(sample, stack_index)| {
        let value = sample.value.get(column).copied().filter(|value| *value > 0)?;
        Some(Sample { stack_index: *stack_index, values: vec![value], ..Sample::default() })
    });
    Profile {
        sample_type: head.sample_type.get(column).map(value_type),
        samples: with_value.collect(),
        time_unix_nano: u64::try_from(head.time_nanos).unwrap_or_default(),
        duration_nano: u64::try_from(head.duration_nanos).unwrap_or_default(),
        period_type: head.period_type.as_ref().map(value_type),
        period: head.period,
        ..Profile::default()
    }
}

/// Different stacks, numbered from 1: 0 is none.
struct Stacks {
    numbers: HashMap<Vec<i32>, i32>,
    rows: Vec<Stack>,
}

impl Stacks {
    fn new() -> Self {
        Self { numbers: HashMap::new(), rows: vec![Stack::default()] }
    }

    fn of(&mut self, locations: &[u64]) -> i32 {
        let location_indices: Vec<i32> = locations.iter().map(|id| number(*id)).collect();
        if let Some(number) = self.numbers.get(&location_indices) {
            return *number;
        }
        let number = number(self.rows.len() as u64);
        self.numbers.insert(location_indices.clone(), number);
        self.rows.push(Stack { location_indices });
        number
    }
}

/// pprof's tables, each behind the row that says nothing; its strings begin with one.
fn dictionary(tables: Part, stack_table: Vec<Stack>) -> ProfilesDictionary {
    let mappings = tables
        .mapping
        .iter()
        .map(|mapping| Mapping { filename_strindex: string(mapping.filename), ..Mapping::default() });
    let functions = tables.function.iter().map(|function| Function {
        name_strindex: string(function.name),
        system_name_strindex: string(function.system_name),
        filename_strindex: string(function.filename),
        start_line: 0,
    });
    let locations = tables.location.iter().map(|location| Location {
        mapping_index: number(location.mapping_id),
        lines: location.line.iter().map(line).collect(),
        ..Location::default()
    });
    ProfilesDictionary {
        mapping_table: behind_none(mappings),
        location_table: behind_none(locations),
        function_table: behind_none(functions),
        link_table: vec![Link::default()],
        string_table: tables.string_table,
        attribute_table: vec![KeyValueAndUnit::default()],
        stack_table,
    }
}

fn behind_none<T: Default>(rows: impl Iterator<Item = T>) -> Vec<T> {
    std::iter::once(T::default()).chain(rows).collect()
}

fn line(line: &messages::Line) -> Line {
    Line { function_index: number(line.function_id), line: line.line, column: 0 }
}

fn value_type(value: &messages::ValueType) -> ValueType {
    ValueType { type_strindex: string(value.kind), unit_strindex: string(value.unit) }
}

/// The JVM: what it is called, and where it runs.
fn resource(about: &About, labels: &JvmLabels) -> Resource {
    let text = |key: &str, value: &str| attribute(key, any_value::Value::StringValue(value.to_owned()));
    let name = labels.0.first().map_or(about.main.as_str(), |(_, value)| value);
    let mut attributes = vec![
        text("service.name", name),
        text("host.name", &about.host),
        attribute("process.pid", any_value::Value::IntValue(about.pid.into())),
        text("process.runtime.description", &about.vm),
    ];
    attributes.extend(labels.0.iter().map(|(name, value)| text(name, value)));
    Resource { attributes, ..Resource::default() }
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn number(id: u64) -> i32 {
    i32::try_from(id).expect("memory has no room for 2^31 rows")
}

fn string(number: i64) -> i32 {
    i32::try_from(number).expect("memory has no room for 2^31 strings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ProfileMode, Unit};
    use crate::render::profile::{samples, testing};

    fn decoded(labels: &JvmLabels) -> ExportProfilesServiceRequest {
        let mut calls = samples::weighed();
        calls.unit = Unit::Calls;
        calls.stacks.truncate(3);
        calls.stacks.iter_mut().for_each(|stack| stack.value = 7);
        let columns = [(Weight::Calls, calls), (Weight::Time, samples::weighed())];
        let bytes = otlp(&testing::about(ProfileMode::Calls), labels, &columns);
        ExportProfilesServiceRequest::decode(&bytes[..]).unwrap()
    }

    /// A stack's functions, the innermost first, each inlined one before the one that it is inlined into.
    fn names(dictionary: &ProfilesDictionary, stack: i32) -> Vec<&str> {
        let at = |index: i32| usize::try_from(index).unwrap();
        let locations = dictionary.stack_table[at(stack)].location_indices.iter();
        let lines = locations.flat_map(|location| &dictionary.location_table[at(*location)].lines);
        let functions = lines.map(|line| &dictionary.function_table[at(line.function_index)]);
        functions.map(|function| dictionary.string_table[at(function.name_strindex)].as_str()).collect()
    }

    /// Check that each column is a profile with its kind, its sum and its stacks, and that all tables begin with nothing.
    #[test]
    fn columns_are_profiles() {
        let request = decoded(&JvmLabels(Vec::new()));
        let dictionary = request.dictionary.unwrap();
        let profiles = &request.resource_profiles[0].scope_profiles[0].profiles;
        let kind = |profile: &Profile| {
            let kind = profile.sample_type.unwrap();
            let text = |index| dictionary.string_table[usize::try_from(index).unwrap()].as_str();
            format!("{}/{}", text(kind.type_strindex), text(kind.unit_strindex))
        };
        assert_eq!(profiles.iter().map(kind).collect::<Vec<_>>(), ["calls/count", "wall/nanoseconds"]);
        let sum = |profile: &Profile| profile.samples.iter().map(|sample| sample.values[0]).sum::<i64>();
        assert_eq!(profiles.iter().map(sum).collect::<Vec<_>>(), [21, 1_240_000_000]);
        assert_eq!(profiles.iter().map(|profile| profile.samples.len()).collect::<Vec<_>>(), [3, 5]);
        let times = |profile: &Profile| (profile.time_unix_nano % 1_000_000_000, profile.duration_nano);
        assert!(profiles.iter().all(|profile| times(profile) == (7, 10_000_000_000)));
        let stack = names(&dictionary, profiles[1].samples[1].stack_index);
        assert_eq!(stack.last(), Some(&"com.acme.Main.main"));
        assert_eq!(stack[..2], ["crc32", "deflate<[u8; 4]>"]);
        let ProfilesDictionary { mapping_table, location_table, function_table, stack_table, .. } = &dictionary;
        assert_eq!((&mapping_table[0], &location_table[0]), (&Mapping::default(), &Location::default()));
        assert_eq!((&function_table[0], &stack_table[0]), (&Function::default(), &Stack::default()));
        assert_eq!((dictionary.string_table[0].as_str(), dictionary.link_table.len()), ("", 1));
    }

    /// Check that the resource is the JVM by its labels, and by its main class where it has none.
    #[test]
    fn resource_is_the_jvm() {
        let names = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let resource = decoded(&JvmLabels(labels)).resource_profiles.remove(0).resource.unwrap();
            let strings = resource.attributes.into_iter().filter_map(|pair| match pair.value?.value? {
                any_value::Value::StringValue(text) => Some((pair.key, text)),
                _ => None,
            });
            strings.map(|(key, text)| format!("{key}={text}")).collect::<Vec<_>>().join(" ")
        };
        let vm = "process.runtime.description=OpenJDK 64-Bit Server VM 17.0.15";
        assert_eq!(names(&[]), format!("service.name=com.acme.Main host.name=box {vm}"));
        let labelled = names(&[("jvm", "web"), ("pod", "web-1")]);
        assert_eq!(labelled, format!("service.name=web host.name=box {vm} jvm=web pod=web-1"));
    }
}
