//! What users say about a picture: where to, in which format, of what. Shared by all commands that make one.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};

use super::live::Needs;
use super::save::Destination;
use crate::aggregate::{Detail, weigh, weigh_all, weigh_trees, weigh_trees_all};
use crate::model::{About, Profile, ProfileMode, RecordedTrees, Weighed, Weight};
use crate::recording;
use crate::render::profile::captions::Captions;
use crate::render::profile::{chrome, folded, pprof, speedscope, svg};
use crate::render::tree::ShownTrees;

/// The options of a picture.
#[derive(Debug, Clone, Args)]
pub(super) struct PictureArgs {
    /// The file to write, `-` for stdout; an existing one is replaced when the new one is complete [default: stdout if it
    /// is no terminal, else FILE or PID with the ending of the format]
    #[arg(short, long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
    /// The format [default: by the ending of PATH, else svg]
    #[arg(short, long, value_enum)]
    pub(super) format: Option<PictureFormat>,
    /// What the widths stand for [default: on-cpu, or time where waiting was not told from work]
    #[arg(short, long, value_enum)]
    pub(super) weight: Option<WeightArg>,
    /// Tell apart the source lines of a method that calls were made from
    #[arg(long)]
    pub(super) lines: bool,
    /// Also show frames that the JVM leaves out of its own stack traces
    #[arg(long)]
    pub(super) hidden_frames: bool,
    /// Draw the name of the thread below each stack; threads of one name together
    #[arg(id = "thread_frames", long = "threads")]
    pub(super) threads: bool,
    /// Draw the invocations that the recording holds (`nprof record --tree`) instead of native methods: exact times of Java methods and of
    /// what they call, by wall-clock time unless --weight says otherwise
    #[arg(long, conflicts_with_all = ["pid", "lines", "hidden_frames", "thread_frames", "threads", "from_serve"])]
    pub(super) trees: bool,
}

/// The formats of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PictureFormat {
    /// A flame graph for browsers (.svg)
    Svg,
    /// A line per stack, for scripts (.folded)
    Folded,
    /// For `go tool pprof` and its relatives (.pb.gz, .pprof)
    Pprof,
    /// For speedscope.app (.speedscope.json, .json)
    Speedscope,
    /// The timeline of calls, for ui.perfetto.dev (.trace.json)
    Chrome,
    /// The recording itself (.nprof)
    Nprof,
}

impl PictureFormat {
    /// The endings of file names; of two that fit, the earlier counts.
    const ENDINGS: [(&str, Self); 8] = [
        (".svg", Self::Svg),
        (".folded", Self::Folded),
        (".pb.gz", Self::Pprof),
        (".pprof", Self::Pprof),
        (".speedscope.json", Self::Speedscope),
        (".trace.json", Self::Chrome),
        (".json", Self::Speedscope),
        (".nprof", Self::Nprof),
    ];

    /// The format that a file's name asks for.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let known = Self::ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
        known.map(|(_, format)| *format).ok_or_else(|| {
            let endings: Vec<&str> = Self::ENDINGS.iter().map(|(ending, _)| *ending).collect();
            anyhow!(
                "the ending of {} names no format: use one of {}, or say --format",
                path.display(),
                endings.join(" ")
            )
        })
    }

    fn ending(self) -> &'static str {
        Self::ENDINGS.iter().find(|(_, format)| *format == self).map_or("", |(ending, _)| ending)
    }

    fn is_text(self) -> bool {
        !matches!(self, Self::Pprof | Self::Nprof)
    }
}

/// What widths stand for, as users say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WeightArg {
    /// Time that threads ran in native methods: work
    OnCpu,
    /// Wall-clock time in native methods, waiting included; nested ones stand above those that led to them
    Time,
    /// Number of calls
    Calls,
    /// Wall-clock time of each native method alone; nested ones stand on their own
    #[value(name = "self")]
    SelfTime,
    /// Time that threads spent in native methods without running: waiting
    OffCpu,
}

