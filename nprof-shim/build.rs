//! Makes the library one that loads with any C library (`src/c_library.rs`): leads functions to the entries in
//! `src/c_library.s`, and links in what unwinds panics.

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::Command;

/// What is led there.
const WRAPPED: [&str; 25] = [
    "__pthread_key_create",
    "__tls_get_addr",
    "_dl_find_object",
    "dladdr",
    "dlopen",
    "dlsym",
    "fstat64",
    "gettid",
    "lstat64",
    "pthread_attr_getguardsize",
    "pthread_attr_getstack",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_getattr_np",
    "pthread_getspecific",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_once",
    "pthread_setname_np",
    "pthread_setspecific",
    "pthread_sigmask",
    "stat64",
    "statx",
];

/// The compiler's own unwinder, as an archive. The linker takes it before the shared one that Rust's library names.
const UNWINDER: &str = "gcc_eh";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if (target("ARCH").as_str(), target("OS").as_str(), target("ENV").as_str()) != ("x86_64", "linux", "gnu") {
        return Ok(());
    }
    for name in WRAPPED {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    println!("cargo::rustc-link-search=native={}", directory_of_unwinder()?);
    println!("cargo::rustc-link-lib=static:+whole-archive,-bundle={UNWINDER}");
    Ok(())
}

fn directory_of_unwinder() -> Result<String, Box<dyn Error>> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let file = format!("lib{UNWINDER}.a");
    let asked = Command::new(&compiler).arg(format!("-print-file-name={file}")).output()?;
    let path = String::from_utf8(asked.stdout)?;
    // A compiler that has none gives the name back.
    match Path::new(path.trim()).parent().filter(|parent| parent.is_absolute()) {
        Some(directory) => Ok(directory.display().to_string()),
        None => Err(format!("{compiler} has no {file}, which comes with gcc").into()),
    }
}
