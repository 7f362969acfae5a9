//! Finds out what stands against loading the shim into a JVM, before anything is done to it.
//!
//! Asking a JVM to load a library begins with a signal, SIGQUIT, that ends a process which does not expect it. So the facts
//! are gathered first, all of them from outside ([`Facts::gather`]); then it is decided ([`Facts::judge`]).

use std::path::PathBuf;

use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use super::refusal::{KEEPS_CODE, NEWEST, OLDEST};
use super::{Refusal, Wanted, Warning, among, attach};
use crate::discover::{OnQuit, Standing};
use crate::hotspot::{self, CodeRoom, Flag, code_room, flags};
use crate::model::{Jvm, JvmKind, Library, Pid};
use crate::sys::remote_memory::ProcessMemory;

/// From this JDK on the VM prints a warning when an agent is loaded while it runs.
const PRINTS_WARNING: u32 = 21;
/// Of the room for compiled code, this part has to be left: without any the VM compiles nothing more, and may fail.
const CODE_LEFT: u64 = 8;

/// The flags of a VM that matter here; all `None` for a VM that does not tell.
#[derive(Debug, Clone, Copy, Default)]
struct VmFlags {
    attach_disabled: Option<Flag>,
    agents_enabled: Option<Flag>,
    reduced_signals: Option<Flag>,
}

/// What decides whether the shim can be loaded.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pid: Pid,
    kind: JvmKind,
    /// The feature release of the JDK, where it is known: 17, 25.
    feature: Option<u32>,
    /// The JDK and its version, in words.
    jdk: String,
    flags: VmFlags,
    /// The room for compiled code, where the VM says.
    code: Option<CodeRoom>,
    /// Whether stubs are there that only the shim can take away.
    has_stubs: bool,
    /// Where the target finds the shim that it has loaded already, if it has.
    pub(super) loaded: Option<PathBuf>,
    pub(super) standing: Standing,
    /// Whether the JVM listens already, so that no signal is needed.
    listens: bool,
    /// Whether nprof is the target's user or may become it.
    same_user: bool,
}

impl Facts {
    pub(super) fn gather(wanted: &Wanted<'_>) -> Result<Self, Refusal> {
        let Wanted { proc, jvm, libjvm, has_stubs, .. } = *wanted;
        let pid = jvm.pid;
        if !jvm.kind.is_supported() {
            return Err(Refusal::Kind { pid, kind: jvm.kind });
        }
        let standing = proc.standing(pid)?;
        let libraries = proc.libraries(pid)?;
        let loaded = among(&libraries);
        if let Some(other) = loaded.as_ref().filter(|loaded| !loaded.is_known()) {
            return Err(Refusal::OtherShim { pid, path: other.library.path.clone() });
        }
        Ok(Self {
            pid,
            kind: jvm.kind,
            feature: jvm.feature_release(),
            jdk: jvm.jdk(),
            flags: VmFlags::read(jvm, libjvm)?,
            code: code_room(ProcessMemory::new(pid), libjvm).ok(),
            has_stubs,
            loaded: loaded.map(|loaded| loaded.path_inside(proc, pid)).transpose()?,
            standing,
            listens: attach::listens(proc, pid, &standing),
            same_user: may_act_as(standing.euid, standing.egid),
        })
    }

    /// Whether the shim may be loaded, and what the user should know before.
    pub(super) fn judge(&self) -> Result<Vec<Warning>, Refusal> {
        let Self { pid, .. } = *self;
        let is = |flag: Option<Flag>, on| flag.is_some_and(|flag| flag.is_on == on);
        match () {
            () if !self.kind.is_supported() => return Err(Refusal::Kind { pid, kind: self.kind }),
            () if self.feature.is_some_and(|feature| feature < OLDEST) => {
                return Err(Refusal::TooOld { pid, jdk: self.jdk.clone() });
            }
            () if self.feature.is_some_and(|feature| feature > NEWEST) => {
                return Err(Refusal::TooNew { pid, jdk: self.jdk.clone() });
            }
            () if is(self.flags.attach_disabled, true) => return Err(Refusal::AttachDisabled { pid }),
            () if is(self.flags.agents_enabled, false) => return Err(Refusal::AgentsDisabled { pid }),
            () if !self.same_user => return Err(Refusal::OtherUser { pid, uid: self.standing.euid }),
            () => {}
        }
        if let Some(halted) = self.standing.halted {
            return Err(Refusal::Halted { pid, halted });
        }
        if !self.listens {
            self.judge_signal(self.standing.quit)?;
        }
        self.judge_code()?;
        Ok(self.warnings())
    }

