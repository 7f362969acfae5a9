//! Values that settings write as text, and what to write instead of what is none.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hyper::Uri;
use serde::{Deserialize, Deserializer};

use crate::model::COLLECTORS;

/// An address with a port.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_error| "write an address and a port, such as 127.0.0.1:9464 or [::1]:9464".to_owned())
}

/// Where to push: scheme, host, perhaps a port and a path.
pub(super) fn endpoint(text: &str) -> Result<Uri, String> {
    let unclear = "write http:// or https://, a host, and perhaps a port and a path, such as http://localhost:4318";
    let uri: Uri = text.parse().map_err(|_error| unclear.to_owned())?;
    let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(unclear)?;
    if authority.as_str().contains('@') {
        return Err("a password does not belong here: write it as a header into otlp-headers-file".to_owned());
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
        return Err(unclear.to_owned());
    }
    Ok(uri)
}

/// `2%` as 0.02, `off` as no limit.
///
/// # Errors
/// What to write instead.
pub fn share(text: &str) -> Result<Option<f64>, String> {
    if text == "off" {
        return Ok(None);
    }
    let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Some(percent / 100.0)),
        Some(_) => Err("it must be more than 0% and at most 100%; off for no limit".to_owned()),
        None => Err("write a share such as 2% or 0.5%, or off".to_owned()),
    }
}

/// The name of a group, which need not be there.
pub(super) fn group(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(|c| c == ':' || c.is_whitespace() || c.is_control()) {
        return Err("write the name of a group as in /etc/group".to_owned());
    }
    Ok(text.to_owned())
}

/// What others call a collector that nprof has not.
const HARDWARE: &str = "hw";

/// What is said to who asks for it. A CPU counts for whatever runs on it, so the counters would have to be read at every switch of a
/// thread, and stubs could not read them at all.
pub(super) const NO_HARDWARE: &str = "hardware counters (cycles, instructions, cache misses) are not collected by call; `perf stat --tid TID` \
     has those of a thread, and `nprof record --on-cpu` shows where it runs";

/// The name of a collector, as a flag has it.
pub fn collector() -> impl TypedValueParser<Value = String> {
    let known = COLLECTORS.iter().map(|collector| PossibleValue::new(collector.name).help(collector.help));
    PossibleValuesParser::new(known.chain([PossibleValue::new(HARDWARE).hide(true)]))
        .try_map(|name| if is_hardware(&name) { Err(NO_HARDWARE) } else { Ok(name) })
}

/// Whether a word asks for hardware counters.
pub(super) fn is_hardware(name: &str) -> bool {
    name == HARDWARE
}

/// A label and its template, as a flag names them.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (name, template) = text.split_once('=').ok_or("write NAME=TEMPLATE, such as 'team={env:TEAM|none}'")?;
    Ok((name.to_owned(), template.to_owned()))
}

/// What `--help` says of labels.
pub(super) fn label_help() -> String {
    format!(
        "A label for each JVM, such as 'team={{env:TEAM|none}}'; may be given several times [default: 'jvm={{main}}']\n\n\
         TEMPLATE is text with placeholders: {}. What follows a | stands there where there is nothing else. \
         {{property:NAME}} is what -DNAME=VALUE on the JVM's command line says; argument files and JAVA_TOOL_OPTIONS, \
         JDK_JAVA_OPTIONS and _JAVA_OPTIONS are not looked at.",
        crate::discover::TEMPLATE_HELP
    )
}

/// The labels of a file: a table of templates by name.
pub(super) fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<(String, String)>>, D::Error> {
    BTreeMap::deserialize(from).map(|labels: BTreeMap<_, _>| Some(labels.into_iter().collect()))
}

/// A list that may be written as its only entry.
pub(super) fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string, or an array of strings")]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(Some(match OneOrMore::deserialize(from)? {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(more) => more,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the budget's words.
    #[test]
    fn reads_shares() {
        assert_eq!(share("2%"), Ok(Some(0.02)));
        assert_eq!(share("off"), Ok(None));
        for wrong in ["", "2", "0%", "-1%", "101%", "nan%", "inf%", "%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    /// Check what can be pushed to, and that no password is taken that others could read.
    #[test]
    fn reads_endpoints() {
        for good in ["http://localhost:4318", "https://otlp.acme.com/v1/x/", "http://[::1]:4318", "https://10.0.0.1"] {
            assert_eq!(
                endpoint(good).map(|uri| uri.to_string().trim_end_matches('/') == good.trim_end_matches('/')),
                Ok(true)
            );
        }
        for wrong in
            ["", "localhost:4318", "localhost", "/v1", "ftp://a", "http://", "http://:80", "http://a?b=c", "http://a b"]
        {
            assert!(endpoint(wrong).unwrap_err().contains("http://localhost:4318"), "{wrong}");
        }
        assert!(endpoint("http://me:secret@a").unwrap_err().contains("otlp-headers-file"));
    }

    /// Check what can be an address and the name of a group.
    #[test]
    fn reads_addresses_and_groups() {
        assert!(listen("0.0.0.0:9464").is_ok() && listen("[::]:1").is_ok());
        for wrong in ["", "9464", ":9464", "localhost:9464", "127.0.0.1", "1.2.3.4:70000"] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
        assert_eq!(group("ops"), Ok("ops".to_owned()));
        for wrong in ["", "a b", "a:b", "a\n"] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
    }
}
