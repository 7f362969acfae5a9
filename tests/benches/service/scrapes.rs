//! Scrapes of many JVMs with many methods: time, CPU time and memory.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof_tests::bars::{Bars, median};
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::{NUMBER, RemoteProcess};
use nprof_tests::serve::{Endpoint, OPEN_METRICS, PROTOBUF, Serve, TEXT, UNGOVERNED};
use nprof_tests::usage::{Usage, cpu_seconds, megabytes};

use crate::JVMS;

/// Traced methods of each JVM, which all have been called.
const METHODS: usize = 500;
/// Scrapes of each kind.
const SCRAPES: usize = 20;
/// How often Prometheus scrapes in the setting that the bars speak of, in seconds.
const INTERVAL: f64 = 15.0;
/// The coding of what is not compressed.
const PLAIN: &str = "identity";
/// How long nobody scrapes. Once a minute a thread of the JDK wakes up in each JVM, which is looked at then: that is to be in it.
const REST: Duration = Duration::from_secs(60);

/// Selects exactly [`METHODS`] of the target's natives, so that none is left out.
const NATIVES: [&str; 3] = ["targets.Many::m[0-9]", "targets.Many::m[0-9][0-9]", "targets.Many::m[1-4][0-9][0-9]"];

/// What the JVMs are to each other.
struct Setting {
    title: &'static str,
    args: Vec<String>,
    /// Series of calls that there are then.
    series: usize,
    /// Names of its bars: time of a scrape, CPU time for scrapes and for everything else, memory.
    bars: [&'static str; 4],
}

/// Twenty instances of one application, which have their series in common, up to the usual limit; and twenty
/// applications, with its own series for every method: the most that there can be.
fn settings() -> [Setting; 2] {
    let most = METHODS.to_string();
    let own = ["--label", &format!("jvm={{main}} {{env:{NUMBER}}}"), "--max-series", &most].map(str::to_owned);
    [
        Setting {
            title: "Instances of one application",
            args: Vec::new(),
            // The last is that of all others.
            series: 301,
            bars: [
                "instances: scrape, the middle, ms",
                "instances: CPU time for scrapes every 15 s, %",
                "instances: CPU time beside idle JVMs, %",
                "instances: resident memory at most, MB",
            ],
        },
        Setting {
            title: "Different applications",
            args: own.into(),
            series: JVMS * METHODS,
            bars: [
                "applications: scrape, the middle, ms",
                "applications: CPU time for scrapes every 15 s, %",
                "applications: CPU time beside idle JVMs, %",
                "applications: resident memory at most, MB",
            ],
        },
    ]
}

/// Measures and prints both settings.
pub(crate) fn measure(jdk: &Jdk, bars: &mut Bars) -> Result<()> {
    let jar = Jar::of(jdk, "service", "targets.Bench")?;
    let mut targets: Vec<RemoteProcess> =
        (0..JVMS).map(|number| RemoteProcess::small_bench(jdk, jar.path(), number)).collect::<Result<_>>()?;
    call_all(&mut targets)?;
    settings().iter().try_for_each(|setting| measure_one(setting, &jar, &mut targets, bars))
}

fn measure_one(setting: &Setting, jar: &Jar<'_>, targets: &mut [RemoteProcess], bars: &mut Bars) -> Result<()> {
    println!("### {}\n", setting.title);
    let args: Vec<&str> = setting.args.iter().map(String::as_str).collect();
    let serve = Serve::start(&[&UNGOVERNED[..], &["--jvm", jar.name()], &args, &NATIVES].concat())?;
    let announced = format!("tracing {} methods of {JVMS} JVMs", JVMS * METHODS);
    ensure!(serve.announcement().ends_with(&announced), "{}", serve.announcement());
    call_all(targets)?;
    serve.scrape_until("every method", |samples| {
        Ok(samples.with("nprof_native_calls_total", &[]).count() == setting.series)
    })?;
    let slowest_ms = time_each_format(&serve)?;
    println!("Two scrapes at once take up to {:.1} ms each.\n", two_at_once_ms(&serve)?);
    let (scrapes, rest) = cpu_percent(&serve)?;
    println!("CPU time: {scrapes:.3} % of a core for a scrape every {INTERVAL} s, {rest:.3} % for everything else.\n");
    let usage = Usage::of(serve.pid())?;
    show_memory(&usage);
    let measured = [(slowest_ms, 100.0), (scrapes, 1.0), (rest, 0.5), (megabytes(usage.peak), 80.0)];
    for (name, (measured, limit)) in setting.bars.into_iter().zip(measured) {
        bars.add(name, measured, limit);
    }
    ensure!(serve.finish()?.success(), "the service did not end well");
    Ok(())
}

/// Has every JVM call each of its methods.
fn call_all(targets: &mut [RemoteProcess]) -> Result<()> {
    targets.iter_mut().try_for_each(|target| target.run(&format!("each {METHODS} 3")).map(drop))
}

/// Times scrapes in each format; the middle of the slowest one, in milliseconds.
fn time_each_format(serve: &Endpoint) -> Result<f64> {
    println!("| scrape | MB | ms, the middle of {SCRAPES} | ms, the longest |\n| --- | --- | --- | --- |");
    let mut slowest: f64 = 0.0;
    for (name, accept, coding) in [
        ("text", TEXT, PLAIN),
        ("text, gzip", TEXT, "gzip"),
        ("text, zstd", TEXT, "zstd"),
        ("OpenMetrics", OPEN_METRICS, PLAIN),
        ("protobuf", PROTOBUF, PLAIN),
        ("protobuf, gzip", PROTOBUF, "gzip"),
    ] {
        let size = megabytes(serve.scrape_size(accept, coding)? as u64);
        let times = (0..SCRAPES).map(|_| scrape_ms(serve, accept, coding)).collect::<Result<Vec<f64>>>()?;
        let (middle, longest) = (median(times.iter().copied()), times.iter().copied().fold(0.0, f64::max));
        println!("| {name} | {size:.2} | {middle:.1} | {longest:.1} |");
        slowest = slowest.max(middle);
    }
    println!();
    Ok(slowest)
}

/// How long the slower of two scrapes takes that are made at the same time.
fn two_at_once_ms(endpoint: &Endpoint) -> Result<f64> {
    std::thread::scope(|scope| {
        let clients = [(); 2].map(|()| scope.spawn(|| scrape_ms(endpoint, TEXT, PLAIN)));
        let times = clients.into_iter().map(|client| client.join().ok().context("a client panicked")?);
        Ok(times.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max))
    })
}

