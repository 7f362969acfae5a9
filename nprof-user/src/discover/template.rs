//! The templates of label values: `{env:TEAM|none}-{user}`.
//!
//! A template knows how it is written and what it asks for. Where the answers come from is [`super::label`]'s business.

/// Every placeholder, for messages and help.
pub const TEMPLATE_HELP: &str =
    "{main}, {main:simple}, {user}, {container}, {container:full}, {pod}, {env:NAME}, {property:NAME}, {version}";

/// A template that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template `{template}` is wrong at character {position}: {reason}")]
pub struct TemplateError {
    /// The template as it was given.
    pub template: String,
    /// Where in it, in characters from 1 on.
    pub position: usize,
    /// What is wrong there, and what to write instead.
    pub reason: String,
}

/// Text with placeholders, from which each JVM gets the value of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Placeholder {
        source: Source,
        /// What stands there where the source has nothing.
        default: String,
    },
}

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The main class or the jar.
    Main,
    /// The class without its package; a jar as it is.
    SimpleMain,
    /// The user's name on the host, or its number.
    User,
    /// The container's id in short.
    Container,
    /// The container's whole id.
    FullContainer,
    /// The uid of the Kubernetes pod.
    Pod,
    /// A variable of the environment.
    Env(String),
    /// A system property from the command line.
    Property(String),
    /// The VM's version.
    Version,
}

impl Source {
    fn parse(text: &str) -> Result<Self, String> {
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(name)),
            None => (text, None),
        };
        Ok(match (word, name) {
            ("main", None) => Self::Main,
            ("main", Some("simple")) => Self::SimpleMain,
            ("user", None) => Self::User,
            ("container", None) => Self::Container,
            ("container", Some("full")) => Self::FullContainer,
            ("pod", None) => Self::Pod,
            ("version", None) => Self::Version,
            ("env", Some(name)) if !name.is_empty() && !name.contains('=') => Self::Env(name.to_owned()),
            ("property", Some(name)) if !name.is_empty() && !name.contains('=') => Self::Property(name.to_owned()),
            ("env" | "property", _) => return Err(format!("{{{word}}} needs a name; write {{{word}:NAME}}")),
            ("pid", _) => {
                let why = "a process id never comes back, so that each start of a JVM would leave its series behind in \
                           Prometheus for good";
                return Err(format!("{{pid}} is no label: {why}; use {{container}}, {{pod}} or {{env:NAME}}"));
            }
            _ => return Err(format!("there is no {{{text}}}; use one of {TEMPLATE_HELP}")),
        })
    }
}

impl LabelTemplate {
    /// Reads a template. `{{` and `}}` stand for braces.
    ///
    /// # Errors
    /// The first thing in it that is no template: an unknown placeholder, a brace without the other.
    pub fn parse(template: &str) -> Result<Self, TemplateError> {
        let error = |at: usize, reason: String| TemplateError {
            template: template.to_owned(),
            position: template.get(..at).unwrap_or(template).chars().count() + 1,
            reason,
        };
        let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), template);
        while let Some(brace) = rest.find(['{', '}']) {
            let (before, from_brace) = rest.split_at(brace);
            let at = template.len() - from_brace.len();
            text.push_str(before);
            if let Some(after) = from_brace.strip_prefix("{{").or_else(|| from_brace.strip_prefix("}}")) {
                text.extend(from_brace.chars().next());
                rest = after;
                continue;
            }
            let Some(inside) = from_brace.strip_prefix('{') else {
                return Err(error(at, "a } without its {; write }} for a brace".to_owned()));
            };
            let Some((inside, after)) = inside.split_once('}') else {
                return Err(error(at, "a { without its }; write {{ for a brace".to_owned()));
            };
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::placeholder(inside).map_err(|reason| error(at, reason))?);
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Self { parts })
    }

    /// One placeholder and nothing else.
    pub(super) fn of(source: Source) -> Self {
        Self { parts: vec![Part::Placeholder { source, default: String::new() }] }
    }

    /// The text with what `ask` answers for each placeholder; nothing and an empty text give way to the default.
    pub(super) fn fill(&self, ask: impl Fn(&Source) -> Option<String>) -> String {
        let filled = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Placeholder { source, default } => {
                ask(source).filter(|value| !value.is_empty()).unwrap_or_else(|| default.clone())
            }
        });
        filled.collect()
    }
}

impl Part {
    fn placeholder(inside: &str) -> Result<Self, String> {
        let (source, default) = inside.split_once('|').unwrap_or((inside, ""));
        Ok(Self::Placeholder { source: Source::parse(source)?, default: default.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> String {
        LabelTemplate::parse(template).unwrap().fill(|source| match source {
            Source::Main => Some("com.acme.Main".to_owned()),
            Source::Env(name) if name == "TEAM" => Some("pay".to_owned()),
            Source::Property(_) => Some(String::new()),
            _ => None,
        })
    }

    /// Check text, placeholders, defaults for what is missing or empty, and literal braces.
    #[test]
    fn fills_in_what_is_asked_for() {
        assert_eq!(filled("{env:TEAM}/{main}"), "pay/com.acme.Main");
        assert_eq!(filled("{env:OTHER|none}-{env:TEAM|none}"), "none-pay");
        assert_eq!(filled("{property:a.b|x y|z}"), "x y|z");
        assert_eq!(filled("{pod}"), "");
        assert_eq!(filled("{{{main}}} é"), "{com.acme.Main} é");
        assert_eq!(filled(""), "");
    }

    /// Check that each mistake is found at its place, with what to write instead.
    #[test]
    fn says_what_is_wrong_and_where() {
        for (template, position, reason) in [
            ("é{usr}", 2, "there is no {usr}; use one of {main}"),
            ("{main:full}", 1, "there is no {main:full}"),
            ("a{env}", 2, "write {env:NAME}"),
            ("{env:|x}", 1, "write {env:NAME}"),
            ("{property:}", 1, "write {property:NAME}"),
            ("ab{main", 3, "write {{ for a brace"),
            ("ab}", 3, "write }} for a brace"),
            ("{pid}", 1, "a process id never comes back"),
        ] {
            let error = LabelTemplate::parse(template).unwrap_err();
            assert_eq!((error.template.as_str(), error.position), (template, position), "{error}");
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    /// Check that the help names exactly what can be written.
    #[test]
    fn help_names_legal_placeholders() {
        for placeholder in TEMPLATE_HELP.split(", ") {
            LabelTemplate::parse(placeholder).unwrap();
        }
    }
}
