//! What a recording says, for people: the functions as a table, and who calls them. [`json`] says the same to programs.

mod groups;
mod heaviest;
mod json;

use std::io::{self, Write};

use super::super::grid::{Screen, bold, dim};
use super::super::groups::By;
use super::super::order::Order;
use super::super::table::DIM;
use super::super::tree::ShownTrees;
use super::super::{names, notes, units};
use super::callers::{self, Caller, Callers, percent};
use super::captions::Captions;
use super::functions::{self, Open};
use super::order::in_order;
use crate::model::{FunctionTotals, Profile, ProfileFrame, ProfileMode, Weight};

pub use self::json::json;

/// How many frames of a stack are shown.
const FRAMES: usize = 24;

/// What the column of open calls is.
const OPEN: &str =
    "OPEN is the time of calls that had not returned at the end; the stacks have it too, no other column does";
/// The same where stacks are of work.
const OPEN_WORK: &str = "OPEN is the time of calls that had not returned at the end; the stacks have what threads ran of it, no other column does";
/// What the column of work is.
const ON_CPU: &str = "ON-CPU is the time that threads ran in the method itself, and so are the stacks; the rest they waited, for something or for a CPU";

/// How it is known what threads did.
const THREADS: &str = "the calls and times of each method are divided among threads as its sampled calls are, open ones included; threads of one name are one row";

/// How much a report for people shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// How many stacks of a function, the heaviest first.
    pub stacks: usize,
    /// Whether all functions are shown, and not only those that do nearly all the work.
    pub all: bool,
    /// How many functions or groups instead.
    pub top: Option<usize>,
    /// Their order.
    pub order: Order,
    /// What functions are added up by.
    pub by: Option<By>,
    /// How many trees of invocations, the slowest first.
    pub trees: usize,
    /// Whether each node of a tree has its line.
    pub whole: bool,
}

/// Writes a report. Where it leaves something out, it says so.
///
/// # Errors
/// Those of `out`.
pub fn table(profile: &Profile, extent: Extent, screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    let weight = Weight::default_of(&profile.about);
    let captions = Captions::of(profile, weight);
    if !captions.title.is_empty() {
        writeln!(out, "{}\n", bold(&captions.title, screen.ansi))?;
    }
    let weighed = callers::weighed(profile, weight, true);
    let callers = Callers::of(&weighed);
    match profile.about.mode {
        _ if let Some(by) = extent.by => of_groups(profile, by, extent, screen, out)?,
        ProfileMode::Calls => of_functions(profile, &callers, extent, screen, out)?,
        ProfileMode::OnCpu => {
            let all = callers.all();
            stacks(&all, weighed.total, extent.stacks, out)?;
        }
    }
    for note in &captions.notes {
        writeln!(out, "{note}")?;
    }
    let Some(trees) = &profile.trees else { return Ok(()) };
    writeln!(out)?;
    ShownTrees::new(&profile.about, trees, extent.trees).text(extent.whole, screen, &mut &mut *out)
}

/// One line for each group.
fn of_groups(profile: &Profile, by: By, extent: Extent, screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    let groups = groups::groups(profile, by, extent.order);
    if groups.groups.is_empty() {
        return writeln!(out, "no calls\n");
    }
    let (mut grid, rest) = groups.grid(groups::shape(profile, by), extent.top);
    grid.make_room(screen);
    for line in grid.lines(screen) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    rest.into_iter().try_for_each(|rest| writeln!(out, "{rest}"))?;
    if by == By::Thread { writeln!(out, "{THREADS}") } else { Ok(()) }
}

