//! Where a method's instructions are once others stand between them.
//!
//! In front of the first instruction stands the *prologue*. An instruction may have something in front of it and something behind it. Who branches
//! to an instruction comes to what stands in front of it, but never to the prologue: a loop back to the first instruction does not enter the
//! method again. Who leaves it by a branch does not come to what stands behind it.

use std::collections::HashSet;

use super::Refusal;
use crate::classfile::{Code, Instruction, Instructions, Malformed, opcode, padding, switch_targets};

/// How often places are computed anew because a branch has become longer. Two rounds are usual.
const ROUNDS: usize = 32;

/// An instruction and what is inserted around it.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) instruction: Instruction,
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
    /// A `goto` or `jsr` that has four bytes for its offset now.
    widened: bool,
    /// Where it is now.
    own: usize,
}

/// A method's code with insertions.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    code: &'a [u8],
    pub(super) prologue: Vec<u8>,
    pub(super) placed: Vec<Placed>,
    /// For each old place, and the end: where what stands in front of the instruction begins; between instructions, of the next one.
    new: Vec<usize>,
    /// For each old place, whether an instruction begins there.
    begins: Vec<bool>,
}

impl<'a> Layout<'a> {
    /// The code as it is.
    pub(super) fn new(code: &'a [u8]) -> Result<Self, Malformed> {
        let mut begins = vec![false; code.len() + 1];
        let mut placed = Vec::new();
        for instruction in Instructions::new(code) {
            let instruction = instruction?;
            begins[instruction.at] = true;
            placed.push(Placed { instruction, before: Vec::new(), after: Vec::new(), widened: false, own: 0 });
        }
        begins[code.len()] = true;
        Ok(Self { code, prologue: Vec::new(), placed, new: vec![0; code.len() + 1], begins })
    }

    /// Whether not all instructions are reached one after the other.
    pub(super) fn has_branches(&self) -> bool {
        let is_branch = |of: &Instruction| of.is_short_branch() || of.is_wide_branch() || of.is_switch();
        self.placed.iter().any(|placed| is_branch(&placed.instruction))
    }

    /// The places in the old code that are reached by branches, switches and exceptions.
    pub(super) fn targets(&self, code: &Code<'_>) -> HashSet<usize> {
        let mut targets: HashSet<usize> = code.handlers.iter().map(|row| row.handler.into()).collect();
        for instruction in self.placed.iter().map(|placed| placed.instruction) {
            let cases = if instruction.is_switch() { switch_targets(self.code, instruction) } else { Ok(Vec::new()) };
            let cases = cases.unwrap_or_default().into_iter().map(|(_, offset)| i64::from(offset));
            let offsets = cases.chain(instruction.branch(self.code));
            targets
                .extend(offsets.filter_map(|offset| instruction.at.checked_add_signed(isize::try_from(offset).ok()?)));
        }
        targets
    }

