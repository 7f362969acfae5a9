//! `nprof serve`: every JVM of the host as metrics for Prometheus, until a signal ends it.

mod args;
mod pushing;
mod slow_log;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval};

pub(super) use args::ServeArgs;

use self::pushing::Pushing;
use self::slow_log::SlowLog;
use super::terminal::{harmless, say};
use crate::config::{AuthFile, Config};
use crate::control::ControlSocket;
use crate::discover::Proc;
use crate::export::http::{self, Auth, Limits, Reloader, Server, TlsFiles};
use crate::native::KernelSymbols;
use crate::service::{Service, Shared};
use crate::sys::{notify, privileges};
use crate::trace::SlowListener;

/// Checks the configuration, and serves unless only that was asked for.
///
/// # Errors
/// If the configuration is wrong, or nothing can be served.
pub(super) fn run(args: &ServeArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let config = args::load(args)?;
    http::check(&http_options(&config))?;
    Pushing::load(&config)?;
    if args.check_config {
        say("the configuration is good");
        return Ok(ExitCode::SUCCESS);
    }
    // One thread, so that capabilities can be dropped before there are others, which inherit what is left.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve(args, config, quiet));
    // A JVM that was still being read holds up nobody: what it has in the kernel goes with the process.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &ServeArgs, config: Config, quiet: bool) -> anyhow::Result<()> {
    // First of all: a signal from now on ends it cleanly.
    let mut signals = Signals::new()?;
    let server = Server::bind(http_options(&config)).await?;
    let control = ControlSocket::bind(&config.control, config.control_group.as_deref())?;
    let pushing = Pushing::load(&config)?;
    let slow_log = SlowLog::open(&config)?;
    if slow_log.is_some() {
        // Without privileges the kernel shows no addresses.
        KernelSymbols::shared();
    }
    let dropped = privileges::drop_all_but_needed().context("privileges cannot be given up")?;
    tracing::debug!("{dropped}");
    let listener = slow_log.clone().map(|log| log as Arc<dyn SlowListener>);
    let mut service = Service::open(Proc::host(), &config, listener).await?;
    let mut running = Running::new(server, control, (pushing, slow_log), service.shared(), &config);
    // Until they are all attached, nprof is alive and not ready.
    let stopped = tokio::select! {
        () = service.join_all() => false,
        _ = signals.stop() => true,
    };
    if !stopped {
        running.announce(quiet);
        notify::ready();
        let ended = follow(args, config, &mut service, &mut running, &mut signals).await;
        notify::stopping();
        running.stop().await;
        service.stop().await;
        return ended;
    }
    running.stop().await;
    service.stop().await;
    Ok(())
}

/// Serves until there is a reason to end.
async fn follow(
    args: &ServeArgs,
    mut config: Config,
    service: &mut Service,
    running: &mut Running,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let mut watchdog = notify::watchdog_interval().map(interval);
    loop {
        tokio::select! {
            request = signals.next() => match request {
                Request::Stop => return Ok(()),
                Request::Reload => {
                    notify::reloading();
                    reload(args, &mut config, service, running);
                    notify::ready();
                }
            },
            () = tick(watchdog.as_mut()) => notify::alive(),
            result = service.next() => result?,
            ended = running.next() => ended?,
        }
    }
}

/// Reads the configuration again. One that is wrong changes nothing.
fn reload(args: &ServeArgs, config: &mut Config, service: &mut Service, running: &Running) {
    let new = match args::load(args) {
        Ok(new) => new,
        Err(error) => return say(format_args!("the configuration stays as it was: {error:#}")),
    };
    let fixed = config.fixed_difference(&new);
    if !fixed.is_empty() {
        say(format_args!("to change {}, restart nprof: it stays as it was", fixed.join(", ")));
    }
    let new = new.with_fixed_of(config);
    if let Err(error) = running.reloader.reload(http_options(&new)) {
        say(format_args!("the endpoint stays as it was: {error}"));
    }
    running.pushing.reload(&new);
    if let Some(Err(error)) = running.slow_log.as_ref().map(|log| log.reopen()) {
        say(format_args!("the log of slow calls goes on where it was: {error:#}"));
    }
    service.reload(&new);
    *config = new;
    say("the configuration was read again");
}

/// The endpoint, the control socket and the pushes at work.
struct Running {
    shared: Arc<Shared>,
    address: String,
    reloader: Reloader,
    pushing: Pushing,
    slow_log: Option<Arc<SlowLog>>,
    tasks: JoinSet<&'static str>,
    stop: watch::Sender<bool>,
}

impl Running {
    fn new(
        server: Server,
        control: ControlSocket,
        (pushing, slow_log): (Pushing, Option<Arc<SlowLog>>),
        shared: &Arc<Shared>,
        config: &Config,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let (address, reloader) = (format!("{scheme}://{}/metrics", server.address()), server.reloader());
        let mut tasks = JoinSet::new();
        let (pages, until) = (Arc::clone(shared), until_stopped(stopped.clone()));
        tasks.spawn(async move {
            server.run(pages, until).await;
            "endpoint"
        });
        for push in pushing.all(config, shared, || until_stopped(stopped.clone())) {
            tasks.spawn(async move {
                push.await;
                "push"
            });
        }
        let (controlled, until) = (Arc::clone(shared), until_stopped(stopped));
        tasks.spawn(async move {
            control.run(controlled, until).await;
            "control socket"
        });
        Self { shared: Arc::clone(shared), address, reloader, pushing, slow_log, tasks, stop }
    }

    /// Says that everything is attached that runs now. Scripts wait for this line.
    #[expect(clippy::print_stderr, reason = "the announcement has its own form")]
    fn announce(&self, quiet: bool) {
        let (jvms, methods) = self.shared.extent();
        let noun = if jvms == 1 { "JVM" } else { "JVMs" };
        let line = format!("serving {}; tracing {methods} methods of {jvms} {noun}", self.address);
        notify::status(&line);
        if !quiet {
            eprintln!("{}", harmless(&line));
        }
    }

    /// Waits for one of them to end, which they do only if they fail.
    async fn next(&mut self) -> anyhow::Result<()> {
        let name = self.tasks.join_next().await.context("nothing is served any more")??;
        anyhow::bail!("the {name} has ended by itself")
    }

    async fn stop(mut self) {
        // Whoever does not listen has ended already.
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error is the end of whoever would tell.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Stop,
    Reload,
}

/// The signals that mean something to a service.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    reload: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            reload: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.terminate.recv() => Request::Stop,
            _ = self.reload.recv() => Request::Reload,
        }
    }

    /// Waits for the wish to stop. What is read again later is not read before the start.
    async fn stop(&mut self) {
        while self.next().await != Request::Stop {}
    }
}

fn http_options(config: &Config) -> http::Options {
    let auth = match &config.auth {
        AuthFile::None => Auth::None,
        AuthFile::Basic(path) => Auth::Basic(path.clone()),
        AuthFile::Bearer(path) => Auth::Bearer(path.clone()),
    };
    http::Options {
        listen: config.listen,
        tls: config.tls.clone().map(|(cert, key)| TlsFiles { cert, key }),
        auth,
        limits: Limits {
            connections: config.max_connections,
            // No peer has all of them, unless there is only one.
            peer_connections: config.max_connections.div_ceil(2),
            ..Limits::default()
        },
    }
}
