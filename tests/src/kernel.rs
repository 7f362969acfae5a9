//! What a process holds in the kernel's BPF tables, and what is still there after it ended.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapInfo, loaded_maps};
use aya::programs::{loaded_links, loaded_programs};

/// The kernel frees programs and links in the background, after the last user has left them.
const FREED_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Ids of BPF objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BpfObjects {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps.
    pub maps: BTreeSet<u32>,
    /// Links.
    pub links: BTreeSet<u32>,
}

impl BpfObjects {
    /// Those that a process holds open.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn held_by(pid: u32) -> Result<Self> {
        let directory = format!("/proc/{pid}/fdinfo");
        let mut held = Self::default();
        for entry in std::fs::read_dir(&directory).with_context(|| directory.clone())? {
            // A descriptor may be closed between the listing and the reading.
            let info = std::fs::read_to_string(entry?.path()).unwrap_or_default();
            held.links.extend(field(&info, "link_id:"));
            held.maps.extend(field(&info, "map_id:"));
            held.programs.extend(field(&info, "prog_id:"));
        }
        Ok(held)
    }

    /// How many entries the hash maps of this name have, whose keys and values are of these sizes.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn entries<K: Pod, V: Pod>(&self, name: &str) -> Result<usize> {
        let mut entries = None;
        for &id in &self.maps {
            let info = MapInfo::from_id(id).with_context(|| format!("map {id}"))?;
            if info.name_as_str() == Some(name) {
                let map: HashMap<MapData, K, V> = Map::HashMap(MapData::from_id(id)?).try_into()?;
                *entries.get_or_insert(0) += map.keys().count();
            }
        }
        entries.with_context(|| format!("no map {name}"))
    }

    /// Those of them that the kernel still has.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn still_there(&self) -> Result<Self> {
        let mut there = Self::default();
        for program in loaded_programs() {
            there.programs.extend(unless_gone(program)?.map(|program| program.id()));
        }
        for map in loaded_maps() {
            there.maps.extend(unless_gone(map)?.map(|map| map.id()));
        }
        for link in loaded_links() {
            there.links.extend(unless_gone(link)?.map(|link| link.id()));
        }
        Ok(Self {
            programs: &self.programs & &there.programs,
            maps: &self.maps & &there.maps,
            links: &self.links & &there.links,
        })
    }

    /// Waits until the kernel has none of them any more and returns what it keeps.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn left_over(&self) -> Result<Self> {
        let deadline = Instant::now() + FREED_WITHIN;
        loop {
            let left = self.still_there()?;
            if left == Self::default() || Instant::now() > deadline {
                return Ok(left);
            }
            // Nothing announces the freeing: there is only looking again.
            std::thread::sleep(PAUSE);
        }
    }
}

/// How many probes each `uprobe_multi` link has that a process holds and that leads into a file of this name.
///
/// # Errors
/// When the process has ended.
pub fn uprobes_of_links(pid: u32, file: &str) -> Result<Vec<u32>> {
    let directory = format!("/proc/{pid}/fdinfo");
    let mut counts = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| directory.clone())? {
        // A descriptor may be closed between the listing and the reading.
        let info = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        if info.lines().any(|line| line.starts_with("path:") && line.ends_with(file)) {
            counts.extend(field(&info, "uprobe_cnt:"));
        }
    }
    Ok(counts)
}

/// An object of a listing; `None` if the kernel has freed it since it listed its number, or has not finished making it
/// (`EAGAIN`: links have a number before they have a descriptor, so nobody holds such a one yet).
///
/// # Errors
/// When the kernel does not tell for another reason.
pub fn unless_gone<T, E: Error + Send + Sync + 'static>(listed: Result<T, E>) -> Result<Option<T>> {
    match listed {
        Ok(object) => Ok(Some(object)),
        Err(error) => {
            let error = anyhow::Error::from(error);
            let is_missing = |cause: &(dyn Error + 'static)| {
                let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
                matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::WouldBlock))
            };
            if error.chain().any(is_missing) { Ok(None) } else { Err(error) }
        }
    }
}

fn field(fdinfo: &str, name: &str) -> Option<u32> {
    fdinfo.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ids are read from fdinfo as the kernel prints it.
    #[test]
    fn reads_ids() {
        assert_eq!(field("pos:\t0\nlink_type:\tuprobe_multi\nlink_id:\t17\nprog_id:\t4\n", "link_id:"), Some(17));
        assert_eq!(field("pos:\t0\nflags:\t02\n", "link_id:"), None);
    }

    /// Check that an object that is freed or still being made while the listing is read is no error, and that other
    /// failures are.
    #[test]
    fn what_comes_or_goes_meanwhile_is_left_out() {
        let failed = |code| Err::<(), _>(io::Error::from_raw_os_error(code));
        assert!(unless_gone(failed(2)).unwrap().is_none());
        assert!(unless_gone(failed(11)).unwrap().is_none());
        assert!(unless_gone(failed(1)).is_err());
    }

    /// Check that a process without BPF objects holds none.
    #[test]
    fn this_process_holds_nothing() {
        assert_eq!(BpfObjects::held_by(std::process::id()).unwrap(), BpfObjects::default());
    }
}
