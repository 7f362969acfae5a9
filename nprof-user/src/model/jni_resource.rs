//! What native code makes by JNI functions and has to let go, and how much of it.

use nprof_common::JniHolds;

/// Something that native code makes, and has to let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JniResource {
    /// Local references.
    Local,
    /// Global references.
    Global,
    /// Weak global references.
    Weak,
    /// Characters of strings.
    Chars,
    /// Elements of arrays.
    Elements,
    /// Memory and strings that the collector must not move.
    Critical,
}

impl JniResource {
    /// Every one, in the order of documents.
    pub const ALL: [Self; 6] = [Self::Global, Self::Weak, Self::Local, Self::Chars, Self::Elements, Self::Critical];

    /// What the programs are told of a function that makes or lets go what is followed. Of local references only their number is: the VM
    /// lets them go when the native method returns, without any function.
    #[must_use]
    pub fn followed(function: &str) -> JniHolds {
        match Self::made_by(function).or_else(|| Self::let_go_by(function)) {
            None if Self::is_room_for_locals(function) => JniHolds::Local,
            None => JniHolds::Nothing,
            Some(Self::Local) => JniHolds::Local,
            Some(Self::Global) => JniHolds::Global,
            Some(Self::Weak) => JniHolds::Weak,
            Some(Self::Chars) => JniHolds::Chars,
            Some(Self::Elements) => JniHolds::Elements,
            Some(Self::Critical) => JniHolds::Critical,
        }
    }

    /// Whether a function makes room for local references.
    #[must_use]
    pub fn is_room_for_locals(function: &str) -> bool {
        matches!(function, "PushLocalFrame" | "EnsureLocalCapacity")
    }

    /// What a number stands for that the programs were told; nothing if that is not followed.
    #[must_use]
    pub fn of_holds(holds: u64) -> Option<Self> {
        let place = usize::try_from(holds.checked_sub(1)?).ok()?;
        Self::FOLLOWED.get(place).copied()
    }

    /// Those that are followed from being made to being let go, in the order of their numbers.
    pub const FOLLOWED: [Self; 5] = [Self::Global, Self::Weak, Self::Chars, Self::Elements, Self::Critical];

    /// The word for documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Global => "global",
            Self::Weak => "weak",
            Self::Chars => "utf",
            Self::Elements => "elements",
            Self::Critical => "critical",
        }
    }

    /// What a function makes with each call that does not return null.
    #[must_use]
    pub fn made_by(function: &str) -> Option<Self> {
        let ends = |part: &str| function.ends_with(part);
        match function {
            "NewGlobalRef" => Some(Self::Global),
            "NewWeakGlobalRef" => Some(Self::Weak),
            "GetStringChars" | "GetStringUTFChars" => Some(Self::Chars),
            "GetPrimitiveArrayCritical" | "GetStringCritical" => Some(Self::Critical),
            "FindClass" | "DefineClass" | "GetSuperclass" | "GetObjectClass" | "GetModule" => Some(Self::Local),
            "ToReflectedMethod" | "ToReflectedField" | "ExceptionOccurred" | "PopLocalFrame" => Some(Self::Local),
            "NewLocalRef" | "AllocObject" | "NewObject" | "NewObjectV" | "NewObjectA" => Some(Self::Local),
            "NewString" | "NewStringUTF" | "NewDirectByteBuffer" | "GetObjectArrayElement" => Some(Self::Local),
            "GetObjectField" | "GetStaticObjectField" => Some(Self::Local),
            _ if function.starts_with("Get") && ends("ArrayElements") => Some(Self::Elements),
            _ if function.starts_with("New") && ends("Array") => Some(Self::Local),
            _ if function.starts_with("Call") && function.contains("ObjectMethod") => Some(Self::Local),
            _ => None,
        }
    }

    /// What a function lets go with each call.
    #[must_use]
    pub fn let_go_by(function: &str) -> Option<Self> {
        match function {
            "DeleteGlobalRef" => Some(Self::Global),
            "DeleteWeakGlobalRef" => Some(Self::Weak),
            "DeleteLocalRef" => Some(Self::Local),
            "ReleaseStringChars" | "ReleaseStringUTFChars" => Some(Self::Chars),
            "ReleasePrimitiveArrayCritical" | "ReleaseStringCritical" => Some(Self::Critical),
            _ if function.starts_with("Release") => Some(Self::Elements),
            _ => None,
        }
    }
}

/// How many were made and let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Given to native code.
    pub made: u64,
    /// Given back by it.
    pub let_go: u64,
    /// Of `let_go`, those that were made before anybody looked; told only where what is held is followed.
    pub made_before: u64,
}

/// How much of one kind was made and let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JniReferences {
    /// What.
    pub resource: JniResource,
    /// How much.
    pub sums: Resources,
    /// Whether every call was seen of the functions that make and let it go: then what is made less what is let go is how many there are
    /// more than when tracing began.
    pub is_whole: bool,
}

impl JniReferences {
    /// How many there are more than when tracing began; `None` if not every call was seen.
    #[must_use]
    pub fn live(&self) -> Option<i64> {
        self.is_whole.then(|| self.sums.made.wrapping_sub(self.sums.let_go).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that it is known how many there are only if every call was seen, also where more were let go than made.
    #[test]
    fn live_references() {
        let of = |made, let_go, is_whole| {
            let sums = Resources { made, let_go, made_before: 0 };
            JniReferences { resource: JniResource::Global, sums, is_whole }.live()
        };
        assert_eq!([of(7, 5, true), of(5, 7, true), of(7, 5, false)], [Some(2), Some(-2), None]);
    }
}
