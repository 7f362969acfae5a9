//! What is added by what may be collected besides stacks: `--off-cpu` to calls and to switches of threads, `--timeline` to calls.

use anyhow::{Context, Result};
use nprof_tests::bars::median;
use nprof_tests::process::RemoteProcess;

use crate::recording::{Cost, Load};

/// With nothing of it, and hardly a stack, so that nothing else differs.
const PLAIN: Load = Load { calls_per_millisecond: 100, max_stacks: 1, options: &[], seconds: 2.0 };
const OFF_CPU: Load = Load { options: &["--off-cpu"], ..PLAIN };
const TIMELINE: Load = Load { options: &["--timeline"], ..PLAIN };
/// How often each is recorded, by turns: what else the machine does then falls on all of them.
const ROUNDS: usize = 5;

/// Times of programs, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Additions {
    /// A traced call without any of it.
    plain_call_ns: f64,
    /// What `--off-cpu` adds to a traced call.
    off_cpu_call_ns: f64,
    /// What it adds to each switch of threads.
    off_cpu_switch_ns: f64,
    /// What `--timeline` adds to a traced call.
    timeline_call_ns: f64,
}

impl Additions {
    /// Records the target by turns with each option and without.
    pub(crate) fn measure(target: &mut RemoteProcess) -> Result<Self> {
        let [mut plain, mut off_cpu, mut timeline, mut switch] = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let without = Cost::of(target, PLAIN)?.call_ns;
            let with_off_cpu = Cost::of(target, OFF_CPU)?;
            plain.push(without);
            off_cpu.push(with_off_cpu.call_ns - without);
            switch.push(with_off_cpu.switch_ns.context("no program has run when threads were switched")?);
            timeline.push(Cost::of(target, TIMELINE)?.call_ns - without);
        }
        Ok(Self {
            plain_call_ns: median(plain),
            off_cpu_call_ns: median(off_cpu),
            off_cpu_switch_ns: median(switch),
            timeline_call_ns: median(timeline),
        })
    }

    /// Prints a table. What the kernel needs to come to a program and back is not in it.
    pub(crate) fn print(&self) {
        let Self { plain_call_ns, off_cpu_call_ns, off_cpu_switch_ns, timeline_call_ns } = self;
        println!("## What options add, time of the programs\n\n| | measured | of a traced call |\n| --- | --- | --- |");
        for (what, ns) in [
            ("a traced call without them", plain_call_ns),
            ("`--off-cpu`, to a traced call", off_cpu_call_ns),
            ("`--off-cpu`, to each switch of threads on the host", off_cpu_switch_ns),
            ("`--timeline`, to a traced call", timeline_call_ns),
        ] {
            println!("| {what} | {ns:.0} ns | {:.2} |", ns / plain_call_ns);
        }
        println!();
    }
}
