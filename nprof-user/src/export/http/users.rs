//! Users and their passwords, which are known only as bcrypt hashes.
//!
//! A check of a hash is slow on purpose: about 50 ms of CPU time at cost 10. So it runs on threads that may block, two
//! at a time, and a password that was right is not checked again: its HMAC under a key of this process is kept, and a
//! scraper that sends the same password every 15 seconds costs microseconds. Wrong passwords therefore delay others
//! that are wrong or new, not those that have been here before.

use std::collections::HashMap;
use std::path::Path;
use std::str::{self, FromStr};
use std::sync::{Arc, OnceLock};

use bcrypt::HashParts;
use ring::hmac;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::Error;

/// Hashes that are checked at a time.
const CHECKS: usize = 2;
/// The highest cost that is accepted: about a second of CPU time. Each step more doubles it.
const MAX_COST: u32 = 14;
/// The lowest that bcrypt knows.
const MIN_COST: u32 = 4;

/// The users of one file.
pub(super) struct Users {
    users: HashMap<Vec<u8>, User>,
    /// Checked in place of the hash of a user who does not exist, so that the time does not tell which users do.
    decoy: Arc<str>,
    key: hmac::Key,
    checks: Arc<Semaphore>,
}

struct User {
    hash: Arc<str>,
    /// The HMAC of the password, once it was right.
    known: OnceLock<hmac::Tag>,
}

impl Users {
    /// Reads lines `user:hash`. Empty lines and those that begin with `#` do not count.
    pub(super) fn parse(path: &Path, text: &[u8], key: hmac::Key) -> Result<Self, Error> {
        let mut users = HashMap::new();
        let mut decoy = None;
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let wrong = |what| Error::User { path: path.to_path_buf(), line: number, what };
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (name, hash) = user(line).map_err(wrong)?;
            decoy.get_or_insert_with(|| Arc::clone(&hash));
            if users.insert(name.to_vec(), User { hash, known: OnceLock::new() }).is_some() {
                return Err(wrong("this user has a line above already"));
            }
        }
        let decoy = decoy.ok_or_else(|| Error::NoUser { path: path.to_path_buf() })?;
        Ok(Self { users, decoy, key, checks: Arc::new(Semaphore::new(CHECKS)) })
    }

    /// Whether `credentials` are `user:password` of a user.
    pub(super) async fn knows(&self, credentials: &[u8]) -> bool {
        let Some((name, password)) = split(credentials) else { return false };
        let user = self.users.get(name);
        if let Some(known) = user.and_then(|user| user.known.get())
            && hmac::verify(&self.key, password, known.as_ref()).is_ok()
        {
            return true;
        }
        let right = self.check(password, user.map_or(&self.decoy, |user| &user.hash)).await;
        match user {
            Some(user) if right => {
                user.known.get_or_init(|| hmac::sign(&self.key, password));
                true
            }
            _ => false,
        }
    }

    /// Checks a hash on another thread. Whoever waits may give up; the check still counts as one of [`CHECKS`].
    async fn check(&self, password: &[u8], hash: &Arc<str>) -> bool {
        let Ok(permit) = Arc::clone(&self.checks).acquire_owned().await else { return false };
        let (password, hash) = (password.to_vec(), Arc::clone(hash));
        let check = spawn_blocking(move || {
            let right = bcrypt::verify(password, &hash).unwrap_or(false);
            drop(permit);
            right
        });
        check.await.unwrap_or(false)
    }
}

/// One line.
fn user(line: &[u8]) -> Result<(&[u8], Arc<str>), &'static str> {
    let (name, hash) = split(line).ok_or("not `user:hash`; add users with `htpasswd -B`")?;
    if name.is_empty() {
        return Err("the name of the user is missing before `:`");
    }
    let hash = str::from_utf8(hash).or(Err("the hash is not text"))?;
    let parts = HashParts::from_str(hash).or(Err("the hash is not of bcrypt; make it with `htpasswd -B`"))?;
    if !(MIN_COST..=MAX_COST).contains(&parts.get_cost()) {
        return Err("the cost of the hash is not within 4 and 14; make it with `htpasswd -B -C 10`");
    }
    Ok((name, Arc::from(hash)))
}

/// What stands before and after the first `:`.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    Some((&text[..colon], &text[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    fn parse(text: &str) -> Result<Users, Error> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).unwrap();
        Users::parse(Path::new("users"), text.as_bytes(), key)
    }

    /// A line as `htpasswd -B` makes it; `$2y$` is its name for what others call `$2b$`.
    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, MIN_COST).unwrap().replacen("$2b$", "$2y$", 1))
    }

    /// Check that a hash that another program made, crypt(3) of libxcrypt, is understood.
    #[tokio::test]
    async fn foreign_hash_is_understood() {
        let users = parse("a:$2y$04$abcdefghijklmnopqrstuu2GbQLdjwBFdH8CcOE866nGziodmvO8K").unwrap();
        assert!(users.knows(b"a:open:sesame").await);
        assert!(!users.knows(b"a:open:sesam").await);
    }

    /// Check that a right password is known the first time and, without a check of its hash, the next.
    #[tokio::test]
    async fn right_password_is_checked_once() {
        let users = parse(&format!("# who may scrape\n\n{}{}", line("a", "open:sesame"), line("b", "x"))).unwrap();
        assert!(users.knows(b"a:open:sesame").await);
        // From here on no hash can be checked.
        users.checks.close();
        assert!(users.knows(b"a:open:sesame").await);
        assert!(!users.knows(b"b:x").await);
    }

    /// Check that nothing but a user's own password is right, before and after that was seen.
    #[tokio::test]
    async fn wrong_credentials_stay_wrong() {
        let users = parse(&format!("{}{}", line("a", "secret"), line("b", "other"))).unwrap();
        for _ in 0..2 {
            for wrong in ["a:", "a:other", "a:secret ", "c:secret", ":secret", "a", ""] {
                assert!(!users.knows(wrong.as_bytes()).await, "{wrong}");
            }
            assert!(users.knows(b"a:secret").await);
        }
    }

    /// Check that a file with a mistake is refused as a whole, with the line and no part of the hash.
    #[test]
    fn mistakes_are_found() {
        let good = line("a", "x");
        let costly = good.replacen("$04$", "$15$", 1);
        for (text, expected) in [
            (String::from("\n# nobody\n"), "users names no user"),
            (format!("{good}b\n"), "users line 2: not `user:hash`"),
            (format!("{good}b:{{SHA}}abc=\n"), "users line 2: the hash is not of bcrypt"),
            (format!("{good}{good}"), "users line 2: this user has a line above"),
            (format!("\n:{}", &good[2..]), "users line 2: the name of the user is missing"),
            (costly, "users line 1: the cost of the hash"),
        ] {
            let message = parse(&text).map(drop).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains("abc"), "{message}");
        }
    }
}
