// A cargo that is run by something that cargo runs. Shared by the build script of `nprof-user` and by `cargo xtask bpf`: std
// alone.

use std::env;
use std::process::Command;

/// A command without what the outer cargo sets for its own compiler.
pub(crate) fn clean(mut command: Command) -> Command {
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let ours = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
        let cargos = name_text.starts_with("CARGO") && !ours.iter().any(|prefix| name_text.starts_with(prefix));
        if cargos || name_text.starts_with("RUSTC") || name_text == "RUSTFLAGS" || name_text == "RUSTUP_TOOLCHAIN" {
            command.env_remove(&name);
        }
    }
    command
}
