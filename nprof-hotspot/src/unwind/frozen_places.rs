//! What the programs in the kernel have to know of a VM to find frozen frames by themselves.

use std::sync::Arc;

use nprof_common::FrozenPlaces;

use super::classes::{Class, read_class};
use super::frozen::{
    CHUNK_ARGUMENTS, CHUNK_BOTTOM, CHUNK_OWNER, CHUNK_PARENT, CHUNK_SIZE, CHUNK_SP, CONTINUATION, TAIL,
};
use super::objects::Objects;
use super::{ATTEMPTS, Unwinder};
use crate::hotspot::{RemoteMemory, classes_of_boot_loader};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

const THREAD_CLASS: &str = "java/lang/Thread";
const CONTINUATION_CLASS: &str = "jdk/internal/vm/Continuation";
const CHUNK_CLASS: &str = "jdk/internal/vm/StackChunk";

impl<M: RemoteMemory> Unwinder<M> {
    /// Where frozen frames lie; `None` for a VM without virtual threads, or one that does not say. `env` is the offset of
    /// the `JNIEnv` in a `JavaThread`.
    ///
    /// # Errors
    /// What makes all reads fail: the process has ended, or may not be read.
    pub fn frozen_places(&mut self, env: u64) -> Result<Option<FrozenPlaces>, MemoryError> {
        let Some(frozen) = self.layout.frozen.clone() else {
            return Ok(None);
        };
        self.reader.forget();
        let Self { reader, layout, known, .. } = self;
        let Some(entered) = frozen.entered.find(reader, layout, &mut known.code)? else {
            return Ok(None);
        };
        let Some(references) = self.references()? else {
            return Ok(None);
        };
        let names = [THREAD_CLASS, CONTINUATION_CLASS, CHUNK_CLASS];
        let [Some(thread), Some(continuation), Some(chunk)] = self.classes_named(names)? else {
            return Ok(None);
        };
        let places = || {
            let bottom = chunk.offset(CHUNK_BOTTOM);
            Some(FrozenPlaces {
                thread_from_env: env.cast_signed().checked_neg().filter(|offset| *offset != 0)?,
                entry_sp: entered.noted,
                stack_base: frozen.stack_base,
                thread_object: frozen.thread_object,
                continuation: thread.offset(CONTINUATION)?,
                tail: continuation.offset(TAIL)?,
                owner: chunk.offset(CHUNK_OWNER)?,
                parent: chunk.offset(CHUNK_PARENT)?,
                size: chunk.offset(CHUNK_SIZE)?,
                sp: chunk.offset(CHUNK_SP)?,
                bottom: bottom.or_else(|| chunk.offset(CHUNK_ARGUMENTS))?,
                from_end: u64::from(bottom.is_none()),
                words: chunk.instance_bytes,
                ..references
            })
        };
        Ok(places())
    }

    /// Finds out where in the words at which a continuation was entered its object is referred to, in bytes; `None` if it
    /// is in none of them. The VM's tables do not tell.
    ///
    /// # Errors
    /// As [`Self::frozen_places`].
    pub fn entered(&mut self, words: &[u64]) -> Result<Option<u64>, MemoryError> {
        self.reader.forget();
        let Some(mut objects) = Objects::of(&mut self.reader, &self.layout)? else {
            return Ok(None);
        };
        for (at, word) in words.iter().enumerate() {
            let object = objects.read(&mut self.reader, &self.layout, VirtAddr(*word))?;
            if object.is_some_and(|object| object.class.offset(TAIL).is_some()) {
                return Ok(Some(8 * at as u64));
            }
        }
        Ok(None)
    }

    /// How references are written.
    fn references(&mut self) -> Result<Option<FrozenPlaces>, MemoryError> {
        let Some(objects) = Objects::of(&mut self.reader, &self.layout)? else {
            return Ok(None);
        };
        for _ in 0..ATTEMPTS {
            self.reader.forget();
            let colours = objects.colours(&mut self.reader)?;
            // Read in the moment of a change they do not fit together.
            if let Some(references) = colours.and_then(|colours| objects.references(colours)) {
                return Ok(Some(references));
            }
        }
        Ok(None)
    }

    fn classes_named<const N: usize>(&mut self, names: [&str; N]) -> Result<[Option<Arc<Class>>; N], MemoryError> {
        let mut classes = [const { None }; N];
        let klasses = classes_of_boot_loader(&mut self.reader, &self.layout.names, names)?;
        for (class, klass) in classes.iter_mut().zip(klasses) {
            if let Some(klass) = klass {
                *class = read_class(&mut self.reader, &self.layout, klass)?;
            }
        }
        Ok(classes)
    }
}
