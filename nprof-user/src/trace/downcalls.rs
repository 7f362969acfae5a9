//! Calls of native functions that no native method makes: downcalls of the foreign function interface
//! (`java.lang.foreign`). The VM makes a stub for each shape of them, and nothing tells which function it calls, so nprof
//! does not see them. That there are some is seen.

use crate::model::{Method, NativeCode};

/// The class whose natives make the stubs, in JDK 22 and later and where the interface was not final yet. It is loaded in
/// every JVM; its natives are bound when it makes the first one.
const MAKERS: [&str; 2] = ["jdk.internal.foreign.abi.NativeEntryPoint", "jdk.internal.invoke.NativeEntryPoint"];

/// Whether these are of a JVM that has linked downcalls.
pub(super) fn are_linked(methods: &[Method]) -> bool {
    let is_bound = |method: &Method| matches!(method.code, NativeCode::Bound(_));
    methods.iter().any(|method| is_bound(method) && MAKERS.contains(&&*method.class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::VirtAddr;

    /// Check that the class alone is no sign, only a native of it that is bound.
    #[test]
    fn only_a_bound_native_is_a_sign() {
        let method = |class: &str, code| Method {
            id: VirtAddr(0x1000),
            class: class.into(),
            name: "makeDowncallStub".into(),
            signature: "()J".into(),
            code,
        };
        let bound = NativeCode::Bound(VirtAddr(0x2000));
        assert!(are_linked(&[method("a.B", bound), method(MAKERS[0], bound)]));
        assert!(!are_linked(&[method("a.B", bound), method(MAKERS[0], NativeCode::Unbound)]));
        assert!(!are_linked(&[]));
    }
}
