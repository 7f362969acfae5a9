//! The flame graph as a standalone page: searchable, a colour for each kind of frame.
//!
//! Stacks become a `tree` of boxes, each with a number. inferno gets only these numbers: it lays the boxes out and brings
//! the script that zooms and searches. `annotate` then gives each box its name, colour and tooltip, and puts the
//! `heading` above, for which inferno has no place. The same input gives the same bytes.

mod annotate;
mod arguments;
mod heading;
mod palette;
mod tree;

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, Options};

use super::captions::Captions;
use crate::model::Weighed;
use heading::Heading;
use tree::Tree;

/// Width of the picture where no script fits it to its window, in pixels; inferno's own.
const WIDTH: u32 = 1200;
/// Left and right of the boxes, in pixels; inferno's own.
const PADDING: u32 = 10;
/// Of all text but the title, in pixels.
const FONT_SIZE: u32 = 12;
/// Advance of a character of the boxes' monospaced font, as a part of [`FONT_SIZE`]. On the wide side: a text that is cut
/// too early is better than one that runs into the next box.
const FONT_WIDTH: f64 = 0.61;

/// Draws a flame graph.
///
/// # Errors
/// Those of `out`.
pub fn write(weighed: &Weighed, captions: &Captions, out: &mut dyn Write) -> io::Result<()> {
    let tree = Tree::of(weighed);
    let lines = tree.lines();
    let mut bare = Vec::new();
    flamegraph::from_lines(&mut options(captions), lines.iter().map(String::as_str), &mut bare)?;
    let heading = Heading::new(captions, &tree);
    annotate::annotate(&bare, &tree, &heading, out)
}

fn options(captions: &Captions) -> Options<'static> {
    let mut options = Options::default();
    options.title.clone_from(&captions.title);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options.font_size = FONT_SIZE as usize;
    options.font_width = FONT_WIDTH;
    options.frame_height = 17;
    options.name_type = String::new();
    options.no_sort = true;
    // What is too narrow is left out of the tree already.
    options.min_width = 0.0;
    options
}

#[cfg(test)]
mod tests;
