//! What the agent is told when it is loaded: where nprof listens, which decides all else.

use std::path::PathBuf;

/// What one loading asks for: nothing, or `connect=SOCKET`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The socket that nprof listens at.
    pub connect: Option<PathBuf>,
}

/// Why options cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no option '{0}': use connect=SOCKET, or none")]
pub struct Unknown(String);

impl Options {
    /// Reads them.
    ///
    /// # Errors
    /// When there is another one.
    pub fn parse(text: &str) -> Result<Self, Unknown> {
        match text.strip_prefix("connect=") {
            Some(socket) if !socket.is_empty() => Ok(Self { connect: Some(socket.into()) }),
            None if text.is_empty() => Ok(Self::default()),
            _ => Err(Unknown(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the socket is read, and that anything else is refused by name.
    #[test]
    fn reads_options() {
        assert_eq!(Options::parse("connect=/a,b"), Ok(Options { connect: Some("/a,b".into()) }));
        assert_eq!(Options::parse(""), Ok(Options::default()));
        for text in ["all", "connect=", "connect"] {
            assert!(Options::parse(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }
}
