//! What the calls of a timeline were made with, from a profile to a file and back.

use super::Error;
use super::checks::{check, is_below};
use super::numbers::{UNKNOWNS, UNKNOWNS_FROM, VALUES, ValueKind, number, value};
use super::wire;
use crate::model::{ArgumentObject, CallObject, CallValue, CallValues, Profile};

/// The values of those calls that have some, each with the number of its call.
pub(super) fn all(profile: &Profile) -> impl Iterator<Item = (u32, &CallValues)> {
    let calls = (0..).zip(&profile.timeline);
    calls.filter_map(|(number, call)| Some((number, call.made_with.as_deref()?)))
}

/// A row for the file.
pub(super) fn pack((call, values): (u32, &CallValues)) -> wire::CallValues {
    let (mut kinds, mut words) = (Vec::new(), Vec::new());
    for value in &values.values {
        let kind = match *value {
            CallValue::Number(bits) => {
                words.push(bits);
                number(&VALUES, &ValueKind::Number)
            }
            CallValue::Null => number(&VALUES, &ValueKind::Null),
            CallValue::Object(object) => {
                words.push(object.into());
                number(&VALUES, &ValueKind::Object)
            }
            CallValue::File(bits, object) => {
                words.extend([bits, object].map(u64::from));
                number(&VALUES, &ValueKind::File)
            }
            CallValue::Unknown(why) => UNKNOWNS_FROM + number(&UNKNOWNS, &why),
        };
        kinds.push(kind);
    }
    wire::CallValues { call, this: values.this, kinds, words }
}

/// Adds a row of a file to the call that it is of.
pub(super) fn add(profile: &mut Profile, row: wire::CallValues) -> Result<(), Error> {
    let objects = profile.objects.len();
    let call = profile.timeline.get_mut(row.call as usize).filter(|call| call.made_with.is_none());
    let call = call.ok_or(Error::Damaged { what: "arguments of a call that has none" })?;
    check(row.this.is_none_or(|this| is_below(this, objects)), "a call of an object that is not there")?;
    let mut words = row.words.into_iter();
    let mut next = || words.next().ok_or(Error::Damaged { what: "arguments without values" });
    let half =
        |word: u64| u32::try_from(word).map_err(|_too_large| Error::Damaged { what: "a value that is too large" });
    let object = |word: u64| {
        let object = half(word)?;
        check(is_below(object, objects), "an argument that is an object that is not there").map(|()| object)
    };
    let unpacked = row.kinds.into_iter().map(|kind| match value(&VALUES, kind) {
        Some(ValueKind::Number) => next().map(CallValue::Number),
        Some(ValueKind::Null) => Ok(CallValue::Null),
        Some(ValueKind::Object) => Ok(CallValue::Object(object(next()?)?)),
        Some(ValueKind::File) => Ok(CallValue::File(half(next()?)?, object(next()?)?)),
        None => {
            let why = kind.checked_sub(UNKNOWNS_FROM).and_then(|why| value(&UNKNOWNS, why));
            why.map(CallValue::Unknown).ok_or(Error::Damaged { what: "an argument of an unknown kind" })
        }
    });
    let values = unpacked.collect::<Result<_, _>>()?;
    call.made_with = Some(Box::new(CallValues { this: row.this, values }));
    Ok(())
}

/// An object for the file. Contents of strings and arrays are in no recording.
pub(super) fn pack_object(object: &CallObject) -> wire::CallObject {
    let CallObject { object, file } = object;
    wire::CallObject {
        class: object.as_ref().map(|object| object.class.clone()),
        length: object.as_ref().and_then(|object| object.length),
        fd: object.as_ref().and_then(|object| object.fd),
        file: file.clone(),
    }
}

/// An object of a file.
pub(super) fn unpack_object(object: wire::CallObject) -> CallObject {
    let wire::CallObject { class, length, fd, file } = object;
    CallObject { object: class.map(|class| ArgumentObject { class, length, fd, contents: None }), file }
}
