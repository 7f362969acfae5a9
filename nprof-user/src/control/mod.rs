//! The local socket by which a running `nprof serve` is asked and switched: the server's end and the client's.
//!
//! A Unix socket, a line of JSON each way and bytes behind it where a profile is asked for (`protocol.rs`), and nobody but root, nprof's own user and one group at
//! the other end. What a request does is the business of whoever implements [`Controlled`].

mod client;
mod connect;
mod connection;
mod error;
mod group;
mod peer;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

pub use client::{AskError, ask, fetch};
pub use error::BindError;
pub use protocol::{Answer, Request, WantedProfile};
pub use server::{ControlSocket, group_id};

/// What can be controlled.
pub trait Controlled: Send + Sync + 'static {
    /// Does what is asked, quickly: other requests, and perhaps scrapes, wait meanwhile.
    ///
    /// # Errors
    /// Why it cannot be done, in words for the user.
    fn handle(&self, request: Request) -> Result<Answer, String>;

    /// Makes the bytes of a recording, on a thread of its own: nobody waits meanwhile.
    ///
    /// # Errors
    /// As [`Self::handle`].
    fn recording(&self, wanted: &WantedProfile) -> Result<Vec<u8>, String>;
}
