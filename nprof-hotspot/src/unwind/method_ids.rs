//! Java methods by what native code knows them by: `jmethodID`s.
//!
//! Up to JDK 25 an id is the address of a word with the address of the method. The VM never has it lead to another method: it empties
//! the word when the class is unloaded, and has it lead to the new version when the class is redefined. In later JDKs an id is a number that
//! nothing outside of the VM makes sense of; it leads nowhere, like an address of something else.

use std::sync::Arc;

use super::{MethodName, Unwinder};
use crate::hotspot::{Reader, RemoteMemory, is_plausible};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

impl<M: RemoteMemory> Unwinder<M> {
    /// The Java method that an id stands for; `None` if there is none (any more).
    ///
    /// # Errors
    /// What makes all reads fail: the process has ended, or may not be read.
    pub fn method_by_id(&mut self, id: VirtAddr) -> Result<Option<Arc<MethodName>>, MemoryError> {
        self.reader.forget();
        let Self { reader, layout, known, .. } = self;
        let Some(addr) = method_of(reader, id)? else {
            return Ok(None);
        };
        // What is remembered may be of a method that was there before.
        known.methods.forget(addr);
        let name = known.methods.get(reader, layout, addr)?.map(|method| Arc::clone(&method.name));
        // As long as the id leads there the method is there, so what was read is of it.
        reader.forget();
        Ok(name.filter(|_| method_of(reader, id).is_ok_and(|now| now == Some(addr))))
    }
}

/// Where an id leads.
fn method_of<M: RemoteMemory>(reader: &mut Reader<M>, id: VirtAddr) -> Result<Option<VirtAddr>, MemoryError> {
    if !is_plausible(id) {
        return Ok(None);
    }
    let method = reader.numbers([(id, 8)])?.map(|[method]| VirtAddr(method));
    Ok(method.filter(|method| is_plausible(*method)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::testing::{SmallVm, method};

    const ID: u64 = 0x5_a000;

    /// Check that an id is named by the method that it leads to now, and not at all where it leads to none.
    #[test]
    fn names_of_ids() {
        let vm = SmallVm::new();
        let mut unwinder = vm.unwinder();
        let mut name = |id| unwinder.method_by_id(VirtAddr(id)).unwrap().map(|name| name.to_string());
        for (leads_to, expected) in
            [(method(0), Some("a.B.run")), (method(1), Some("a.B.inner")), (0, None), (55, None)]
        {
            vm.word(ID, leads_to);
            assert_eq!(name(ID).as_deref(), expected, "{leads_to:#x}");
        }
        vm.word(ID, ID);
        assert_eq!([ID, 0, 7, 0x7fff_0000, u64::MAX].map(&mut name), [const { None }; 5]);
    }
}
