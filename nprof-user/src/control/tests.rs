//! Server and client together, over real sockets.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::*;

/// A group that every Linux host has, and its number.
const GROUP: (&str, u32) = ("daemon", 1);
/// A user without rights: nobody.
const NOBODY: u32 = 65_534;
/// Tells the test binary, run again as another user, where to ask.
const ASK_AT: &str = "NPROF_TEST_ASK_AT";

/// Matches as many functions as there are rules, and has its weak spots.
struct Fake;

impl Controlled for Fake {
    fn handle(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Status => Ok(Answer { status: Some(crate::model::Status::sample()), ..Answer::default() }),
            Request::Rule { rules } if rules.contains(&"bug".to_owned()) => panic!("a bug"),
            Request::Rule { rules } if rules.contains(&"nothing".to_owned()) => Err("no such method".to_owned()),
            Request::Slow { slow } => Ok(Answer { matched: slow.len(), ..Answer::default() }),
            Request::Rule { rules } => Ok(Answer { matched: rules.len(), ..Answer::default() }),
            Request::Profile(_) => unreachable!(),
        }
    }

    fn recording(&self, wanted: &WantedProfile) -> Result<Vec<u8>, String> {
        if wanted.pid.is_none() { Err("which?".to_owned()) } else { Ok(profile()) }
    }
}

/// More than a piece, and than what a socket holds.
fn profile() -> Vec<u8> {
    (0..1_000_000u32).flat_map(u32::to_le_bytes).collect()
}

/// A directory that other users can look into, and a path for a socket two levels below it.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("run/nprof/control.sock");
    (dir, path)
}

/// Runs `client` on a separate thread while the socket is served.
async fn served<T: Send + 'static>(
    path: &Path,
    group: Option<&str>,
    client: impl FnOnce(&Path) -> T + Send + 'static,
) -> T {
    let socket = ControlSocket::bind(path, group).unwrap();
    let path = path.to_owned();
    let mut result = None;
    let done = async { result = Some(spawn_blocking(move || client(&path)).await.unwrap()) };
    socket.run(Arc::new(Fake), done).await;
    result.unwrap()
}