impl From<WeightArg> for Weight {
    fn from(weight: WeightArg) -> Self {
        match weight {
            WeightArg::OnCpu => Self::OnCpu,
            WeightArg::Time => Self::Time,
            WeightArg::Calls => Self::Calls,
            WeightArg::SelfTime => Self::SelfTime,
            WeightArg::OffCpu => Self::OffCpu,
        }
    }
}

/// A picture that can be made: format and place are known to be possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) format: PictureFormat,
    pub(super) destination: Destination,
    /// What the user asks for.
    weight: Option<Weight>,
    detail: Detail,
    /// Whether it is of trees of invocations.
    is_of_trees: bool,
}

impl PictureArgs {
    /// Settles format and place. `like` is what the picture is of: without `--output` it lends its name.
    ///
    /// # Errors
    /// If the name of the file says no format, or is a directory's.
    pub(super) fn picture(&self, like: &Path) -> anyhow::Result<Picture> {
        self.picture_for(like, io::stdout().is_terminal())
    }

    fn picture_for(&self, like: &Path, is_terminal: bool) -> anyhow::Result<Picture> {
        let destination = match &self.output {
            Some(path) => Destination::of(path)?,
            None if is_terminal => {
                let format = self.format.unwrap_or(PictureFormat::Svg);
                Destination::of(&like.with_extension(format.ending().trim_start_matches('.')))?
            }
            None => Destination::Stdout,
        };
        let format = match (self.format, &destination) {
            (Some(format), _) => format,
            (None, Destination::File(path)) => PictureFormat::of(path)?,
            (None, Destination::Stdout) => PictureFormat::Svg,
        };
        if !format.is_text() {
            destination.spare_terminal()?;
        }
        if destination == Destination::File(like.to_path_buf()) {
            bail!("{} is the recording itself: name another file with --output", like.display());
        }
        let detail = Detail { lines: self.lines, hidden: self.hidden_frames, threads: self.threads };
        Ok(Picture { format, destination, weight: self.weight.map(Weight::from), detail, is_of_trees: self.trees })
    }
}

impl Picture {
    /// What has to be recorded for it.
    pub(super) fn needs(&self) -> Needs {
        let off_cpu = matches!(self.weight, Some(Weight::OnCpu | Weight::OffCpu));
        Needs { off_cpu, timeline: self.format == PictureFormat::Chrome, ..Needs::default() }
    }

    /// Finds out, before anything is recorded, whether samples of the CPU can give what is asked for.
    ///
    /// # Errors
    /// If they cannot.
    pub(super) fn suit_on_cpu(&self) -> anyhow::Result<()> {
        if self.format == PictureFormat::Chrome {
            bail!("`--on-cpu` sees no calls, and so makes no timeline of them: choose another format");
        }
        if matches!(self.weight, Some(Weight::Calls | Weight::OffCpu)) {
            bail!("`--on-cpu` sees no calls, only use of the CPU: omit --weight");
        }
        Ok(())
    }

    /// Makes the picture of a recording.
    ///
    /// # Errors
    /// If the recording lacks what is asked for, or the picture cannot be written.
    pub(super) fn write(&self, profile: &Profile) -> anyhow::Result<()> {
        let trees = self.is_of_trees.then(|| trees_of(profile)).transpose()?;
        match self.format {
            PictureFormat::Svg => {
                let captions = match trees {
                    Some(trees) => captions_of(&profile.about, trees),
                    None => Captions::of_picture(profile, self.weight_of(profile)),
                };
                let weighed = self.weighed(profile)?;
                self.save(|out| svg::write(&weighed, &captions, out))
            }
            PictureFormat::Folded => {
                let weighed = self.weighed(profile)?;
                self.save(|out| folded::write(&weighed, out))
            }
            PictureFormat::Pprof => {
                let columns = self.columns(profile)?;
                self.save(|out| pprof::write(&self.about(profile), &columns, out))
            }
            PictureFormat::Speedscope => {
                let mut columns = self.columns(profile)?;
                // The first is shown first.
                columns.sort_by_key(|(weight, _)| *weight != self.weight_of(profile));
                self.save(|out| speedscope::write(&self.about(profile), &columns, out))
            }
            PictureFormat::Chrome if trees.is_some() => {
                bail!("recordings do not keep the single calls of trees: `nprof tree --format perfetto` writes them")
            }
            PictureFormat::Chrome if profile.timeline.is_empty() => bail!(no_timeline(profile)),
            PictureFormat::Chrome => self.save(|out| chrome::write(profile, out)),
            PictureFormat::Nprof => self.save(|out| recording::write(profile, out)),
        }
    }

