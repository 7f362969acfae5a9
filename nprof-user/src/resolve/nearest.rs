//! The names that a user perhaps meant with a pattern that matches nothing.

use std::collections::HashMap;

use strsim::normalized_levenshtein;

use crate::model::Method;

/// How many names are suggested.
const SUGGESTIONS: usize = 3;
/// The methods of so many classes are compared, where it costs something to have them.
const CLASSES: usize = 200;
/// Below this likeness, from 0 to 1, a suggestion would only puzzle.
const LEAST_LIKENESS: f64 = 0.5;

/// The names in `methods` most like `pattern`, best first: `class::method`, or the class alone where the pattern
/// has no `::` and a class is what it resembles. At most three; methods that share a name count once.
#[must_use]
pub fn nearest(pattern: &str, methods: &[Method]) -> Vec<String> {
    let wanted = Wanted::of(pattern);
    let mut classes: HashMap<&str, f64> = HashMap::new();
    let mut names: HashMap<&str, f64> = HashMap::new();
    let mut best: HashMap<String, f64> = HashMap::new();
    for method in methods {
        let class = *classes.entry(&method.class).or_insert_with(|| wanted.class_likeness(&method.class));
        let name = *names.entry(&method.name).or_insert_with(|| wanted.method_likeness(&method.name));
        for (text, likeness) in wanted.candidates(method, class, name) {
            if likeness >= LEAST_LIKENESS {
                let known = best.entry(text).or_insert(0.0);
                *known = known.max(likeness);
            }
        }
    }
    let mut ranked: Vec<(String, f64)> = best.into_iter().collect();
    ranked.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.cmp(b)));
    ranked.into_iter().take(SUGGESTIONS).map(|(name, _)| name).collect()
}

/// The places of the classes that are most like the class of `pattern`, best first, for those to whom it costs something to have methods;
/// all where it names no class.
#[must_use]
pub fn nearest_classes<'a>(pattern: &str, classes: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
    let wanted = Wanted::of(pattern);
    let mut ranked: Vec<(usize, f64)> =
        classes.into_iter().enumerate().map(|(place, class)| (place, wanted.class_likeness(class))).collect();
    ranked.sort_by(|(_, x), (_, y)| y.total_cmp(x));
    let most = if wanted.class.is_empty() { ranked.len() } else { CLASSES };
    ranked.into_iter().take(most).map(|(place, _)| place).collect()
}

/// The pattern without its wildcards and its descriptor, in lower case.
struct Wanted {
    whole: String,
    class: String,
    /// `None` where the pattern has no `::`.
    method: Option<String>,
}

impl Wanted {
    fn of(pattern: &str) -> Self {
        let plain: String = pattern
            .split('(')
            .next()
            .unwrap_or(pattern)
            .chars()
            .filter(|c| !matches!(c, '*' | '?' | '[' | ']' | '{' | '}'))
            .flat_map(char::to_lowercase)
            .collect();
        // Habits from other notations: Class#method and the slashes of class files.
        let plain = plain.replace('#', "::").replace('/', ".");
        let (class, method) = match plain.split_once("::") {
            Some((class, method)) => (class.trim_matches('.').to_owned(), Some(method.to_owned())),
            None => (plain.trim_matches('.').to_owned(), None),
        };
        Self { whole: plain, class, method }
    }

    /// How much a class is like the class part: its full name, or its simple one, whichever is nearer.
    fn class_likeness(&self, class: &str) -> f64 {
        let class = class.to_lowercase();
        let simple = class.rsplit('.').next().unwrap_or(&class);
        likeness(&self.class, &class).max(likeness(&self.class, simple))
    }

    /// How much a method's name is like the method part, or like the whole pattern where it has no `::`.
    fn method_likeness(&self, name: &str) -> f64 {
        likeness(self.method.as_ref().unwrap_or(&self.class), &name.to_lowercase())
    }

    /// What could be suggested for one method, given how much its class and its name are alike.
    fn candidates(&self, method: &Method, class: f64, name: f64) -> Vec<(String, f64)> {
        let full = format!("{}::{}", method.class, method.name);
        let whole = likeness(&self.whole, &full.to_lowercase());
        match &self.method {
            // A part that was all wildcards says nothing; the other one decides.
            Some(_) if self.class.is_empty() => vec![(full, name)],
            Some(wanted) if wanted.is_empty() => vec![(method.class.to_string(), class)],
            Some(_) => vec![(full, whole.max(f64::midpoint(class, name)))],
            // A method named without its class, or with a dot in front of it: somewhat less likely than a class.
            None => vec![(method.class.to_string(), class), (full, whole.max(name) * 0.95)],
        }
    }
}

