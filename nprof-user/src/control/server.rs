//! The server's end of the control socket.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::connect::connect;
use super::connection::{refuse, serve};
use super::peer::Allowed;
use super::{BindError, Controlled, group};

/// The most connections at a time. More are turned away at once.
const MOST_CONNECTIONS: usize = 8;
/// Of those that are turned away, the most that are told why.
const MOST_REFUSALS: usize = 8;
/// Everybody may look into the directory; the socket's own mode says who may use it.
const DIRECTORY_MODE: u32 = 0o755;
const GROUP_FILE: &str = "/etc/group";

/// A control socket that nobody is answered at as yet. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
    allowed: Allowed,
}

impl ControlSocket {
    /// Makes the socket, for root and the members of `group` alone. To be called inside a tokio runtime.
    ///
    /// A socket that was left behind is replaced. One that somebody answers at is not.
    ///
    /// # Errors
    /// If the path is taken, the group is not there, or the file cannot be made.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, BindError> {
        let failed = |source| BindError::Io { path: path.to_owned(), source };
        let gid = group.map(group_id).transpose()?;
        make_directory(path)?;
        let listener = bind_or_replace(path)?;
        let file = SocketFile::at(path).map_err(failed)?;
        // Until here the mode was the umask's. Whoever was quick meets the check of credentials.
        if let (Some(group), Some(gid)) = (group, gid) {
            std::os::unix::fs::chown(path, None, Some(gid))
                .map_err(|source| BindError::Chown { group: group.to_owned(), source })?;
        }
        let mode = if gid.is_some() { 0o660 } else { 0o600 };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
        let allowed = Allowed { own_uid: rustix::process::geteuid().as_raw(), group: gid };
        Ok(Self { listener, file, allowed })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Answers requests until `stop` is done, then removes the socket's file. No peer can end this.
    pub async fn run(self, controlled: Arc<dyn Controlled>, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        let mut refusals = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                Some(done) = connections.join_next() => report(done),
                Some(done) = refusals.join_next() => report(done),
                stream = accept(&self.listener) => {
                    if connections.len() < MOST_CONNECTIONS {
                        connections.spawn(serve(stream, self.allowed, Arc::clone(&controlled)));
                    } else if refusals.len() < MOST_REFUSALS {
                        refusals.spawn(refuse(stream, "too many connections to the control socket: try again"));
                    }
                }
            }
        }
    }
}

/// The next connection. Trouble with accepting, such as too few descriptors, is waited out.
async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!("the control socket cannot take a connection: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn report(done: Result<io::Result<()>, tokio::task::JoinError>) {
    match done {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection to the control socket broke: {error}"),
        Err(panic) => tracing::error!("a request at the control socket was not handled: {panic}"),
    }
}

/// The id of a group of this host.
///
/// # Errors
/// If there is no such group, or the file of groups cannot be read.
pub fn group_id(name: &str) -> Result<u32, BindError> {
    let found =
        group::id(Path::new(GROUP_FILE), name).map_err(|source| BindError::Io { path: GROUP_FILE.into(), source })?;
    found.ok_or_else(|| BindError::NoGroup { group: name.to_owned() })
}

/// Makes the directory above the socket if it is missing.
fn make_directory(path: &Path) -> Result<(), BindError> {
    let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(directory)
        .map_err(|source| BindError::Io { path: directory.to_owned(), source })
}

fn bind_or_replace(path: &Path) -> Result<UnixListener, BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            // One that came first since then is in use.
            UnixListener::bind(path).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => BindError::InUse { path: path.to_owned() },
                _ => failed(error),
            })
        }
        result => result.map_err(failed),
    }
}

/// Removes a socket at which nobody answers.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    if !fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(failed(error)),
        // It answers, or would if it were not so busy.
        Ok(_) | Err(_) => Err(BindError::InUse { path: path.to_owned() }),
    }
}

/// The file of a socket, removed at the end if it is still the same.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(&fs::symlink_metadata(path)?) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("the control socket {} stays behind: {error}", self.path.display());
        }
    }
}

/// Device and inode.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