fn of_functions(
    profile: &Profile,
    callers: &Callers<'_>,
    extent: Extent,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let weight = Weight::default_of(&profile.about);
    let functions = in_order(profile, extent.order);
    if functions.is_empty() {
        return writeln!(out, "no calls\n");
    }
    let labels = functions::labels(&functions);
    let (open, worked) = (Open::of(profile, Weight::Time), Open::of(profile, weight));
    // What stacks have of each: work where it is known, that of calls in flight included.
    let work_ns = |function: &&FunctionTotals| worked_ns(function, weight).saturating_add(worked.ns(function));
    let works: Vec<u64> = functions.iter().map(work_ns).collect();
    let rows = match extent.top {
        _ if extent.all => functions.len(),
        Some(top) => top.min(functions.len()),
        None => heaviest::rows(&works),
    };
    let (shown, left_out) = functions.split_at(rows);
    let mut grid = functions::grid(profile, shown, &labels[..rows]);
    let removed = grid.make_room(screen);
    let only_waited = |function: &&FunctionTotals| {
        screen.ansi && functions::only_waited(profile, function) && worked.ns(function) == 0
    };
    for (place, line) in grid.lines(screen).into_iter().enumerate() {
        writeln!(out, "{}", dim(&line, place > 0 && only_waited(&shown[place - 1])))?;
    }
    writeln!(out)?;
    if shown.iter().any(only_waited) {
        writeln!(out, "{DIM}")?;
    }
    if !removed.is_empty() {
        writeln!(out, "left out, the terminal is too narrow: {}", removed.join(", "))?;
    }
    if !left_out.is_empty() {
        let calls = sum(left_out.iter().map(|function| function.all_calls()));
        let share = percent(sum(works[rows..].iter().copied()), sum(works.iter().copied()));
        let calls = notes::plural(calls, "call");
        writeln!(out, "left out: {}", rest(left_out.len(), &format!("{calls} and {share:.1} % of the time")))?;
    }
    if let Some(collected) = notes::collected(profile.about.collectors) {
        writeln!(out, "{collected}")?;
    }
    if shown.iter().any(|function| function.bytes_per_call.is_some()) {
        writeln!(out, "{}", notes::PER_CALL)?;
    }
    for line in functions::legend(shown) {
        writeln!(out, "{line}")?;
    }
    if weight == Weight::OnCpu {
        writeln!(out, "{ON_CPU}")?;
    }
    if shown.iter().any(|function| open.ns(function) > 0) {
        writeln!(out, "{}", if weight == Weight::OnCpu { OPEN_WORK } else { OPEN })?;
    }
    if extent.stacks == 0 { Ok(()) } else { sections((profile, &functions, &labels), callers, extent, screen, out) }
}

/// The stacks of each function that is to be shown.
fn sections(
    (profile, functions, labels): (&Profile, &[&FunctionTotals], &[String]),
    callers: &Callers<'_>,
    extent: Extent,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let time_ns = |function: &&FunctionTotals| sum(callers.function(function).iter().map(|caller| caller.time_ns));
    let open = Open::of(profile, Weight::default_of(&profile.about));
    let times: Vec<u64> = functions.iter().map(time_ns).collect();
    let with_time: Vec<usize> = (0..times.len()).filter(|place| times[*place] > 0).collect();
    let shown = match extent.top {
        _ if extent.all => with_time.clone(),
        Some(top) => with_time.iter().copied().filter(|place| *place < top).collect(),
        None => heaviest::heaviest(&times),
    };
    for place in &shown {
        let own: Vec<&Caller<'_>> = callers.function(functions[*place]).iter().collect();
        let heading = labels[*place].clone() + &functions::marks(&functions[*place..=*place]);
        writeln!(out, "{}{}", bold(&heading, screen.ansi), parts(times[*place], open.ns(functions[*place])))?;
        stacks(&own, times[*place], extent.stacks, out)?;
    }
    if shown.len() < with_time.len() {
        let all = sum(times.iter().copied());
        let share = percent(all.saturating_sub(sum(shown.iter().map(|place| times[*place]))), all);
        writeln!(
            out,
            "left out: stacks of {}\n",
            rest(with_time.len() - shown.len(), &format!("{share:.1} % of the time"))
        )?;
    }
    Ok(())
}