/// How long one scrape takes, with everything that the client does.
fn scrape_ms(serve: &Endpoint, accept: &str, coding: &str) -> Result<f64> {
    let began = Instant::now();
    serve.scrape_size(accept, coding)?;
    Ok(1e3 * began.elapsed().as_secs_f64())
}

/// The share of a core that scrapes take at [`INTERVAL`], and what is taken when there are none.
fn cpu_percent(serve: &Serve) -> Result<(f64, f64)> {
    let (began, before) = (Instant::now(), cpu_seconds(serve.pid())?);
    sleep(REST);
    let rest = (cpu_seconds(serve.pid())? - before) / began.elapsed().as_secs_f64();
    let (began, before) = (Instant::now(), cpu_seconds(serve.pid())?);
    for _ in 0..SCRAPES {
        serve.scrape_size(TEXT, "gzip")?;
    }
    let used = cpu_seconds(serve.pid())? - before - rest * began.elapsed().as_secs_f64();
    Ok((100.0 * used / SCRAPES as f64 / INTERVAL, 100.0 * rest))
}

fn show_memory(usage: &Usage) {
    let [peak, resident, own, bpf] = [usage.peak, usage.resident, usage.anonymous, usage.bpf].map(megabytes);
    println!(
        "Memory: {peak:.1} MB resident at most. Now {resident:.1} MB, of which {own:.1} MB are its own and the rest its \
         binary and the BPF maps as far as they are mapped and touched; {bpf:.1} MB of BPF memory in all. {} threads.\n",
        usage.threads
    );
}
