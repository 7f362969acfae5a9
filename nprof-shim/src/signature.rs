//! From a JNI signature to the number of words that a call passes on the stack.
//!
//! A native gets the JNI environment, the class or the object, and its arguments by the System V calling convention:
//! six integer registers, eight vector registers, and everything beyond them on the stack, a word each. The timed stub
//! has to copy exactly these words.

/// Integer registers that carry arguments.
const INTEGER_REGISTERS: u32 = 6;
/// Vector registers that carry arguments.
const VECTOR_REGISTERS: u32 = 8;
/// The environment, and the class or the object.
const IMPLICIT_ARGUMENTS: u32 = 2;

/// The words on the stack at a call of a native with this signature (`(IJLjava/lang/String;[D)V`), or `None` if it is
/// not a signature.
#[must_use]
pub fn stack_words(signature: &str) -> Option<u32> {
    let (arguments, result) = signature.strip_prefix('(')?.split_once(')')?;
    if result != "V" && !one_type(result)?.1.is_empty() {
        return None;
    }
    let (mut integers, mut vectors) = (IMPLICIT_ARGUMENTS, 0u32);
    let mut rest = arguments;
    while !rest.is_empty() {
        let (kind, after) = one_type(rest)?;
        match kind {
            b'F' | b'D' => vectors += 1,
            _ => integers += 1,
        }
        rest = after;
    }
    Some(integers.saturating_sub(INTEGER_REGISTERS) + vectors.saturating_sub(VECTOR_REGISTERS))
}

/// The first letter of the type that a descriptor begins with, and what comes after that type.
fn one_type(descriptor: &str) -> Option<(u8, &str)> {
    let first = *descriptor.as_bytes().first()?;
    let after = match first {
        b'Z' | b'B' | b'C' | b'S' | b'I' | b'J' | b'F' | b'D' => descriptor.get(1..)?,
        b'L' => descriptor.split_once(';')?.1,
        b'[' => one_type(descriptor.trim_start_matches('['))?.1,
        _ => return None,
    };
    Some((first, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the first four integers, which are all but the implicit ones, stay in registers.
    #[test]
    fn integers_beyond_four() {
        assert_eq!(stack_words("()V"), Some(0));
        assert_eq!(stack_words("(IJLjava/lang/String;[[D)I"), Some(0));
        assert_eq!(stack_words("(ZBCSI)V"), Some(1));
        assert_eq!(stack_words(&format!("({})J", "J".repeat(127))), Some(123));
    }

    /// Check that floats and doubles fill their own eight registers, and that an array of them is an integer.
    #[test]
    fn vectors_beyond_eight() {
        assert_eq!(stack_words("(FDFDFDFD)D"), Some(0));
        assert_eq!(stack_words("(FDFDFDFDF)D"), Some(1));
        assert_eq!(stack_words(&format!("({}IIIII)V", "F".repeat(20))), Some(13));
        assert_eq!(stack_words("([F[F[F[F[F)V"), Some(1));
    }

    /// Check that what is no signature is refused.
    #[test]
    fn nonsense_is_refused() {
        for nonsense in ["", "()", "I", "(I", "(Ljava/lang/String)V", "(X)V", "([)V", "(V)V", "()VV", "()II", "(é)V"] {
            assert_eq!(stack_words(nonsense), None, "{nonsense}");
        }
    }
}
