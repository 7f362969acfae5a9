//! Memory that lies: thousands of damaged copies of a recorded JVM and of the small VM. Whatever is read, the
//! inventory ends, and what it lists could be methods.
//!
//! The damage is pseudo-random with a fixed start, so that a failure can be repeated.

use std::collections::HashMap;

use super::recording::{Image, Recorded};
use super::small_vm::{IN_LIBRARY, SmallVm};
use crate::hotspot::exports::Exports;
use crate::hotspot::memory::{MemoryError, Reader, RemoteMemory, is_plausible};
use crate::hotspot::{Vm, names};
use crate::model::{Method, NativeCode, VirtAddr};

/// A small generator (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than a usize")
    }
}

/// An image of which some words read differently or not at all.
struct Damaged<'a> {
    image: &'a Image,
    /// By the address of the word; `None` where nothing can be read.
    words: HashMap<u64, Option<[u8; 8]>>,
}

impl RemoteMemory for Damaged<'_> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.image.read(addr, buf)?;
        let end = addr.0 + buf.len() as u64;
        for (&start, word) in &self.words {
            if start >= end || start + 8 <= addr.0 {
                continue;
            }
            let Some(word) = word else {
                let len = buf.len();
                return Err(MemoryError::Unreadable { addr, len });
            };
            for (at, byte) in (start..).zip(word) {
                let inside = at.checked_sub(addr.0).and_then(|at| usize::try_from(at).ok());
                if let Some(old) = inside.and_then(|at| buf.get_mut(at)) {
                    *old = *byte;
                }
            }
        }
        Ok(())
    }
}

/// All words of an image that can be damaged, by address.
fn words(image: &Image) -> Vec<u64> {
    let runs = image.runs.iter();
    runs.flat_map(|(&start, run)| (start..start + run.len() as u64).step_by(8)).collect()
}

/// One damaged word: missing, zero, all ones, another bit, small, or the address of some other word.
fn damage(image: &Image, words: &[u64], random: &mut Random) -> (u64, Option<[u8; 8]>) {
    let addr = words[random.below(words.len())];
    let mut old = [0; 8];
    for (index, byte) in old.iter_mut().enumerate() {
        let mut one = [0];
        if image.read(VirtAddr(addr + index as u64), &mut one).is_ok() {
            *byte = one[0];
        }
    }
    let old = u64::from_le_bytes(old);
    let new = match random.below(8) {
        0 => return (addr, None),
        1 => 0,
        2 => u64::MAX,
        3 => random.next() % 0x1_0000,
        4 => random.next(),
        5 => old ^ 1 << random.below(64),
        6 => old.wrapping_add(8),
        _ => words[random.below(words.len())],
    };
    (addr, Some(new.to_le_bytes()))
}

fn check_methods(methods: &[Method]) {
    for method in methods {
        assert!(names::is_method_name(&method.name), "{method:?}");
        assert!(names::is_method_descriptor(&method.signature), "{method:?}");
        assert!(!method.class.is_empty() && is_plausible(method.id), "{method:?}");
        if let NativeCode::Bound(addr) = method.code {
            assert!(is_plausible(addr), "{method:?}");
        }
    }
}

/// Takes the inventory of `variants` copies with up to `most` damaged words each.
fn survive(image: &Image, exports: &Exports, variants: u32, most: usize) {
    let words = words(image);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut opened = 0;
    for _ in 0..variants {
        let count = 1 + random.below(most);
        let damaged = Damaged { image, words: (0..count).map(|_| damage(image, &words, &mut random)).collect() };
        // Opened in good health half of the time: damaged tables would hide the walk.
        let vm = match random.below(2) {
            0 => Vm::with_exports(&damaged as &dyn RemoteMemory, exports.clone()),
            _ => Vm::with_exports(image as &dyn RemoteMemory, exports.clone()),
        };
        let Ok(mut vm) = vm else { continue };
        opened += 1;
        vm.reader = Reader::new(&damaged as &dyn RemoteMemory);
        if let Ok(inventory) = vm.inventory() {
            check_methods(&inventory.methods);
        }
        if let Ok(changed) = vm.refresh() {
            check_methods(&changed);
        }
        if let Ok(version) = vm.version() {
            assert!(!version.release.contains(char::is_control));
        }
        if let Ok(Some(range)) = vm.code_cache_range() {
            assert!(range.start < range.end);
        }
    }
    assert!(opened > variants / 2, "only {opened} of {variants} opened");
}

/// Check that no damage to recorded JVMs makes the inventory fail badly or list what cannot be.
#[test]
fn damaged_recordings() {
    for fixture in ["jdk-17", "jdk-25"] {
        let recorded = Recorded::fixture(fixture);
        survive(&recorded.image, &recorded.exports, 100, 12);
    }
}

/// Check the same of the small VM, which is quick to read, thousands of times.
#[test]
fn damaged_small_vm() {
    let small = SmallVm::new();
    for index in 0..8 {
        let loader = small.add_loader();
        let natives = [("one", "(I)V", IN_LIBRARY), ("two", "([[J)La/B;", 0)];
        small.add_class(loader, &format!("a/App{index}"), &natives);
        small.add_class(loader, &format!("a/Other{index}"), &natives);
    }
    survive(&small.memory.borrow(), &small.exports, 3_000, 4);
}
