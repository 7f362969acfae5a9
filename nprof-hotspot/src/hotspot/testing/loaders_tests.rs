//! The list of loaders of a small VM, which is longer than what is compared at one look: what a look costs, and that
//! nothing is overlooked.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use super::recording::Image;
use super::small_vm::{Class, IN_LIBJVM, IN_LIBRARY, STUB, SmallVm, offset};
use crate::hotspot::memory::{MemoryError, Reader, RemoteMemory};
use crate::hotspot::{Vm, lasting_loaders};
use crate::model::{Method, VirtAddr};

/// How many loaders are compared at a look here.
const STRETCH: usize = 8;

/// A memory that counts what is read of it.
struct Counted<'a> {
    memory: &'a RefCell<Image>,
    reads: Cell<usize>,
}

impl RemoteMemory for Counted<'_> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.reads.set(self.reads.get() + 1);
        self.memory.read(addr, buf)
    }
}

impl Counted<'_> {
    fn of(small: &SmallVm) -> Counted<'_> {
        Counted { memory: &small.memory, reads: Cell::new(0) }
    }
}

fn open<M: RemoteMemory>(small: &SmallVm, memory: M) -> Vm<M> {
    let mut vm = Vm::with_exports(memory, small.exports.clone()).expect("the tables are whole");
    vm.loaders.set_stretch(STRETCH);
    vm
}

/// A VM with a loader of a program, and `hidden` classes that have none of its natives.
fn with_hidden(hidden: usize) -> (SmallVm, u64, Class) {
    let vm = SmallVm::new();
    let loader = vm.add_loader();
    let app = vm.add_class(loader, "a/App", &[("one", "(I)V", IN_LIBRARY), ("two", "()J", STUB)]);
    for number in 0..hidden {
        vm.add_hidden(&format!("a/Hidden+0x{number:x}"), &[]);
    }
    (vm, loader, app)
}

/// How much each of `looks` refreshes reads, at most.
fn most_reads(vm: &mut Vm<&Counted<'_>>, memory: &Counted<'_>, looks: usize) -> usize {
    let reads = (0..looks).map(|_| {
        memory.reads.set(0);
        assert!(vm.refresh().unwrap().is_empty());
        memory.reads.get()
    });
    reads.max().unwrap()
}

fn names(methods: &[Method]) -> Vec<String> {
    methods.iter().map(|method| format!("{}::{}", method.class, method.name)).collect()
}

/// The ids of all methods that are known, in order.
fn known<M: RemoteMemory>(vm: &Vm<M>) -> Vec<VirtAddr> {
    let mut ids: Vec<VirtAddr> = vm.known_methods().collect();
    ids.sort();
    ids
}

/// Check that a look reads no more where there are ten times as many hidden classes.
#[test]
fn looks_cost_what_is_new() {
    let most = [100, 1_000].map(|hidden| {
        let (small, ..) = with_hidden(hidden);
        let memory = Counted::of(&small);
        let mut vm = open(&small, &memory);
        assert!(vm.inventory().unwrap().complete);
        most_reads(&mut vm, &memory, 3 * hidden / STRETCH)
    });
    assert_eq!(most[0], most[1]);
}

/// Check that a look reads of one new class what it takes, however many there are already.
#[test]
fn new_hidden_classes_cost_the_same() {
    let cost = [100, 1_000].map(|hidden| {
        let (small, ..) = with_hidden(hidden);
        let memory = Counted::of(&small);
        let mut vm = open(&small, &memory);
        vm.inventory().unwrap();
        small.add_hidden("b/Hidden+0xabc", &[("late", "()V", IN_LIBRARY)]);
        memory.reads.set(0);
        assert_eq!(names(&vm.refresh().unwrap()), ["b.Hidden/0xabc::late"]);
        memory.reads.get()
    });
    assert_eq!(cost[0], cost[1]);
}

