//! A BPF ring buffer as something to wait for.
#![expect(unsafe_code, reason = "tokio takes a descriptor only by a promise")]

use std::fmt;
use std::io;

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A ring buffer that is read record by record.
pub struct AsyncRing(AsyncFd<RingBuf<MapData>>);

impl AsyncRing {
    /// Takes a ring buffer over. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    pub fn new(ring: RingBuf<MapData>) -> io::Result<Self> {
        // SAFETY: a ring owns its map, and with it the one descriptor that it shows, until it is dropped.
        let watched = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::other)?))
    }

    /// Waits for the next record and reads it. A record is lost neither if this is dropped while it waits nor if it is
    /// called late; what does not fit the ring meanwhile is counted by the program that wanted to write it.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    pub async fn next<T>(&mut self, read: impl Fn(&[u8]) -> T) -> io::Result<T> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            if let Some(record) = ready.get_inner_mut().next() {
                return Ok(read(&record));
            }
            ready.clear_ready();
        }
    }
}

impl fmt::Debug for AsyncRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncRing").finish_non_exhaustive()
    }
}
