//! What locals and operand stack hold at one place of a method.

use std::borrow::Cow;

use super::frames::Type;
use crate::classfile::{ClassFile, ConstantPool};

/// A value, as the verifier knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number of [`Type::Plain`].
    Plain(u8),
    /// An object of a class, with slashes; an array by its descriptor.
    Object(Cow<'a, [u8]>),
    /// What the `new` at this place has made, and no constructor has been called for.
    New(u16),
}

pub(super) const TOP: Value<'static> = Value::Plain(0);
pub(super) const INT: Value<'static> = Value::Plain(1);
pub(super) const FLOAT: Value<'static> = Value::Plain(2);
pub(super) const DOUBLE: Value<'static> = Value::Plain(3);
pub(super) const LONG: Value<'static> = Value::Plain(4);
pub(super) const NULL: Value<'static> = Value::Plain(5);
pub(super) const UNINITIALISED_THIS: Value<'static> = Value::Plain(6);

impl<'a> Value<'a> {
    /// Of a field descriptor, from the start of `descriptor`; and what follows it.
    pub(super) fn of_field(descriptor: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let dimensions = descriptor.iter().take_while(|byte| **byte == b'[').count();
        let end = match descriptor.get(dimensions)? {
            b'L' => dimensions + descriptor.get(dimensions..)?.iter().position(|byte| *byte == b';')? + 1,
            _ => dimensions + 1,
        };
        let (field, rest) = descriptor.split_at(end);
        let value = match field {
            [b'Z' | b'B' | b'C' | b'S' | b'I'] => INT,
            b"F" => FLOAT,
            b"D" => DOUBLE,
            b"J" => LONG,
            [b'[', ..] => Self::object(field),
            [b'L', class @ .., b';'] => Self::object(class),
            _ => return None,
        };
        Some((value, rest))
    }

    pub(super) fn object(name: &'a [u8]) -> Self {
        Self::Object(Cow::Borrowed(name))
    }

    /// Whether it takes two places.
    pub(super) fn is_wide(&self) -> bool {
        matches!(self, Self::Plain(3 | 4))
    }

    /// Of a frame.
    fn of_type(from: Type, pool: &ConstantPool<'a>) -> Option<Self> {
        Some(match from {
            Type::Plain(kind) => Self::Plain(kind),
            Type::Object(class) => Self::object(pool.class(class)?),
            Type::New(at) => Self::New(at),
        })
    }

    pub(super) fn of_types(from: &[Type], pool: &ConstantPool<'a>) -> Option<Vec<Self>> {
        from.iter().map(|one| Self::of_type(*one, pool)).collect()
    }
}

/// The parameters and the result of a method; without a result, `None`.
pub(super) fn of_method<'a>(descriptor: &'a [u8]) -> Option<(Vec<Value<'a>>, Option<Value<'a>>)> {
    let mut rest = descriptor.strip_prefix(b"(")?;
    let mut parameters = Vec::new();
    while !rest.starts_with(b")") {
        let (value, after) = Value::of_field(rest)?;
        parameters.push(value);
        rest = after;
    }
    match rest {
        b")V" => Some((parameters, None)),
        _ => Some((parameters, Some(Value::of_field(rest.get(1..)?)?.0))),
    }
}

/// Locals and operand stack. A value that takes two places is followed by one that is not known among the locals, and stands for itself on the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State<'a> {
    pub(super) locals: Vec<Value<'a>>,
    pub(super) stack: Vec<Value<'a>>,
}

impl<'a> State<'a> {
    /// From values that are written once each.
    pub(super) fn new(locals: &[Value<'a>], stack: Vec<Value<'a>>) -> Self {
        let mut places = Vec::with_capacity(locals.len());
        for value in locals {
            places.push(value.clone());
            if value.is_wide() {
                places.push(TOP);
            }
        }
        Self { locals: places, stack }
    }

    /// The locals, each once, without what is not known at their end.
    pub(super) fn compact(&self) -> Vec<Value<'a>> {
        let mut values = Vec::with_capacity(self.locals.len());
        let mut places = self.locals.iter();
        while let Some(value) = places.next() {
            values.push(value.clone());
            if value.is_wide() {
                places.next();
            }
        }
        let known = values.iter().rposition(|value| *value != TOP).map_or(0, |last| last + 1);
        values.truncate(known);
        values
    }

    pub(super) fn push(&mut self, value: Value<'a>) {
        self.stack.push(value);
    }

    pub(super) fn pop(&mut self) -> Option<Value<'a>> {
        self.stack.pop()
    }

    pub(super) fn drop_some(&mut self, count: usize) -> Option<()> {
        let rest = self.stack.len().checked_sub(count)?;
        self.stack.truncate(rest);
        Some(())
    }

    pub(super) fn load(&mut self, local: usize) -> Option<()> {
        let value = self.locals.get(local)?.clone();
        self.push(value);
        Some(())
    }

    pub(super) fn store(&mut self, local: usize) -> Option<()> {
        let value = self.pop()?;
        let places = if value.is_wide() { 2 } else { 1 };
        if self.locals.len() < local + places {
            self.locals.resize(local + places, TOP);
        }
        // Half of a value is none.
        if local > 0 && self.locals[local - 1].is_wide() {
            self.locals[local - 1] = TOP;
        }
        if value.is_wide() {
            self.locals[local + 1] = TOP;
        }
        self.locals[local] = value;
        Some(())
    }

    /// Wherever `from` is, `to` is from now on.
    pub(super) fn replace(&mut self, from: &Value<'a>, to: &Value<'a>) {
        for value in self.locals.iter_mut().chain(&mut self.stack).filter(|value| *value == from) {
            *value = to.clone();
        }
    }
}

/// What a method begins with.
pub(super) fn at_start<'a>(
    class: &ClassFile<'a>,
    is_static: bool,
    name: &[u8],
    descriptor: &'a [u8],
) -> Option<Vec<Value<'a>>> {
    let (parameters, _) = of_method(descriptor)?;
    let this = match (is_static, name) {
        (true, _) => None,
        (_, b"<init>") if class.super_class != 0 => Some(UNINITIALISED_THIS),
        _ => Some(Value::object(class.pool.class(class.this_class)?)),
    };
    Some(this.into_iter().chain(parameters).collect())
}