/// What a section adds up, where that is more than the calls that have ended.
fn parts(time_ns: u64, open_ns: u64) -> String {
    let (ended, open) = (units::duration(time_ns.saturating_sub(open_ns)), units::duration(open_ns));
    if open_ns == 0 { String::new() } else { format!("  {ended} in calls that have ended, {open} in open ones") }
}

fn sum(times: impl Iterator<Item = u64>) -> u64 {
    times.fold(0, u64::saturating_add)
}

/// What is not shown, and how to see it.
fn rest(methods: usize, what: &str) -> String {
    let methods = notes::plural(methods as u64, "further method");
    format!("{methods} with {what}; `--all` shows them")
}

/// The time of a function that stacks have, those of open calls aside.
fn worked_ns(function: &FunctionTotals, weight: Weight) -> u64 {
    match weight {
        Weight::OnCpu => functions::placed_ns(function, weight),
        _ => function.all_ns(function.self_ns),
    }
}

/// The first `top` of these stacks, innermost frame first, and how many there are beside them.
fn stacks(callers: &[&Caller<'_>], total: u64, top: usize, out: &mut dyn Write) -> io::Result<()> {
    for caller in callers.iter().take(top) {
        let share = percent(caller.time_ns, total);
        writeln!(out, "  {share:.1} %  {}", units::duration(caller.time_ns))?;
        for frame in caller.frames.iter().take(FRAMES) {
            writeln!(out, "    {}", label(frame))?;
        }
        match caller.frames.len().saturating_sub(FRAMES) {
            0 => {}
            more => writeln!(out, "    … {} more", units::count(more as u64))?,
        }
    }
    if let Some(rest) = callers.get(top..).filter(|rest| !rest.is_empty()) {
        let time_ns = rest.iter().map(|caller| caller.time_ns).fold(0, u64::saturating_add);
        let (share, stacks) = (percent(time_ns, total), notes::plural(rest.len() as u64, "further stack"));
        writeln!(out, "  {share:.1} %  {}  in {stacks}", units::duration(time_ns))?;
    }
    writeln!(out)
}

/// A frame as in a Java stack trace, safe to print.
pub(super) fn label(frame: &ProfileFrame) -> String {
    let mut label = match frame.kind.is_java() && !frame.scope.is_empty() {
        true => format!("{}.{}", frame.scope, frame.name),
        false => frame.name.clone(),
    };
    if let Some(line) = frame.line {
        label.push_str(&format!(":{line}"));
    }
    names::printable(&label).into_owned()
}

#[cfg(test)]
mod tests {
    use nprof_common::{Consumed, Counter};

    use super::super::recorded;
    use super::{Extent, table};
    use crate::model::{
        BytesPerCall, Collectors, FunctionTotals, Histogram, Profile, ProfileMode, ProfileStack, StackTotals, Unseen,
    };
    use crate::render::Order;
    use crate::render::grid::Screen;

    fn text(profile: &Profile, stacks: usize) -> String {
        text_with(profile, Extent { stacks, ..Extent::default() })
    }

    fn text_with(profile: &Profile, extent: Extent) -> String {
        let mut out = Vec::new();
        table(profile, extent, Screen::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check that what works comes before what waits, with stacks by work, where the two were told apart.
    #[test]
    fn work_comes_first() {
        let mut profile = recorded::profile();
        profile.about.off_cpu = true;
        profile.functions[1].off_cpu_ns = 1_900_000;
        profile.calls[0].off_cpu_ns = profile.calls[0].self_ns;
        let text = text(&profile, 1);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).take(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..4], ["CALLS", "CALLS/s", "ON-CPU", "TOTAL"], "{text}");
        assert_eq!((rows[1][2..6].to_vec(), rows[1].last()), (vec!["1.00", "ms", "1.00", "ms"], Some(&"a.N::copy")));
        assert_eq!(rows[2][2..6], ["100", "us", "3.00", "ms"], "{text}");
        assert!(text.contains("a.N::copy\n  100.0 %  1.00 ms"), "{text}");
        assert!(text.contains("a.N::read ?\n  100.0 %  100 us\n    a.N.read\n    a.M.run:3"), "{text}");
        assert!(text.contains("1.90 ms of it waiting (63.3 %)"), "{text}");
        profile.functions[1].off_cpu_ns = 1_950_000;
        let mut out = Vec::new();
        table(&profile, Extent::default(), Screen { ansi: true, columns: None }, &mut out).unwrap();
        let on_terminal = String::from_utf8(out).unwrap();
        let dim: Vec<&str> = on_terminal.lines().filter(|line| line.starts_with("\u{1b}[2m")).collect();
        assert!(dim.len() == 1 && dim[0].contains("a.N::read") && on_terminal.contains("\ndim: "), "{on_terminal}");
    }

    /// Check that what was collected has columns, `-` where it is not known, and is explained.
    #[test]
    fn collected() {
        let mut profile = recorded::profile();
        profile.about.collectors = Collectors::named(&["io"]).unwrap();
        let consumed = Consumed { own: [3 << 20; nprof_common::COUNTERS], total: [0; nprof_common::COUNTERS] };
        profile.functions[1].consumed = Some(Box::new(consumed));
        let text = text(&profile, 0);
        assert!(text.contains("    READ   WRITTEN  LIBRARY"), "{text}");
        assert!(text.contains("3.00 MiB  3.00 MiB  liba.so  a.N::read ?"), "{text}");
        assert!(text.contains("       -         -  liba.so  a.N::copy"), "{text}");
        assert!(text.contains("READ, WRITTEN: what the timed calls consumed"), "{text}");
    }

    /// Check that it is shown how many bytes each call had, where that was recorded, and what the quantiles are of.
    #[test]
    fn bytes_per_call() {
        let mut profile = recorded::profile();
        profile.about.collectors = Collectors::named(&["io"]).unwrap();
        let mut consumed = Consumed::default();
        consumed.total[Counter::ReadBytes as usize] = 5_000;
        for function in &mut profile.functions {
            (function.consumed, function.bytes_per_call) = (Some(Box::new(consumed)), Some(Vec::new()));
        }
        let histogram = Histogram { buckets: vec![(40, 10), (48, 1)] };
        let read = BytesPerCall { counter: Counter::ReadBytes, max: 4_000, histogram };
        profile.functions[1].bytes_per_call = Some(vec![read]);
        let text = text(&profile, 0);
        let cells = |method: &str| {
            let row = text.lines().find(|line| line.contains(method)).unwrap();
            row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        let header = cells("METHOD");
        let of = |row: &[String], title: &str| row[header.iter().position(|cell| cell == title).unwrap()].clone();
        let [read, copy] = ["a.N::read", "a.N::copy"].map(cells);
        // 11 of its 19 timed calls have read; of the others' bytes there was no room for any.
        assert_eq!([of(&read, "READ ~P50"), of(&read, "READ ~P99")], ["940 B", "3.62 KiB"], "{text}");
        assert_eq!([of(&copy, "READ ~P50"), of(&copy, "WRITTEN ~P99")], ["-", "0 B"], "{text}");
        assert!(text.contains(crate::render::notes::PER_CALL), "{text}");
    }

    /// Check that rows and stacks are in the order that is asked for.
    #[test]
    fn in_another_order() {
        let text = text_with(&recorded::profile(), Extent { stacks: 1, order: Order::Method, ..Extent::default() });
        let names: Vec<&str> = text.lines().filter(|line| line.contains("liba.so")).collect();
        assert!(names[0].ends_with("a.N::copy") && names[1].ends_with("a.N::read ?"), "{text}");
        assert!(text.find("\na.N::copy\n") < text.find("\na.N::read ?\n"), "{text}");
    }

    /// Check that the rate of a function that was bound late is since then, and that it is marked.
    #[test]
    fn late_functions_are_marked() {
        let mut profile = recorded::profile();
        profile.functions[0].traced_after_ns = 8_000_000_000;
        let text = text(&profile, 0);
        let row = text.lines().find(|line| line.ends_with("a.N::copy +")).unwrap();
        assert_eq!(row.split_whitespace().take(2).collect::<Vec<_>>(), ["10", "5.00"], "{text}");
        assert!(text.contains("\n+ traced from a later moment on"), "{text}");
    }

    /// Check the whole report: the functions by time, and of each its heaviest stacks with their share of it.
    #[test]
    fn functions_and_their_callers() {
        let text = text(&recorded::profile(), 1);
        let expected = "\
CALLS  CALLS/s    TOTAL     SELF     AVG     MAX  LIBRARY  METHOD
   20     2.00  3.00 ms  2.00 ms  158 us  500 us  liba.so  a.N::read ?
   10     1.00  1.00 ms  1.00 ms  100 us  200 us  liba.so  a.N::copy

? some of its calls are counted but not timed, because their end was not seen
a.N::read ?
  75.0 %  1.50 ms
    a.N.read
    a.M.run:2
    a.M.main:1
  25.0 %  500 us  in 1 further stack

a.N::copy
  100.0 %  1.00 ms
    a.N.copy
    a.N.read
    a.M.run:2
    a.M.main:1
";
        assert!(text.contains(expected.trim_end()), "{text}");
    }

    /// Check that the time of open calls stands beside that of ended ones, and that both are what the stacks add up to.
    #[test]
    fn open_calls_are_told_apart() {
        let mut profile = recorded::profile();
        profile.functions[1].in_flight = 1;
        profile.open = vec![StackTotals { time_ns: 4e6, self_ns: 4e6, samples: 1, ..profile.calls[1] }];
        let text = text(&profile, 9);
        let row = text.lines().find(|line| line.ends_with("a.N::read ?")).unwrap();
        assert!(row.contains("3.00 ms  2.00 ms") && row.contains("4.00 ms"), "{text}");
        assert!(text.contains("OPEN is the time of calls that had not returned"), "{text}");
        assert!(text.contains("a.N::read ?  2.00 ms in calls that have ended, 4.00 ms in open ones\n"), "{text}");
        assert!(text.contains("  75.0 %  4.50 ms\n") && text.contains("  25.0 %  1.50 ms\n"), "{text}");
        assert!(text.contains("1 call, 4.00 ms in it until then"), "{text}");
    }

    /// Check that functions whose probe is single-stepped are marked in the table, above their stacks, and explained.
    #[test]
    fn single_stepped_functions_are_marked() {
        let mut profile = recorded::profile();
        profile.functions[0].single_stepped = true;
        let text = text(&profile, 1);
        assert_eq!(text.lines().filter(|line| line.ends_with("a.N::copy !")).count(), 2, "{text}");
        assert!(
            text.contains("\n! the kernel single-steps an instruction of it: a call costs about ten times"),
            "{text}"
        );
        assert!(text.contains("as much as others do: a.N.copy."), "{text}");
    }

    /// Check that a function that was too expensive to watch stands in its place by what is estimated, marked, with its share of
    /// the picture.
    #[test]
    fn estimates_are_marked() {
        let mut profile = recorded::profile();
        profile.functions[0].unseen = Some(Unseen {
            calls: 990,
            error_calls: 100,
            total_ns: 99_000_000,
            error_ns: Some(5_000_000),
            ..Unseen::default()
        });
        let text = text(&profile, 1);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.contains("liba.so"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0][..5], ["1,000", "±", "10.0", "%", "100"], "{text}");
        assert_eq!(rows[0][5..12], ["100", "ms", "±", "5.00", "%", "100", "ms"], "{text}");
        assert_eq!(rows[0][rows[0].len() - 2..], ["a.N::copy", "≈"], "{text}");
        assert!(rows[1].ends_with(&["a.N::read", "?"]), "{text}");
        assert!(
            text.contains("\n≈ too expensive to watch all the time") && text.contains("[estimated: too expensive"),
            "{text}"
        );
    }

    /// Check that of a function that looks have never seen called it is said how often it was called at most.
    #[test]
    fn next_to_nothing_is_a_bound() {
        let mut profile = recorded::profile();
        let unseen = Some(Unseen { calls: 0, error_calls: 1_200, ..Unseen::default() });
        profile.functions.push(FunctionTotals { method: "quiet".to_owned(), unseen, ..FunctionTotals::default() });
        let text = text(&profile, 0);
        let row = text.lines().find(|line| line.ends_with("quiet ≈")).unwrap();
        assert_eq!(row.split_whitespace().take(2).collect::<Vec<_>>(), ["<1,200", "<120"], "{text}");
        assert!(!text.contains("±"), "{text}");
    }

    /// Check that without stacks the table stands alone, and that a recording without calls says so.
    #[test]
    fn no_stacks_and_no_calls() {
        assert!(!text(&recorded::profile(), 0).contains(" %  "));
        assert!(text(&Profile::default(), 3).contains("no calls"));
    }

    /// Check that of many functions those are shown that take most of the time, that the rest is counted, and that all can
    /// be had.
    #[test]
    fn many_functions() {
        let mut profile = recorded::profile();
        let samples = std::mem::take(&mut profile.calls);
        for number in 0..40_u32 {
            let mut function = profile.functions[1].clone();
            (function.method, function.total_ns) = (format!("m{number}"), 1_000);
            (function.self_ns, function.untimed) = (1_000, 0);
            let mut frame = profile.frames[3].clone();
            frame.name.clone_from(&function.method);
            let at = [profile.frames.len(), profile.stacks.len(), profile.functions.len()];
            let [frame_at, stack, of] = at.map(|at| u32::try_from(at).unwrap());
            profile.frames.push(frame);
            profile.stacks.push(ProfileStack { frames: vec![frame_at, 0], cut: None });
            profile.functions.push(function);
            profile.calls.push(StackTotals { stack, function: Some(of), ..samples[0] });
        }
        profile.calls.extend(samples);
        let short = text(&profile, 1);
        let rows = |text: &str| text.lines().filter(|line| line.contains("liba.so")).count();
        let sections = |text: &str| text.lines().filter(|line| line.starts_with("a.N::")).count();
        assert_eq!((rows(&short), sections(&short)), (12, 2), "{short}");
        // 30 of 42 with 1 us each, of 3.04 ms; and 40 of them.
        let rest = "left out: 30 further methods with 600 calls and 1.0 % of the time; `--all` shows them";
        assert!(short.contains(rest), "{short}");
        let top = text_with(&profile, Extent { stacks: 1, top: Some(1), order: Order::Calls, ..Extent::default() });
        assert_eq!((rows(&top), sections(&top)), (1, 1), "{top}");
        assert!(short.contains("left out: stacks of 40 further methods with 1.3 % of the time; `--all`"), "{short}");
        let long = text_with(&profile, Extent { stacks: 1, all: true, ..Extent::default() });
        assert_eq!((rows(&long), sections(&long), long.contains("left out")), (42, 42, false), "{long}");
    }

    /// Check that a recording by timer shows its stacks without functions.
    #[test]
    fn samples_by_timer() {
        let mut profile = recorded::profile();
        profile.about.mode = ProfileMode::OnCpu;
        profile.inside = std::mem::take(&mut profile.calls);
        profile.functions.clear();
        let text = text(&profile, 9);
        assert!(text.contains(" %  ") && text.contains("    a.M.main:1"), "{text}");
    }
}
