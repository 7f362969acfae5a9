//! Plays nprof for the companion agent: listens, welcomes it with its own memory instead of a BPF map, gives commands
//! and reads the records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSlice;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use nprof_common::histogram::BUCKETS;
use nprof_common::wire::{
    Applied, FIRST_FUNCTION, FromShim, Hello, How, Layout, MAX_PACKET, NO_INDEX, Scanned, ToShim, VERSION, Watch,
    Welcome,
};
use nprof_common::{MethodStats, Mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, shutdown, socket_with,
};

use crate::child::PATIENCE;
use crate::name::MethodName;
use crate::shim::Record;
use crate::truth::decode_modified_utf8;

const RECORD: u64 = size_of::<MethodStats>() as u64;
const RECORD_BYTES: u32 = 1_536;
/// The first record of the memory is not the agent's, as in nprof's map.
const FIRST: u64 = RECORD;

/// Counting, timing and leaving alone, with the numbers that go with them: mode and chance.
pub const OFF: (u32, u32) = (Mode::Off as u32, 0);
/// See [`OFF`].
pub const COUNT: (u32, u32) = (Mode::Count as u32, 0);
/// See [`OFF`].
pub const TIME: (u32, u32) = (Mode::Time as u32, 0);
/// Every second call is timed.
pub const SAMPLE: (u32, u32) = (nprof_common::wire::SAMPLE, 1 << 31);
/// One of 16 calls is timed.
pub const SIXTEENTH: (u32, u32) = (nprof_common::wire::SAMPLE, 1 << 28);

/// A socket that the agent can connect to.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    directory: tempfile::TempDir,
}

impl Listener {
    /// Listens in a separate directory.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new(directory.path().join("socket"))?)?;
        listen(&socket, 8)?;
        Ok(Self { socket, directory })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// What the agent is loaded with to connect.
    #[must_use]
    pub fn option(&self) -> String {
        format!("connect={}", self.path().display())
    }

    /// The next agent that connects, after its first message.
    ///
    /// # Errors
    /// When none does, or it says something else first.
    pub fn accept(&self) -> Result<Connection> {
        wait_for(self.socket.as_fd())?;
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        let mut connection = Connection { socket, hello: None, memory: None, heard: Heard::default() };
        ensure!(connection.step()? == Event::Hello, "the first message is no Hello");
        Ok(connection)
    }
}

/// A method as the agent tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The agent's number for it.
    pub number: u32,
    /// The number of its record; `NO_INDEX` if it has none.
    pub index: u32,
    /// How the agent came to know.
    pub how: How,
    /// The address of the VM's `Method`.
    pub method: u64,
    /// The address of the native.
    pub address: u64,
}

/// What the agent has said.
#[derive(Debug, Default)]
pub struct Heard {
    /// The latest about each method. Of methods with the same name, of classes of several loaders, one.
    pub bound: BTreeMap<MethodName, Bound>,
    /// The latest about each method, by the agent's number.
    pub methods: BTreeMap<u32, (MethodName, Bound)>,
    /// Records and stubs by the numbers of methods, of those that have got them by an `Apply`.
    pub stubbed: BTreeMap<u32, (u32, u64)>,
    /// How many messages were dropped.
    pub dropped: u64,
    /// What went wrong.
    pub notes: Vec<String>,
}

/// What one message was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The first one.
    Hello,
    /// Something that was added to [`Heard`].
    Told,
    /// All answers to a scan have come.
    Scanned(Scanned),
    /// All answers to an `Apply` have come.
    Applied(Applied),
    /// The agent has left so many methods with stubs.
    Detached(u32),
    /// The agent ends the connection, for this reason.
    Bye(String),
    /// The connection is at an end.
    End,
}

/// A connection with an agent.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    hello: Option<Hello>,
    /// The records, and what the agent was told of them.
    memory: Option<(File, Welcome)>,
    /// What it has said so far.
    pub heard: Heard,
}

impl Connection {
    /// What the agent said first.
    ///
    /// # Errors
    /// When it said nothing.
    pub fn hello(&self) -> Result<Hello> {
        self.hello.context("no Hello")
    }

    /// A welcome with records for so many methods, each with so many shards, that leaves all methods alone.
    #[must_use]
    pub fn usual_welcome(records: u32, shards: u32) -> Welcome {
        Welcome {
            version: VERSION,
            shards,
            record_bytes: RECORD_BYTES,
            first: FIRST,
            records,
            bind_mode: OFF.0,
            bind_probability: OFF.1,
            bind_threshold_ns: u64::MAX,
            bind_asked: true,
            tell_binds: true,
            stub_binds: false,
            rows: 0,
            consumed: false,
            bytes: 0,
        }
    }