/// Likeness of two names from 0 to 1, upper bound first: names of very different lengths are not compared.
fn likeness(a: &str, b: &str) -> f64 {
    let (short, long) = if a.len() < b.len() { (a.len(), b.len()) } else { (b.len(), a.len()) };
    // Length in bytes bounds the likeness only for ASCII, which is all but a few names.
    if a.is_ascii() && b.is_ascii() && short * 2 < long {
        return 0.0;
    }
    normalized_levenshtein(a, b)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{NativeCode, VirtAddr};
    use crate::sys::cpu_clock::CpuClock;

    fn methods(names: &[(&str, &str)]) -> Vec<Method> {
        names
            .iter()
            .map(|(class, name)| Method {
                id: VirtAddr(0),
                class: (*class).into(),
                name: (*name).into(),
                signature: "()V".into(),
                code: NativeCode::Unbound,
            })
            .collect()
    }

    fn jdk() -> Vec<Method> {
        methods(&[
            ("java.util.zip.Deflater", "deflateBytesBytes"),
            ("java.util.zip.Deflater", "deflateBytesBytes"),
            ("java.util.zip.Deflater", "init"),
            ("java.util.zip.Inflater", "inflateBytesBytes"),
            ("java.lang.Object", "notifyAll"),
            ("java.lang.Thread", "yield"),
            ("sun.nio.ch.FileDispatcherImpl", "read0"),
        ])
    }

    /// Check that slips of the usual kinds lead to the method that was meant.
    #[test]
    fn finds_what_was_meant() {
        for (pattern, first) in [
            ("java.util.zip.Deflator::deflateBytesBytes", "java.util.zip.Deflater::deflateBytesBytes"),
            ("Deflater::deflateByteBytes", "java.util.zip.Deflater::deflateBytesBytes"),
            ("java.util.zip.Deflater.init", "java.util.zip.Deflater::init"),
            ("java/util/zip/Deflater#init", "java.util.zip.Deflater::init"),
            ("deflater", "java.util.zip.Deflater"),
            ("java.util.Deflater", "java.util.zip.Deflater"),
            ("Deflatr::*", "java.util.zip.Deflater"),
            ("*::notifyall*", "java.lang.Object::notifyAll"),
            ("notifyAll", "java.lang.Object::notifyAll"),
            ("FileDispatcher::read", "sun.nio.ch.FileDispatcherImpl::read0"),
        ] {
            assert_eq!(nearest(pattern, &jdk()).first().map(String::as_str), Some(first), "{pattern}");
        }
    }

    /// Check that there are at most three, no name twice, and none where nothing is alike.
    #[test]
    fn gives_few_and_none_that_puzzle() {
        let three = nearest("java.util.zip.Xflater::xflateBytesBytes", &jdk());
        assert_eq!(three.len(), 3);
        assert_eq!(three.iter().filter(|n| n.ends_with("deflateBytesBytes")).count(), 1);
        assert_eq!(nearest("qqqq.QQQQQQQ::qqqqqqq", &jdk()), Vec::<String>::new());
        assert_eq!(nearest("**::*", &[]), Vec::<String>::new());
    }

    /// Check that of many classes those come first whose names are like the one that was meant, and all where none was.
    #[test]
    fn classes_that_are_like_it() {
        let mut classes: Vec<String> = (0..1000).map(|i| format!("com.acme.Other{i}")).collect();
        classes.push("java.util.zip.Deflater".to_owned());
        let found = |pattern: &str| nearest_classes(pattern, classes.iter().map(String::as_str));
        for pattern in ["java.util.zip.Deflator::init", "deflater", "java/util/zip/Deflater#init"] {
            assert_eq!((found(pattern).len(), found(pattern)[0]), (CLASSES, 1000), "{pattern}");
        }
        assert_eq!(found("*::init").len(), 1001);
    }

    /// Check that an error for 2,000 methods does not keep the user waiting, even in a debug build.
    #[test]
    fn is_quick_for_many_methods() {
        let names: Vec<(String, String)> = (0..2000)
            .map(|i| (format!("com.acme.library{}.module.Class{}", i % 7, i / 5), format!("nativeMethodNumber{i}")))
            .collect();
        let borrowed: Vec<(&str, &str)> = names.iter().map(|(c, m)| (c.as_str(), m.as_str())).collect();
        let methods = methods(&borrowed);
        // Its own time: beside other tests it may have to wait.
        let clock = CpuClock::of_this_thread();
        let before = clock.read().unwrap();
        assert_eq!(nearest("com.acme.library3.module.Clas100::nativeMethodNumber", &methods).len(), 3);
        let taken = clock.read().unwrap() - before;
        assert!(taken < Duration::from_secs(2), "{taken:?}");
    }
}
