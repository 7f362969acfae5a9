//! Flame graphs in a real browser: a click zooms, a search finds, the pointer is told what it is on, and nothing is fetched.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nprof::model::{
    About, CutReason, FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileStack, Quality, Unit, Weighed,
    WeighedStack, Weight,
};
use nprof::render::profile::captions::Captions;
use nprof::render::profile::svg;
use nprof_tests::browser::Browser;
use nprof_tests::require::with_browser;
use serde_json::Value;
use tempfile::TempDir;

/// The box that most tests look at.
const DEFLATE: &str = "java.util.zip.Deflater.deflateBytesBytes";

/// A page with a flame graph. Pictures of it go to `NPROF_SCREENSHOTS`, if that is set, or away with the page.
struct Page {
    browser: Browser,
    directory: TempDir,
}

impl Page {
    fn open(weighed: &Weighed, captions: &Captions, (width, height): (u32, u32)) -> Result<Self> {
        let directory = TempDir::new()?;
        let file = directory.path().join("flame.svg");
        svg::write(weighed, captions, &mut std::fs::File::create(&file)?)?;
        let mut browser = Browser::start(width, height)?;
        browser.open(&file)?;
        Ok(Self { browser, directory })
    }

    fn screenshot(&mut self, name: &str) -> Result<()> {
        let kept = std::env::var_os("NPROF_SCREENSHOTS").map(PathBuf::from);
        let directory = kept.unwrap_or_else(|| self.directory.path().to_owned());
        self.browser.screenshot(&directory.join(format!("{name}.png")))
    }

    /// The text of the element with this id; empty if it is not shown.
    fn text(&mut self, id: &str) -> Result<String> {
        let element = format!("document.getElementById('{id}')");
        let shown = format!("getComputedStyle({element}).display === 'none' ? '' : {element}.textContent");
        let text = self.browser.evaluate(&shown)?;
        Ok(text.as_str().context("a text")?.trim().to_owned())
    }

    /// The widest box whose tooltip begins with `name`: place and size on the screen, and more.
    fn frame(&mut self, name: &str) -> Result<Frame> {
        let found = self.browser.evaluate(&format!(
            "(() => {{
                const starts = g => g.querySelector('title').textContent.startsWith('{name}');
                const width = g => g.querySelector('rect').getBoundingClientRect().width;
                const all = [...document.getElementById('frames').children].filter(starts);
                const g = all.sort((a, b) => width(b) - width(a))[0];
                const rect = g.querySelector('rect'), r = rect.getBoundingClientRect();
                const shown = getComputedStyle(g).display !== 'none';
                return {{ x: r.x, y: r.y, width: r.width, height: r.height, shown,
                    fill: rect.getAttribute('fill'), text: g.querySelector('text').textContent }};
            }})()"
        ))?;
        Frame::of(&found).with_context(|| format!("{name}: {found}"))
    }

    /// Nothing was complained about, nothing was fetched but the file itself.
    fn must_be_quiet(&self) -> Result<()> {
        let complaints = self.browser.complaints();
        ensure!(complaints.is_empty(), "{complaints:#?}");
        let foreign: Vec<_> = self.browser.requests().iter().filter(|url| !url.contains("/flame.svg")).collect();
        ensure!(foreign.is_empty(), "{foreign:#?}");
        ensure!(!self.browser.requests().is_empty(), "the file itself was not seen");
        Ok(())
    }
}

/// A box on the screen.
#[derive(Debug)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    shown: bool,
    fill: String,
    text: String,
}

impl Frame {
    fn of(value: &Value) -> Option<Self> {
        let number = |name: &str| value[name].as_f64();
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Self {
            left: number("x")?,
            top: number("y")?,
            width: number("width")?,
            height: number("height")?,
            shown: value["shown"].as_bool()?,
            fill: text("fill")?,
            text: text("text")?,
        })
    }

    fn centre(&self) -> (f64, f64) {
        (self.left + self.width / 2.0, self.top + self.height / 2.0)
    }
}

fn frame(kind: ProfileFrameKind, scope: &str, name: &str) -> ProfileFrame {
    let (scope, name) = (scope.to_owned(), name.to_owned());
    let (signature, library) = (String::new(), String::new());
    ProfileFrame { kind, scope, name, signature, line: None, hidden: false, library }
}