/// Check that what any other loader loads, and what is bound anywhere, is seen at the next look, behind however many
/// hidden classes.
#[test]
fn news_behind_hidden_classes() {
    let (small, loader, app) = with_hidden(200);
    let mut vm = open(&small, &small.memory);
    vm.inventory().unwrap();
    small.add_class(loader, "a/Late", &[("three", "()V", STUB)]);
    assert_eq!(names(&vm.refresh().unwrap()), ["a.Late::three"]);
    small.add_class(small.boot, "b/Late", &[("four", "()V", STUB)]);
    assert_eq!(names(&vm.refresh().unwrap()), ["b.Late::four"]);
    small.bind(app.methods[1], IN_LIBJVM);
    assert_eq!(names(&vm.refresh().unwrap()), ["a.App::two"]);
    let (_, hidden) = small.add_hidden("a/Hidden+0xf00", &[("five", "()V", STUB)]);
    assert_eq!(names(&vm.refresh().unwrap()), ["a.Hidden/0xf00::five"]);
    (0..20).for_each(|number| drop(small.add_hidden(&format!("c/Hidden+0x{number:x}"), &[])));
    assert!(vm.refresh().unwrap().is_empty());
    small.bind(hidden.methods[0], IN_LIBRARY);
    assert_eq!(names(&vm.refresh().unwrap()), ["a.Hidden/0xf00::five"]);
}

/// Check that a loader that is listed before its class is not taken for complete.
#[test]
fn loader_that_has_no_class_yet() {
    let (small, ..) = with_hidden(200);
    let mut vm = open(&small, &small.memory);
    vm.inventory().unwrap();
    let loader = small.add_loader();
    small.hide(loader);
    assert!(vm.refresh().unwrap().is_empty());
    (0..20).for_each(|number| drop(small.add_hidden(&format!("c/Hidden+0x{number:x}"), &[])));
    assert!(vm.refresh().unwrap().is_empty());
    small.add_class(loader, "a/Hidden+0xf00", &[("one", "()V", STUB)]);
    assert_eq!(names(&vm.refresh().unwrap()), ["a.Hidden/0xf00::one"]);
}

/// Check that loaders that die anywhere are forgotten with their methods once all stretches have been compared.
#[test]
fn dead_loaders_are_forgotten() {
    let (small, ..) = with_hidden(0);
    let classes: Vec<(u64, Class)> =
        (0..100).map(|number| small.add_hidden(&format!("a/Hidden+0x{number:x}"), &[("one", "()V", STUB)])).collect();
    let mut vm = open(&small, &small.memory);
    assert_eq!(vm.inventory().unwrap().methods.len(), 105);
    let dying = |index: usize| index.is_multiple_of(7) || (40..70).contains(&index) || index > 95;
    let (dead, alive): (Vec<_>, Vec<_>) = (0..100).partition(|&index| dying(index));
    dead.iter().for_each(|&index| small.unlink_loader(classes[index].0));
    (0..=100 / STRETCH).for_each(|_| drop(vm.refresh().unwrap()));
    assert_eq!(vm.known_methods().count(), 5 + alive.len());
    assert!(known(&vm).contains(&VirtAddr(classes[alive[0]].1.methods[0])));
    assert_eq!(known(&vm), known_by_another(&small));
}

/// Check that a new loader is seen at once where a dead one was whose end has not been noticed yet.
#[test]
fn loader_at_the_address_of_a_dead_one() {
    let (small, ..) = with_hidden(100);
    let (victim, class) = small.add_hidden("a/Victim+0x1", &[("old", "()V", STUB)]);
    (0..100).for_each(|number| drop(small.add_hidden(&format!("b/Hidden+0x{number:x}"), &[])));
    let mut vm = open(&small, &small.memory);
    vm.inventory().unwrap();
    small.unlink_loader(victim);
    small.poke(victim + offset("ClassLoaderData", "_klasses"), 0);
    small.link_loader(victim);
    small.add_class(victim, "a/Next", &[("new", "()V", STUB)]);
    assert_eq!(names(&vm.refresh().unwrap()), ["a.Next::new"]);
    assert!(!known(&vm).contains(&VirtAddr(class.methods[0])));
    assert_eq!(known(&vm), known_by_another(&small));
}