    fn save(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        self.destination.save(content)
    }

    /// What formats are told that ask what was measured. Trees are of calls, whatever else was recorded.
    fn about(&self, profile: &Profile) -> About {
        let about = profile.about.clone();
        if self.is_of_trees { About { mode: ProfileMode::Calls, off_cpu: false, ..about } } else { about }
    }

    fn weight_of(&self, profile: &Profile) -> Weight {
        // Trees are of what takes long, and so is what `nprof tree` draws.
        let usual = || if self.is_of_trees { Weight::Time } else { Weight::default_of(&profile.about) };
        self.weight.unwrap_or_else(usual)
    }

    fn weighed(&self, profile: &Profile) -> anyhow::Result<Weighed> {
        let weight = self.weight_of(profile);
        if self.is_of_trees {
            let trees = trees_of(profile)?;
            return Ok(weigh_trees(&trees.totals, &trees.methods, weight)?);
        }
        Ok(weigh(profile, weight, self.detail)?)
    }

    /// Everything that the recording can be weighed by, for formats that hold more than one number per stack.
    fn columns(&self, profile: &Profile) -> anyhow::Result<Vec<(Weight, Weighed)>> {
        // The one that is asked for has to be there.
        self.weighed(profile)?;
        if self.is_of_trees {
            let trees = trees_of(profile)?;
            return Ok(weigh_trees_all(&trees.totals, &trees.methods));
        }
        let time = if self.weight == Some(Weight::SelfTime) { Weight::SelfTime } else { Weight::Time };
        Ok(weigh_all(profile, time, self.detail)?)
    }
}

/// The trees that a recording holds.
///
/// # Errors
/// If there are none.
pub(super) fn trees_of(profile: &Profile) -> anyhow::Result<&RecordedTrees> {
    let trees = profile.trees.as_deref();
    trees.ok_or_else(|| anyhow!("the recording holds no trees of invocations: record again with `--tree ENTRY`"))
}

fn captions_of(about: &About, trees: &RecordedTrees) -> Captions {
    let (title, notes) = ShownTrees::new(about, trees, 0).captions();
    Captions { title, notes }
}