    /// The old code.
    pub(super) fn code(&self) -> &'a [u8] {
        self.code
    }

    /// Computes where everything is, after the last insertion.
    pub(super) fn settle(&mut self) -> Result<(), Refusal> {
        for _ in 0..ROUNDS {
            self.place_all();
            if !self.widen()? {
                let length = self.end();
                return if length > usize::from(u16::MAX) { Err(Refusal::TooLarge(length)) } else { Ok(()) };
            }
        }
        Err(Refusal::TooLarge(self.end()))
    }

    fn place_all(&mut self) {
        let mut at = self.prologue.len();
        for placed in &mut self.placed {
            let instruction = placed.instruction;
            self.new[instruction.at] = at;
            placed.own = at + placed.before.len();
            let length = match instruction.opcode {
                _ if instruction.is_switch() => instruction.length - padding(instruction.at) + padding(placed.own),
                _ if placed.widened => 5,
                _ => instruction.length,
            };
            at = placed.own + length + placed.after.len();
            // Places within an instruction, which only debuggers' tables of odd origin name, stand for its end.
            self.new[instruction.at + 1..=instruction.end()].fill(at);
        }
    }

    /// Makes branches longer that do not reach any more; whether there were any.
    fn widen(&mut self) -> Result<bool, Refusal> {
        let mut late = Vec::new();
        for (number, placed) in self.placed.iter().enumerate() {
            if placed.instruction.is_short_branch() && !placed.widened {
                let offset = self.branch(placed)?;
                match placed.instruction.opcode {
                    _ if i16::try_from(offset).is_ok() => {}
                    opcode::GOTO | opcode::JSR => late.push(number),
                    _ => return Err(Refusal::OutOfReach(placed.instruction.at)),
                }
            }
        }
        for number in &late {
            self.placed[*number].widened = true;
        }
        Ok(!late.is_empty())
    }

    /// How far a branch has to reach now.
    fn branch(&self, placed: &Placed) -> Result<i64, Malformed> {
        let wrong = Malformed { what: "this is no branch", at: placed.instruction.at };
        self.offset(placed, placed.instruction.branch(self.code).ok_or(wrong)?)
    }

    /// The new offset from an instruction to where it had the old `offset` to.
    fn offset(&self, placed: &Placed, offset: i64) -> Result<i64, Malformed> {
        let target = i64::try_from(placed.instruction.at).ok().and_then(|at| at.checked_add(offset));
        let wrong = Malformed { what: "a branch leads out of the code", at: placed.instruction.at };
        let target = target.and_then(|target| usize::try_from(target).ok()).ok_or(wrong)?;
        if target >= self.code.len() {
            return Err(wrong);
        }
        let distance = i64::try_from(self.place(target)?).ok().zip(i64::try_from(placed.own).ok());
        distance.map(|(to, from)| to - from).ok_or(wrong)
    }

    /// Where something that names an instruction, or the end, by its old place finds it now.
    pub(super) fn place(&self, old: usize) -> Result<usize, Malformed> {
        let wrong = Malformed { what: "this is within an instruction", at: old };
        if self.begins.get(old) == Some(&true) { self.near(old).ok_or(wrong) } else { Err(wrong) }
    }

    /// The same for what need not name an instruction.
    pub(super) fn near(&self, old: usize) -> Option<usize> {
        self.new.get(old).copied()
    }

    /// Where the old code ends now.
    pub(super) fn end(&self) -> usize {
        self.new.last().copied().unwrap_or(0)
    }

    /// Where an instruction itself begins and ends now, without what stands around it.
    pub(super) fn own(&self, number: usize) -> (usize, usize) {
        self.placed.get(number).map_or((0, 0), |placed| (placed.own, placed.own + placed.instruction.length))
    }

    /// The new code.
    pub(super) fn emit(&self) -> Result<Vec<u8>, Refusal> {
        let mut out = Vec::with_capacity(self.end());
        out.extend(&self.prologue);
        for placed in &self.placed {
            out.extend(&placed.before);
            self.emit_one(placed, &mut out)?;
            out.extend(&placed.after);
        }
        Ok(out)
    }

    fn emit_one(&self, placed: &Placed, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let instruction = placed.instruction;
        let late = Refusal::OutOfReach(instruction.at);
        if instruction.is_switch() {
            self.emit_switch(placed, out)?;
        } else if placed.widened || instruction.is_wide_branch() {
            let offset = i32::try_from(self.branch(placed)?).or(Err(late))?;
            let wide = if matches!(instruction.opcode, opcode::GOTO | opcode::GOTO_W) {
                opcode::GOTO_W
            } else {
                opcode::JSR_W
            };
            out.push(wide);
            out.extend(offset.to_be_bytes());
        } else if instruction.is_short_branch() {
            let offset = i16::try_from(self.branch(placed)?).or(Err(late))?;
            out.push(instruction.opcode);
            out.extend(offset.to_be_bytes());
        } else {
            out.extend(self.code.get(instruction.at..instruction.end()).unwrap_or_default());
        }
        Ok(())
    }

    fn emit_switch(&self, placed: &Placed, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let instruction = placed.instruction;
        out.push(instruction.opcode);
        out.extend(std::iter::repeat_n(0, padding(placed.own)));
        let words = out.len();
        out.extend(self.code.get(instruction.at + 1 + padding(instruction.at)..instruction.end()).unwrap_or_default());
        for (place, offset) in switch_targets(self.code, instruction)? {
            let offset = self.offset(placed, i64::from(offset))?;
            let offset = i32::try_from(offset).or(Err(Refusal::OutOfReach(instruction.at)))?;
            if let Some(word) = out.get_mut(words + place..words + place + 4) {
                word.copy_from_slice(&offset.to_be_bytes());
            }
        }
        Ok(())
    }
}
