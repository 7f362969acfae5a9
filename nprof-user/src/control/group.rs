//! Groups of the host, from its `/etc/group`. Read as a file, as users are: see `discover/users.rs` for the reason.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What of a larger file lies behind this is not seen.
const GROUP_BYTES: u64 = 16 << 20;

/// The id of a group, or `None` if the file does not name it.
pub(super) fn id(file: &Path, name: &str) -> io::Result<Option<u32>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(GROUP_BYTES).read_to_end(&mut bytes)?;
    Ok(find(&String::from_utf8_lossy(&bytes), name))
}

fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a group is found by its whole name and that broken lines do no harm.
    #[test]
    fn finds_the_group() {
        let groups = "root:x:0:\n\nops:x\nops:x:many:\nops:x:1001:a,b\nops:x:7:\n";
        assert_eq!(find(groups, "ops"), Some(1001));
        assert_eq!(find(groups, "root"), Some(0));
        assert_eq!(find(groups, "op"), None);
    }
}
