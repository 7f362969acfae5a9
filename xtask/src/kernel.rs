//! Whether this kernel can do what nprof needs: asked before anything is installed or built for a demo in vain.

use std::fs;

use anyhow::{Result, bail};

use crate::machine::Machine;

/// The kernel's description of its own types, which nprof needs as well.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// A type that every kernel with `uprobe_multi` links has, and no other.
const LINK: &[u8] = b"bpf_uprobe_multi_link";

/// Looks whether nprof can trace on this kernel.
///
/// # Errors
/// If it cannot: what is missing, and what to do.
pub(crate) fn must_trace(machine: &Machine) -> Result<()> {
    let release = fs::read_to_string(machine.system(RELEASE)).unwrap_or_default();
    let release = release.trim();
    let Ok(types) = fs::read(machine.system(TYPES)) else {
        bail!(
            "this kernel ({release}) does not describe its types ({TYPES} cannot be read), so nprof cannot trace here: boot \
             one that is built with CONFIG_DEBUG_INFO_BTF, as those of distributions are"
        );
    };
    // Names stand there one after the other, each with a zero byte behind it.
    if !types.split(|byte| *byte == 0).any(|name| name == LINK) {
        bail!(
            "this kernel ({release}) has no uprobe_multi links, so nprof cannot trace here: boot Linux 6.6 or later. Debian 12's \
             own kernel is 6.1; `apt install -t bookworm-backports linux-image-amd64` brings a newer one"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    /// Check that an old kernel, and one without the description, is named with what is missing, and a new one passes.
    #[test]
    fn kernels_old_and_new() {
        let fake = FakeMachine::new();
        fake.file_with(RELEASE, "6.1.0-37-amd64\n");
        let says = || must_trace(&fake.machine).map_err(|error| error.to_string());
        assert!(says().unwrap_err().contains(TYPES));
        fake.file_with(TYPES, "\u{1}\0bpf_kprobe_multi_link\0bpf_uprobe_multi_link_of_another\0");
        let error = says().unwrap_err();
        assert!(error.contains("(6.1.0-37-amd64) has no uprobe_multi links") && error.contains("6.6"), "{error}");
        fake.file_with(TYPES, "\u{1}\0bpf_kprobe_multi_link\0bpf_uprobe_multi_link\0int\0");
        assert_eq!(says(), Ok(()));
    }
}
