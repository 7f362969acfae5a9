//! Turns inferno's drawing of numbered boxes into one of named ones, with a heading.
//!
//! The drawing is gone through element by element. What inferno's script relies on stays: the order of elements, their ids,
//! and the attributes that hold places and widths.

use std::borrow::Cow;
use std::io::{self, Write};

use quick_xml::events::{BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer};

use super::heading::Heading;
use super::tree::{Node, Tree};
use super::{FONT_SIZE, FONT_WIDTH, PADDING, WIDTH, palette};

/// How far left of the button for the search the one for the whole picture ends, in pixels.
const BUTTONS: u32 = 95;

/// Between the left side of a box and its text, in pixels.
const TEXT_PADDING: f64 = 3.0;

/// Writes `bare` with names, colours and heading.
///
/// # Errors
/// Those of `out`, and `bare` being no drawing of this tree.
pub(super) fn annotate(bare: &[u8], tree: &Tree, heading: &Heading, out: &mut dyn Write) -> io::Result<()> {
    let mut reader = Reader::from_reader(bare);
    let mut dresser = Dresser { tree, heading, out: Writer::new(out), node: &tree.nodes()[0], inside: Inside::Other };
    loop {
        match reader.read_event().map_err(io::Error::other)? {
            Event::Eof => break,
            event => dresser.pass(event)?,
        }
    }
    dresser.out.into_inner().write_all(b"\n")
}

/// What the text belongs to that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Something that stays as it is.
    Other,
    /// The tooltip of a box, whose number is still to be read.
    Tooltip,
    /// A text of a box, which has been written already.
    Label,
}

struct Dresser<'a, W> {
    tree: &'a Tree,
    heading: &'a Heading,
    out: Writer<W>,
    /// The box that is being written.
    node: &'a Node,
    inside: Inside,
}

impl<'a, W: Write> Dresser<'a, W> {
    fn pass(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Start(element) => self.start(&element),
            Event::Empty(element) if is(&element, b"rect") => {
                let rect = self.rect(&element)?;
                self.out.write_event(Event::Empty(rect))
            }
            Event::Text(text) if self.inside == Inside::Tooltip => {
                self.node = self.numbered(&text).ok_or_else(foreign)?;
                self.inside = Inside::Other;
                self.out.write_event(Event::Text(BytesText::new(&self.tree.tooltip(self.node))))
            }
            // The label stands already, and there is nothing to note.
            Event::Text(_) if self.inside == Inside::Label => Ok(()),
            Event::Comment(comment) if comment.starts_with(b"NOTES:") => Ok(()),
            other => {
                self.inside = Inside::Other;
                self.out.write_event(other)
            }
        }
    }

    fn start(&mut self, element: &BytesStart<'_>) -> io::Result<()> {
        let id = attribute(element, "id")?;
        let y = self.heading.height();
        match (element.name().as_ref(), id.as_deref()) {
            (b"svg", None) => {
                let height = self.raised(element, "height")?;
                let (size, view) = (height.to_string(), format!("0 0 {WIDTH} {height}"));
                self.open(with(element, &[("height", &size), ("viewBox", &view)])?)
            }
            (b"svg", Some("frames")) => {
                self.heading.write(&mut self.out)?;
                self.open(with(element, &[("y", &y.to_string())])?)
            }
            (b"text", Some("title")) => self.open(with(element, &[("x", &PADDING.to_string())])?),
            (b"text", Some("unzoom")) => {
                let left = format!("-{}", PADDING + BUTTONS);
                self.open(with(element, &[("x", "100%"), ("dx", &left)])?)
            }
            (b"text", Some("details" | "matched")) => {
                let place = format!("{:.2}", self.raised(element, "y")?);
                self.open(with(element, &[("y", &place)])?)
            }
            (b"title", _) => {
                self.inside = Inside::Tooltip;
                self.out.write_event(Event::Start(element.borrow()))
            }
            (b"text", None) => self.label(element),
            _ => self.open(element.borrow()),
        }
    }

    fn open(&mut self, element: BytesStart<'_>) -> io::Result<()> {
        self.inside = Inside::Other;
        self.out.write_event(Event::Start(element))
    }

    /// A box gets the colour of its kind; the background, which comes before all boxes, grows.
    fn rect<'e>(&self, element: &BytesStart<'e>) -> io::Result<BytesStart<'e>> {
        if attribute(element, "fg:w")?.is_some() {
            return with(element, &[("fill", palette::colour(self.node.kind))]);
        }
        with(element, &[("height", &self.raised(element, "height")?.to_string())])
    }

    /// The text of a box: what the script writes as well, for those who do not run it.
    fn label(&mut self, element: &BytesStart<'_>) -> io::Result<()> {
        self.inside = Inside::Label;
        self.out.write_event(Event::Start(element.borrow()))?;
        let room = f64::from(WIDTH - 2 * PADDING) * self.tree.part(self.node) - TEXT_PADDING;
        let label = fitted(&self.node.label, room / (f64::from(FONT_SIZE) * FONT_WIDTH));
        self.out.write_event(Event::Text(BytesText::new(&label)))
    }

    /// The box whose number inferno has written as its name: `0012 (34 samples, 5.60%)`, or `all (…)` for the first.
    fn numbered(&self, text: &BytesText<'_>) -> Option<&'a Node> {
        let text = text.decode().ok()?;
        match text.split(' ').next()? {
            "all" => self.tree.nodes().first(),
            number => self.tree.nodes().get(number.parse::<usize>().ok()?),
        }
    }

    /// A place or height of inferno's that the heading changes.
    fn raised(&self, element: &BytesStart<'_>, name: &str) -> io::Result<f64> {
        let text = attribute(element, name)?.ok_or_else(foreign)?;
        let number: f64 = text.parse().map_err(io::Error::other)?;
        Ok(number + f64::from(self.heading.height()))
    }
}

