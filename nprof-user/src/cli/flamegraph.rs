//! `nprof flamegraph`: who calls into native code, as a picture.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::NOTHING_MATCHED;
use super::live::{LiveArgs, Outcome, tell_quality};
use super::picture::{Picture, PictureArgs};
use super::recorded;
use super::save::Destination;
use super::selection::{SelectionArgs, ThreadArgs};
use super::served::ServedArgs;
use super::terminal::say;
use crate::model::Profile;
use crate::resolve::select::Selection;

/// Draw who calls into native code, from a running JVM, from a recording or from what a service knows
///
/// Every native method is shown under the Java stack that called it. The samples of its stacks are scaled to its calls and
/// times, which are exact. A recording of a running JVM ends on Ctrl-C, after --duration, or when the JVM ends; the picture
/// is complete in each case.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct FlamegraphArgs {
    /// A recording made by `nprof record`, unless there is --pid or --from-serve; then which methods, as globs on class::method,
    /// all if there is none
    #[arg(value_name = "FILE|PATTERN", required_unless_present_any = ["pid", "from_serve"])]
    sources: Vec<String>,
    /// The process id of a running JVM
    #[arg(short, long)]
    pid: Option<u32>,
    /// Leave these methods out; may be given several times
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Only methods whose code is in such a library, as a glob on its file name or path; may be given several times
    #[arg(long, value_name = "GLOB")]
    library: Vec<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    served: ServedArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    picture: PictureArgs,
}

const USAGE: &str = "nprof flamegraph [OPTIONS] --pid <PID> [PATTERN]...
       nprof flamegraph [OPTIONS] --from-serve [--pid <PID>|--jvm <GLOB>] [PATTERN]...
       nprof flamegraph [OPTIONS] <FILE> [PATTERN]...";

const EXAMPLES: &str = "\
Examples:
  nprof flamegraph --pid 1234 -d 10s -o flame.svg       record 10 seconds and draw them
  nprof flamegraph --pid 1234 'java.util.zip.*' -o -    to stdout, some methods only
  nprof flamegraph --pid 1234 --on-cpu -d 10s -o c.svg  native code next to all that uses the CPU
  nprof flamegraph run.nprof --weight calls -o c.svg    draw a recording, by calls
  nprof flamegraph run.nprof 'java.util.zip.*' -o z.svg some methods of it only
  nprof flamegraph run.nprof --thread 'pool-*' --threads -o t.svg
                                                        what these threads did, each in its own tower
  nprof flamegraph run.nprof --trees -o java.svg        exact Java time in it (`nprof record --tree`)
  nprof flamegraph run.nprof -o run.pb.gz               for `go tool pprof`
  nprof flamegraph --from-serve --jvm '*Shop' --last 10m -o shop.svg
                                                        what `nprof serve --profiles` knows of the last 10 minutes";

/// What a picture is made of.
#[derive(Debug)]
enum Source<'a> {
    /// A recording that was made before, and which of its methods.
    File(&'a Path, &'a [String]),
    /// A running JVM.
    Process(u32),
    /// What a service knows of a JVM, perhaps by its process id.
    Served(Option<u32>),
}

impl Source<'_> {
    /// What a picture of it is named after where nobody names it.
    fn like(&self) -> PathBuf {
        match self {
            Self::File(path, _) => path.to_path_buf(),
            Self::Process(pid) | Self::Served(Some(pid)) => PathBuf::from(pid.to_string()),
            Self::Served(None) => PathBuf::from("serve"),
        }
    }
}

impl FlamegraphArgs {
    fn source(&self) -> anyhow::Result<Source<'_>> {
        match (self.pid, &self.sources[..]) {
            (pid, _) if self.served.is_wanted() => Ok(Source::Served(pid)),
            (Some(pid), _) => Ok(Source::Process(pid)),
            (None, [_, patterns @ ..]) if patterns.iter().any(|pattern| Path::new(pattern).is_file()) => {
                bail!("one recording can be drawn at a time; `nprof diff` compares two")
            }
            (None, [file, patterns @ ..]) => Ok(Source::File(Path::new(file), patterns)),
            (None, []) => bail!("name a recording, or a JVM with --pid, or ask a service with --from-serve"),
        }
    }

    /// Whether only some native methods are to be drawn of a recording.
    fn selects(&self) -> bool {
        self.sources.len() > 1 || !self.exclude.is_empty() || !self.library.is_empty()
    }

    /// What is selected of a recording; `None` if nothing is, which has been said.
    fn selected(&self, profile: Profile, patterns: &[String]) -> anyhow::Result<Option<Profile>> {
        let (patterns, exclude, library) = (patterns.to_vec(), self.exclude.clone(), self.library.clone());
        let selected = recorded::select([profile], &SelectionArgs { patterns, exclude, library }, &self.threads)?;
        Ok(selected.map(|[profile]| profile))
    }

    /// What the picture is made of; `None` if nothing matched, which has been said.
    fn profile(&self, source: &Source<'_>, picture: &Picture, quiet: bool) -> anyhow::Result<Option<Profile>> {
        let pid = match source {
            Source::File(path, _) if !path.exists() => {
                bail!("there is no file {}; to record a running JVM, name it with --pid", path.display())
            }
            Source::File(path, patterns) => {
                return self.selected(recorded::open(path)?, patterns);
            }
            Source::Served(pid) => return self.selected(self.served.profile(*pid, quiet)?, &self.sources),
            Source::Process(pid) => *pid,
        };
        let selection = Selection::parse(&self.sources, &self.exclude, &self.library)?;
        Ok(match self.live.record(pid, selection, &self.sources, picture.needs(), quiet)? {
            Outcome::Recorded(profile) => recorded::select_threads([*profile], &self.threads)?.map(|[profile]| profile),
            Outcome::NothingMatched => None,
        })
    }
}

/// Draws the picture.
///
/// # Errors
/// If the JVM cannot be recorded, the recording cannot be read or lacks what is asked for, or the picture cannot be written.
pub(super) fn run(args: &FlamegraphArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    args.served.alone(args.live.says_how())?;
    let source = args.source()?;
    if args.picture.trees && args.selects() {
        bail!("`--trees` draws all invocations: omit what selects native methods");
    }
    let picture = args.picture.picture(&source.like())?;
    if args.live.is_on_cpu() {
        picture.suit_on_cpu()?;
    }
    // Not after minutes of recording.
    picture.destination.try_out()?;
    let Some(profile) = args.profile(&source, &picture, quiet)? else {
        return Ok(ExitCode::from(NOTHING_MATCHED));
    };
    picture.write(&profile)?;
    if !quiet && matches!(source, Source::Process(_) | Source::Served(_)) {
        tell_quality(&profile);
    }
    if let (Destination::File(path), false) = (&picture.destination, quiet) {
        say(format_args!("wrote {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
