//! The JNI functions of one JVM by stubs in it: all of its table, with exact counts and times, whoever calls them.
//!
//! To the shim, and to everything that decides what stubs do, a JNI function is a method that only the shim has met. It is known by its place in the
//! table, and no native method is traced beside it.

use super::jvm_jni::functions_with_stubs;
use super::prepared::Prepared;
use super::{Error, Tracer};
use crate::aggregate;
use crate::model::JniSnapshot;
use crate::shim;

/// A JVM whose JNI functions have stubs. They are out of the VM's table when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct JniStubs {
    tracer: Tracer,
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
        let tracer = self.with_functions(functions).attach()?;
        let functions = tracer.listed_stubs().len();
        if functions == 0 {
            return Err(Error::NoJni { pid });
        }
        if functions < all {
            tracing::warn!("process {pid}: {} of {all} JNI functions have no stub, and are not seen", all - functions);
        }
        Ok(JniStubs { tracer, functions })
    }
}

impl JniStubs {
    /// The JVM.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// How many functions have stubs.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// Does what is due: see [`Tracer::tick`].
    pub fn tick(&mut self) {
        if self.tracer.is_due() {
            self.tracer.tick();
        }
    }

    /// Takes all stubs out of the table: see [`Tracer::stop`].
    pub fn stop(&mut self) {
        self.tracer.stop();
    }

    /// Everything measured from the start to now, or to the end if that was stopped.
    #[must_use]
    pub fn snapshot(&self) -> JniSnapshot {
        aggregate::jni_by_stubs(self.tracer.snapshot())
    }
}
