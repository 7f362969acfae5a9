//! Probes at single places of a library: where the code of a shim passes, where an allocator is asked, and where the VM waits for critical
//! sections.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use nprof_common::alloc::AllocCookie;
use nprof_common::{Cookie, Lane, LockerRole};

use super::Engine;
use super::records::IDLE_RECORD;
use crate::attach::Error;
use crate::attach::row_maps::RowMap;
use crate::model::{AllocatorSite, Library, LockerSites, Pid, Reach, VirtAddr};
use crate::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi};
use crate::sys::probe_link::ProbeLink;

impl Engine {
    /// Has the stack taken of each call that passes an address of a library in a process: the place where stubs say that they
    /// have chosen one. It ends with what is returned. Slow calls of these are counted in `record`, if there is one.
    ///
    /// # Errors
    /// If the address is not in the library, the kernel refuses, or such calls were not to be collected.
    pub fn watch_chosen(
        &self,
        pid: Pid,
        library: &Library,
        site: VirtAddr,
        record: Option<u32>,
    ) -> Result<ProbeLink, Error> {
        let cookie = Cookie::new(pid.0, record.unwrap_or(IDLE_RECORD), 0, Lane::A);
        self.watch_site(pid, library, site, (self.object.chosen.as_ref(), cookie))
    }

    /// Has each thread get one of these rows that passes an address of a library in a process: the place where stubs find that
    /// theirs has none. It ends with what is returned.
    ///
    /// # Errors
    /// If the address is not in the library, the kernel refuses, or there are to be no rows.
    pub fn watch_rowless(
        &self,
        pid: Pid,
        library: &Library,
        site: VirtAddr,
        rows: &RowMap,
    ) -> Result<ProbeLink, Error> {
        let cookie = rows.for_program().cookie(pid.0);
        self.watch_site(pid, library, site, (self.object.rowless.as_ref(), cookie))
    }

    /// Has it counted what threads of a process ask an allocator for, at these places of its library. It ends with what is returned.
    /// Hits are counted in `record`.
    ///
    /// # Errors
    /// If the kernel refuses, or would put the probes into other processes too.
    pub fn watch_allocator(
        &self,
        pid: Pid,
        library: &Library,
        sites: &[AllocatorSite],
        record: u32,
    ) -> Result<ProbeLink, Error> {
        if self.reach == Reach::Everyone {
            return Err(Error::AllocatorReachesOthers);
        }
        let failed = |source| Error::Library { library: library.path.clone(), source };
        let program = self.object.alloc.as_ref().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let path = c_path(&library.open_path).map_err(failed)?;
        let cookie = |site: &AllocatorSite| AllocCookie::new(record, site.request, site.rank, site.reach).0;
        let (offsets, cookies): (Vec<u64>, Vec<u64>) = sites.iter().map(|site| (site.offset.0, cookie(site))).unzip();
        let filter = self.filter(pid);
        let to = UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return: false, pid: filter };
        link_uprobe_multi(program.as_fd(), to).map_err(failed)
    }

    /// Has it measured how long collections wait for the end of critical sections, by these functions of a VM in its library. It ends
    /// with what is returned.
    ///
    /// # Errors
    /// If the kernel refuses, or would put the probes into other processes too.
    pub fn watch_locker(&self, pid: Pid, library: &Library, sites: &LockerSites) -> Result<Vec<ProbeLink>, Error> {
        let failed = |source| Error::Library { library: library.path.clone(), source };
        let refused = |kind: io::ErrorKind| failed(kind.into());
        if self.reach == Reach::Everyone {
            return Err(refused(io::ErrorKind::Unsupported));
        }
        let [entry, back] = self.object.lock.as_ref().ok_or_else(|| refused(io::ErrorKind::NotFound))?;
        let path = c_path(&library.open_path).map_err(failed)?;
        // What is to be seen last first: who is met in between is not taken for one that waits.
        let links =
            [(back, &sites.returns, true), (entry, &sites.entries, false)].map(|(program, sites, on_return)| {
                let cookie = |role: LockerRole| Cookie::new(pid.0, role as u32, 0, Lane::A).0;
                let (offsets, cookies): (Vec<u64>, Vec<u64>) =
                    sites.iter().map(|(offset, role)| (offset.0, cookie(*role))).unzip();
                let pid = self.filter(pid);
                let to = UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return, pid };
                link_uprobe_multi(program.as_fd(), to).map_err(failed)
            });
        links.into_iter().collect()
    }

    /// Has a program run where the code of a shim passes, with this cookie.
    fn watch_site(
        &self,
        pid: Pid,
        library: &Library,
        site: VirtAddr,
        (program, cookie): (Option<&OwnedFd>, Cookie),
    ) -> Result<ProbeLink, Error> {
        if self.reach == Reach::Everyone {
            // The place is one that the target names.
            return Err(Error::StubSiteReachesOthers);
        }
        let failed = |source| Error::Library { library: library.path.clone(), source };
        let missing = || failed(io::ErrorKind::NotFound.into());
        let mapping = library.mappings.iter().find(|mapping| mapping.contains(site)).ok_or_else(missing)?;
        let offset = site.0 - mapping.start.0 + mapping.offset.0;
        let program = program.ok_or_else(missing)?;
        let path = c_path(&library.open_path).map_err(failed)?;
        let filter = self.filter(pid);
        let to = UprobeMulti { path: &path, offsets: &[offset], cookies: &[cookie.0], on_return: false, pid: filter };
        link_uprobe_multi(program.as_fd(), to).map_err(failed)
    }
}
