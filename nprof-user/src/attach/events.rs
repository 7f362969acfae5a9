//! The start of every program on the host, told by the kernel as it happens.

use std::io;
use std::os::fd::AsFd as _;

use aya::maps::{Map, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfError};
use nprof_common::{ExecEvent, Loss, maps, programs};
use zerocopy::FromBytes as _;

use super::error::{Error, refusal};
use super::object;
use crate::model::Pid;
use crate::sys::mapped_array::MappedArray;
use crate::sys::ring::AsyncRing;

/// Room for the records that are not read yet, in bytes: 4,096 program starts.
const RING_BYTES: u32 = 64 << 10;

/// Tells of each process that begins to run a program, in the order in which they do.
///
/// It has its own maps and program: who traces one process pays nothing for it. The kernel takes both away when
/// this is dropped.
#[derive(Debug)]
pub struct ExecEvents {
    ring: AsyncRing,
    losses: MappedArray,
    /// Holds the program and its attachment.
    _ebpf: Ebpf,
}

impl ExecEvents {
    /// Begins to listen: every start after this returns is told. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// See [`Error`]; most likely missing permissions.
    pub fn open() -> Result<Self, Error> {
        let mut ebpf = object::load_for_events(RING_BYTES)?;
        let losses = map_losses(&ebpf)?;
        let name = maps::EXECS;
        let ring = ebpf.take_map(name).ok_or(Error::Object { kind: "map", name })?;
        let ring = RingBuf::try_from(ring).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))?;
        let ring = AsyncRing::new(ring).map_err(|source| Error::Wait { name, source })?;
        hook_program_start(&mut ebpf)?;
        Ok(Self { ring, losses, _ebpf: ebpf })
    }

    /// Waits for the next process that begins to run a program. It may have ended since, or run yet another program.
    ///
    /// Nothing is lost if the future is dropped before it is done.
    ///
    /// # Errors
    /// If the kernel's ring buffer cannot be waited for.
    pub async fn next(&mut self) -> io::Result<Pid> {
        let event = self.ring.next(|bytes| ExecEvent::read_from_bytes(bytes).ok()).await?;
        let event = event.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a record of a start"))?;
        Ok(Pid(event.tgid))
    }

    /// Starts that could not be told up to now, because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.load(Loss::MissedExec as usize).unwrap_or(0)
    }
}

fn map_losses(ebpf: &Ebpf) -> Result<MappedArray, Error> {
    let name = maps::LOSSES;
    let Some(Map::Array(data)) = ebpf.map(name) else { return Err(Error::Object { kind: "map", name }) };
    MappedArray::map(data.fd().as_fd(), Loss::ALL.len(), size_of::<u64>()).map_err(|source| Error::Map { name, source })
}

fn hook_program_start(ebpf: &mut Ebpf) -> Result<(), Error> {
    let name = programs::EXEC;
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Exec { name, source });
    let program: &mut RawTracePoint = program.try_into().map_err(failed)?;
    program.load().map_err(failed)?;
    program.attach("sched_process_exec").map_err(failed)?;
    Ok(())
}
