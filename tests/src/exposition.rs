//! The text formats of Prometheus (0.0.4) and OpenMetrics (1.0), read into samples as far as the tests need it.
//! `promtool` is the judge of the grammar; this only refuses what it cannot understand.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// The labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name of the series, suffixes such as `_bucket` included.
    pub name: String,
    /// Its labels, `le` included.
    pub labels: Labels,
    /// The value.
    pub value: f64,
}

/// One scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    /// In the order of the text.
    pub samples: Vec<Sample>,
    /// What each metric family is said to be: `counter`, `histogram`.
    pub types: BTreeMap<String, String>,
    /// Whether the text ends with OpenMetrics' mark of the end.
    pub complete: bool,
}

/// A classic histogram: upper bounds in seconds, each with the calls that took no longer, in rising order.
pub type Buckets = Vec<(f64, u64)>;

impl Exposition {
    /// Reads a text.
    ///
    /// # Errors
    /// Names the line that makes no sense.
    pub fn parse(text: &str) -> Result<Self> {
        let mut read = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            ensure!(!read.complete, "a line after the end: {line}");
            match line.strip_prefix('#') {
                Some(comment) => read.comment(comment),
                None => read.samples.push(sample(line).with_context(|| format!("not a sample: {line}"))?),
            }
        }
        Ok(read)
    }

    fn comment(&mut self, comment: &str) {
        match comment.split_whitespace().collect::<Vec<_>>()[..] {
            ["TYPE", name, kind] => drop(self.types.insert(name.to_owned(), kind.to_owned())),
            ["EOF"] => self.complete = true,
            _ => {}
        }
    }

    /// The samples of a name that have all of some labels.
    pub fn with<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|own| own == value))
        })
    }

    /// The value of the one series of a name that has all of some labels; `None` where there is none.
    ///
    /// # Errors
    /// When there are several.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<f64>> {
        let found: Vec<&Sample> = self.with(name, labels).collect();
        ensure!(found.len() < 2, "{} series of {name}{labels:?}: {found:?}", found.len());
        Ok(found.first().map(|sample| sample.value))
    }

    /// The whole number that a counter has; 0 without a series.
    ///
    /// # Errors
    /// When there are several series, or it is not a whole number.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        whole(self.value(name, labels)?.unwrap_or(0.0)).with_context(|| format!("{name}{labels:?}"))
    }

    /// The buckets of the one histogram of a name (without its suffix) that has all of some labels.
    ///
    /// # Errors
    /// When a bound or a count is not a number, or the counts fall: there are several, or it is broken.
    pub fn buckets(&self, name: &str, labels: &[(&str, &str)]) -> Result<Buckets> {
        let name = format!("{name}_bucket");
        let mut buckets = Vec::new();
        for sample in self.with(&name, labels) {
            let bound = sample.labels.get("le").with_context(|| format!("a bucket without a bound: {sample:?}"))?;
            buckets.push((bound.parse().with_context(|| format!("{sample:?}"))?, whole(sample.value)?));
        }
        let rising = buckets.is_sorted_by(|(bound, count), (next, more)| bound < next && count <= more);
        ensure!(rising, "not the buckets of one histogram: {buckets:?}");
        Ok(buckets)
    }
}

/// A number that has to be whole, as counts are.
///
/// # Errors
/// When it is not, or negative, or beyond what a float can count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked in the line above")]
pub fn whole(value: f64) -> Result<u64> {
    ensure!(value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value), "not a count: {value}");
    Ok(value as u64)
}

/// `name{label="value",…} value timestamp? # exemplar?`
fn sample(line: &str) -> Result<Sample> {
    let end = line.find(['{', ' ']).context("there is no value")?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value = rest.split_whitespace().next().context("there is no value")?;
    Ok(Sample { name: name.to_owned(), labels, value: value.parse().context("the value is no number")? })
}

/// The labels up to the closing brace, and what comes behind it.
fn labels(mut rest: &str) -> Result<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (label, quoted) = rest.split_once("=\"").context("a label without a value")?;
        let (value, after) = unquote(quoted)?;
        ensure!(labels.insert(label.to_owned(), value).is_none(), "label {label} twice");
        rest = after;
    }
}

/// The text up to the closing quote, and what comes behind it.
fn unquote(quoted: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                other => bail!("unknown escape {other:?}"),
            },
            plain => value.push(plain),
        }
    }
    bail!("a value without an end")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP calls_total Calls.\n# TYPE calls_total counter\n\
        calls_total{jvm=\"a \\\"b\\\"\\\\\\n\",method=\"m{}\"} 12\ncalls_total{jvm=\"c\",method=\"m\"} 1e3 1700000000\n\
        up 1\nt_bucket{le=\"0.5\"} 1 # {trace=\"x\"} 0.3\nt_bucket{le=\"+Inf\"} 3\nt_count 3\n";

    /// Check that names, labels with every escape, values, time stamps and exemplars are told apart.
    #[test]
    fn reads_samples() {
        let read = Exposition::parse(TEXT).unwrap();
        assert_eq!(read.samples.len(), 6);
        assert_eq!(read.samples[0].labels["jvm"], "a \"b\"\\\n");
        assert_eq!(read.value("calls_total", &[("method", "m{}")]).unwrap(), Some(12.0));
        assert_eq!(read.count("calls_total", &[("jvm", "c")]).unwrap(), 1000);
        assert_eq!(read.count("calls_total", &[("jvm", "d")]).unwrap(), 0);
        assert_eq!((read.types["calls_total"].as_str(), read.complete), ("counter", false));
    }

    /// Check that a histogram is read with its infinite bound, and a broken one refused.
    #[test]
    fn reads_histograms() {
        let read = Exposition::parse(TEXT).unwrap();
        assert_eq!(read.buckets("t", &[]).unwrap(), [(0.5, 1), (f64::INFINITY, 3)]);
        let falling = Exposition::parse(&TEXT.replace("+Inf\"} 3", "+Inf\"} 0")).unwrap();
        assert!(falling.buckets("t", &[]).is_err());
    }

    /// Check that several series are not taken for one, and that a fraction is not taken for a count.
    #[test]
    fn refuses_what_is_not_one_count() {
        assert!(Exposition::parse(TEXT).unwrap().value("calls_total", &[]).is_err());
        assert!(whole(0.5).is_err() && whole(-1.0).is_err() && whole(f64::NAN).is_err());
    }

    /// Check that the end is seen, and nothing allowed behind it.
    #[test]
    fn knows_the_end() {
        assert!(Exposition::parse("up 1\n# EOF\n").unwrap().complete);
        assert!(Exposition::parse("# EOF\nup 1\n").is_err());
    }

    /// Check that lines that are no samples are refused.
    #[test]
    fn refuses_nonsense() {
        for text in ["up", "up one", "up{a=\"b} 1", "up{a=\"\\x\"} 1", "up{a} 1", "up{a=\"1\",a=\"2\"} 1"] {
            assert!(Exposition::parse(text).is_err(), "{text}");
        }
    }
}
