//! The inventory of recorded JVMs: a program that prints one line and waits, on JDK 17 and 25.

use std::collections::HashSet;

use super::recording::Recorded;
use crate::hotspot::Vm;
use crate::hotspot::memory::is_plausible;
use crate::model::{Inventory, Method, NativeCode, VirtAddr};

fn open(recorded: &Recorded) -> Vm<&super::recording::Image> {
    Vm::with_exports(&recorded.image, recorded.exports.clone()).expect("the recording is whole")
}

fn find<'a>(inventory: &'a Inventory, class: &str, name: &str) -> &'a Method {
    inventory
        .methods
        .iter()
        .find(|method| method.class == class && method.name == name)
        .unwrap_or_else(|| panic!("no {class}::{name}"))
}

/// How many methods are bound, unbound and intrinsic.
fn counts(inventory: &Inventory) -> [usize; 3] {
    let mut counts = [0; 3];
    for method in &inventory.methods {
        let kind = match method.code {
            NativeCode::Bound(_) => 0,
            NativeCode::Unbound => 1,
            NativeCode::Intrinsic => 2,
        };
        counts[kind] += 1;
    }
    counts
}

fn check(fixture: &str, release: &str, expected: [usize; 3]) {
    let recorded = Recorded::fixture(fixture);
    let mut vm = open(&recorded);
    let version = vm.version().unwrap();
    assert_eq!(version.vm_name, "OpenJDK 64-Bit Server VM");
    assert_eq!(version.release, release);
    let code_cache = vm.code_cache_range().unwrap().unwrap();
    assert!(code_cache.end.0 - code_cache.start.0 >= 48 << 20);
    let inventory = vm.inventory().unwrap();
    assert!(inventory.complete);
    assert_eq!(counts(&inventory), expected);
    check_known_methods(&recorded, &inventory);
    assert!(vm.refresh().unwrap().is_empty());
    assert_eq!(vm.known_methods().count(), inventory.methods.len());
}

/// What is true of some methods in every JVM.
fn check_known_methods(recorded: &Recorded, inventory: &Inventory) {
    let hash_code = find(inventory, "java.lang.Object", "hashCode");
    assert_eq!(hash_code.signature, "()I");
    let in_libjvm = |code| matches!(code, NativeCode::Bound(addr) if recorded.exports.is_text(addr));
    assert!(in_libjvm(hash_code.code));
    let holder = "java.lang.invoke.MethodHandle";
    let link = find(inventory, holder, "linkToStatic");
    assert_eq!(link.code, NativeCode::Intrinsic);
    assert!(in_libjvm(find(inventory, holder, "invokeExact").code));
    let free = find(inventory, "java.lang.Runtime", "freeMemory");
    assert_eq!(free.signature, "()J");
    let ids: HashSet<VirtAddr> = inventory.methods.iter().map(|method| method.id).collect();
    assert_eq!(ids.len(), inventory.methods.len());
    for method in &inventory.methods {
        if let NativeCode::Bound(addr) = method.code {
            assert!(is_plausible(addr));
        }
    }
}

/// Check the inventory of a recorded JDK 17.
#[test]
fn jdk_17() {
    check("jdk-17", "17.0.15+6-Debian-1deb12u1", [191, 122, 6]);
}

/// Check the inventory of a recorded JDK 25.
#[test]
fn jdk_25() {
    check("jdk-25", "25.0.3+9-LTS", [220, 107, 6]);
}