    /// Memory that is as large as a welcome says.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn memory_for(welcome: &Welcome) -> Result<File> {
        let file = File::from(memfd_create("records", MemfdFlags::CLOEXEC)?);
        file.set_len(welcome.first + layout(welcome)?.end)?;
        Ok(file)
    }

    /// Welcomes the agent with memory that is as large as it says.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn welcome(&mut self, welcome: Welcome) -> Result<()> {
        let memory = Self::memory_for(&welcome)?;
        self.send_with(&ToShim::Welcome(welcome), Some(memory.as_fd()))?;
        self.memory = Some((memory, welcome));
        Ok(())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn send(&self, message: &ToShim) -> Result<()> {
        self.send_with(message, None)
    }

    /// Sends a message with a descriptor.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn send_with(&self, message: &ToShim, file: Option<BorrowedFd<'_>>) -> Result<()> {
        let mut buffer = [0; 256];
        self.send_bytes(message.encode(&mut buffer).context("a message that is too long")?, file)
    }

    /// Sends any bytes.
    ///
    /// # Errors
    /// When nobody takes them.
    pub fn send_bytes(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        if !files.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(&files)), "no room for a descriptor");
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Reads one message.
    ///
    /// # Errors
    /// When none comes, or it is no message.
    pub fn step(&mut self) -> Result<Event> {
        wait_for(self.socket.as_fd())?;
        let mut buffer = vec![0; MAX_PACKET + 1];
        let (length, _) = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
            // What was not read when the other end was closed.
            Err(rustix::io::Errno::CONNRESET) => return Ok(Event::End),
            received => received?,
        };
        if length == 0 {
            return Ok(Event::End);
        }
        self.hear(FromShim::decode(&buffer[..length])?)
    }

    fn hear(&mut self, message: FromShim<'_>) -> Result<Event> {
        let heard = &mut self.heard;
        match message {
            FromShim::Hello(hello) => {
                self.hello = Some(hello);
                return Ok(Event::Hello);
            }
            FromShim::Scanned(scanned) => return Ok(Event::Scanned(scanned)),
            FromShim::Applied(applied) => return Ok(Event::Applied(applied)),
            FromShim::Detached(left) => return Ok(Event::Detached(left)),
            FromShim::Bye(reason) => return Ok(Event::Bye(text(reason))),
            FromShim::Bound(bound) => {
                let [class, method, signature] = [bound.class, bound.name, bound.signature].map(decode_modified_utf8);
                let class = class?;
                let class = class.strip_prefix('L').and_then(|class| class.strip_suffix(';')).context("a class")?;
                let name = MethodName::new(&class.replace('/', "."), &method?, &signature?);
                let nprof_common::wire::Bound { number, index, how, method, address, .. } = bound;
                let bound = Bound { number, index, how, method, address };
                heard.methods.insert(number, (name.clone(), bound));
                heard.bound.insert(name, bound);
            }
            FromShim::Stubbed(stubbed) => {
                heard.stubbed.insert(stubbed.number, (stubbed.index, stubbed.entry));
            }
            FromShim::Dropped(total) => heard.dropped = total,
            FromShim::Note(note) => heard.notes.push(text(note)),
            // Nobody has asked for that.
            FromShim::IdsKept
            | FromShim::IdFunction(_)
            | FromShim::IdCaller(_)
            | FromShim::IdsForgotten(_)
            | FromShim::TreesReady(_)
            | FromShim::ClassesListed(_)
            | FromShim::MethodsListed(_)
            | FromShim::ClassFile(_)
            | FromShim::Enhanced(_)
            | FromShim::TreesRecorded
            | FromShim::ExceptionClass(_)
            | FromShim::ExceptionsNamed
            | FromShim::TreesEnded(_) => {}
        }
        Ok(Event::Told)
    }

    /// Reads until something else comes than what is told without being asked.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn answer(&mut self) -> Result<Event> {
        loop {
            match self.step()? {
                Event::Told => {}
                event => return Ok(event),
            }
        }
    }

    /// Reads until the end of the connection, and returns the reason that was given for it.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn farewell(&mut self) -> Result<String> {
        let mut reason = String::new();
        loop {
            match self.answer()? {
                Event::Bye(given) => reason = given,
                Event::End => return Ok(reason),
                _ => {}
            }
        }
    }

    /// Has the agent tell of all bound methods.
    ///
    /// # Errors
    /// When it does not, or leaves some out.
    pub fn scan(&mut self) -> Result<Scanned> {
        self.send(&ToShim::Scan)?;
        let Event::Scanned(scanned) = self.answer()? else { bail!("not an answer to a scan") };
        ensure!(scanned.unreadable == 0, "{scanned:?}");
        Ok(scanned)
    }

    /// The methods of a package or class that were told of.
    #[must_use]
    pub fn methods_of(&self, class: &str) -> Vec<Bound> {
        let of_class = self.heard.bound.iter().filter(|(name, _)| name.class.starts_with(class));
        of_class.map(|(_, bound)| *bound).collect()
    }

    /// Has methods watched, after the next [`Self::apply`] at the latest.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn watch(&self, methods: &[Bound], (mode, probability): (u32, u32)) -> Result<()> {
        let watch = |number| ToShim::Watch(Watch { number, mode, probability, threshold_ns: u64::MAX, kinds: 0 });
        methods.iter().try_for_each(|method| self.send(&watch(method.number)))
    }

    /// Has a JNI function watched, by its place in the VM's table.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn watch_function(&self, place: u32, (mode, probability): (u32, u32)) -> Result<()> {
        let number = FIRST_FUNCTION + place;
        self.send(&ToShim::Watch(Watch { number, mode, probability, threshold_ns: u64::MAX, kinds: 0 }))
    }

    /// Has it no longer watched, and out of the table after the next [`Self::apply`].
    ///
    /// # Errors
    /// When nobody listens.
    pub fn unwatch_function(&self, place: u32) -> Result<()> {
        self.send(&ToShim::Unwatch(FIRST_FUNCTION + place))
    }

    /// The sum of the record of a JNI function; of nothing if it has none.
    ///
    /// # Errors
    /// When the memory cannot be read.
    pub fn function_record(&self, place: u32) -> Result<Record> {
        let stubbed = self.heard.stubbed.get(&(FIRST_FUNCTION + place));
        stubbed.map_or(Ok(Record::default()), |(index, _)| self.record_at(*index))
    }

    /// Has what was wanted since the last time put into effect, and everything before.
    ///
    /// # Errors
    /// When it is not.
    pub fn apply(&mut self) -> Result<Applied> {
        const SERIAL: u32 = 7;
        self.send(&ToShim::Apply(SERIAL))?;
        match self.answer()? {
            Event::Applied(applied) if applied.serial == SERIAL => Ok(applied),
            other => bail!("not an answer to an Apply: {other:?}"),
        }
    }

    /// Has all methods left alone.
    ///
    /// # Errors
    /// When some are not.
    pub fn detach(&mut self) -> Result<()> {
        self.send(&ToShim::Detach)?;
        let answer = self.answer()?;
        ensure!(answer == Event::Detached(0), "{answer:?}");
        self.farewell()?;
        Ok(())
    }

    /// Goes without a word. What was recorded can still be read.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn die(&self) -> Result<()> {
        Ok(shutdown(&self.socket, Shutdown::Both)?)
    }

    /// The sum of a method's record; of nothing if it has none.
    ///
    /// # Errors
    /// When the memory cannot be read.
    pub fn record(&self, method: &Bound) -> Result<Record> {
        let index = self.heard.stubbed.get(&method.number).map_or(method.index, |(index, _)| *index);
        if index == NO_INDEX { Ok(Record::default()) } else { self.record_at(index) }
    }

    /// The sum of a record.
    ///
    /// # Errors
    /// When the memory cannot be read.
    pub fn record_at(&self, index: u32) -> Result<Record> {
        let (memory, welcome) = self.memory.as_ref().context("no memory yet")?;
        let (layout, shards) = (layout(welcome)?, welcome.shards + 1);
        let mut sum = Record::default();
        for shard in 0..shards {
            let mut counted = [0; 8];
            memory.read_exact_at(&mut counted, FIRST + layout.counts_of(index, shard))?;
            sum.counted += u64::from_ne_bytes(counted);
            let mut words = vec![0; size_of::<MethodStats>()];
            let record = u64::from(index) * u64::from(shards) + u64::from(shard);
            memory.read_exact_at(&mut words, FIRST + record * RECORD)?;
            let word = |offset: usize| words[offset..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
            sum.entered += word(offset_of!(MethodStats, entered));
            sum.ended += (0..BUCKETS).map(|at| word(offset_of!(MethodStats, histogram) + 8 * at)).sum::<u64>();
            sum.total_ns += word(offset_of!(MethodStats, total_ns));
            sum.max_ns = sum.max_ns.max(word(offset_of!(MethodStats, max_ns)));
        }
        Ok(sum)
    }
}

/// Where in the memory of a welcome what is.
fn layout(welcome: &Welcome) -> Result<Layout> {
    let layout = Layout::of(welcome.records, welcome.shards + 1, welcome.consumed, welcome.bytes);
    layout.context("more records than an agent has")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_for(socket: BorrowedFd<'_>) -> Result<()> {
    let limit = Timespec { tv_sec: PATIENCE.as_secs().try_into()?, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&limit))?;
    ensure!(ready > 0, "the agent said nothing for {PATIENCE:?}");
    Ok(())
}
