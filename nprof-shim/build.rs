//! Has the linker lead functions of newer versions of glibc to the entries in `src/glibc.s`.

const WRAPPED: [&str; 20] = [
    "dladdr",
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
    "pthread_setname_np",
    "pthread_setspecific",
    "pthread_sigmask",
    "stat64",
    "statx",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if (target("ARCH").as_str(), target("OS").as_str(), target("ENV").as_str()) != ("x86_64", "linux", "gnu") {
        return;
    }
    for name in WRAPPED {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
