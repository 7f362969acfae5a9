//! Tells the service manager what nprof is doing (the protocol of `sd_notify(3)`).
//!
//! Without a service manager, which `NOTIFY_SOCKET` tells, nothing is done. A message that cannot be sent is logged
//! and no error: nprof's work does not depend on it. Only the environment of the process is read, so any thread may
//! call these.

use std::time::Duration;

use sd_notify::NotifyState;

/// The longest status that is sent, in characters: it is one line of `systemctl status`.
const MAX_STATUS: usize = 200;

/// Everything is set up: whoever waited for the service may go on. Also ends [`reloading`].
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// The configuration is being read again. [`ready`] must follow, whether or not the new one is good.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        // systemd 253 and later want to know since when.
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("the service manager is not told of the reload: {error}"),
    }
}

/// The end has begun.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// One line for people, shown by `systemctl status`.
///
/// It may hold names that come from a JVM: control characters are replaced, since a line feed would begin another
/// message to the service manager.
pub fn status(line: &str) {
    let line: String = line.chars().take(MAX_STATUS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    send(&[NotifyState::Status(&line)]);
}

/// Nothing hangs: for the watchdog, to be called by the loop that does the work, every [`watchdog_interval`].
pub fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// How often to call [`alive`]: half of the time after which the service manager would restart this process. `None`
/// if there is no watchdog, or it watches another process.
#[must_use]
pub fn watchdog_interval() -> Option<Duration> {
    let limit = sd_notify::watchdog_enabled()?;
    (!limit.is_zero()).then_some(limit / 2)
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager cannot be told {state:?}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::*;

    /// Set in the process that sends; its environment cannot be changed from within.
    const SENDER: &str = "NPROF_TEST_SENDER";

    /// Runs the test `sender` in a separate process with these variables.
    fn run_sender(variables: &[(&str, &str)]) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "sys::notify::tests::sender"]).env(SENDER, "1");
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// The other side of the tests below; does nothing by itself.
    #[test]
    fn sender() {
        if env::var_os(SENDER).is_none() {
            return;
        }
        let expected = env::var("NPROF_TEST_INTERVAL_MS").ok().map(|text| Duration::from_millis(text.parse().unwrap()));
        assert_eq!(watchdog_interval(), expected);
        ready();
        reloading();
        status("2 JVMs\nMAINPID=1");
        alive();
        stopping();
    }

    /// Check that each message arrives as the protocol wants it, and that a status cannot smuggle in another.
    #[test]
    fn messages_arrive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        run_sender(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        let next = || {
            let mut buffer = [0; 512];
            let length = socket.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        assert_eq!(next(), "READY=1\n");
        let reloading = next();
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().trim_end();
        assert!(since.parse::<u64>().unwrap() > 0, "{reloading}");
        assert_eq!(next(), "STATUS=2 JVMs MAINPID=1\n");
        assert_eq!(next(), "WATCHDOG=1\n");
        assert_eq!(next(), "STOPPING=1\n");
    }

    /// Check that without a service manager, and with one that is gone, nothing fails.
    #[test]
    fn nobody_listens() {
        run_sender(&[]);
        run_sender(&[("NOTIFY_SOCKET", "/nonexistent/notify")]);
    }

    /// Check that the interval is half of the watchdog's limit, and that another process's watchdog does not count.
    #[test]
    fn half_of_the_watchdogs_limit() {
        run_sender(&[("WATCHDOG_USEC", "30000000"), ("NPROF_TEST_INTERVAL_MS", "15000")]);
        run_sender(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "1")]);
        run_sender(&[("WATCHDOG_USEC", "0")]);
    }
}