/// What a VM knows that walks everything for the first time.
fn known_by_another(small: &SmallVm) -> Vec<VirtAddr> {
    let mut other = small.open();
    assert!(other.inventory().unwrap().complete);
    known(&other)
}

/// A small generator (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end as u64).unwrap()
    }
}

/// Check that after any sequence of loaders that come, die and come back at their old addresses, everything that is there
/// is known at once, and nothing else after some looks.
#[test]
fn any_sequence_of_changes() {
    for seed in 1..=8 {
        let mut random = Random(seed * 0x9e37_79b9);
        let (small, ..) = with_hidden(3);
        let mut loaders: Vec<u64> = Vec::new();
        let mut free: Vec<u64> = Vec::new();
        let mut vm = open(&small, &small.memory);
        vm.inventory().unwrap();
        for step in 0..60 {
            for change in 0..=random.below(4) {
                let name = format!("s/C{step}x{change}");
                let native: &[_] = &[("one", "()V", STUB)];
                match random.below(4) {
                    0 if !loaders.is_empty() => {
                        let dead = loaders.swap_remove(random.below(loaders.len()));
                        small.unlink_loader(dead);
                        small.poke(dead + offset("ClassLoaderData", "_klasses"), 0);
                        free.push(dead);
                    }
                    1 if !free.is_empty() => {
                        let loader = free.swap_remove(random.below(free.len()));
                        small.link_loader(loader);
                        small.add_class(loader, &name, native);
                        loaders.push(loader);
                    }
                    _ => loaders.push(small.add_hidden(&name, native).0),
                }
            }
            vm.refresh().unwrap();
            let there = known_by_another(&small);
            let seen = known(&vm);
            assert!(there.iter().all(|id| seen.binary_search(id).is_ok()), "seed {seed}, step {step}");
        }
        (0..loaders.len() / STRETCH + 2).for_each(|_| drop(vm.refresh().unwrap()));
        assert_eq!(known(&vm), known_by_another(&small), "seed {seed}");
    }
}

/// Memory in which the link of one loader leads nowhere, the first times that it is read.
struct Losing<'a> {
    memory: &'a RefCell<Image>,
    link: VirtAddr,
    times: Cell<u32>,
}

impl RemoteMemory for Losing<'_> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(addr, buf)?;
        if let Some(left) = self.times.get().checked_sub(1).filter(|_| addr == self.link) {
            self.times.set(left);
            buf.fill(0x77);
        }
        Ok(())
    }
}

/// Check that a walk for the loaders that last does not end where a list has led it astray, and ends where it always does.
#[test]
fn finds_lasting_loaders_in_a_list_that_changes() {
    let vm = SmallVm::new();
    let names: Vec<String> = (0..16).map(|number| format!("app/C{number}")).collect();
    let lasting = vm.add_loader();
    names.iter().for_each(|name| drop(vm.add_class(lasting, name, &[])));
    let (passing, _class) = vm.add_hidden("app/Passing+0x1", &[]);
    let layout = vm.open().layout;
    let found = |times| {
        let link = VirtAddr(passing + offset("ClassLoaderData", "_next"));
        let memory = Losing { memory: &vm.memory, link, times: Cell::new(times) };
        lasting_loaders(&mut Reader::new(memory), &layout).unwrap()
    };
    let (lasting, boot) = (VirtAddr(lasting), VirtAddr(vm.boot));
    assert_eq!(found(0), HashSet::from([lasting, boot]));
    assert_eq!(found(3), HashSet::from([lasting, boot]));
    assert_eq!(found(u32::MAX), HashSet::from([boot]));
}
