//! The thread that reads what nprof says. It lives as long as the connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use nprof_common::wire::{FromShim, Hello, NO_LIBRARY, VERSION};

use super::commands::{self, Next};
use super::signals::without_signals;
use super::{Error, Link};
use crate::agent::Agent;
use crate::pool::{self, STUBS};
use crate::{clock, library};

/// Connects to nprof, says who we are, and starts the thread. Whoever was connected before is told to go.
pub(crate) fn start(agent: &'static Agent, path: &Path) -> Result<(), Error> {
    let link = Arc::new(Link::connect(path)?);
    link.send(&FromShim::Hello(hello(agent)));
    if let Some(before) = agent.connect(Arc::clone(&link)) {
        before.end("another nprof has taken over");
    }
    let served = Arc::clone(&link);
    let thread = std::thread::Builder::new().name("nprof-shim".into());
    let started = without_signals(|| thread.spawn(move || serve(agent, &served)));
    if let Err(error) = started {
        agent.disconnect(&link);
        return Err(Error::Thread(error));
    }
    Ok(())
}

fn hello(agent: &Agent) -> Hello {
    let stubs = pool::addresses();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Hello {
        version: VERSION,
        stubs: number(STUBS),
        taken: number(pool::taken()),
        records: number(STUBS),
        sharding: agent.sharding.number(),
        steady_clock: clock::is_steady(),
        library_fd: library::number_of(agent.library.as_ref()).unwrap_or(NO_LIBRARY),
        pool_start: stubs.start as u64,
        pool_end: stubs.end as u64,
        chosen_site: pool::chosen_site() as u64,
        rowless_site: pool::rowless_site() as u64,
    }
}

fn serve(agent: &'static Agent, link: &Arc<Link>) {
    // What panicked has been printed by the hook. The connection ends then, as if nprof had gone.
    let ended = catch_unwind(AssertUnwindSafe(|| follow_all(agent, link)));
    link.end(&ended.unwrap_or_else(|_| "the agent has failed".into()));
    commands::orphaned(agent, link);
}

/// Does what nprof says until one of the two has had enough. Returns why.
fn follow_all(agent: &'static Agent, link: &Arc<Link>) -> String {
    loop {
        let (message, files) = match link.receive() {
            Ok(received) => received,
            Err(broken) => return broken.to_string(),
        };
        match commands::follow(agent, link, message, files) {
            Ok(Next::Message) => {}
            Ok(Next::End) => return "detached".into(),
            Err(refusal) => return refusal.to_string(),
        }
    }
}
