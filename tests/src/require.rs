//! What a test needs from the machine: JDKs, root and a kernel. What is missing is printed, never passed over, and
//! what is listed in `NPROF_TEST_REQUIRE` (`kernel`, `jvm`, JDK versions, words for tools: `kernel,jvm,17,25,package`)
//! must be there.

use std::io::Write;
use std::path::Path;
use std::sync::Once;

use anyhow::{Context, Result, bail};

use crate::guest;
use crate::jdk::{self, Jdk, OLDEST_SUPPORTED};

/// The JDK versions that are expected on a machine that runs these tests: below `/usr/lib/jvm`, where every test runs on
/// them, or in [`jdk::others`], where a few strong tests do.
const EXPECTED_VERSIONS: [u32; 5] = [11, 17, 21, 25, 26];

/// The first kernel with `uprobe_multi` links.
const OLDEST_KERNEL: (u32, u32) = (6, 6);

/// Runs `test` with every JDK of this machine.
///
/// # Errors
/// What the test returns, with the JDK named; or that a required JDK is missing.
pub fn on_every_jdk(test: impl Fn(&Jdk) -> Result<()>) -> Result<()> {
    for jdk in jdks()? {
        test(&jdk).with_context(|| format!("on {jdk}"))?;
    }
    Ok(())
}

/// Runs `test` with every JDK of this machine if it can be traced on.
///
/// # Errors
/// As [`on_every_jdk`]; or that the kernel is required and cannot be used.
pub fn traced_on_every_jdk(test: impl Fn(&Jdk) -> Result<()>) -> Result<()> {
    on_kernel(|| on_every_jdk(test))
}

/// Runs `test` once, with the oldest and the newest JDK of this machine together, if they can be traced on.
///
/// # Errors
/// As [`traced_on_every_jdk`].
pub fn traced_on_two_jdks(test: impl FnOnce([&Jdk; 2]) -> Result<()>) -> Result<()> {
    on_kernel(|| {
        let jdks = jdks()?;
        let (oldest, newest) = (jdks.iter().min_by_key(|jdk| jdk.version), jdks.iter().max_by_key(|jdk| jdk.version));
        oldest.zip(newest).map_or(Ok(()), |(oldest, newest)| test([oldest, newest]))
    })
}

/// Runs `test` with every JVM of another version than those of [`on_every_jdk`]. They cannot compile.
///
/// # Errors
/// As [`on_every_jdk`].
pub fn on_every_other_jdk(test: impl Fn(&Jdk) -> Result<()>) -> Result<()> {
    for jdk in others()? {
        test(&jdk).with_context(|| format!("on {jdk}"))?;
    }
    Ok(())
}

/// The same for what can be traced.
///
/// # Errors
/// As [`traced_on_every_jdk`].
pub fn traced_on_every_other_jdk(test: impl Fn(&Jdk) -> Result<()>) -> Result<()> {
    on_kernel(|| on_every_other_jdk(test))
}

/// Runs `test` if BPF programs can be loaded and attached on this machine.
///
/// # Errors
/// What the test returns; or that the kernel is required and cannot be used.
pub fn on_kernel(test: impl FnOnce() -> Result<()>) -> Result<()> {
    unless_missing("kernel", missing_from_kernel(), test)
}

/// Runs `test` if Prometheus and `promtool` are on this machine.
///
/// # Errors
/// What the test returns; or that Prometheus is required and not there.
pub fn with_prometheus(test: impl FnOnce() -> Result<()>) -> Result<()> {
    with_tools("prometheus", &["prometheus", "promtool"], test)
}

/// Runs `test` if Chromium is on this machine.
///
/// # Errors
/// What the test returns; or that a browser is required and not there.
pub fn with_browser(test: impl FnOnce() -> Result<()>) -> Result<()> {
    with_tools("browser", &["chromium"], test)
}

/// Runs `test` with the kernel of a suite of Debian if that and an emulator are on this machine.
///
/// # Errors
/// What the test returns; or that guests are required and one cannot be started.
pub fn with_guest(suite: &str, test: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let kernel = guest::kernel(suite);
    let emulator = guest::emulator().is_none().then(|| "no QEMU".to_owned());
    let missing = emulator.or_else(|| (!kernel.is_file()).then(|| format!("no {}", kernel.display())));
    let advice = |missing| format!("{missing}; `cargo xtask setup --for test` gets it");
    unless_missing("guest", missing.map(advice), || test(&kernel))
}

/// Runs `test` unless something is missing that it needs; `need` is the word for it in `NPROF_TEST_REQUIRE`.
fn unless_missing(need: &str, missing: Option<String>, test: impl FnOnce() -> Result<()>) -> Result<()> {
    match missing {
        None => test(),
        Some(missing) if is_required(need) => {
            bail!("`{need}` is required by NPROF_TEST_REQUIRE: {missing}")
        }
        Some(missing) => {
            say(&format!("not run: {}: {missing}", test_name()));
            Ok(())
        }
    }
}

/// Says that a test has nothing to do with a JDK, and why.
///
/// # Errors
/// None: so that a test can end with it.
pub fn does_not_concern(jdk: &Jdk, why: &str) -> Result<()> {
    say(&format!("not run: {} with JDK {}: {why}", test_name(), jdk.version));
    Ok(())
}

