//! Decides whether a request may see what is guarded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SystemRandom;

use super::users::Users;
use super::{Auth, Error};
use crate::sys::small_file;

/// Who is let in.
pub(super) enum Gate {
    Open,
    Basic(Users),
    Bearer(Token),
}

/// The one token, as its HMAC under a key of this process: two of these are compared in a time that tells nothing, not
/// even the length.
pub(super) struct Token {
    key: hmac::Key,
    tag: hmac::Tag,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has no credentials, or those of another scheme.
    Missing,
    /// Its credentials are wrong.
    Wrong,
}

impl Gate {
    /// Reads and checks the file.
    pub(super) fn load(auth: &Auth) -> Result<Self, Error> {
        let key = || hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).or(Err(Error::Random));
        match auth {
            Auth::None => Ok(Self::Open),
            Auth::Basic(path) => Ok(Self::Basic(Users::parse(path, &small_file::read_secret(path)?, key()?)?)),
            Auth::Bearer(path) => {
                let content = small_file::read_secret(path)?;
                let token = content.trim_ascii();
                if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
                    return Err(Error::Token { path: path.clone() });
                }
                let key = key()?;
                Ok(Self::Bearer(Token { tag: hmac::sign(&key, token), key }))
            }
        }
    }

    /// Whether a request with this `Authorization` header may pass.
    pub(super) async fn admit(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        let right = match self {
            Self::Open => true,
            Self::Basic(users) => {
                let encoded = of_scheme("Basic", authorization)?;
                let credentials = STANDARD.decode(encoded).or(Err(Refusal::Wrong))?;
                users.knows(&credentials).await
            }
            Self::Bearer(Token { key, tag }) => {
                hmac::verify(key, of_scheme("Bearer", authorization)?, tag.as_ref()).is_ok()
            }
        };
        if right { Ok(()) } else { Err(Refusal::Wrong) }
    }

    /// What a refused client is told to send, for `WWW-Authenticate`.
    pub(super) fn challenge(&self) -> &'static str {
        match self {
            Self::Bearer(_) => "Bearer realm=\"nprof\"",
            Self::Basic(_) | Self::Open => "Basic realm=\"nprof\", charset=\"UTF-8\"",
        }
    }
}

/// What follows the name of the scheme, which may be in any case.
fn of_scheme<'a>(scheme: &str, authorization: Option<&'a [u8]>) -> Result<&'a [u8], Refusal> {
    let header = authorization.ok_or(Refusal::Missing)?;
    let (name, rest) = header.split_at_checked(scheme.len()).ok_or(Refusal::Missing)?;
    if !name.eq_ignore_ascii_case(scheme.as_bytes()) || !rest.starts_with(b" ") {
        return Err(Refusal::Missing);
    }
    Ok(rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn bearer(content: &str) -> Result<Gate, Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Gate::load(&Auth::Bearer(path))
    }

    /// Check that the token opens, whatever white space is around it in the file, and nothing near it does.
    #[tokio::test]
    async fn only_the_token_opens() {
        let gate = bearer(" s3cret\n").unwrap();
        for good in ["Bearer s3cret", "bearer  s3cret"] {
            assert_eq!(gate.admit(Some(good.as_bytes())).await, Ok(()), "{good}");
        }
        for wrong in ["Bearer s3cre", "Bearer s3cret1", "Bearer ", "Bearer S3cret"] {
            assert_eq!(gate.admit(Some(wrong.as_bytes())).await, Err(Refusal::Wrong), "{wrong}");
        }
        for missing in ["", "Bear", "Bearers3cret", "Basic czNjcmV0", "s3cret"] {
            assert_eq!(gate.admit(Some(missing.as_bytes())).await, Err(Refusal::Missing), "{missing}");
        }
        assert_eq!(gate.admit(None).await, Err(Refusal::Missing));
    }

    /// Check that a file that would let in everybody or nobody is refused.
    #[test]
    fn file_needs_one_token() {
        for content in ["", "\n \n", "two tokens", "two\ntokens", "schlüssel"] {
            assert!(matches!(bearer(content), Err(Error::Token { .. })), "{content:?}");
        }
    }
}
