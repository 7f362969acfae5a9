//! How to find out where a thread notes that it runs a continuation: as the VM's tables say, or by its code.

use crate::hotspot::Lookup;
use crate::model::VirtAddr;

/// How to find it out.
#[derive(Debug, Clone, Copy)]
pub(super) enum EnteredLayout {
    /// The tables say where the thread notes it, how much is kept there, and which variable has the address of the code.
    Said { noted: u64, size: u64, code: VirtAddr },
    /// The code has to be read: where a `Method` refers to its own.
    InCode { code_of_method: u64 },
}

impl EnteredLayout {
    pub(super) fn of(look: &mut Lookup<'_>) -> Self {
        let is_said = look.find("JavaThread", "_cont_entry").is_some();
        if is_said && look.find("ContinuationEntry", "_return_pc").is_some() {
            return Self::Said {
                noted: look.offset("JavaThread", "_cont_entry"),
                size: look.size("ContinuationEntry"),
                code: look.variable("ContinuationEntry", "_return_pc"),
            };
        }
        Self::InCode { code_of_method: look.offset("Method", "_code") }
    }
}