/// Sends bytes and gives the lines that come back until the server hangs up or has answered `replies` times.
fn exchange(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Check that requests are answered, that what cannot be done is said, and that the file is gone at the end.
#[tokio::test]
async fn asks_and_answers() {
    let (_dir, path) = place();
    served(&path, None, |path| {
        let rules = |rules: &[&str]| Request::Rule { rules: rules.iter().map(|rule| (*rule).to_owned()).collect() };
        assert_eq!(ask(path, &rules(&["A=off", "B=time"])).unwrap().matched, 2);
        assert_eq!(ask(path, &Request::Status).unwrap().status, Some(crate::model::Status::sample()));
        let refused = ask(path, &rules(&["nothing"])).unwrap_err();
        assert!(matches!(refused, AskError::Refused { reason } if reason == "no such method"));
    })
    .await;
    assert!(!path.exists());
    assert!(matches!(ask(&path, &Request::Status), Err(AskError::Nobody { .. })));
}

/// Check that what follows a reply arrives whole and nothing after it, also where the client takes its time; that a request in
/// between is answered; and that a refusal has nothing behind it.
#[tokio::test]
async fn sends_profiles() {
    let (_dir, path) = place();
    served(&path, None, |path| {
        let wanted = |pid| Request::Profile(WantedProfile { pid, ..WantedProfile::default() });
        let mut following = fetch(path, &wanted(Some(7))).unwrap();
        assert!(ask(path, &Request::Status).is_ok());
        let mut bytes = Vec::new();
        following.read_to_end(&mut bytes).unwrap();
        assert!(bytes == profile());
        let refused = fetch(path, &wanted(None)).map(drop).unwrap_err();
        assert!(matches!(refused, AskError::Refused { reason } if reason == "which?"));
    })
    .await;
}

/// Check that several requests can share a connection, and that broken ones do not end it.
#[tokio::test]
async fn answers_line_by_line() {
    let (_dir, path) = place();
    let lines = "{\"v\":1,\"do\":\"rule\",\"rules\":[]}\nnonsense\n{\"v\":7,\"do\":\"status\"}\n{\"v\":1,\"do\":\"rule\",\"rules\":[\"A=off\"]}";
    let text = served(&path, None, |path| exchange(path, lines.as_bytes())).await;
    let replies: Vec<&str> = text.lines().collect();
    assert_eq!(replies[0], r#"{"v":1,"ok":{"matched":0,"status":null}}"#);
    assert!(replies[1].contains("no line of the control protocol"), "{text}");
    assert!(replies[2].contains("version 1"), "{text}");
    assert!(replies[3].contains("\"matched\":1"), "{text}");
    assert_eq!(replies.len(), 4);
}

/// Check that a line which is too long is refused and not read to its end.
#[tokio::test]
async fn limits_requests() {
    let (_dir, path) = place();
    let text = served(&path, None, |path| {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(&vec![b'x'; 64 << 10]).unwrap();
        stream.write_all(b"x").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
    .await;
    assert_eq!(text, "{\"v\":1,\"error\":\"a request has at most 65536 bytes\"}\n");
}

/// Check that a request which panics takes its connection with it and nothing else.
#[tokio::test]
async fn survives_a_panic() {
    let (_dir, path) = place();
    served(&path, None, |path| {
        let broken = ask(path, &Request::Rule { rules: vec!["bug".to_owned()] });
        assert!(matches!(broken, Err(AskError::Io { .. })), "{broken:?}");
        assert!(ask(path, &Request::Status).is_ok());
    })
    .await;
}

/// Check that connections beyond the eighth are told so, and that there is room again when one ends.
#[tokio::test]
async fn limits_connections() {
    let (_dir, path) = place();
    served(&path, None, |path| {
        let connect = || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"{\"v\":1,\"do\":\"rule\",\"rules\":[]}\n").unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            stream
        };
        let mut held: Vec<UnixStream> = (0..8).map(|_| connect()).collect();
        let error = ask(path, &Request::Status).unwrap_err();
        assert!(error.to_string().contains("too many connections"), "{error}");
        drop(held.pop());
        // The server learns of the end in its own time.
        while ask(path, &Request::Status).is_err() {
            std::thread::yield_now();
        }
    })
    .await;
}

/// Check that a second server does not take the place of the first, and leaves it as it is.
#[tokio::test]
async fn does_not_replace_a_living_one() {
    let (_dir, path) = place();
    let first = ControlSocket::bind(&path, None).unwrap();
    assert!(matches!(ControlSocket::bind(&path, None), Err(BindError::InUse { .. })));
    assert!(path.exists());
    drop(first);
    assert!(!path.exists());
}

/// Check that what an earlier nprof left behind is replaced, and that other files are not.
#[tokio::test]
async fn replaces_only_a_stale_socket() {
    let (_dir, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(ControlSocket::bind(&path, None).unwrap());
    fs::write(&path, "precious").unwrap();
    assert!(matches!(ControlSocket::bind(&path, None), Err(BindError::NotASocket { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

/// Check that a file which took the socket's place meanwhile is not removed at the end.
#[tokio::test]
async fn removes_only_its_own_file() {
    let (_dir, path) = place();
    let socket = ControlSocket::bind(&path, None).unwrap();
    assert_eq!(socket.path(), path);
    fs::rename(&path, path.with_extension("old")).unwrap();
    fs::write(&path, "another's").unwrap();
    drop(socket);
    assert!(path.exists());
}

/// Check the modes of what is made, and that a group must be there.
#[tokio::test]
async fn is_for_few() {
    let (_dir, path) = place();
    let socket = ControlSocket::bind(&path, None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()) & 0o022, 0);
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    drop(socket);
    let missing = ControlSocket::bind(&path, Some("no-such-group")).unwrap_err();
    assert!(missing.to_string().contains("groupadd no-such-group"));
    assert!(!path.exists());
    if is_root() {
        let _socket = ControlSocket::bind(&path, Some(GROUP.0)).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (0o660, GROUP.1));
    }
}

/// Check that another user is kept out by the socket's mode, that the server itself refuses him where the mode lets him
/// in, and that a member of the group is served.
#[tokio::test]
async fn refuses_other_users() {
    if let Some(path) = std::env::var_os(ASK_AT) {
        // This is the other user.
        let answer = spawn_blocking(move || ask(path.as_ref(), &Request::Status)).await.unwrap();
        println!("{}", answer.map_or_else(|error| error.to_string(), |_| "served".to_owned()));
        return;
    }
    if !is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let (_dir, path) = place();
    served(&path, Some(GROUP.0), |path| {
        assert!(ask_as(NOBODY, NOBODY, path).contains("no permission to use"));
        assert!(ask_as(NOBODY, GROUP.1, path).contains("served"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(ask_as(NOBODY, NOBODY, path).contains("only root and the members of --control-group"));
        assert!(ask_as(0, 0, path).contains("served"));
    })
    .await;
}

/// What this test binary says when it asks as another user.
fn ask_as(uid: u32, gid: u32, path: &Path) -> String {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "control::tests::refuses_other_users", "--nocapture"]);
    let output = command.env(ASK_AT, path).current_dir("/").uid(uid).gid(gid).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
