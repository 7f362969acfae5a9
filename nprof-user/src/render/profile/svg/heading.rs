//! What stands above the boxes: title, notes, and a legend of the kinds that occur.

use std::io;

use quick_xml::Writer;
use quick_xml::events::BytesText;

use super::super::captions::Captions;
use super::super::labels::clean;
use super::tree::Tree;
use super::{FONT_SIZE, PADDING, palette};
use crate::model::ProfileFrameKind;
use crate::render::units;

/// Where inferno's title stands, in pixels from the top.
const TITLE: u32 = 2 * FONT_SIZE;
/// Height of a line of notes, in pixels.
const LINE: u32 = 17;
/// How many characters of a note fit into the picture's width.
const NOTE_WIDTH: usize = 175;

/// Colours of the text and of what the pointer is on. Boxes are set apart by thin white lines, as those of a kind have the
/// same colour.
const STYLE: &str = "
#title { text-anchor:start; font-weight:bold; }
#title, .note, .legend, #search, #unzoom { font-family:sans-serif; }
.note { fill:#444; }
.square { font-size:17px; stroke:#777; stroke-width:0.4; }
#search, #unzoom { text-anchor:end; fill:#0b5cad; opacity:1; cursor:pointer; }
#search:hover, #unzoom:hover { text-decoration:underline; }
#frames rect { stroke:#fff; stroke-width:0.5; }
#frames > g:hover { stroke:none; }
#frames > g:hover > rect { stroke:#000; stroke-width:1; }
#frames text, .note, .legend { pointer-events:none; }
";

/// The lines above the boxes.
#[derive(Debug)]
pub(super) struct Heading {
    notes: Vec<String>,
    kinds: Vec<ProfileFrameKind>,
}

impl Heading {
    /// What belongs above these boxes.
    pub(super) fn new(captions: &Captions, tree: &Tree) -> Self {
        let mut notes: Vec<String> = captions.notes.iter().flat_map(|note| wrapped(&clean(note))).collect();
        if tree.narrow > 0 {
            let boxes = units::count(tree.narrow as u64);
            notes.push(format!("Not drawn: {boxes} boxes that are narrower than 0.01 % of the whole."));
        }
        let occurs =
            |kind: &ProfileFrameKind| !tree.is_empty() && tree.nodes().iter().any(|node| node.kind == Some(*kind));
        Self { notes, kinds: palette::LEGEND.into_iter().filter(occurs).collect() }
    }

    /// How many pixels it adds to the room for inferno's title.
    pub(super) fn height(&self) -> u32 {
        let lines = u32::try_from(self.notes.len()).unwrap_or(u32::MAX / LINE / 2);
        lines * LINE + 2 * LINE
    }

    /// Writes the style, the notes and the legend.
    pub(super) fn write<W: io::Write>(&self, out: &mut Writer<W>) -> io::Result<()> {
        out.create_element("style").with_attribute(("type", "text/css")).write_text_content(BytesText::new(STYLE))?;
        let mut y = TITLE;
        for note in &self.notes {
            y += LINE;
            text(out, "note", PADDING, y, note)?;
        }
        self.write_legend(out, y + LINE + LINE / 2)
    }

    /// One line of text, coloured squares included, so that words of any font stand evenly.
    fn write_legend<W: io::Write>(&self, out: &mut Writer<W>, y: u32) -> io::Result<()> {
        let place = [("class", "legend"), ("x", &PADDING.to_string()), ("y", &y.to_string())];
        out.create_element("text").with_attributes(place).write_inner_content(|out| {
            let mut gap = "0";
            for &kind in &self.kinds {
                let square = [("class", "square"), ("dx", gap), ("fill", palette::colour(Some(kind)))];
                out.create_element("tspan").with_attributes(square).write_text_content(BytesText::new("\u{25a0}"))?;
                let words = BytesText::new(palette::legend(kind));
                out.create_element("tspan").with_attribute(("dx", "4")).write_text_content(words)?;
                gap = "16";
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn text<W: io::Write>(out: &mut Writer<W>, class: &str, x: u32, y: u32, words: &str) -> io::Result<()> {
    let place = [("class", class), ("x", &x.to_string()), ("y", &y.to_string())];
    out.create_element("text").with_attributes(place).write_text_content(BytesText::new(words))?;
    Ok(())
}

/// The note in lines that fit, broken at blanks; a word that is too long stays whole.
fn wrapped(note: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].chars().count() + 1 + word.chars().count() <= NOTE_WIDTH {
            lines[last] += " ";
            lines[last] += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{NOTE_WIDTH, wrapped};

    /// Check that long notes are broken at blanks and that nothing of them is lost.
    #[test]
    fn notes_are_wrapped() {
        let note = "word ".repeat(100) + &"x".repeat(300);
        let lines = wrapped(&note);
        assert!(lines.len() > 3);
        assert_eq!(lines.join(" "), note);
        let fit = |line: &&String| line.len() <= NOTE_WIDTH;
        assert_eq!(lines.iter().filter(fit).count(), lines.len() - 1, "{lines:?}");
    }
}
