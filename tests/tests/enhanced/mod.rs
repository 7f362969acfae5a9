//! Class files that `enhance` has changed, in the hands of the VM.

mod calls;
mod jvm;
mod told;
mod verified;