/// Why there is no timeline, and what to do about it.
fn no_timeline(profile: &Profile) -> &'static str {
    let nothing_returned = profile.functions.iter().all(|function| function.calls == 0);
    if nothing_returned && profile.about.mode == ProfileMode::Calls {
        "there is no timeline to draw: no call of a traced native method ended during the recording"
    } else {
        "the recording holds no timeline of calls: record again with `--timeline`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FunctionTotals;

    fn args(output: Option<&str>, format: Option<PictureFormat>) -> PictureArgs {
        let output = output.map(PathBuf::from);
        PictureArgs { output, format, weight: None, lines: false, hidden_frames: false, threads: false, trees: false }
    }

    fn profile() -> Profile {
        let function = FunctionTotals { calls: 3, self_ns: 7, ..FunctionTotals::default() };
        Profile { functions: vec![function], ..Profile::default() }
    }

    /// Check the format that each ending asks for, and that an unknown one lists those that are known.
    #[test]
    fn endings_name_formats() {
        let of = |name: &str| PictureFormat::of(Path::new(name));
        for (name, format) in [
            ("a.svg", PictureFormat::Svg),
            ("dir.svg/A.FOLDED", PictureFormat::Folded),
            ("a.b.pb.gz", PictureFormat::Pprof),
            ("a.speedscope.json", PictureFormat::Speedscope),
            ("a.json", PictureFormat::Speedscope),
            ("a.trace.json", PictureFormat::Chrome),
            ("a.nprof", PictureFormat::Nprof),
        ] {
            assert_eq!(of(name).unwrap(), format, "{name}");
        }
        let error = of("flame.png").unwrap_err().to_string();
        assert!(error.contains("flame.png") && error.contains(".svg .folded .pb.gz"), "{error}");
    }

    /// Check where a picture goes and in which format, for each way to say it.
    #[test]
    fn place_and_format() {
        let like = Path::new("dir/run.nprof");
        let file = |path: &str| Destination::File(PathBuf::from(path));
        for (output, format, is_terminal, expected) in [
            (None, None, true, (PictureFormat::Svg, file("dir/run.svg"))),
            (None, None, false, (PictureFormat::Svg, Destination::Stdout)),
            (None, Some(PictureFormat::Pprof), true, (PictureFormat::Pprof, file("dir/run.pb.gz"))),
            (Some("x.folded"), None, true, (PictureFormat::Folded, file("x.folded"))),
            (Some("x.png"), Some(PictureFormat::Svg), false, (PictureFormat::Svg, file("x.png"))),
            (Some("-"), Some(PictureFormat::Folded), false, (PictureFormat::Folded, Destination::Stdout)),
        ] {
            let picture = args(output, format).picture_for(like, is_terminal).unwrap();
            assert_eq!((picture.format, picture.destination), expected, "{output:?} {format:?}");
        }
        assert!(args(Some("x.png"), None).picture_for(like, false).is_err());
        let error = args(None, Some(PictureFormat::Nprof)).picture_for(like, true).unwrap_err();
        assert!(error.to_string().contains("is the recording itself"), "{error}");
    }

    /// Check that what the recording does not hold is refused before a file is touched, with what to do about it.
    #[test]
    fn missing_data_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (format, weight, advice) in [
            (PictureFormat::Chrome, None, "--timeline"),
            (PictureFormat::Folded, Some(WeightArg::OnCpu), "--no-off-cpu"),
            (PictureFormat::Pprof, Some(WeightArg::OffCpu), "--no-off-cpu"),
        ] {
            let output = Some(directory.path().join("out"));
            let args = PictureArgs { output, weight, ..args(None, Some(format)) };
            let error = args.picture(Path::new("run.nprof")).unwrap().write(&profile()).unwrap_err();
            assert!(error.to_string().contains(advice), "{error}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// Check that what samples of the CPU cannot give is refused before they are taken.
    #[test]
    fn weights_and_formats_of_calls_do_not_suit_the_cpu() {
        let suits = |format, weight| {
            let args = PictureArgs { weight: Some(weight), ..args(Some("-"), Some(format)) };
            args.picture_for(Path::new("1"), false).unwrap().suit_on_cpu().is_ok()
        };
        assert!(suits(PictureFormat::Svg, WeightArg::Time) && suits(PictureFormat::Folded, WeightArg::SelfTime));
        assert!(!suits(PictureFormat::Chrome, WeightArg::Time) && !suits(PictureFormat::Svg, WeightArg::Calls));
        assert!(!suits(PictureFormat::Pprof, WeightArg::OffCpu));
    }

    /// Check that nobody is sent to record again with what was not missing.
    #[test]
    fn timeline_without_calls() {
        let quiet = Profile::default();
        assert!(no_timeline(&quiet).contains("no call") && no_timeline(&profile()).contains("`--timeline`"));
        let about = About { mode: ProfileMode::OnCpu, ..About::default() };
        assert!(no_timeline(&Profile { about, ..Profile::default() }).contains("`--timeline`"));
    }

    /// Check that a recording written as a picture is the recording.
    #[test]
    fn recording_is_a_format() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("copy.nprof");
        let args = PictureArgs { output: Some(path.clone()), ..args(None, None) };
        args.picture(Path::new("run.nprof")).unwrap().write(&profile()).unwrap();
        assert_eq!(super::super::recorded::open(&path).unwrap(), profile());
    }
}
