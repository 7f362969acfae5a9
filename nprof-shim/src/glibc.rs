//! Makes the library load into JVMs with an older glibc than that of the machine where it was built.
//!
//! A container has its own glibc, often years older than the host's. What the linker finds here for a function is its
//! newest version, and a library with one of those does not load where it is not known. For threads and the loader the
//! newest are the same as the oldest, only moved from one file to another in glibc 2.34; a few functions for files were
//! added as such in 2.28 to 2.33, and are system calls. So the build leads each of these to an entry here (`build.rs` has
//! the same list, for the linker's `--wrap`), which goes on to the old one. What stays needs glibc 2.18.

#![cfg(target_env = "gnu")]
#![expect(unsafe_code, reason = "the entries are written in assembler")]

use std::arch::global_asm;

global_asm!(
    include_str!("glibc.s"),
    STAT = const libc::SYS_stat,
    FSTAT = const libc::SYS_fstat,
    LSTAT = const libc::SYS_lstat,
    GETTID = const libc::SYS_gettid,
    STATX = const libc::SYS_statx,
);
