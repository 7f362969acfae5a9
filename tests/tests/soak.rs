//! JVMs come and go while the service runs, and it holds no more than before. The long form is `cargo xtask bench soak`.

use std::time::Duration;

use anyhow::Result;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::soak::Soak;

/// Check that a service that has seen JVMs come and go holds what it held before, and has lost nothing.
#[test]
fn nothing_grows() -> Result<()> {
    traced_on_every_jdk(|jdk| Soak::run(jdk, Duration::from_secs(20))?.must_be_flat())
}
