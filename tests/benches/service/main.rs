//! What `nprof serve` takes with twenty JVMs of five hundred traced methods each, and what each further JVM costs at a
//! site that all of them share.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod scrapes;
mod shared_site;

use anyhow::{Context, Result};
use nprof_tests::bars::Bars;
use nprof_tests::jdk::Jdk;

/// How many JVMs.
const JVMS: usize = 20;

fn main() -> Result<()> {
    let jdk = Jdk::find_all()?.pop().context("no JDK under /usr/lib/jvm")?;
    println!("## {JVMS} JVMs on {jdk}\n");
    let mut bars = Bars::default();
    scrapes::measure(&jdk, &mut bars)?;
    shared_site::measure(&jdk, &mut bars)?;
    println!("{bars}");
    bars.must_be_met()
}
