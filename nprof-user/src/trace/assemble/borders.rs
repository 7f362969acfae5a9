//! Samples that a timer took on the border of a call: the thread was on its way to the programs, or back.
//!
//! Then the programs and the stack speak of different moments. The call that the programs know of as the innermost one has
//! just begun or ended, and the stack shows another native method already, or still.

use crate::model::{MethodSnapshot, ProfileFrame, ProfileFrameKind, ProfileStack, StackTotals};

/// Samples inside calls, without those on a border. A stack without any native method, such as one that is cut, says
/// nothing against its call.
pub(super) fn without(
    inside: Vec<StackTotals>,
    (stacks, frames): (&[ProfileStack], &[ProfileFrame]),
    functions: &[MethodSnapshot],
) -> Vec<StackTotals> {
    let shows = |totals: &StackTotals| {
        let Some(function) = totals.function else { return true };
        let numbers = stacks.get(totals.stack as usize).map(|stack| &stack.frames[..]).unwrap_or_default();
        let mut natives = numbers
            .iter()
            .filter_map(|number| frames.get(*number as usize))
            .filter(|frame| frame.kind == ProfileFrameKind::NativeMethod)
            .peekable();
        natives.peek().is_none() || natives.any(|frame| is_of(frame, function, functions))
    };
    inside.into_iter().filter(shows).collect()
}

/// Whether a frame is that of one of a function's methods.
pub(super) fn is_of(frame: &ProfileFrame, function: u32, functions: &[MethodSnapshot]) -> bool {
    let methods = functions.get(function as usize).map(|measured| &measured.methods[..]).unwrap_or_default();
    methods.iter().any(|known| known.method.class == *frame.scope && known.method.name == *frame.name)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use nprof_common::MethodStats;

    use super::*;
    use crate::aggregate::{ProbeSample, rows};
    use crate::model::{
        Bound, CutReason, FileOffset, LibraryId, Method, NativeCode, PlannedMethod, Price, Probe, ProbeCost, Site,
        Traced, Tracing, VirtAddr,
    };

    /// A function with methods of these names, all of class `a.N`.
    pub(in crate::trace::assemble) fn function(names: &[&str]) -> MethodSnapshot {
        let method = |name: &&str| Method {
            id: VirtAddr(0),
            class: "a.N".into(),
            name: (*name).into(),
            signature: "()V".into(),
            code: NativeCode::Unbound,
        };
        let planned = |name| PlannedMethod { method: method(name), bound: Bound::Export };
        let place = FileOffset(0);
        let site = Site { library: LibraryId(0), offset: place, entry: place, cost: ProbeCost::Emulated };
        let probe = Probe { index: 0, site, methods: names.iter().map(planned).collect() };
        let seen = ProbeSample {
            probe: &probe,
            library: "liba.so",
            price: Price::default(),
            traced_after: Duration::ZERO,
            traced: Traced::as_wanted(Tracing::Timed),
            off_cpu: false,
            stats: Some(MethodStats::ZERO),
            unseen: None,
            mean: None,
            waited: None,
            consumed: None,
            bytes_per_call: None,
            threads: None,
        };
        rows(Some(&seen), &[]).swap_remove(0)
    }

    /// Whether a sample stays that the programs took in a call of `function`, with this stack, the innermost frame first:
    /// `native a.N read` for a native method, `C` for a C function, `java` for a Java method.
    fn stays(function: Option<u32>, stack: &[&str]) -> bool {
        let frame = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            let (kind, scope, name) = match words[..] {
                ["native", class, method] => (ProfileFrameKind::NativeMethod, class, method),
                ["java"] => (ProfileFrameKind::C2, "a.N", "read"),
                _ => (ProfileFrameKind::Native, "libc.so", "read"),
            };
            let (scope, name, library) = (scope.to_owned(), name.to_owned(), String::new());
            ProfileFrame { kind, scope, name, signature: "()V".to_owned(), line: None, hidden: false, library }
        };
        let frames: Vec<ProfileFrame> = stack.iter().map(frame).collect();
        let stacks = [ProfileStack { frames: (0..).take(frames.len()).collect(), cut: Some(CutReason::Changing) }];
        let (calls, time_ns) = (0.0, 1e6);
        let (thread, self_ns, off_cpu_ns) = (None, time_ns, 0.0);
        let totals = StackTotals { stack: 0, function, thread, samples: 1, calls, time_ns, self_ns, off_cpu_ns };
        let functions = [&["read"][..], &["write", "writeAll"]].map(self::function);
        without(vec![totals], (&stacks, &frames), &functions) == [totals]
    }

    /// Check that samples within a call stay: in its method itself, in C below it, by each of the function's names, and where
    /// it has called back into Java and that other natives, none of which is traced.
    #[test]
    fn samples_within_their_call_stay() {
        assert!(stays(Some(0), &["native a.N read", "java"]));
        assert!(stays(Some(0), &["C", "native a.N read", "java"]));
        assert!(stays(Some(1), &["C", "native a.N writeAll", "java"]));
        assert!(stays(Some(0), &["C", "native a.N other", "java", "native a.N read", "java"]));
    }

    /// Check that samples go whose stack shows the method before or after their call: another one, a namesake of another
    /// class, or the one that the call was made from, when it has returned already.
    #[test]
    fn samples_beside_their_call_go() {
        assert!(!stays(Some(0), &["native a.N write", "java"]));
        assert!(!stays(Some(0), &["C", "native a.N write", "java"]));
        assert!(!stays(Some(0), &["native b.N read", "java"]));
        assert!(!stays(Some(1), &["C", "native a.N read", "java"]));
        assert!(!stays(Some(7), &["native a.N read", "java"]));
    }

    /// Check that samples of no call stay, and those whose stack says nothing of native methods.
    #[test]
    fn samples_without_evidence_stay() {
        assert!(stays(None, &["native a.N write", "java"]));
        assert!(stays(Some(0), &["C"]));
        assert!(stays(Some(0), &["java", "C", "java"]));
        assert!(stays(Some(0), &[]));
    }
}
