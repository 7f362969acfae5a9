//! Constants behind those that a class has.

use std::collections::HashMap;

use super::Refusal;
use crate::classfile::{ClassFile, tag};

/// New constants.
#[derive(Debug)]
pub(super) struct Additions {
    bytes: Vec<u8>,
    /// What `constant_pool_count` is with them.
    count: u16,
    /// The classes that have a constant, old or new.
    classes: HashMap<Vec<u8>, u16>,
}

/// How many constants there are at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    bytes: usize,
    count: u16,
}

impl Additions {
    /// None yet, behind the constants of a class.
    pub(super) fn behind(class: &ClassFile<'_>) -> Self {
        let classes = class.pool.tags().filter(|(_, kind)| *kind == tag::CLASS);
        let classes = classes.filter_map(|(at, _)| Some((class.pool.class(at)?.to_vec(), at))).collect();
        Self { bytes: Vec::new(), count: class.pool_count.max(1), classes }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), count: self.count }
    }

    /// Without what was added since.
    pub(super) fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.count = mark.count;
        self.classes.retain(|_, at| *at < mark.count);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    fn add(&mut self, kind: u8, content: &[u8]) -> Result<u16, Refusal> {
        let at = self.count;
        self.count = at.checked_add(1).ok_or(Refusal::Constants)?;
        self.bytes.push(kind);
        self.bytes.extend(content);
        Ok(at)
    }

    pub(super) fn utf8(&mut self, text: &[u8]) -> Result<u16, Refusal> {
        let length = u16::try_from(text.len()).or(Err(Refusal::Constants))?;
        self.add(tag::UTF8, &[&length.to_be_bytes(), text].concat())
    }

    /// The constant of a class, which may have been there.
    pub(super) fn class(&mut self, name: &[u8]) -> Result<u16, Refusal> {
        if let Some(known) = self.classes.get(name) {
            return Ok(*known);
        }
        let text = self.utf8(name)?;
        let at = self.add(tag::CLASS, &text.to_be_bytes())?;
        self.classes.insert(name.to_vec(), at);
        Ok(at)
    }

    /// A method of a class whose constant is `class`.
    pub(super) fn method(&mut self, class: u16, name: &str, descriptor: u16) -> Result<u16, Refusal> {
        let name = self.utf8(name.as_bytes())?;
        let what = self.add(tag::NAME_AND_TYPE, &[name.to_be_bytes(), descriptor.to_be_bytes()].concat())?;
        self.add(tag::METHOD, &[class.to_be_bytes(), what.to_be_bytes()].concat())
    }

    pub(super) fn integer(&mut self, number: u32) -> Result<u16, Refusal> {
        self.add(tag::INTEGER, &number.to_be_bytes())
    }
}
