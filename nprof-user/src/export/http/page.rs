//! The pages: their paths, and what is written on those that are not metrics.

use std::fmt::Write;

/// A page of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    About,
    Metrics,
    Healthy,
    Ready,
}

/// All pages, with what the short page says of each.
pub(super) const PAGES: [(Page, &str); 4] = [
    (Page::Metrics, "the metrics, for Prometheus"),
    (Page::Healthy, "whether nprof works"),
    (Page::Ready, "whether nprof measures"),
    (Page::About, "this page"),
];

impl Page {
    /// The page at a path, which must be exact.
    pub(super) fn at(path: &str) -> Option<Self> {
        PAGES.into_iter().map(|(page, _)| page).find(|page| page.path() == path)
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::About => "/",
            Self::Metrics => "/metrics",
            Self::Healthy => "/-/healthy",
            Self::Ready => "/-/ready",
        }
    }

    /// Whether it needs credentials, where there are any.
    pub(super) fn is_guarded(self) -> bool {
        match self {
            Self::About | Self::Metrics => true,
            Self::Healthy | Self::Ready => false,
        }
    }
}

/// The short page as HTML, which loads nothing from anywhere.
pub(super) fn html(about: &[(String, String)]) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>nprof</title></head>\n<body>\n\
         <h1>nprof</h1>\n<p>Where the JVMs of this host cross into native code.</p>\n<ul>\n",
    );
    for (path, what) in PAGES.iter().filter(|(page, _)| *page != Page::About).map(|(page, what)| (page.path(), what)) {
        push(&mut page, format_args!("<li><a href=\"{path}\">{path}</a>: {what}</li>\n"));
    }
    page.push_str("</ul>\n<table>\n");
    for (name, value) in about {
        let (name, value) = (escaped(name), escaped(value));
        push(&mut page, format_args!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n"));
    }
    page.push_str("</table>\n</body>\n</html>\n");
    page
}

/// The short page for a terminal.
pub(super) fn text(about: &[(String, String)]) -> String {
    let mut page = String::from("nprof: where the JVMs of this host cross into native code\n\n");
    page.push_str(&list());
    page.push('\n');
    for (name, value) in about {
        push(&mut page, format_args!("{}: {}\n", one_line(name), one_line(value)));
    }
    page
}

/// All paths, one per line.
pub(super) fn list() -> String {
    let mut list = String::new();
    for (page, what) in PAGES {
        push(&mut list, format_args!("{:<12}{what}\n", page.path()));
    }
    list
}

/// The text with what could end its line or steer a terminal made harmless.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<(String, String)> {
        vec![("main <class>".to_owned(), "\"a\" & 'b'\n\u{1b}[31m".to_owned())]
    }

    /// Check that values from outside cannot become markup.
    #[test]
    fn html_is_escaped() {
        let page = html(&rows());
        assert!(
            page.contains("<th scope=\"row\">main &lt;class&gt;</th><td>&quot;a&quot; &amp; &#39;b&#39;"),
            "{page}"
        );
        assert!(page.contains("<a href=\"/metrics\">/metrics</a>"), "{page}");
        assert!(!page.contains("<a href=\"/\">"), "{page}");
    }

    /// Check that a value stays on its line and cannot steer a terminal.
    #[test]
    fn text_is_harmless() {
        let page = text(&rows());
        assert!(page.ends_with("\nmain <class>: \"a\" & 'b'  [31m\n"), "{page}");
        assert!(page.contains("/-/ready    whether nprof measures\n"), "{page}");
    }

    /// Check that a path leads to its page only if it is exact.
    #[test]
    fn paths_are_exact() {
        for (page, _) in PAGES {
            assert_eq!(Page::at(page.path()), Some(page));
        }
        for path in ["", "//", "/metrics/", "/Metrics", "/-/", "/metrics%00"] {
            assert_eq!(Page::at(path), None, "{path}");
        }
    }
}
