//! Tools for people, run by hand against a live JVM: `NPROF_TEST_PID=… cargo test -p nprof-hotspot --release --lib
//! hotspot::testing::live::NAME -- --ignored --nocapture`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::recording::{Recorded, Recording, fixture_path};
use crate::hotspot::Vm;
use crate::hotspot::exports::Exports;
use crate::model::{FileId, FileOffset, Inventory, Library, Mapping, NativeCode, Pid, VirtAddr};
use crate::sys::remote_memory::ProcessMemory;

fn pid() -> Pid {
    let pid = std::env::var("NPROF_TEST_PID").expect("NPROF_TEST_PID is the JVM to read");
    Pid(pid.parse().expect("NPROF_TEST_PID is a number"))
}

/// The libjvm that process `pid` has mapped, read from `/proc/PID/maps`.
fn libjvm(pid: Pid) -> Library {
    find_libjvm(pid).expect("the process exists and has mapped a libjvm")
}

fn find_libjvm(pid: Pid) -> Option<Library> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mappings: Vec<Mapping> = maps.lines().filter_map(libjvm_mapping).collect();
    let first = mappings.first()?;
    Some(Library {
        file: first.file,
        path: first.path.clone(),
        deleted: false,
        open_path: format!("/proc/{pid}/map_files/{:x}-{:x}", first.start.0, first.end.0).into(),
        mappings,
    })
}

/// A line of the maps file, if it maps libjvm's code.
fn libjvm_mapping(line: &str) -> Option<Mapping> {
    let [range, flags, offset, _device, inode, path] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    let wanted = flags.contains('x') && path.ends_with("/libjvm.so");
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end) = range.split_once('-').filter(|_| wanted)?;
    Some(Mapping {
        start: VirtAddr(hex(start)?),
        end: VirtAddr(hex(end)?),
        offset: FileOffset(hex(offset)?),
        executable: true,
        file: FileId { major: 0, minor: 0, inode: inode.parse().ok()? },
        path: PathBuf::from(path),
    })
}

fn count(inventory: &Inventory) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for method in &inventory.methods {
        let kind = match method.code {
            NativeCode::Unbound => "unbound",
            NativeCode::Bound(_) => "bound",
            NativeCode::Intrinsic => "intrinsic",
        };
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// Records a JVM as the fixture named in `NPROF_TEST_FIXTURE`.
#[test]
#[ignore = "a tool: writes a fixture from the JVM in NPROF_TEST_PID"]
fn record_fixture() {
    let name = std::env::var("NPROF_TEST_FIXTURE").unwrap();
    let exports = Exports::of(&libjvm(pid())).unwrap();
    let recording = Recording::new(ProcessMemory::new(pid()));
    let mut vm = Vm::with_exports(&recording, exports.clone()).unwrap();
    println!("{:?}", vm.version().unwrap());
    println!("{:x?}", vm.code_cache_range().unwrap());
    let inventory = vm.inventory().unwrap();
    assert!(inventory.complete);
    println!("{} natives, {:?}", inventory.methods.len(), count(&inventory));
    vm.refresh().unwrap();
    let image = recording.image();
    let file = Recorded { exports, image }.to_file();
    println!("{} bytes", file.len());
    fs::write(fixture_path(&name), file).unwrap();
}
