//! Finds the native methods of a running VM that are bound, and what to.

use crate::agent::Agent;
use crate::helper::{Helpers, is_own};
use crate::jni::Jni;
use crate::jvmti::{Class, MethodId, MethodName};
use crate::methods::Wanted;
use crate::pool::Stub;
use crate::rebind::Error;
use crate::slots::Slots;

/// A method that is bound to something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) class: Class,
    pub(crate) of_platform: bool,
    pub(crate) id: MethodId,
    /// What the VM calls: a native, or a stub before it.
    pub(crate) address: usize,
}

impl Bound {
    /// What the VM calls by now; `None` for nothing.
    pub(crate) fn current(self, slots: &Slots, jni: Jni) -> Option<usize> {
        slots.bound(jni, self.class, self.id)
    }

    /// The address of the native.
    pub(crate) fn native(self) -> usize {
        Stub::at(self.address).map_or(self.address, Stub::original)
    }
}

/// What is found out about a method.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its number.
    pub(crate) number: u32,
    /// The address of the VM's `Method`, or 0.
    pub(crate) pointer: usize,
    /// The address of the native.
    pub(crate) address: usize,
    pub(crate) name: MethodName,
}

/// The native methods of all loaded classes that are bound. Classes without are forgotten.
pub(crate) fn bound_methods(agent: &Agent, jni: Jni, helpers: &Helpers, slots: &Slots) -> Result<Vec<Bound>, Error> {
    let classes = agent.jvmti.loaded_classes()?;
    jni.ensure_room(classes.len());
    let mut found = Vec::new();
    for class in classes {
        // A class that is not prepared has no bound methods.
        let natives = agent.jvmti.native_methods(class).unwrap_or_default();
        let bound: Vec<_> = natives.into_iter().filter_map(|id| Some((id, slots.bound(jni, class, id)?))).collect();
        if bound.is_empty() {
            jni.forget(class);
            continue;
        }
        let of_platform = helpers.is_of_platform(agent.jvmti, jni, class);
        found.extend(bound.into_iter().map(|(id, address)| Bound { class, of_platform, id, address }));
    }
    Ok(found)
}

/// Tells of each method that is bound but our own; `None` for one that has no name.
pub(crate) fn tell_all(agent: &Agent, jni: Jni, mut tell: impl FnMut(Option<Found>)) -> Result<(), Error> {
    let helpers = agent.helpers(jni)?;
    let slots = agent.slots(jni, helpers)?;
    for bound in bound_methods(agent, jni, helpers, slots)? {
        let name = agent.jvmti.name_of(bound.class, bound.id).ok();
        if name.as_ref().is_some_and(is_own) {
            continue;
        }
        tell(name.and_then(|name| {
            let number = agent.methods.number_of(bound.id, &name)?;
            Some(Found { number, pointer: agent.pointer(jni, bound.class, bound.id), address: bound.native(), name })
        }));
    }
    Ok(())
}

/// What a method is bound to that is known by its number; `None` if it is unloaded by now, or bound to nothing.
///
/// The VM refuses the id of a method that is unloaded; or, up to JDK 25, it is another's by now.
pub(crate) fn locate(agent: &Agent, jni: Jni, helpers: &Helpers, slots: &Slots, wanted: &Wanted) -> Option<Bound> {
    let class = agent.jvmti.class_of(wanted.id).ok()?;
    let bound = (agent.jvmti.name_of(class, wanted.id).as_ref() == Ok(&wanted.name)).then(|| {
        let of_platform = helpers.is_of_platform(agent.jvmti, jni, class);
        Some(Bound { class, of_platform, id: wanted.id, address: slots.bound(jni, class, wanted.id)? })
    });
    let bound = bound.flatten();
    if bound.is_none() {
        jni.forget(class);
    }
    bound
}
