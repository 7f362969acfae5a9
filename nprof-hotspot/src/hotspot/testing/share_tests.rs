//! VMs whose lists take more than there is for them: they are left out, and others are not.

use std::sync::Arc;

use super::recording::Image;
use super::small_vm::{IN_LIBRARY, SmallVm};
use crate::hotspot::share::{LOADER, Purse};
use crate::hotspot::{Error, MemoryError, Vm};

const MIB: usize = 1 << 20;

type Opened<'a> = Vm<&'a std::cell::RefCell<Image>>;

/// A VM with so many loaders besides its own, and a native.
fn with_loaders(loaders: usize) -> SmallVm {
    let vm = SmallVm::new();
    for _ in 0..loaders {
        vm.add_loader();
    }
    let loader = vm.add_loader();
    vm.add_class(loader, "a/App", &[("one", "()V", IN_LIBRARY)]);
    vm
}

fn open<'a>(vm: &'a SmallVm, purse: &Arc<Purse>) -> Opened<'a> {
    Vm::with_purse(&vm.memory, vm.exports.clone(), Arc::clone(purse)).expect("the tables are whole")
}

fn too_much(error: &Error) -> bool {
    matches!(error, Error::Memory(MemoryError::TooMuch { .. }))
}

/// Check that a VM with more loaders than it may have is left out with a reason, keeps nothing, and takes nothing from others.
#[test]
fn forged_loaders() {
    let purse = Purse::of(4 * MIB, MIB);
    let (forged, honest) = (with_loaders(MIB / LOADER + 1), with_loaders(100));
    let mut left_out: Vec<Opened<'_>> = (0..8).map(|_| open(&forged, &purse)).collect();
    for vm in &mut left_out {
        let error = vm.inventory().unwrap_err();
        assert!(too_much(&error) && vm.is_left_out(), "{error}");
        assert!(error.to_string().contains("more than the 1 MiB"), "{error}");
        assert_eq!(vm.known_methods().count(), 0);
    }
    let mut vm = open(&honest, &purse);
    assert!(vm.inventory().unwrap().complete && !vm.is_left_out());
    assert_eq!(vm.refresh().unwrap(), []);
}

/// Check that lists which grow once a VM is known are noticed then too.
#[test]
fn forged_later() {
    let purse = Purse::of(4 * MIB, MIB);
    let vm = with_loaders(100);
    let mut opened = open(&vm, &purse);
    assert!(opened.inventory().unwrap().complete);
    let loader = vm.add_loader();
    (0..=MIB / LOADER).for_each(|number| drop(vm.add_class(loader, &format!("a/C{number}"), &[])));
    // A class takes half of what a loader does.
    (0..=MIB / LOADER).for_each(|number| drop(vm.add_class(loader, &format!("a/D{number}"), &[])));
    let error = opened.refresh().unwrap_err();
    assert!(too_much(&error) && opened.is_left_out(), "{error}");
}

/// Check that when all together have too much, it is the largest that has to go, at its next look, and the others stay.
#[test]
fn largest_goes() {
    let purse = Purse::of(2 * MIB, MIB);
    let large: Vec<SmallVm> = [3000, 2500, 2800].map(with_loaders).into();
    let mut all: Vec<Opened<'_>> = large.iter().map(|vm| open(vm, &purse)).collect();
    all.iter_mut().for_each(|vm| assert!(vm.inventory().unwrap().complete));
    let small = with_loaders(300);
    let mut more: Vec<Opened<'_>> = (0..20).map(|_| open(&small, &purse)).collect();
    more.iter_mut().for_each(|vm| assert!(vm.inventory().unwrap().complete));
    assert!(matches!(all[0].refresh(), Err(Error::Memory(MemoryError::TooMuchOfAll { .. }))));
    assert!(all[0].is_left_out());
    all[1..].iter_mut().chain(&mut more).for_each(|vm| assert_eq!(vm.refresh().unwrap(), []));
}
