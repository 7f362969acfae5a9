//! Takes bytecode apart into instructions.

use super::opcode;
use super::reader::{Malformed, Reader};

/// An instruction in its method's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Where it begins.
    pub at: usize,
    /// What it is.
    pub opcode: u8,
    /// How many bytes it has.
    pub length: usize,
}

impl Instruction {
    /// Where the next one begins.
    #[must_use]
    pub fn end(&self) -> usize {
        self.at + self.length
    }

    /// Whether it is a branch with an offset of two bytes.
    #[must_use]
    pub fn is_short_branch(&self) -> bool {
        matches!(self.opcode, opcode::IFEQ..=opcode::JSR | opcode::IFNULL | opcode::IFNONNULL)
    }

    /// Whether it is a branch with an offset of four bytes.
    #[must_use]
    pub fn is_wide_branch(&self) -> bool {
        matches!(self.opcode, opcode::GOTO_W | opcode::JSR_W)
    }

    /// Whether it is a switch.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        matches!(self.opcode, opcode::TABLESWITCH | opcode::LOOKUPSWITCH)
    }

    /// Whether it ends the method normally.
    #[must_use]
    pub fn is_return(&self) -> bool {
        matches!(self.opcode, opcode::IRETURN..=opcode::RETURN)
    }

    /// Whether it calls a method that its operand names.
    #[must_use]
    pub fn is_call(&self) -> bool {
        matches!(self.opcode, opcode::INVOKEVIRTUAL..=opcode::INVOKEINTERFACE)
    }

    /// The two bytes behind the opcode: a constant or a branch's offset.
    #[must_use]
    pub fn operand(&self, code: &[u8]) -> u16 {
        let bytes = [1, 2].map(|byte| code.get(self.at + byte).copied().unwrap_or(0));
        u16::from_be_bytes(bytes)
    }

    /// Where a branch leads, as an offset from it.
    #[must_use]
    pub fn branch(&self, code: &[u8]) -> Option<i64> {
        if self.is_short_branch() {
            Some(i64::from(self.operand(code).cast_signed()))
        } else if self.is_wide_branch() {
            Reader::new(code.get(self.at + 1..)?).i32().ok().map(i64::from)
        } else {
            None
        }
    }
}

/// The instructions of a method, in order. It ends after the first thing that is none.
#[derive(Debug, Clone)]
pub struct Instructions<'a> {
    code: &'a [u8],
    at: usize,
}

impl<'a> Instructions<'a> {
    /// Those of `code`.
    #[must_use]
    pub fn new(code: &'a [u8]) -> Self {
        Self { code, at: 0 }
    }
}

impl Iterator for Instructions<'_> {
    type Item = Result<Instruction, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let opcode = *self.code.get(at)?;
        let length = length(self.code, at, opcode).filter(|length| self.code.len() - at >= *length);
        self.at = length.map_or(self.code.len(), |length| at + length);
        Some(match length {
            Some(length) => Ok(Instruction { at, opcode, length }),
            None => Err(Malformed { what: "this is no instruction", at }),
        })
    }
}

/// How many bytes an instruction has.
fn length(code: &[u8], at: usize, opcode: u8) -> Option<usize> {
    Some(match opcode {
        0x00..=0x0f | 0x1a..=0x35 | 0x3b..=0x83 | 0x85..=0x98 | 0xac..=0xb1 | 0xbe | 0xbf | 0xc2 | 0xc3 => 1,
        0x10 | 0x12 | 0x15..=0x19 | 0x36..=0x3a | 0xa9 | 0xbc => 2,
        0x11 | 0x13 | 0x14 | 0x84 | 0x99..=0xa8 | 0xb2..=0xb8 | 0xbb | 0xbd | 0xc0 | 0xc1 | 0xc6 | 0xc7 => 3,
        0xc5 => 4,
        0xb9 | 0xba | 0xc8 | 0xc9 => 5,
        opcode::TABLESWITCH | opcode::LOOKUPSWITCH => {
            let switch = Switch::read(code, at, opcode).ok()?;
            1 + switch.padding + switch.head + 4 * switch.step * switch.count
        }
        opcode::WIDE => match *code.get(at + 1)? {
            opcode::IINC => 6,
            0x15..=0x19 | 0x36..=0x3a | opcode::RET => 4,
            _ => return None,
        },
        _ => return None,
    })
}

/// The shape of a switch.
#[derive(Debug, Clone, Copy)]
struct Switch {
    padding: usize,
    /// The bytes between padding and cases.
    head: usize,
    /// How many words a case has; the last of them is its offset.
    step: usize,
    count: usize,
}

impl Switch {
    fn read(code: &[u8], at: usize, opcode: u8) -> Result<Self, Malformed> {
        let wrong = Malformed { what: "this is no switch", at };
        let padding = padding(at);
        let mut reader = Reader::new(code.get(at + 1 + padding..).ok_or(wrong)?);
        reader.i32()?;
        let (head, step, count) = if opcode == opcode::TABLESWITCH {
            let [low, high] = [reader.i32()?, reader.i32()?].map(i64::from);
            (12, 1, usize::try_from(high - low + 1))
        } else {
            (8, 2, usize::try_from(reader.i32()?))
        };
        let count = count.ok().filter(|count| *count <= code.len()).ok_or(wrong)?;
        Ok(Self { padding, head, step, count })
    }
}

/// How many bytes stand behind the opcode of a switch at `at`, so that its words are aligned.
pub(crate) fn padding(at: usize) -> usize {
    3 - at % 4
}

/// The places in a switch's bytes, without opcode and padding, at which offsets stand, and these offsets.
///
/// # Errors
/// When it is no switch.
pub fn switch_targets(code: &[u8], switch: Instruction) -> Result<Vec<(usize, i32)>, Malformed> {
    let shape = Switch::read(code, switch.at, switch.opcode)?;
    let wrong = Malformed { what: "a switch is cut off", at: switch.at };
    let words = code.get(switch.at + 1 + shape.padding..switch.end()).ok_or(wrong)?;
    let cases = (0..shape.count).map(|case| shape.head + 4 * (shape.step * (case + 1) - 1));
    std::iter::once(0)
        .chain(cases)
        .map(|place| Ok((place, Reader::new(words.get(place..).ok_or(wrong)?).i32()?)))
        .collect()
}