/// What a web application that compresses and waits looks like: frames of each kind.
fn weighed() -> Weighed {
    use ProfileFrameKind::{C1, C2, Inlined, Interpreted, Marker, Native, NativeInlined, NativeMethod, Vm};
    let frames = vec![
        frame(Interpreted, "java.lang.Thread", "run"),
        frame(Interpreted, "com.acme.orders.Server", "lambda$main$0"),
        frame(C1, "com.acme.orders.Handler$Größe", "<init>"),
        frame(C2, "com.acme.orders.Responses", "compress"),
        frame(Inlined, "java.util.zip.Deflater", "deflate"),
        frame(NativeMethod, "java.util.zip.Deflater", "deflateBytesBytes"),
        frame(Native, "libz.so.1", "deflate"),
        frame(NativeInlined, "libz.so.1", "longest_match"),
        frame(Vm, "libjvm.so", "SafepointMechanism::process(JavaThread*, bool)"),
        frame(Marker, "", "[the stack is too deep]"),
        frame(C2, "com.acme.orders.Store", "commit"),
        frame(NativeMethod, "sun.nio.ch.FileDispatcherImpl", "force0"),
        frame(NativeMethod, "java.net.SocketInputStream", "socketRead0"),
        frame(Native, "libc.so.6", "read"),
    ];
    let stack =
        |frames: &[u32], ms: u64, samples| WeighedStack { frames: frames.to_vec(), value: ms * 1_000_000, samples };
    let stacks = vec![
        stack(&[0, 1, 2, 3, 4, 5], 120, 98),
        stack(&[0, 1, 2, 3, 4, 5, 6], 400, 410),
        stack(&[0, 1, 2, 3, 4, 5, 6, 7], 530, 512),
        stack(&[0, 1, 2, 3, 4, 5, 8], 60, 21),
        stack(&[0, 1, 10, 11], 700, 345),
        stack(&[0, 1, 10, 12, 13], 250, 99),
        stack(&[9, 3, 4, 5], 40, 12),
        stack(&[0, 1, 12], 400, 0),
    ];
    let total = stacks.iter().map(|stack| stack.value).sum();
    Weighed { unit: Unit::Nanoseconds, frames, stacks, total }
}

fn captions() -> Captions {
    let function = FunctionTotals { calls: 41_152, self_ns: 833_333_333, in_flight: 1, ..FunctionTotals::default() };
    Captions::of(
        &Profile {
            about: About {
                nprof: "0.1.0".to_owned(),
                elapsed: std::time::Duration::from_secs(10),
                pid: 1234,
                main: "com.acme.orders.Server".to_owned(),
                vm: "OpenJDK 64-Bit Server VM 25.0.1+8-LTS".to_owned(),
                kernel: "6.18.5".to_owned(),
                host: "web-1".to_owned(),
                patterns: vec!["java.util.zip.*".to_owned(), "sun.nio.**::*".to_owned()],
                max_stacks: 1000,
                ..About::default()
            },
            functions: vec![function.clone(), function.clone(), function],
            stacks: vec![ProfileStack { frames: Vec::new(), cut: Some(CutReason::TooDeep) }],
            quality: Quality {
                stacks: 1497,
                complete: 1485,
                cut: vec![("the stack is too deep".to_owned(), 12)],
                losses: vec![("unreturned".to_owned(), 2)],
                skipped: vec![("not bound yet".to_owned(), 812), ("generated code".to_owned(), 3)],
                ..Quality::default()
            },
            ..Profile::default()
        },
        Weight::Time,
    )
}

/// Check that a click makes a box as wide as the page and hides the others, and that the whole comes back.
#[test]
fn click_zooms() -> Result<()> {
    with_browser(|| {
        let mut page = Page::open(&weighed(), &captions(), (1400, 500))?;
        page.screenshot("whole")?;
        let before = page.frame(DEFLATE)?;
        ensure!(page.text("unzoom")?.is_empty(), "nothing to reset yet");
        page.browser.click(before.centre())?;
        page.screenshot("zoomed")?;
        let zoomed = page.frame(DEFLATE)?;
        ensure!(zoomed.width > 1300.0 && zoomed.width > before.width * 1.5, "{before:?} {zoomed:?}");
        ensure!(zoomed.text.trim() == DEFLATE, "{zoomed:?}");
        ensure!(!page.frame("sun.nio.ch.FileDispatcherImpl.force0")?.shown, "others are hidden");
        ensure!(page.text("unzoom")? == "Reset Zoom", "{:?}", page.text("unzoom")?);
        let button = Frame::of(&page.browser.evaluate(BUTTON)?).context("the button")?;
        page.browser.click(button.centre())?;
        let after = page.frame(DEFLATE)?;
        ensure!((after.width - before.width).abs() < 0.5, "{before:?} {after:?}");
        ensure!(page.text("unzoom")?.is_empty(), "nothing to reset any more");
        page.must_be_quiet()
    })
}

/// The place of the button that shows the whole again.
const BUTTON: &str = "(() => { const r = document.getElementById('unzoom').getBoundingClientRect();
    return { x: r.x, y: r.y, width: r.width, height: r.height, shown: true, fill: '', text: '' }; })()";

