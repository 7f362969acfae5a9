//! Tells a bound native method from one that is not.
//!
//! A method that is not bound holds 0 until its class is linked, and then the address of a function in libjvm that
//! throws `UnsatisfiedLinkError`: the *stub*. No exported symbol names it, but the VM asserts that method-handle
//! intrinsics (`MethodHandle.linkToStatic` and its like) never hold anything else, so they give it away.

use super::exports::Exports;
use crate::model::{NativeCode, VirtAddr};

/// The class that declares the intrinsics.
const HOLDER: &str = "java.lang.invoke.MethodHandle";
/// Its methods whose code the VM generates. `invoke` and `invokeExact` are not among them: they are bound, to a
/// function that throws.
const INTRINSICS: [&str; 6] =
    ["invokeBasic", "linkToVirtual", "linkToStatic", "linkToSpecial", "linkToInterface", "linkToNative"];

/// Whether a method of the boot loader is a method-handle intrinsic.
pub(super) fn is_intrinsic(class: &str, name: &str) -> bool {
    class == HOLDER && INTRINSICS.contains(&name)
}

/// What the intrinsics of a VM hold, as far as they have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stub {
    addr: Option<VirtAddr>,
}

impl Stub {
    /// Learns the stub from the words that the intrinsics hold. They must agree, and name code of libjvm. What was
    /// learned once stays: it does not change while the VM lives.
    pub(super) fn learn(&mut self, exports: &Exports, words: impl Iterator<Item = VirtAddr>) {
        if self.addr.is_some() {
            return;
        }
        let mut words = words.filter(|word| !word.is_null());
        let Some(first) = words.next() else { return };
        if exports.is_text(first) && words.all(|word| word == first) {
            self.addr = Some(first);
        }
    }

    /// What a method is bound to that holds `word`.
    ///
    /// Until the stub is known (in the first tens of milliseconds of a JVM) a function of libjvm may be it, so a method
    /// that holds one counts as not bound: to miss a method for a moment costs little, to probe the stub as if it were the
    /// method would count the first calls of all others. An address outside of libjvm cannot be the stub.
    pub(super) fn classify(&self, exports: &Exports, intrinsic: bool, word: VirtAddr) -> NativeCode {
        let unbound = match self.addr {
            Some(stub) => word == stub,
            None => exports.is_text(word),
        };
        if intrinsic {
            NativeCode::Intrinsic
        } else if word.is_null() || unbound {
            NativeCode::Unbound
        } else {
            NativeCode::Bound(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: VirtAddr = VirtAddr(0x7f00_0000_1000);
    const IN_LIBJVM: VirtAddr = VirtAddr(0x7f00_0000_2000);
    const ELSEWHERE: VirtAddr = VirtAddr(0x7f10_0000_0000);

    fn exports() -> Exports {
        Exports {
            text: std::iter::once(VirtAddr(0x7f00_0000_0000)..VirtAddr(0x7f00_0010_0000)).collect(),
            ..Exports::default()
        }
    }

    /// Check that, while the stub is not known, code of libjvm is not called bound and other code is.
    #[test]
    fn unknown_stub_is_never_called_bound() {
        let stub = Stub::default();
        let code = |word| stub.classify(&exports(), false, word);
        assert_eq!(code(STUB), NativeCode::Unbound);
        assert_eq!(code(IN_LIBJVM), NativeCode::Unbound);
        assert_eq!(code(ELSEWHERE), NativeCode::Bound(ELSEWHERE));
    }

    /// Check that the stub is learned from intrinsics that agree, unlinked ones left aside, and then told apart.
    #[test]
    fn learns_the_stub() {
        let mut stub = Stub::default();
        stub.learn(&exports(), [VirtAddr(0), STUB, STUB].into_iter());
        let code = |intrinsic, word| stub.classify(&exports(), intrinsic, word);
        assert_eq!(code(false, STUB), NativeCode::Unbound);
        assert_eq!(code(false, VirtAddr(0)), NativeCode::Unbound);
        assert_eq!(code(false, IN_LIBJVM), NativeCode::Bound(IN_LIBJVM));
        assert_eq!(code(true, STUB), NativeCode::Intrinsic);
    }

    /// Check that intrinsics that disagree or point outside of libjvm teach nothing.
    #[test]
    fn contradictions_teach_nothing() {
        let mut stub = Stub::default();
        stub.learn(&exports(), [STUB, IN_LIBJVM].into_iter());
        stub.learn(&exports(), [ELSEWHERE, ELSEWHERE].into_iter());
        stub.learn(&exports(), [VirtAddr(0)].into_iter());
        assert_eq!(stub, Stub::default());
    }
}
