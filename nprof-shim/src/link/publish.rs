//! What nprof is told without asking: methods that are bound, and code that the VM makes.
//!
//! Called by the VM, on whichever thread has the event.

use std::ffi::CStr;
use std::sync::Arc;

use nprof_common::wire::{Bound, Code, CodeKind, FromShim, How, NO_INDEX};

use super::{Link, Policy, service};
use crate::agent::Agent;
use crate::jvmti::{MethodId, MethodName};
use crate::pool::Stub;

impl Agent {
    /// A method has been bound to `address`.
    pub(crate) fn publish(&self, number: u32, id: MethodId, address: usize, name: &MethodName, stub: Option<Stub>) {
        let Some(link) = self.link_that(|_| true) else { return };
        link.send(&FromShim::Bound(Bound {
            number,
            how: How::Event,
            index: stub.map_or(NO_INDEX, Stub::index),
            method: self.pointer(id) as u64,
            address: address as u64,
            class: name.class.to_bytes(),
            name: name.name.to_bytes(),
            signature: name.signature.to_bytes(),
        }));
    }

    /// A method has been compiled.
    pub(crate) fn code_loaded(&self, id: MethodId, address: usize, size: i32) {
        let Some(link) = self.link_that(|policy| policy.code) else { return };
        let name = self.jvmti.class_of(id).and_then(|class| self.jvmti.name_of(class, id));
        let name = name.map(|MethodName { class, name, signature }| {
            [class.to_bytes(), b".", name.to_bytes(), signature.to_bytes()].concat()
        });
        let method = self.pointer(id) as u64;
        link.tell_of_code(CodeKind::Load, address, size, method, &name.unwrap_or_default());
    }

    /// The code of a method is no longer used.
    pub(crate) fn code_unloaded(&self, address: usize) {
        if let Some(link) = self.link_that(|policy| policy.code) {
            link.tell_of_code(CodeKind::Unload, address, 0, 0, b"");
        }
    }

    /// The VM has made code for itself.
    pub(crate) fn code_made(&self, name: &CStr, address: usize, size: i32) {
        if let Some(link) = self.link_that(|policy| policy.code) {
            link.tell_of_code(CodeKind::Dynamic, address, size, 0, name.to_bytes());
        }
    }

    /// nprof, if it wants something.
    fn link_that(&self, wants: impl FnOnce(Policy) -> bool) -> Option<Arc<Link>> {
        self.link().filter(|link| link.policy().is_some_and(wants))
    }
}

impl Link {
    fn tell_of_code(&self, kind: CodeKind, address: usize, size: i32, method: u64, name: &[u8]) {
        let size = u64::try_from(size).unwrap_or(0);
        let code = FromShim::Code(Code { kind, address: address as u64, size, method, name });
        // Code that was made before is told of on our own thread.
        if service::is_ours() {
            self.answer(&code);
        } else {
            self.send(&code);
        }
    }
}