/// Check that what is searched for is coloured and that its part of the whole is shown, by name and by library.
#[test]
fn search_finds() -> Result<()> {
    with_browser(|| {
        let mut page = Page::open(&weighed(), &captions(), (1400, 500))?;
        for (term, share, found) in [("[Dd]eflate", "46.0%", "deflate ("), ("libc\\.so", "10.0%", "read (")] {
            let before = page.frame(found)?.fill;
            page.browser.answer_with(term);
            page.browser.press_ctrl_f()?;
            ensure!(page.text("matched")? == format!("Matched: {share}"), "{term}: {}", page.text("matched")?);
            ensure!(page.frame(found)?.fill != before, "{term}: not coloured");
            page.screenshot("searched")?;
            // Again takes it back.
            page.browser.press_ctrl_f()?;
            ensure!(page.frame(found)?.fill == before, "{term}: still coloured");
            ensure!(page.text("matched")?.is_empty());
        }
        page.must_be_quiet()
    })
}

/// Check that the line below tells of the box under the pointer, and that title, notes and legend stand there.
#[test]
fn pointer_is_told() -> Result<()> {
    with_browser(|| {
        let mut page = Page::open(&weighed(), &captions(), (1400, 500))?;
        let centre = page.frame(DEFLATE)?.centre();
        page.browser.point_at(centre)?;
        let details = page.text("details")?;
        ensure!(details == format!("{DEFLATE} (native method, 1.11 s, 44.4 %, 1,041 samples)"), "{details}");
        page.screenshot("pointed")?;
        page.browser.point_at((2.0, 2.0))?;
        ensure!(page.text("details")?.is_empty());
        ensure!(page.text("title")? == "Native time of com.acme.orders.Server (pid 1234), 10.0 s");
        let texts = page
            .browser
            .evaluate("[...document.querySelectorAll('.note, .legend tspan')].map(t => t.textContent).join('|')")?;
        let texts = texts.as_str().context("texts")?;
        for expected in
            ["Exact: 123,456 calls of 3 native methods", "|native method|", "|Java, interpreted|", "no code"]
        {
            ensure!(texts.contains(expected), "{expected}: {texts}");
        }
        page.must_be_quiet()
    })
}

/// Check that no two texts lie on each other, and that none leaves the page.
#[test]
fn texts_do_not_overlap() -> Result<()> {
    with_browser(|| {
        let mut page = Page::open(&weighed(), &captions(), (1200, 500))?;
        let overlaps = page.browser.evaluate(OVERLAPS)?;
        ensure!(overlaps == Value::Array(Vec::new()), "{overlaps:#}");
        page.must_be_quiet()
    })
}

/// Pairs of texts that share more than a pixel, and texts that stand out of the page.
const OVERLAPS: &str = "(() => {
    document.getElementById('unzoom').classList.remove('hide');
    const all = [...document.querySelectorAll('text')].filter(t => t.textContent.trim());
    const boxes = all.map(t => ({ text: t.textContent, r: t.getBoundingClientRect() }));
    const bad = boxes.filter(({ r }) => r.left < 0 || r.right > innerWidth || r.top < 0).map(b => b.text);
    for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1)) {
        const wide = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
        const high = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
        if (wide > 1 && high > 3) bad.push(`${a.text} / ${b.text}`);
    }
    return bad;
})()";

/// Check that a recording without calls, and one with a stack of a thousand frames, are shown without complaint.
#[test]
fn extremes_are_shown() -> Result<()> {
    with_browser(|| {
        let quiet = Captions::of(&Profile::default(), Weight::Time);
        let mut page = Page::open(&Weighed::default(), &quiet, (1200, 300))?;
        page.screenshot("empty")?;
        let said = page.frame("There is nothing to draw")?;
        ensure!(said.shown && said.text.contains("no time was measured"), "{said:?}");
        let note = page.browser.evaluate("document.querySelector('.note').textContent")?;
        ensure!(note == "No traced native method was called.", "{note}");
        page.must_be_quiet()?;

        let name = |n| frame(ProfileFrameKind::C2, "com.acme.Recursion", &format!("step{n}"));
        let deep = Weighed {
            frames: (0..1000).map(name).collect(),
            stacks: vec![WeighedStack { frames: (0..1000).collect(), value: 1_000_000, samples: 3 }],
            total: 1_000_000,
            ..Weighed::default()
        };
        let mut page = Page::open(&deep, &captions(), (1200, 600))?;
        page.screenshot("deep")?;
        let (lowest, highest) = (page.frame("com.acme.Recursion.step0 ")?, page.frame("com.acme.Recursion.step999 ")?);
        ensure!(highest.top > 0.0 && lowest.top - highest.top > 16_000.0, "{lowest:?} {highest:?}");
        page.must_be_quiet()
    })
}
