//! The `nprof` command. Everything happens in [`nprof::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    nprof::cli::main()
}
