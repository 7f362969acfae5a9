//! The local socket by which a running `nprof serve` is asked and switched: the server's end and the client's.
//!
//! A Unix socket, a line of JSON each way (`protocol.rs`), and nobody but root, nprof's own user and one group at
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

pub use client::{AskError, ask};
pub use error::BindError;
pub use protocol::{Answer, Mode, Request};
pub use server::{ControlSocket, group_id};

/// What can be controlled.
pub trait Controlled: Send + Sync + 'static {
    /// Does what is asked, quickly: other requests, and perhaps scrapes, wait meanwhile.
    ///
    /// # Errors
    /// Why it cannot be done, in words for the user.
    fn handle(&self, request: Request) -> Result<Answer, String>;
}
