//! A JVM with many hidden classes costs no more to follow than one with few: each look reads what is new.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use nprof::discover::{Proc, libjvm};
use nprof::hotspot::{MemoryError, RemoteMemory, Vm};
use nprof::model::{Pid, VirtAddr};
use nprof::sys::remote_memory::ProcessMemory;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_every_jdk;

/// Hidden classes at the first count, and how many times as many at the second.
const CLASSES: usize = 10_000;
const TIMES: usize = 3;
/// Looks, of which the cheapest counts: the JVM may load its own classes meanwhile.
const LOOKS: usize = 5;

/// A memory that counts what is read of it.
struct Counted {
    memory: ProcessMemory,
    reads: Rc<Cell<usize>>,
}

impl RemoteMemory for Counted {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.reads.set(self.reads.get() + 1);
        self.memory.read(addr, buf)
    }
}

/// How many reads the cheapest look takes.
fn reads_of_a_look(vm: &mut Vm<Counted>, reads: &Cell<usize>) -> Result<usize> {
    let mut cheapest = usize::MAX;
    for _ in 0..LOOKS {
        reads.set(0);
        vm.refresh()?;
        cheapest = cheapest.min(reads.get());
    }
    Ok(cheapest)
}

/// Check that a look at three times as many hidden classes reads no more, that a native of a new one is seen at once, and that
/// it is forgotten when all of them are unloaded.
#[test]
fn a_look_costs_what_is_new() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::hidden(jdk)?;
        let memory = ProcessMemory::new(Pid(target.pid()));
        let libraries = Proc::host().libraries(memory.pid())?;
        let reads = Rc::new(Cell::new(0));
        let counted = Counted { memory, reads: Rc::clone(&reads) };
        let mut vm = Vm::open(counted, libjvm(&libraries).context("no libjvm")?)?;
        target.run(&format!("define {CLASSES}"))?;
        ensure!(vm.inventory()?.complete, "the walk lost its way");
        let few = reads_of_a_look(&mut vm, &reads)?;
        target.run(&format!("define {}", (TIMES - 1) * CLASSES))?;
        vm.refresh()?;
        let many = reads_of_a_look(&mut vm, &reads)?;
        ensure!(many <= few + few / 10, "{few} reads with {CLASSES} classes, {many} with {TIMES} times as many");
        target.run("native")?;
        let found = vm.refresh()?;
        let native = found.iter().find(|method| method.class.starts_with("targets.Hidden$WithNative/"));
        let native = native.with_context(|| format!("not found: {found:?}"))?.id;
        target.run("drop")?;
        // A look at a time goes through a part of the list, which is short now.
        for _ in 0..TIMES * CLASSES / 1000 {
            vm.refresh()?;
        }
        ensure!(!vm.known_methods().any(|id| id == native), "the native of an unloaded class is still known");
        target.exit()
    })
}
