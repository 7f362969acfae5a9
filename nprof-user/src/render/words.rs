//! Reasons in words: why a method is not traced, what a loss means and what to do about it.

use crate::model::{Losses, SkipReason};

/// Why a method is not traced, for one method or for many.
pub(super) fn skip(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Unbound => "not bound yet (picked up when bound)",
        SkipReason::Intrinsic => "method-handle intrinsic (the VM's own code, no native function)",
        SkipReason::NoFile => "bound to generated code (a probe needs a file; stubs see it: --tier stub)",
        SkipReason::UnreadableLibrary => "in a library that cannot be read",
        SkipReason::RefusedByKernel => "refused by the kernel (instruction that cannot carry a probe)",
        SkipReason::UnprovenStart => {
            "not known to be the start of a function (this kernel puts a probe into every process with the file)"
        }
        SkipReason::UntrustedFile => {
            "in a file that the JVM's user may have written (this kernel puts a probe into every process with it)"
        }
        SkipReason::OverLimit => {
            "over the limit (--max-methods, or the room made at the start: trace again, or narrow the pattern)"
        }
    }
}

/// What a loss means and what to do about it; nothing for a reason that this module does not know.
fn loss(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "unreturned" => {
            "calls left without a return (longjmp, or too deep for the kernel's return probes): counted, not timed; \
             nothing to do where the library is known to use longjmp"
        }
        "too-deep" => "calls nested in more than 64 traced calls: counted, not timed; trace fewer methods",
        "no-frame" => "no memory for the frames of a thread: calls counted, not timed; trace fewer methods or threads",
        "max-contended" => "a longest time was not recorded: MAX may be too low; the other numbers are exact",
        "bad-index" => "hits that nprof cannot attribute to a method: not counted; a defect of nprof, please report it",
        "missed-exec" => {
            "a process start was not noticed, because programs started faster than nprof could read of them: a JVM among \
             them is found up to 30 seconds late; nothing to do"
        }
        "no-off-cpu" => {
            "no memory to note when a thread is not running, or the kernel did not report that it ran again: calls counted and \
             timed, and all of their time is shown as work; nothing to do if they are few"
        }
        "no-counters" => {
            "no place for the counters of a thread, or calls nested in 15 or more traced calls: counted and timed, what they \
             consumed is missing; trace fewer methods"
        }
        "no-jni-room" => {
            "no room to say which native method called a JNI function: the calls are in the function's total alone; trace \
             fewer methods"
        }
        "unknown-look-up" => {
            "look-ups of which nprof does not know whether they were the same again (a name of more than 158 bytes, an object \
             that was moved meanwhile, or more than 65,536 different look-ups): counted and timed, not as redundant"
        }
        "tree-events" => {
            "a thread had told more than nprof had read: invocations that this interrupted are marked, and have no time; follow \
             fewer methods (--depth, --package)"
        }
        "tree-invocations" => {
            "nprof was behind in reading, so that these invocations were left out as a whole: the others are exact; follow fewer \
             methods (--depth, --package)"
        }
        "tree-no-ring" => {
            "events of threads for which there was no room: their invocations are not seen; nothing to do"
        }
        "tree-waits" => {
            "the kernel did not tell how long a thread was not running: that is taken to be work; nothing to do if they are few"
        }
        "no-held-room" => {
            "no room to remember what native code has made (131,072 things at once): counted, but not known as not let go, and as \
             made before when it is let go"
        }
        "unseen-release" => {
            "the VM gave a reference or address again and nprof had not seen it let go: the earlier one is taken to have been let go; \
             run with --max-overhead off"
        }
        _ => return None,
    })
}

/// What was lost, one line for each reason: `losses: none`, or what happened how often, what it means and what to do.
/// For the caller of a format without a place for it, such as CSV.
#[must_use]
pub fn losses(losses: &Losses) -> Vec<String> {
    let lines: Vec<String> = losses
        .counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(reason, n)| {
            let n = super::units::count(*n);
            match loss(reason) {
                Some(meaning) => format!("losses: {n} {reason}: {meaning}"),
                None => format!("losses: {n} {reason}"),
            }
        })
        .collect();
    if lines.is_empty() { vec!["losses: none".to_owned()] } else { lines }
}

/// The same in one short line: `losses: 3 unreturned, 1 too-deep`.
pub(super) fn losses_in_short(losses: &Losses) -> String {
    let lost: Vec<String> = losses
        .counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(reason, n)| format!("{} {reason}", super::units::count(*n)))
        .collect();
    format!("losses: {}", if lost.is_empty() { "none".to_owned() } else { lost.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::{losses, losses_in_short};
    use crate::model::Losses;

    /// Check that reasons without an occurrence are silent and that an unknown reason is printed as it is.
    #[test]
    fn names_each_loss_that_happened() {
        let none = Losses { counts: vec![("unreturned", 0), ("too-deep", 0)] };
        assert_eq!(losses(&none), ["losses: none"]);
        assert_eq!(losses_in_short(&Losses::default()), "losses: none");
        let some = Losses { counts: vec![("too-deep", 1200), ("unreturned", 0), ("brand-new", 3)] };
        assert_eq!(
            losses(&some),
            [
                "losses: 1,200 too-deep: calls nested in more than 64 traced calls: counted, not timed; trace fewer methods",
                "losses: 3 brand-new",
            ]
        );
        assert_eq!(losses_in_short(&some), "losses: 1,200 too-deep, 3 brand-new");
    }

    /// Check that every loss that nprof knows is explained.
    #[test]
    fn explains_every_known_loss() {
        for loss in nprof_common::Loss::ALL {
            assert!(super::loss(loss.as_str()).is_some(), "{loss:?}");
        }
    }
}
