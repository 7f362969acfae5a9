//! From a request to its answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Pages;
use super::auth::Refusal;
use super::body::Body;
use super::coding::Coding;
use super::live::Live;
use super::page::{self, Page};
use super::slots::Slot;
use crate::export::{Format, negotiate};

/// Scrapes that are made at a time: each may take a core, and what it shows of methods stays until its last piece is made.
/// One whose client does not take it gives its place back when the time for the answer is over.
const SCRAPES: usize = 4;
/// Other pages that are made at a time. They are short; this bounds the threads that hang if one ever does.
const SHORT_PAGES: usize = 8;
/// From one line in the log about refused requests to the next.
const REFUSAL_LINES: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// On every answer. The metrics change all the time, and nothing here is to be run or framed by a browser. Strict
/// transport security is not demanded: it would bind the other services of the host too.
const ALWAYS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// An answer.
pub(super) type Answer = Response<Body>;

/// Answers the requests of all connections.
pub(super) struct Responder {
    pages: Arc<dyn Pages>,
    live: watch::Receiver<Arc<Live>>,
    scrapes: Arc<Semaphore>,
    short_pages: Arc<Semaphore>,
    refusals: Refusals,
}

/// A page could not be made because of a panic.
struct Panicked;

impl Responder {
    pub(super) fn new(pages: Arc<dyn Pages>, live: watch::Receiver<Arc<Live>>) -> Self {
        let slots = |n| Arc::new(Semaphore::new(n));
        let (scrapes, short_pages) = (slots(SCRAPES), slots(SHORT_PAGES));
        Self { pages, live, scrapes, short_pages, refusals: Refusals::default() }
    }

    /// Answers one request, whatever is in it.
    pub(super) async fn answer(&self, request: &Request<Incoming>, peer: SocketAddr, slot: &Slot) -> Answer {
        let begun = Instant::now();
        let mut answer = self.route(request, peer, slot).await;
        let status = answer.status();
        let headers = answer.headers_mut();
        for (name, value) in ALWAYS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        // The body, however long, need not be read then to find the next request; and who shows no credentials, or has no
        // place, keeps no connection.
        if has_body(request) || status == StatusCode::UNAUTHORIZED || slot.is_over_limit() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        // The path is quoted: it is the client's.
        let (method, path, status) = (request.method(), request.uri().path(), status.as_u16());
        tracing::debug!("{peer} {method} {path:?}: {status} after {:?}", begun.elapsed());
        answer
    }

