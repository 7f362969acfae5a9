//! Prints the native methods of a running JVM, and what each is bound to:
//!
//! ```sh
//! cargo build -p nprof-hotspot --example natives && sudo target/debug/examples/natives PID
//! ```

use std::env;
use std::error::Error;
use std::io::{self, Write as _};

use nprof_hotspot::hotspot::Vm;
use nprof_hotspot::model::{FileId, FileOffset, Library, Mapping, NativeCode, Pid, VirtAddr};
use nprof_hotspot::sys::remote_memory::ProcessMemory;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = Pid(env::args().nth(1).ok_or("which JVM? Its process id is the argument")?.parse()?);
    let libjvm = libjvm(pid)?.ok_or("the process has no libjvm mapped")?;
    let mut vm = Vm::open(ProcessMemory::new(pid), &libjvm)?;
    let version = vm.version()?;
    let inventory = vm.inventory()?;

    let mut out = io::stdout().lock();
    writeln!(out, "{} {}, {} native methods", version.vm_name, version.release, inventory.methods.len())?;
    for method in &inventory.methods {
        let code = match method.code {
            NativeCode::Bound(address) => address.to_string(),
            NativeCode::Unbound => "unbound".to_owned(),
            NativeCode::Intrinsic => "intrinsic".to_owned(),
        };
        writeln!(out, "{code:>18}  {}.{}{}", method.class, method.name, method.signature)?;
    }
    if !inventory.complete {
        writeln!(out, "There may be more: the VM unloaded classes meanwhile.")?;
    }
    Ok(())
}

/// The libjvm that process `pid` has mapped.
fn libjvm(pid: Pid) -> Result<Option<Library>, Box<dyn Error>> {
    let maps = Process::new(pid.0.try_into()?)?.maps()?;
    let mappings: Vec<Mapping> = maps.into_iter().filter_map(code_of_libjvm).collect();
    let Some(first) = mappings.first() else { return Ok(None) };
    // This opens the very file that is mapped, also one in a container or one that was replaced since.
    let open_path = format!("/proc/{pid}/map_files/{:x}-{:x}", first.start.0, first.end.0).into();
    Ok(Some(Library { file: first.file, path: first.path.clone(), deleted: false, open_path, mappings }))
}

fn code_of_libjvm(map: MemoryMap) -> Option<Mapping> {
    let MMapPath::Path(path) = map.pathname else { return None };
    let executable = map.perms.contains(MMPermissions::EXECUTE);
    let (major, minor) = map.dev;
    let mapping = Mapping {
        start: VirtAddr(map.address.0),
        end: VirtAddr(map.address.1),
        offset: FileOffset(map.offset),
        executable,
        file: FileId { major: major.cast_unsigned(), minor: minor.cast_unsigned(), inode: map.inode },
        path,
    };
    (executable && mapping.path.ends_with("libjvm.so")).then_some(mapping)
}
