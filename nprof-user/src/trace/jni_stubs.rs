//! The JNI functions of one JVM by stubs in it: all of its table, with exact counts and times, and who calls them as far as sampled calls say.
//!
//! To the shim, and to everything that decides what stubs do, a JNI function is a method that only the shim has met. It is known by its place in the
//! table, and no native method is traced beside it. So its calls are sampled as theirs are; the stack of a call begins with the native method
//! that has made it.

use super::jvm_jni::functions_with_stubs;
use super::prepared::Prepared;
use super::recorder::{Recording, Wanted};
use super::{Error, Tracer};
use crate::aggregate;
use crate::attach::in_full;
use crate::model::JniSnapshot;
use crate::profile::UNKNOWN_OF_MANY;
use crate::shim;

/// The most stacks in a second, as of a recording: at some microseconds each.
const MAX_STACKS: u32 = 1_000;
/// How much of a stack is copied, in bytes. What lies above the native code is all that is asked for.
const STACK_BYTES: u32 = 32 << 10;

/// A JVM whose JNI functions have stubs. They are out of the VM's table when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct JniStubs {
    recording: Recording,
    functions: usize,
}

impl Prepared {
    /// Puts stubs before all JNI functions, and before no native method. The options have to select no method, and say
    /// [`super::TierWanted::Stub`].
    ///
    /// # Errors
    /// As [`Prepared::attach`]; [`Error::ShimInUse`] if another nprof uses the shim, [`Error::NoJni`] if it is not known which functions
    /// there are, or none has got a stub.
    pub fn jni_by_stubs(self) -> Result<JniStubs, Error> {
        let pid = self.jvm().pid;
        if shim::is_in_use(pid) {
            return Err(Error::ShimInUse { pid });
        }
        let functions = functions_with_stubs(self.jvm())?;
        let all = functions.len();
        let (max_stacks, stack_bytes) = (MAX_STACKS, STACK_BYTES);
        let (native_stacks, timeline, patterns) = (false, false, Vec::new());
        let wanted =
            Wanted { max_stacks, stack_bytes, native_stacks, timeline, patterns, first_chance: Some(UNKNOWN_OF_MANY) };
        let recording = self.with_functions(functions).begin_recording(wanted)?;
        let functions = recording.tracer.listed_stubs().len();
        if functions == 0 {
            return Err(Error::NoJni { pid });
        }
        if functions < all {
            tracing::warn!("process {pid}: {} of {all} JNI functions have no stub, and are not seen", all - functions);
        }
        if let Err(error) = &recording.sampler {
            tracing::warn!("process {pid}: not told who calls JNI functions: {}", in_full(error));
        }
        Ok(JniStubs { recording, functions })
    }
}

impl JniStubs {
    /// The JVM.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.recording.tracer
    }

    /// How many functions have stubs.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// Does what is due: see [`Tracer::tick`].
    pub fn tick(&mut self) {
        if self.recording.tracer.is_due() {
            self.recording.tracer.tick();
        }
    }

    /// Takes all stubs out of the table (see [`Tracer::stop`]): everything measured from the start to now.
    ///
    /// # Errors
    /// If a part of nprof has failed, which is a defect.
    pub fn finish(self) -> Result<JniSnapshot, Error> {
        let (snapshot, recorded) = self.recording.finish()?;
        Ok(aggregate::jni_by_stubs(snapshot, recorded.as_ref()))
    }
}
