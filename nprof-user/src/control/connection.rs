//! One connection to the control socket: requests in, replies out, until the peer has said all or takes too long.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Controlled;
use super::peer::{Allowed, Peer};
use super::protocol::{Answer, REQUEST_BYTES, Request, reply_line};

/// The time for a request to arrive, and the same again for its reply to be taken.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(5);
/// How much of what follows a reply has to be taken in that time.
const PIECE: usize = 64 << 10;

/// Serves one peer. Ends in silence with one that is too slow.
pub(super) async fn serve(mut stream: UnixStream, allowed: Allowed, controlled: Arc<dyn Controlled>) -> io::Result<()> {
    let peer = Peer::of(&stream)?;
    if !allowed.admits(&peer) {
        tracing::warn!("user {} asked at the control socket and was refused", peer.uid);
        return refuse(stream, "only root and the members of --control-group may control nprof").await;
    }
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(REQUEST_BYTES as u64 + 1);
        match timeout(REQUEST_TIME, limited.read_until(b'\n', &mut line)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error),
        }
        let too_long = line.len() > REQUEST_BYTES;
        let outcome = match too_long {
            true => Err(format!("a request has at most {REQUEST_BYTES} bytes")),
            false => match Request::from_line(&line) {
                Ok(request) => answer(&controlled, request).await,
                Err(error) => Err(error),
            },
        };
        let (outcome, following) = match outcome {
            Ok((answer, following)) => (Ok(answer), following),
            Err(error) => (Err(error), Vec::new()),
        };
        let reply = reply_line(outcome);
        for piece in [&reply[..]].into_iter().chain(following.chunks(PIECE)) {
            match timeout(REQUEST_TIME, writer.write_all(piece)).await {
                Ok(Ok(())) => {}
                Ok(result) => return result,
                Err(_) => return Ok(()),
            }
        }
        if too_long {
            return Ok(());
        }
    }
}

/// What a request comes to, and what follows the reply.
async fn answer(controlled: &Arc<dyn Controlled>, request: Request) -> Result<(Answer, Vec<u8>), String> {
    let Request::Profile(wanted) = request else {
        return controlled.handle(request).map(|answer| (answer, Vec::new()));
    };
    let controlled = Arc::clone(controlled);
    let made = spawn_blocking(move || controlled.recording(&wanted)).await;
    let recording = made.map_err(|panic| format!("this is a defect of nprof: {panic}")).flatten()?;
    Ok((Answer { follow: Some(recording.len() as u64), ..Answer::default() }, recording))
}

/// Says why nobody listens, and hangs up.
pub(super) async fn refuse(mut stream: UnixStream, why: &str) -> io::Result<()> {
    let reply = reply_line(Err(why.to_owned()));
    timeout(REQUEST_TIME, stream.write_all(&reply)).await.unwrap_or(Ok(()))
}
