//! The labels of a series: as pairs for Protobuf, and as the text that both text formats write.
//!
//! The text is made once, when the series begins, and copied at each scrape.

use std::sync::Arc;

use crate::model::{JvmLabels, SharedStr};

/// The labels of one series, in the order of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels {
    jvm: Option<Arc<JvmLabels>>,
    own: Vec<(&'static str, SharedStr)>,
    text: Box<str>,
}

impl Labels {
    /// Labels of a series that belongs to no JVM.
    pub(super) fn of_host<const N: usize>(own: [(&'static str, &str); N]) -> Arc<Self> {
        Self::new(None, own.map(|(name, value)| (name, value.into())).into())
    }

    /// The labels of a JVM and those after them.
    pub(super) fn of_jvm(jvm: &Arc<JvmLabels>, own: Vec<(&'static str, SharedStr)>) -> Arc<Self> {
        Self::new(Some(Arc::clone(jvm)), own)
    }

    /// The same and one more.
    pub(super) fn and(&self, name: &'static str, value: &str) -> Arc<Self> {
        let mut own = self.own.clone();
        own.push((name, value.into()));
        Self::new(self.jvm.clone(), own)
    }

    fn new(jvm: Option<Arc<JvmLabels>>, own: Vec<(&'static str, SharedStr)>) -> Arc<Self> {
        let mut labels = Self { jvm, own, text: Box::default() };
        let mut text = String::new();
        for (name, value) in labels.pairs() {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
            text.push_str("=\"");
            push_escaped(&mut text, value);
            text.push('"');
        }
        labels.text = text.into();
        Arc::new(labels)
    }

    /// Those of the JVM.
    pub(super) fn jvm(&self) -> Option<&JvmLabels> {
        self.jvm.as_deref()
    }

    /// Names and values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let jvm = self.jvm.iter().flat_map(|labels| &labels.0).map(|(name, value)| (name.as_str(), value.as_str()));
        jvm.chain(self.own.iter().map(|(name, value)| (*name, value.as_str())))
    }

    /// What stands between the braces, `jvm="Main",class="A"`; empty where there are no labels.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Writes a label's value as both text formats want it: backslash, quote and line feed are escaped, all else stands
/// as it is.
pub(super) fn push_escaped(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that values are escaped in the text and left alone in the pairs, and that order is kept.
    #[test]
    fn escapes_only_in_text() {
        let jvm = Arc::new(JvmLabels(vec![("jvm".to_owned(), "a\\b".to_owned()), ("user".to_owned(), "é".to_owned())]));
        let labels = Labels::of_jvm(&jvm, vec![("method", "say\"\n\u{1b}\0".into())]).and("state", "off");
        assert_eq!(labels.text(), "jvm=\"a\\\\b\",user=\"é\",method=\"say\\\"\\n\u{1b}\0\",state=\"off\"");
        let pairs: Vec<_> = labels.pairs().collect();
        assert_eq!(pairs, [("jvm", "a\\b"), ("user", "é"), ("method", "say\"\n\u{1b}\0"), ("state", "off")]);
        assert_eq!(Labels::of_host([]).text(), "");
    }

    /// Check that all names that metrics use beside the JVM's are kept from being a JVM's.
    #[test]
    fn names_of_metrics_are_reserved() {
        for family in crate::export::families::TABLE {
            let own = family.labels.split(", ").filter(|label| !label.is_empty() && !label.starts_with("JVM"));
            for label in own {
                assert!(JvmLabels::RESERVED.contains(&label), "{label} of {}", family.name);
            }
        }
    }
}