fn is(element: &BytesStart<'_>, name: &[u8]) -> bool {
    element.name().as_ref() == name
}

fn attribute(element: &BytesStart<'_>, name: &str) -> io::Result<Option<String>> {
    let found = element.try_get_attribute(name).map_err(io::Error::other)?;
    found.map(|it| String::from_utf8(it.value.into_owned()).map_err(io::Error::other)).transpose()
}

/// The element with some of its attributes replaced, and those added that it does not have.
fn with(element: &BytesStart<'_>, changes: &[(&str, &str)]) -> io::Result<BytesStart<'static>> {
    let mut changed = BytesStart::new(String::from_utf8_lossy(element.name().as_ref()).into_owned());
    for attribute in element.attributes() {
        let attribute = attribute.map_err(io::Error::other)?;
        if changes.iter().all(|(name, _)| attribute.key.as_ref() != name.as_bytes()) {
            changed.push_attribute(attribute);
        }
    }
    changed.extend_attributes(changes.iter().copied());
    Ok(changed)
}

/// As much of a text as there is room for, as inferno's script cuts it: the end of it, which of a Java name is the method.
fn fitted(text: &str, characters: f64) -> Cow<'_, str> {
    let length = text.chars().count();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let room = characters as usize;
    if length < room {
        Cow::Borrowed(text)
    } else if room < 3 {
        Cow::Borrowed("")
    } else {
        Cow::Owned(format!("..{}", text.chars().skip(length - (room - 2)).collect::<String>()))
    }
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the drawing is not of these boxes: a defect of nprof, please report it")
}

#[cfg(test)]
mod tests {
    use super::fitted;

    /// Check that a text is cut at its front, that a small rest of it is left out, and that no character is halved.
    #[test]
    fn texts_are_cut_at_the_front() {
        assert_eq!(fitted("a.Größe.run", 40.0), "a.Größe.run");
        assert_eq!(fitted("a.Größe.run", 9.9), "..öße.run");
        assert_eq!(fitted("a.Größe.run", 3.0), "..n");
        assert_eq!(fitted("a.Größe.run", 2.9), "");
        assert_eq!(fitted("a.Größe.run", -1.0), "");
    }
}