/// Runs `test` if all of `tools` are on the path; `need` is the word for them in `NPROF_TEST_REQUIRE`.
///
/// # Errors
/// What the test returns; or that the tools are required and one is not there.
pub fn with_tools(need: &str, tools: &[&str], test: impl FnOnce() -> Result<()>) -> Result<()> {
    let missing = tools.iter().find(|tool| !is_on_path(tool));
    unless_missing(need, missing.map(|tool| format!("no {tool} on the path")), test)
}

/// How many fresh targets an exactness test goes through: `NPROF_TEST_ROUNDS`, 2 without it. A release is checked
/// with 20.
///
/// # Errors
/// When the variable is not a number.
pub fn rounds() -> Result<u32> {
    match std::env::var("NPROF_TEST_ROUNDS") {
        Ok(text) => text.parse().with_context(|| format!("NPROF_TEST_ROUNDS={text}")),
        Err(_) => Ok(2),
    }
}

/// The JDKs to test with. Prints once what is missing or cannot be used.
fn jdks() -> Result<Vec<Jdk>> {
    static REPORT: Once = Once::new();
    let (usable, old): (Vec<_>, Vec<_>) = Jdk::find_all()?.into_iter().partition(|jdk| jdk.version >= OLDEST_SUPPORTED);
    REPORT.call_once(|| {
        for jdk in &old {
            say(&format!("not used: {jdk} is older than the targets' sources ({OLDEST_SUPPORTED})"));
        }
    });
    must_have_versions(&usable, &Jdk::find_others()?)?;
    if usable.is_empty() && is_required("jvm") {
        bail!("required by NPROF_TEST_REQUIRE: no JDK under /usr/lib/jvm");
    }
    Ok(usable)
}

/// The JVMs of other versions to test with. Prints once what is missing.
fn others() -> Result<Vec<Jdk>> {
    let found = Jdk::find_others()?;
    must_have_versions(&Jdk::find_all()?, &found)?;
    Ok(found)
}

/// Says once which versions nothing is tested with.
///
/// # Errors
/// If one is required that is not there.
fn must_have_versions(main: &[Jdk], others: &[Jdk]) -> Result<()> {
    static REPORT: Once = Once::new();
    let found = [main, others].concat();
    let missing = missing_versions(&expected_versions(), &found);
    let place = format!("/usr/lib/jvm or {}", jdk::others().display());
    REPORT.call_once(|| {
        for version in &missing {
            say(&format!("not run: nothing is tested with JDK {version}: it is not in {place}"));
        }
    });
    match missing.iter().find(|version| is_required(&version.to_string())) {
        Some(version) => bail!("required by NPROF_TEST_REQUIRE: no JDK {version} in {place}"),
        None => Ok(()),
    }
}

fn missing_versions(expected: &[u32], found: &[Jdk]) -> Vec<u32> {
    expected.iter().copied().filter(|version| found.iter().all(|jdk| jdk.version != *version)).collect()
}

/// The versions that are expected, and those that are required besides.
fn expected_versions() -> Vec<u32> {
    let required = requirements().filter_map(|word| word.parse().ok());
    let mut wanted: Vec<u32> = EXPECTED_VERSIONS.into_iter().chain(required).collect();
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// What keeps nprof from tracing here, if anything does.
fn missing_from_kernel() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("tracing needs root".into());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = kernel_version(&release);
    if version < Some(OLDEST_KERNEL) {
        return Some(format!("kernel {} is older than {}.{}", release.trim(), OLDEST_KERNEL.0, OLDEST_KERNEL.1));
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("the kernel has no BTF (/sys/kernel/btf/vmlinux)".into());
    }
    None
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn is_required(what: &str) -> bool {
    requirements().any(|word| word == what)
}

fn requirements() -> impl Iterator<Item = String> {
    let list = std::env::var("NPROF_TEST_REQUIRE").unwrap_or_default();
    list.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>().into_iter()
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

/// Tells of something that was not tested. Prints past the test runner, which keeps back what a passing test prints.
pub fn say(message: &str) {
    // In one piece, as other tests print too. If nobody can be told, the tests themselves still count.
    drop(std::io::stderr().write_all(format!("nprof-tests: {message}\n").as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that kernel versions compare as numbers, distribution suffixes left out.
    #[test]
    fn kernel_versions_are_numbers() {
        assert_eq!(kernel_version("6.18.0-rc3+deb13\n"), Some((6, 18)));
        assert!(kernel_version("6.18.5") > Some(OLDEST_KERNEL));
        assert!(kernel_version("6.1.0-31-amd64") < Some(OLDEST_KERNEL));
        assert!(kernel_version("strange") < Some(OLDEST_KERNEL));
    }

    /// Check that a program on the path is found and that another one is missed.
    #[test]
    fn programs_are_looked_for() {
        assert!(is_on_path("sh"));
        assert!(!is_on_path("no-such-program"));
    }

    /// Check that an expected JDK that is not there is noticed.
    #[test]
    fn missing_versions_are_noticed() {
        let only_25 = [Jdk { version: 25, home: "/jdk".into() }];
        assert_eq!(missing_versions(&EXPECTED_VERSIONS, &only_25), [11, 17, 21, 26]);
    }
}