    /// Whether SIGQUIT, which would do `quit`, does what it is sent for.
    pub(super) fn judge_signal(&self, quit: OnQuit) -> Result<(), Refusal> {
        let pid = self.pid;
        match quit {
            _ if self.flags.reduced_signals.is_some_and(|flag| flag.is_on) => Err(Refusal::ReducedSignals { pid }),
            OnQuit::Caught => Ok(()),
            quit => Err(Refusal::Quit { pid, quit }),
        }
    }

    /// Whether there is room for the code of calls that the VM will make again, and in newer VMs never takes away. To take
    /// stubs away costs that room once, and leaving them for ever is worse.
    fn judge_code(&self) -> Result<(), Refusal> {
        let keeps = !self.has_stubs && self.feature.is_some_and(|feature| feature >= KEEPS_CODE);
        let full = |room: &CodeRoom| room.reserved.saturating_sub(room.taken) < room.reserved / CODE_LEFT;
        match self.code.filter(|room| keeps && full(room)) {
            Some(CodeRoom { reserved, taken }) => {
                let megabytes = |bytes: u64| bytes / (1 << 20);
                Err(Refusal::CodeCacheFull { pid: self.pid, taken: megabytes(taken), reserved: megabytes(reserved) })
            }
            None => Ok(()),
        }
    }

    fn warnings(&self) -> Vec<Warning> {
        let Self { pid, .. } = *self;
        let since = |release| self.feature.is_some_and(|feature| feature >= release);
        let agreed = self.flags.agents_enabled.is_some_and(|flag| flag.on_command_line);
        let prints = since(PRINTS_WARNING) && !agreed && self.loaded.is_none();
        if prints { vec![Warning::Prints { pid }] } else { Vec::new() }
    }
}

impl VmFlags {
    fn read(jvm: &Jvm, libjvm: &Library) -> Result<Self, Refusal> {
        let pid = jvm.pid;
        let names = ["DisableAttachMechanism", "EnableDynamicAgentLoading", "ReduceSignalUsage"];
        match flags(ProcessMemory::new(pid), libjvm, names) {
            Ok([attach_disabled, agents_enabled, reduced_signals]) => {
                Ok(Self { attach_disabled, agents_enabled, reduced_signals })
            }
            Err(hotspot::Error::NotReady) => Err(Refusal::Starting { pid }),
            // What the flags were called before.
            Err(hotspot::Error::MissingEntry { .. }) => Err(Refusal::TooOld { pid, jdk: jvm.jdk() }),
            // A VM without tables. What it was told shows when it is asked; what SIGQUIT does, the kernel knows.
            Err(hotspot::Error::NoTables) => Ok(Self::default()),
            Err(source) => Err(Refusal::Unreadable { pid, source }),
        }
    }
}

