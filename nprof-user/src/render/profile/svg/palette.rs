//! The colour and the words for each kind of frame.
//!
//! After Okabe and Ito's set of hues that people with any colour vision can tell apart, lightened so that black text reads
//! well: native methods, which the picture is about, in the strongest (orange), native code around them in yellows, the VM
//! in purple, Java in blues from light (interpreted) to dark (C2).

use crate::model::ProfileFrameKind;

/// The colour of the box below all others.
const ALL: &str = "#e6e6e6";

/// Every kind, in the order of the legend.
pub(super) const LEGEND: [ProfileFrameKind; 9] = [
    ProfileFrameKind::NativeMethod,
    ProfileFrameKind::Native,
    ProfileFrameKind::NativeInlined,
    ProfileFrameKind::Vm,
    ProfileFrameKind::C2,
    ProfileFrameKind::Inlined,
    ProfileFrameKind::C1,
    ProfileFrameKind::Interpreted,
    ProfileFrameKind::Marker,
];

/// The colour of a box.
pub(super) fn colour(kind: Option<ProfileFrameKind>) -> &'static str {
    let Some(kind) = kind else { return ALL };
    match kind {
        ProfileFrameKind::NativeMethod => "#f0a30a",
        ProfileFrameKind::Native => "#f5e663",
        ProfileFrameKind::NativeInlined => "#faf3b8",
        ProfileFrameKind::Vm => "#d9a3c4",
        ProfileFrameKind::C2 => "#6cb6e8",
        ProfileFrameKind::Inlined => "#a9d5f2",
        ProfileFrameKind::C1 => "#7fcdb5",
        ProfileFrameKind::Interpreted => "#cdebe1",
        ProfileFrameKind::Marker => "#c4c4c4",
    }
}

/// What the legend calls it.
pub(super) fn legend(kind: ProfileFrameKind) -> &'static str {
    match kind {
        ProfileFrameKind::NativeMethod => "native method",
        ProfileFrameKind::Native => "native code",
        ProfileFrameKind::NativeInlined => "native, inlined",
        ProfileFrameKind::Vm => "the VM itself",
        ProfileFrameKind::C2 => "Java (C2)",
        ProfileFrameKind::Inlined => "Java, inlined",
        ProfileFrameKind::C1 => "Java (C1)",
        ProfileFrameKind::Interpreted => "Java, interpreted",
        ProfileFrameKind::Marker => "no code",
    }
}

/// What a tooltip says that it is. Without round brackets.
pub(super) fn description(kind: ProfileFrameKind) -> &'static str {
    match kind {
        ProfileFrameKind::NativeMethod => "native method",
        ProfileFrameKind::Native => "native function",
        ProfileFrameKind::NativeInlined => "inlined native function",
        ProfileFrameKind::Vm => "function of the VM",
        ProfileFrameKind::C2 => "Java, compiled by C2",
        ProfileFrameKind::Inlined => "Java, inlined",
        ProfileFrameKind::C1 => "Java, compiled by C1",
        ProfileFrameKind::Interpreted => "Java, interpreted",
        ProfileFrameKind::Marker => "no code",
    }
}
