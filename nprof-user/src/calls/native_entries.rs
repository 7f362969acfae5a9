//! Native and intrinsic methods as entry methods: they cannot tell of themselves, so that whoever may call them does.

use super::Classes;
use super::hierarchy::MethodId;
use super::search::Search;
use crate::classfile::{ConstantPool, flag, tag};
use crate::enhance::NativeCall;
use crate::model::{LeftOutReason, TreeKind};

/// Finds the methods, in the packages that were asked for, that call such an entry method. They are no nodes by that.
pub(super) fn find_callers<C: Classes>(search: &mut Search<'_, C>) -> Result<(), C::Error> {
    let entries = search.nodes.iter().filter(|node| node.is_entry && node.kind != TreeKind::Java);
    let entries: Vec<MethodId> = entries.map(|node| node.id).collect();
    if entries.is_empty() {
        return Ok(());
    }
    let classes: Vec<(u32, bool)> =
        search.resolver.hierarchy.classes().map(|(number, c)| (number, c.is_modifiable)).collect();
    for (class, is_modifiable) in classes {
        if is_modifiable && search.resolver.is_chosen(class) && mentions(search, class, &entries)? {
            callers_in(search, class, &entries)?;
        }
    }
    Ok(())
}

/// Whether the constants of a class name one of the methods.
fn mentions<C: Classes>(search: &mut Search<'_, C>, class: u32, entries: &[MethodId]) -> Result<bool, C::Error> {
    let Some(constants) = search.constants(class)? else { return Ok(false) };
    let Ok(pool) = ConstantPool::parse(constants.count, &constants.bytes) else { return Ok(false) };
    let named: Vec<_> = entries.iter().filter_map(|id| search.resolver.hierarchy.method(*id)).collect();
    let members = pool.tags().filter(|(_, kind)| matches!(*kind, tag::METHOD | tag::INTERFACE_METHOD));
    // Names of methods and descriptors are almost always ASCII; what is not is compared in its own form.
    Ok(members.filter_map(|(at, _)| pool.member(at)).any(|member| {
        named.iter().any(|(_, m)| m.name.as_bytes() == member.name && m.signature.as_bytes() == member.descriptor)
    }))
}

fn callers_in<C: Classes>(search: &mut Search<'_, C>, class: u32, entries: &[MethodId]) -> Result<(), C::Error> {
    search.resolver.declare([class])?;
    let methods = search.resolver.hierarchy.methods(class).len();
    for method in 0..u32::try_from(methods).unwrap_or(u32::MAX) {
        let id = (class, method);
        if search.resolver.hierarchy.is(id, flag::ABSTRACT | flag::NATIVE) {
            continue;
        }
        let Some((references, _)) = search.references(id)? else { continue };
        for reference in references {
            let Some(targets) = search.resolver.targets(class, &reference)? else { continue };
            for native in targets.methods.iter().filter(|method| entries.contains(method)) {
                match (search.told_call(class, &reference)?, search.nodes.number(*native)) {
                    (Ok(call), Some(number)) => search.nodes.tell(id, NativeCall { number, ..call }),
                    (Err(why), _) => leave_out(search, id, *native, why),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

fn leave_out<C: Classes>(search: &mut Search<'_, C>, caller: MethodId, native: MethodId, why: LeftOutReason) {
    let what = format!("{}, called by {}", search.name(native), search.name(caller));
    search.leave_out(what, why);
}