/// Whether nprof has this user and group, or may take them on.
fn may_act_as(uid: u32, gid: u32) -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let is = geteuid().as_raw() == uid && getegid().as_raw() == gid;
    is || capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Halted;

    const PID: Pid = Pid(7);
    const ON: Option<Flag> = Some(Flag { is_on: true, on_command_line: true });
    const OFF: Option<Flag> = Some(Flag { is_on: false, on_command_line: true });
    const DEFAULT_ON: Option<Flag> = Some(Flag { is_on: true, on_command_line: false });
    const DEFAULT_OFF: Option<Flag> = Some(Flag { is_on: false, on_command_line: false });

    /// A JDK 17 that nothing stands against.
    fn plain() -> Facts {
        Facts {
            pid: PID,
            kind: JvmKind::HotSpot,
            feature: Some(17),
            jdk: "JDK 17.0.15".to_owned(),
            flags: VmFlags { attach_disabled: DEFAULT_OFF, agents_enabled: DEFAULT_ON, reduced_signals: DEFAULT_OFF },
            code: Some(CodeRoom { reserved: 240 << 20, taken: 239 << 20 }),
            has_stubs: false,
            loaded: None,
            standing: Standing { ns_pid: 7, euid: 0, egid: 0, halted: None, quit: OnQuit::Caught },
            listens: false,
            same_user: true,
        }
    }

    fn refusal(change: impl FnOnce(&mut Facts)) -> String {
        let mut facts = plain();
        change(&mut facts);
        let refusal = facts.judge().expect_err("something stands against it");
        assert!(refusal.advice().is_some(), "{refusal}");
        refusal.to_string()
    }

    /// Check that each thing that stands against loading does so alone, by name and with advice.
    #[test]
    fn refuses() {
        type Change = fn(&mut Facts);
        let cases: [(&str, Change); 13] = [
            ("openj9", |facts| facts.kind = JvmKind::OpenJ9),
            ("(JDK 17.0.15) is older than JDK 11", |facts| facts.feature = Some(8)),
            ("(JDK 17.0.15) is newer than JDK 28", |facts| facts.feature = Some(29)),
            ("DisableAttachMechanism", |facts| facts.flags.attach_disabled = ON),
            ("-EnableDynamicAgentLoading", |facts| facts.flags.agents_enabled = OFF),
            ("-Xrs", |facts| facts.flags.reduced_signals = ON),
            ("would end it", |facts| facts.standing.quit = OnQuit::Ends),
            ("ignored", |facts| facts.standing.quit = OnQuit::Ignored),
            ("blocked", |facts| facts.standing.quit = OnQuit::HeldOff),
            ("stopped by a signal", |facts| facts.standing.halted = Some(Halted::Stopped)),
            ("frozen", |facts| facts.standing.halted = Some(Halted::Frozen)),
            ("user 0", |facts| facts.same_user = false),
            ("239 of 240 MB", |facts| facts.feature = Some(KEEPS_CODE)),
        ];
        for (word, change) in cases {
            let said = refusal(change);
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(plain().judge().unwrap(), []);
    }

    /// Check that stubs can be taken away however little room for code is left.
    #[test]
    fn stubs_can_be_taken_away() {
        let facts = Facts { feature: Some(KEEPS_CODE), has_stubs: true, ..plain() };
        assert!(facts.judge().is_ok());
    }

    /// Check that a JVM that listens already needs no signal, so that what that would do does not matter.
    #[test]
    fn no_signal_where_it_listens() {
        let mut facts = plain();
        facts.listens = true;
        facts.flags.reduced_signals = ON;
        facts.standing.quit = OnQuit::Ends;
        assert_eq!(facts.judge().unwrap(), []);
        facts.standing.halted = Some(Halted::Traced);
        assert!(facts.judge().is_err());
    }

    /// Check that the VM's own warning is announced just where the VM prints it.
    #[test]
    fn warns() {
        let warnings = |feature, agents_enabled, loaded: bool| {
            let loaded = loaded.then(|| "/proc/self/fd/9".into());
            let mut facts = Facts { feature, loaded, code: None, ..plain() };
            facts.flags.agents_enabled = agents_enabled;
            facts.judge().unwrap()
        };
        let prints = Warning::Prints { pid: PID };
        assert_eq!(warnings(Some(25), DEFAULT_ON, false), [prints]);
        assert_eq!(warnings(Some(25), ON, false), []);
        assert_eq!(warnings(Some(25), DEFAULT_ON, true), []);
        assert_eq!(warnings(Some(17), DEFAULT_ON, false), []);
        assert_eq!(warnings(None, None, false), []);
    }

    /// Check that root may act as anybody, and everybody as himself.
    #[test]
    fn who_may_act() {
        assert!(may_act_as(geteuid().as_raw(), getegid().as_raw()));
        let privileged = capabilities(None).unwrap().effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID);
        assert_eq!(may_act_as(54_321, 54_321), privileged);
    }
}
