//! JVMs come and go while the service runs, by stubs and by probes: each call is counted, and it holds no more than before. The long
//! form is `cargo xtask bench soak`.

use std::time::Duration;

use anyhow::Result;
use nprof_tests::require::traced_on_two_jdks;
use nprof_tests::soak::Soak;

/// Check that a service that has seen JVMs come and go in every way has counted each of their calls, holds what it held before, as do
/// the JVMs, and has lost nothing.
#[test]
fn nothing_grows() -> Result<()> {
    // Long enough for a JVM of each JDK, by stubs and by probes, to end in each way.
    traced_on_two_jdks(|jdks| Soak::run(&jdks.map(Clone::clone), Duration::from_secs(30))?.must_be_flat())
}
