//! `nprof generate man|completions|agent --out DIR`: files that a package installs. Pages and completions are made from the command line's own
//! definition so that they cannot say something else; the agent is the one that nprof brings, since it speaks to no other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::shim;

/// The shells that completions are made for.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Make manual pages, shell completions, or the agent that a JVM can be started with
#[derive(Debug, Args)]
pub(super) struct GenerateArgs {
    /// What to make
    what: What,
    /// An existing directory to write the files to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// One page for nprof and one for each command, in section 1
    Man,
    /// For bash, zsh and fish
    Completions,
    /// The shim, libnprof_shim.so, for `java -agentpath:DIR/libnprof_shim.so`: such a JVM need not be asked to load it
    Agent,
}

/// Writes the files for `command`, the whole command line.
pub(super) fn run(args: &GenerateArgs, command: Command) -> anyhow::Result<ExitCode> {
    let written = match args.what {
        What::Man => clap_mangen::generate_to(command, &args.out),
        What::Completions => completions(command, &args.out),
        What::Agent => fs::write(args.out.join(shim::LIBRARY), shim::BYTES),
    };
    written.with_context(|| format!("cannot write to {}", args.out.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn completions(mut command: Command, directory: &Path) -> io::Result<()> {
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command, "nprof", directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn generated(what: What) -> (tempfile::TempDir, BTreeSet<String>) {
        let directory = tempfile::tempdir().unwrap();
        run(&GenerateArgs { what, out: directory.path().to_path_buf() }, Cli::command()).unwrap();
        let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap()).collect();
        (directory, names)
    }

    /// Check that there is a page for nprof and for each command that is shown, and none for this one.
    #[test]
    fn a_page_for_each_command() {
        let (directory, names) = generated(What::Man);
        for command in Cli::command().get_subcommands() {
            let page = format!("nprof-{}.1", command.get_name());
            assert_eq!(names.contains(&page), !command.is_hide_set(), "{page} in {names:?}");
        }
        let main = fs::read_to_string(directory.path().join("nprof.1")).unwrap();
        assert!(main.contains("nprof\\-trace(1)") && main.contains("nprof\\-generate(1)"), "{main}");
    }

    /// Check that the completions know the commands and their options.
    #[test]
    fn completions_for_each_shell() {
        let (directory, names) = generated(What::Completions);
        assert_eq!(names, BTreeSet::from(["_nprof", "nprof.bash", "nprof.fish"].map(str::to_owned)));
        for name in names {
            let text = fs::read_to_string(directory.path().join(&name)).unwrap();
            assert!(text.contains("count-only"), "{name} does not know --count-only");
        }
    }

    /// Check that the agent is the library that nprof itself loads.
    #[test]
    fn agent_is_the_shim() {
        let (directory, names) = generated(What::Agent);
        assert_eq!(names, BTreeSet::from(["libnprof_shim.so".to_owned()]));
        assert_eq!(fs::read(directory.path().join("libnprof_shim.so")).unwrap(), shim::BYTES);
    }

    /// Check that a directory that is not there is named.
    #[test]
    fn missing_directory_is_named() {
        let args = GenerateArgs { what: What::Man, out: PathBuf::from("/nonexistent/out") };
        assert!(run(&args, Cli::command()).unwrap_err().to_string().contains("/nonexistent/out"));
    }
}
