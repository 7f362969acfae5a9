//! Who is to see the calls of a function, of which stubs may see some methods and its probe the others.

use super::stub_states::Standing;
use crate::attach::Seen;

/// Who is to see the calls of a function by the standing of each of its methods. Where stubs are on their way out, its
/// probe has to be there before they go.
pub(super) fn share(standings: &[Standing], wants_stubs: bool) -> Seen {
    let has_stubs = standings.contains(&Standing::Stubbed);
    let needs_probe = standings.is_empty() || standings.contains(&Standing::Probed);
    match (has_stubs, needs_probe || !wants_stubs) {
        (_, false) => Seen::ByStubs,
        (true, true) => Seen::ByBoth,
        (false, true) => Seen::ByProbes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a function has a probe as long as one of its methods needs it, and that the probe knows of stubs.
    #[test]
    fn who_sees_a_function() {
        use Standing::{Awaited, Probed, Stubbed};
        for (standings, expected) in [
            (&[Stubbed, Awaited, Stubbed][..], Seen::ByStubs),
            (&[Awaited], Seen::ByStubs),
            (&[Stubbed, Probed], Seen::ByBoth),
            (&[Probed, Awaited], Seen::ByProbes),
            (&[], Seen::ByProbes),
        ] {
            assert_eq!(share(standings, true), expected, "{standings:?}");
        }
        assert_eq!(share(&[Stubbed], false), Seen::ByBoth);
        assert_eq!(share(&[Probed], false), Seen::ByProbes);
    }
}
