//! Reads again what known native methods hold, and whether their classes are still what they were.

use std::collections::HashMap;

use super::known::{KnownClass, KnownNative};
use super::layout::Layout;
use super::memory::{MemoryError, Reader, RemoteMemory, at, is_plausible};
use super::walk::Klass;
use crate::model::VirtAddr;

/// Words that were read once, by class.
pub(super) type Unsure = HashMap<(VirtAddr, VirtAddr), Vec<VirtAddr>>;

/// What became of a class.
#[derive(Debug)]
pub(super) enum Sight {
    /// It is no longer what it was.
    Gone,
    /// Its natives hold what they held.
    Same,
    /// Its natives hold these words now.
    Changed(Vec<VirtAddr>),
}

/// Looks at `classes` once. They are read after their methods: what is the same class then was it before.
pub(super) fn look_at<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    classes: &[&KnownClass],
) -> Result<Vec<(Klass, Sight)>, MemoryError> {
    let natives: Vec<&KnownNative> = classes.iter().flat_map(|class| &class.natives).collect();
    let mut words = read_words(reader, layout, &natives)?.into_iter();
    let same = are_same(reader, layout, classes)?;
    let mut seen = Vec::with_capacity(classes.len());
    for (class, same) in classes.iter().zip(same) {
        let held: Vec<Option<VirtAddr>> = words.by_ref().take(class.natives.len()).collect();
        let held: Option<Vec<VirtAddr>> = held.into_iter().collect();
        let sight = match held.filter(|_| same) {
            None => Sight::Gone,
            Some(held) if class.words().eq(held.iter().copied().map(Some)) => Sight::Same,
            Some(held) => Sight::Changed(held),
        };
        seen.push((class.klass, sight));
    }
    Ok(seen)
}

/// What each method holds; `None` for one that is no longer the same, or that holds what cannot be code.
fn read_words<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    natives: &[&KnownNative],
) -> Result<Vec<Option<VirtAddr>>, MemoryError> {
    let held = reader.numbers_of(natives, |native| {
        [(at(native.id, layout.method.const_method), 8), (at(native.id, layout.method.native_function), 8)]
    })?;
    let word = |(native, held): (&&KnownNative, Option<[u64; 2]>)| {
        let [const_method, word] = held?.map(VirtAddr);
        let good = const_method == native.const_method && (word.is_null() || is_plausible(word));
        good.then_some(word)
    };
    Ok(natives.iter().zip(held).map(word).collect())
}

/// Whether each class has the name, the loader and the methods that it had.
fn are_same<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    classes: &[&KnownClass],
) -> Result<Vec<bool>, MemoryError> {
    let now = reader.numbers_of(classes, |class| {
        let field = |offset| (at(class.klass.addr, offset), 8);
        [layout.klass.name, layout.klass.loader, layout.klass.methods].map(field)
    })?;
    let same = |(class, now): (&&KnownClass, Option<[u64; 3]>)| {
        let klass = &class.klass;
        now.map(|words| words.map(VirtAddr)) == Some([klass.name, klass.loader, klass.methods])
    };
    Ok(classes.iter().zip(now).map(same).collect())
}
