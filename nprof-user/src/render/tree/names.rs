//! Short names that stay unambiguous: a class without its package, unless two classes would look the same; overloads with their
//! arguments.

use std::collections::{BTreeSet, HashMap};

use crate::model::{TreeKind, TreeMethod, descriptor};
use crate::render::names::{printable, tell_apart};

/// How many parts of a class's name are compared.
const MOST_PARTS: usize = 16;

/// The names of a plan's methods.
#[derive(Debug)]
pub(super) struct Names {
    short: Vec<String>,
}

impl Names {
    pub(super) fn of(methods: &[TreeMethod]) -> Self {
        let classes = short_classes(methods);
        let class = |method: &TreeMethod| classes.get(&*method.class).copied().unwrap_or_default().to_owned();
        // JNI functions are of no class; those that call Java have the method beside them.
        let name = |of: &TreeMethod| match (of.kind, &of.callee) {
            (TreeKind::Jni(_), Some(callee)) => format!("{} {}", of.method, with_arguments(callee)),
            (TreeKind::Jni(_), None) => of.method.to_string(),
            (TreeKind::Java | TreeKind::Native | TreeKind::Intrinsic, _) => format!("{}::{}", class(of), of.method),
        };
        let mut short: Vec<String> = methods.iter().map(name).collect();
        let arguments = |of: &TreeMethod| descriptor::short_arguments(&of.signature).unwrap_or_default();
        let longer = |i: usize| format!("{}::{}{}", class(&methods[i]), methods[i].method, arguments(&methods[i]));
        tell_apart(&mut short, longer);
        let result = |of: &TreeMethod| descriptor::short(&of.signature).unwrap_or_default();
        tell_apart(&mut short, |i| format!("{}::{}{}", class(&methods[i]), methods[i].method, result(&methods[i])));
        tell_apart(&mut short, |i| format!("{}::{}{}", class(&methods[i]), methods[i].method, methods[i].signature));
        Self { short: short.iter().map(|name| printable(name).into_owned()).collect() }
    }

    /// The name of a method.
    pub(super) fn short(&self, number: u32) -> &str {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        self.short.get(place).map_or("(no method)", |name| name)
    }
}

/// `class::method` with a descriptor as people read it: `com.acme.Svc::get(int)`.
pub(super) fn readable(text: &str) -> String {
    printable(&with_arguments(text)).into_owned()
}

/// The same, not yet fit to be printed.
fn with_arguments(text: &str) -> String {
    let signature = text.find('(').filter(|at| text[..*at].contains("::"));
    let end = |at: usize| text[at..].find([' ', ',']).map_or(text.len(), |blank| at + blank);
    let readable = signature.and_then(|at| {
        let arguments = descriptor::short_arguments(&text[at..end(at)])?;
        Some(format!("{}{arguments}{}", &text[..at], &text[end(at)..]))
    });
    readable.unwrap_or_else(|| text.to_owned())
}

/// For each class the shortest end of its name, from a dot on, that no other class has.
fn short_classes(methods: &[TreeMethod]) -> HashMap<&str, &str> {
    let classes: BTreeSet<&str> = methods.iter().map(|method| &*method.class).collect();
    let mut short = HashMap::new();
    let mut parts = 1;
    let mut left: Vec<&str> = classes.into_iter().collect();
    while !left.is_empty() {
        let mut uses: HashMap<&str, u32> = HashMap::new();
        for class in &left {
            *uses.entry(end(class, parts)).or_default() += 1;
        }
        left.retain(|class| {
            let end = end(class, parts);
            // Of names that are alike in so many parts nobody wants to read the end.
            let is_done = uses[end] == 1 || end.len() == class.len() || parts >= MOST_PARTS;
            if is_done {
                short.insert(*class, if uses[end] == 1 { end } else { class });
            }
            !is_done
        });
        parts += 1;
    }
    short
}

/// The last `parts` parts of a class's name.
fn end(class: &str, parts: usize) -> &str {
    // The name of a hidden class ends in `/0x…`, in which dots separate nothing.
    let named = class.split('/').next().unwrap_or(class);
    let dots = named.rmatch_indices('.').nth(parts - 1);
    dots.map_or(class, |(dot, _)| &class[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::{Names, readable};
    use crate::model::{TreeKind, TreeMethod};

    fn method(class: &str, method: &str, signature: &str) -> TreeMethod {
        TreeMethod {
            class: class.into(),
            method: method.into(),
            signature: signature.into(),
            kind: TreeKind::Java,
            is_entry: false,
            depth: 0,
            callers: Vec::new(),
            callee: None,
        }
    }

    /// Check that packages stand only where classes would look the same, and arguments only where methods would.
    #[test]
    fn names_are_short_and_different() {
        let methods = [
            method("com.acme.Svc", "get", "(I)V"),
            method("com.acme.Svc", "get", "(Ljava/lang/String;)V"),
            method("com.acme.web.Page", "get", "()V"),
            method("com.other.web.Page", "get", "()V"),
            method("Page", "get", "()V"),
            method("com.acme.Main$$Lambda/0x00007f.12", "run", "()V"),
            method("com.acme.Bad", "a\u{1b}", "()V"),
            method("com.acme.It", "next", "()Ljava/lang/Object;"),
            method("com.acme.It", "next", "()Ljava/lang/String;"),
        ];
        let names = Names::of(&methods);
        let short: Vec<&str> = (0..9).map(|number| names.short(number)).collect();
        let expected = [
            "Svc::get(int)",
            "Svc::get(String)",
            "acme.web.Page::get",
            "other.web.Page::get",
            "Page::get",
            "Main$$Lambda/0x00007f.12::run",
            "Bad::a\\u{1b}",
            "It::next() -> Object",
            "It::next() -> String",
        ];
        assert_eq!(short, expected);
        assert_eq!(names.short(9), "(no method)");
    }

    /// Check that descriptors are read, and that what is none stays as it is.
    #[test]
    fn descriptors_are_readable() {
        assert_eq!(readable("a.B::c(I[Ljava/lang/String;)V"), "a.B::c(int, String[])");
        assert_eq!(readable("a.B::c(I)V, called by it"), "a.B::c(int), called by it");
        assert_eq!(readable("a.B::c(I)V in d"), "a.B::c(int) in d");
        assert_eq!(readable("some (thing)"), "some (thing)");
    }
}
