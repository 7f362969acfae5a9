//! JNI functions as methods that only the shim has met.

use nprof_common::wire::FIRST_FUNCTION;

use super::stub_states::Planned;
use crate::model::{Bound as HowBound, Method, NativeCode, PlannedMethod, SharedStr, VirtAddr, jni};
use crate::shim::{Bound, How};

/// A JNI function, by its place in the VM's table and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::trace) struct JniFunction {
    pub place: u32,
    pub name: &'static str,
}

impl JniFunction {
    /// What the shim would say of it. It has no place in the VM's memory that methods have.
    pub(super) fn bound(self) -> Bound {
        let number = FIRST_FUNCTION | self.place;
        let (class, name, signature) = (jni::CLASS.to_owned(), self.name.to_owned(), String::new());
        let address = VirtAddr(u64::from(number) << 32);
        Bound { number, how: How::Found, index: None, method: Some(address), address, class, name, signature }
    }
}

/// Such a function as it is planned; `None` of a method.
pub(super) fn planned(bound: &Bound) -> Option<Planned> {
    if bound.number < FIRST_FUNCTION || bound.class != jni::CLASS {
        return None;
    }
    let [class, name, signature] = [&bound.class, &bound.name, &bound.signature].map(|text| SharedStr::from(&**text));
    let code = NativeCode::Bound(bound.address);
    let method = PlannedMethod {
        method: Method { id: bound.method?, class, name, signature, code },
        bound: HowBound::JniFunction,
    };
    Some(Planned { method, probe: None, library: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each function is told from the others and from methods, and that a method of such a name is none.
    #[test]
    fn known_by_their_places() {
        let of = |place| JniFunction { place, name: "GetVersion" }.bound();
        let known = planned(&of(4)).unwrap();
        assert_eq!((&*known.method.method.name, known.probe), ("GetVersion", None));
        assert_ne!(known.method.method.id, planned(&of(5)).unwrap().method.method.id);
        assert_eq!(planned(&Bound { number: 4, ..of(4) }), None);
        assert_eq!(planned(&Bound { class: "a.A".to_owned(), ..of(4) }), None);
    }
}
