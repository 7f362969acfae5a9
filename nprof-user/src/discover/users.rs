//! User names of the host, from its `/etc/passwd`.
//!
//! Read as a file and not through the name service: that would load foreign modules into a privileged process and
//! may ask the network. A user who is only known there is shown by number.

use std::collections::HashMap;
use std::path::Path;

use super::process::read_bounded;

/// A host with a larger file gets numbers instead of names.
const PASSWD_BYTES: u64 = 16 << 20;

/// The names by user id.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<u32, String>);

impl Users {
    /// Reads the file; a missing or unreadable one gives no names.
    pub(super) fn read(passwd: &Path) -> Self {
        read_bounded(passwd, PASSWD_BYTES).map_or_else(|_| Self::default(), |b| Self::parse(&b))
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut names = HashMap::new();
        for line in String::from_utf8_lossy(bytes).lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next(), fields.nth(1));
            if let (Some(name), Some(Ok(uid))) = (name, uid.map(str::parse)) {
                // The first of several names of one id counts, as it does for every other program.
                names.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Self(names)
    }

    pub(super) fn name(&self, uid: u32) -> Option<&str> {
        self.0.get(&uid).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are found by id, the first of two counts, and broken lines do no harm.
    #[test]
    fn maps_ids_to_names() {
        let users = Users::parse(b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\n+::::::\napp:x:1000:1000::/:\n");
        assert_eq!(users.name(0), Some("root"));
        assert_eq!(users.name(1000), Some("app"));
        assert_eq!(users.name(7), None);
    }
}