    async fn route(&self, request: &Request<Incoming>, peer: SocketAddr, slot: &Slot) -> Answer {
        let Some(page) = Page::at(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, format!("There is no such page. There are:\n{}", page::list()));
        };
        // To HEAD hyper sends what is made for GET, without the body. Only a scrape is too much for that.
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let answer = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are possible.\n");
            return with(answer, header::ALLOW, "GET, HEAD");
        }
        if has_body(request) {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "A request must not have a body.\n");
        }
        if page.is_guarded() && slot.is_over_limit() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "nprof has as many connections as it takes\n");
        }
        let live = Arc::clone(&self.live.borrow());
        let answer = self.guarded(page, &live, request, (peer, slot));
        timeout(live.limits.response_time, answer).await.unwrap_or_else(|_| {
            tracing::warn!("{} was not ready in time", page.path());
            text(StatusCode::SERVICE_UNAVAILABLE, "nprof is busy: the page was not ready in time.\n")
        })
    }

    /// A page, if the request may have it.
    async fn guarded(
        &self,
        page: Page,
        live: &Live,
        request: &Request<Incoming>,
        client: (SocketAddr, &Slot),
    ) -> Answer {
        let (peer, slot) = client;
        if page.is_guarded() {
            if let Err(refusal) = live.gate.admit(credentials(request.headers())).await {
                return self.refuse(live, refusal, page, peer);
            }
            slot.admit();
        }
        self.page(page, request).await.unwrap_or_else(|Panicked| {
            tracing::error!("{} could not be made: a panic, whose message is above", page.path());
            text(StatusCode::INTERNAL_SERVER_ERROR, "nprof made a mistake. Its log says more.\n")
        })
    }

    async fn page(&self, page: Page, request: &Request<Incoming>) -> Result<Answer, Panicked> {
        let accept = list(request.headers(), header::ACCEPT);
        match page {
            Page::Metrics => {
                let coding = Coding::negotiate(list(request.headers(), header::ACCEPT_ENCODING).as_deref());
                let format = negotiate(accept.as_deref());
                let body = match *request.method() == Method::HEAD {
                    true => Body::left_out(),
                    false => self.metrics(format, coding).await?,
                };
                let answer =
                    with(new(StatusCode::OK, format.content_type(), body), header::VARY, "Accept, Accept-Encoding");
                Ok(match coding {
                    Coding::Identity => answer,
                    coding => with(answer, header::CONTENT_ENCODING, coding.name()),
                })
            }
            Page::About => {
                let about = self.make(&self.short_pages, |pages| pages.about()).await?;
                let answer = match prefers_text(accept.as_deref()) {
                    true => text(StatusCode::OK, page::text(&about)),
                    false => new(StatusCode::OK, HTML, Body::whole(page::html(&about))),
                };
                Ok(with(answer, header::VARY, "Accept"))
            }
            Page::Healthy => Ok(state(self.make(&self.short_pages, |pages| pages.healthy()).await?)),
            Page::Ready => Ok(state(self.make(&self.short_pages, |pages| pages.ready()).await?)),
        }
    }

    /// The body of a scrape, which is made on while it is sent. It keeps its slot until it is made.
    async fn metrics(&self, format: Format, coding: Coding) -> Result<Body, Panicked> {
        let slot = Arc::clone(&self.scrapes).acquire_owned().await.expect("slots are never closed");
        let pages = Arc::clone(&self.pages);
        let make = |pieces| {
            drop(spawn_blocking(move || {
                if let Err(error) = coding.write(pieces, |out| pages.metrics(format, out)) {
                    tracing::debug!("a scrape was not sent to its end: {error}");
                }
                drop(slot);
            }));
        };
        Body::made(make).await.or(Err(Panicked))
    }

    /// Makes a page on a thread that may block. Whoever waits for it may give up, but it keeps its slot until it ends: however
    /// often a client asks, no more than the slots are at work.
    async fn make<T: Send + 'static>(
        &self,
        slots: &Arc<Semaphore>,
        page: impl FnOnce(&dyn Pages) -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let slot = Arc::clone(slots).acquire_owned().await.expect("slots are never closed");
        let pages = Arc::clone(&self.pages);
        let work = spawn_blocking(move || {
            let page = page(&*pages);
            drop(slot);
            page
        });
        // Nothing cancels it but the end of the runtime, which ends this too.
        work.await.or(Err(Panicked))
    }

    fn refuse(&self, live: &Live, refusal: Refusal, page: Page, peer: SocketAddr) -> Answer {
        let why = match refusal {
            Refusal::Missing => "no credentials of the right kind",
            Refusal::Wrong => "wrong credentials",
        };
        if let Some(unsaid) = self.refusals.may_say(Instant::now()) {
            let path = page.path();
            tracing::warn!("{path} was refused to {peer}: {why} ({unsaid} more since the last such line)");
        }
        let answer = text(StatusCode::UNAUTHORIZED, format!("Credentials are needed: the request has {why}.\n"));
        with(answer, header::WWW_AUTHENTICATE, live.gate.challenge())
    }
}

/// Keeps a client with wrong credentials from filling the log.
#[derive(Debug, Default)]
struct Refusals {
    said: Mutex<(Option<Instant>, u64)>,
}

impl Refusals {
    /// Whether a line may be written, and how many were not since the one before.
    fn may_say(&self, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = *said;
        if last.is_some_and(|last| now.saturating_duration_since(last) < REFUSAL_LINES) {
            *said = (last, unsaid + 1);
            return None;
        }
        *said = (Some(now), 0);
        Some(unsaid)
    }
}

fn new(status: StatusCode, kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    with(answer, header::CONTENT_TYPE, kind)
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    new(status, TEXT, Body::whole(text))
}

fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// The page of a state: `ok`, or what is wrong.
fn state(state: Result<(), String>) -> Answer {
    match state {
        Ok(()) => text(StatusCode::OK, "ok\n"),
        Err(what) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", page::one_line(&what))),
    }
}

fn has_body(request: &Request<Incoming>) -> bool {
    !request.body().is_end_stream()
}

fn credentials(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes)
}

/// All headers of a name as one: a list may be spread over several.
fn list(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let all: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    if all.is_empty() { None } else { Some(all.join(", ")) }
}

/// Whether a client names plain text and not HTML.
fn prefers_text(accept: Option<&str>) -> bool {
    accept.is_some_and(|accept| accept.contains("text/plain") && !accept.contains("text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one line a second is written, and that it counts the others.
    #[test]
    fn refusals_do_not_fill_the_log() {
        let refusals = Refusals::default();
        let begin = Instant::now();
        let at = |millis| refusals.may_say(begin + Duration::from_millis(millis));
        assert_eq!(
            [at(0), at(1), at(999), at(1000), at(1500), at(5000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
