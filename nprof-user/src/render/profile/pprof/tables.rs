//! What samples refer to: strings, mappings, functions and locations, each written once and known by its number.

use std::collections::HashMap;
use std::hash::Hash;

use super::messages::{Function, Line, Location, Mapping, Part};
use crate::model::{ProfileFrame, ProfileFrameKind};
use crate::render::profile::names;

/// Different values, numbered from 0 in the order of their first use.
struct Numbered<T> {
    numbers: HashMap<T, usize>,
    values: Vec<T>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }

    fn of(&mut self, value: T) -> usize {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        self.values.push(value.clone());
        self.numbers.insert(value, self.values.len() - 1);
        self.values.len() - 1
    }
}

/// The table of strings; the first is empty, as the format wants it.
pub(super) struct Strings(Numbered<String>);

impl Strings {
    pub(super) fn of(&mut self, text: &str) -> i64 {
        as_i64(self.0.of(text.to_owned()))
    }
}

/// A line of a function, in the file that its code comes from. Two frames that differ in their kind alone are one place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    line: Line,
    mapping_id: u64,
}

/// All tables.
pub(super) struct Tables {
    pub(super) strings: Strings,
    /// By the string of their file.
    mappings: Numbered<i64>,
    /// By their strings: name, system name, file.
    functions: Numbered<(i64, i64, i64)>,
    places: Numbered<Place>,
    /// By their places, the innermost first.
    locations: Numbered<Vec<u32>>,
}

impl Tables {
    /// Empty tables. Java methods come from `main`, but for native ones whose library is known: the format wants the
    /// main program as the first mapping.
    pub(super) fn new(main: &str) -> Self {
        let mut tables = Self {
            strings: Strings(Numbered::new()),
            mappings: Numbered::new(),
            functions: Numbered::new(),
            places: Numbered::new(),
            locations: Numbered::new(),
        };
        tables.strings.of("");
        let main = tables.strings.of(main);
        tables.mappings.of(main);
        tables
    }

    /// The number of the place that a frame stands for.
    pub(super) fn place(&mut self, frame: &ProfileFrame) -> u32 {
        let name = self.strings.of(&names::full(frame));
        let system_name = self.strings.of(&format!("{}{}", names::full(frame), frame.signature));
        let filename = self.strings.of(names::file(frame));
        let function_id = id(self.functions.of((name, system_name, filename)));
        let library = names::library(frame);
        let mapping_id = match is_native(frame.kind) || !library.is_empty() {
            true => id(self.mappings.of(self.strings.of(library))),
            false => MAIN,
        };
        let line = Line { function_id, line: frame.line.map_or(0, i64::from) };
        as_u32(self.places.of(Place { line, mapping_id }))
    }

    /// The id of the location at these places, the innermost first: all but the last are inlined into the next.
    pub(super) fn location(&mut self, places: &[u32]) -> u64 {
        id(self.locations.of(places.to_vec()))
    }

    /// The tables as they are written.
    pub(super) fn finish(self) -> Part {
        let Self { strings, mappings, functions, places, locations } = self;
        let function = |(number, &(name, system_name, filename)): (usize, &(i64, i64, i64))| Function {
            id: id(number),
            name,
            system_name,
            filename,
        };
        let location = |(number, inlined): (usize, &Vec<u32>)| {
            let places: Vec<Place> = inlined.iter().map(|place| places.values[*place as usize]).collect();
            Location {
                id: id(number),
                mapping_id: places.last().map_or(MAIN, |place| place.mapping_id),
                line: places.iter().map(|place| place.line).collect(),
            }
        };
        Part {
            mapping: mappings.values.iter().enumerate().map(|(number, file)| mapping(number, *file)).collect(),
            function: functions.values.iter().enumerate().map(function).collect(),
            location: locations.values.iter().enumerate().map(location).collect(),
            string_table: strings.0.values,
            ..Part::default()
        }
    }
}

/// The id of the main program's mapping.
const MAIN: u64 = 1;

/// Whatever a mapping is said to have, readers do not look for themselves: the file may be on another machine.
fn mapping(number: usize, filename: i64) -> Mapping {
    Mapping {
        id: id(number),
        filename,
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    }
}

/// Whether it is a function of a library; a native method is one of Java.
pub(super) fn is_native(kind: ProfileFrameKind) -> bool {
    matches!(kind, ProfileFrameKind::Native | ProfileFrameKind::Vm | ProfileFrameKind::NativeInlined)
}

/// Ids begin at 1: 0 is none.
fn id(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX).saturating_add(1)
}

fn as_i64(number: usize) -> i64 {
    i64::try_from(number).expect("memory has no room for so many strings")
}

fn as_u32(number: usize) -> u32 {
    u32::try_from(number).expect("memory has no room for 2^32 places")
}
