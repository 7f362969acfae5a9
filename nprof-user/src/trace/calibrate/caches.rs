//! The caches that a core has for itself.

use std::fs;
use std::path::Path;

/// Where the kernel describes those of the first CPU, an entry for each.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
/// The last level that cores have for themselves. In a virtual machine the next one may look as if it were, too.
const LEVEL: &str = "2";

/// The size of the second level's cache in bytes; `None` where the kernel does not tell.
pub(super) fn second_level() -> Option<usize> {
    second_level_in(Path::new(CACHES))
}

fn second_level_in(caches: &Path) -> Option<usize> {
    let mut entries = fs::read_dir(caches).ok()?.flatten();
    entries.find_map(|entry| {
        let read = |name| fs::read_to_string(entry.path().join(name)).ok();
        if read("level")?.trim() != LEVEL {
            return None;
        }
        // The kernel writes it in KiB, whatever it is.
        read("size")?.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the second level is found among the others, and that nothing is made up where it is not described.
    #[test]
    fn finds_the_second_level() {
        let caches = tempfile::tempdir().unwrap();
        let add = |index: u32, level: &str, size: &str| {
            let entry = caches.path().join(format!("index{index}"));
            fs::create_dir(&entry).unwrap();
            fs::write(entry.join("level"), level).unwrap();
            fs::write(entry.join("size"), size).unwrap();
        };
        add(0, "1\n", "48K\n");
        assert_eq!(second_level_in(caches.path()), None);
        add(1, "2\n", "2048K\n");
        add(2, "3\n", "491520K\n");
        assert_eq!(second_level_in(caches.path()), Some(2 << 20));
        assert_eq!(second_level_in(&caches.path().join("none")), None);
        fs::write(caches.path().join("index1/size"), "large").unwrap();
        assert_eq!(second_level_in(caches.path()), None);
    }
}
