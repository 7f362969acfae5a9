//! The arguments of C++ functions: they follow the name, so that they would be all that is left of a label of which the
//! front is cut off.

/// Takes the arguments off a C++ function's name: `a::b(int) const` is `a::b` with `int`.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    let arguments = name.strip_suffix(" const").unwrap_or(name).strip_suffix(')')?;
    let mut open = 1;
    let begins = arguments.char_indices().rev().find(|&(_, c)| {
        open += i32::from(c == ')') - i32::from(c == '(');
        open == 0
    });
    let (function, arguments) = arguments.split_at(begins?.0);
    let is_name = function.ends_with(|c: char| c.is_alphanumeric() || "_>]~=+-*/%^&|!<,".contains(c));
    is_name.then(|| (function, &arguments[1..]))
}

#[cfg(test)]
mod tests {
    use super::split;

    /// Check that arguments are found, nested brackets in them or before them, and that other brackets are none.
    #[test]
    fn arguments_are_split_off() {
        for (name, expected) in [
            ("a::b(int, void (*)(char)) const", Some(("a::b", "int, void (*)(char)"))),
            ("(anonymous namespace)::f<(E)1>()", Some(("(anonymous namespace)::f<(E)1>", ""))),
            ("C::operator+(C const&)", Some(("C::operator+", "C const&"))),
            ("inflate", None),
            ("(no name)", None),
            ("odd)", None),
            ("f [clone (cold)]", None),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }
}
