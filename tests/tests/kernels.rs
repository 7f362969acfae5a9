//! The BPF programs on another kernel than this machine's: each kernel has its own verifier, and refuses what another takes.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nprof_tests::guest;
use nprof_tests::require::with_guest;

/// Check that the kernel of Debian 13 takes the programs, with everything that can be collected, and that they count and time there
/// as they do here: the tests of the module `kernel` pass.
#[test]
fn the_programs_on_debian_13() -> Result<()> {
    with_guest("trixie", |kernel| {
        let init = Path::new(env!("CARGO_BIN_EXE_guest_init"));
        let arguments = ["kernel::", "--test-threads=1"];
        let said = guest::run(kernel, init, &std::env::current_exe()?, &arguments)?;
        let result = said.lines().find(|line| line.starts_with("test result: ")).context("no test has run")?;
        ensure!(result.contains(" 0 failed") && !result.contains(" 0 passed"), "{result}");
        // What a test needs and does not find there is said, and passes.
        ensure!(!said.contains("not run: "), "{said}");
        println!("{result}");
        Ok(())
    })
}
