//! Which format a client wants, by its `Accept` header (RFC 9110, section 12.5.1).

use super::Format;

/// The format that the client likes best: the highest weight, and of equal ones the first. [`Format::Text`] where
/// nothing that it accepts can be had, because a scraper makes more of text than of an error.
#[must_use]
pub fn negotiate(accept: Option<&str>) -> Format {
    let mut best = (0, Format::Text);
    for range in accept.unwrap_or_default().split(',') {
        if let Some((weight, format)) = offered(range)
            && weight > best.0
        {
            best = (weight, format);
        }
    }
    best.1
}

/// The names in a list such as that of `Accept-Encoding`, in lower case, and their weights in thousandths. Without those whose
/// weight is none.
pub(in crate::export) fn weighted(list: &str) -> impl Iterator<Item = (String, u16)> {
    list.split(',').filter_map(|item| {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let weight = parameters.split(';').filter_map(|part| part.split_once('=')).map(cleaned);
        let weight = weight.into_iter().find(|(key, _)| key.eq_ignore_ascii_case("q")).map(|(_, weight)| weight);
        Some((name.trim().to_ascii_lowercase(), weight.map_or(Some(1000), thousandths)?))
    })
}

/// The format that a media range asks for and its weight in thousandths, if we have such a format.
fn offered(range: &str) -> Option<(u16, Format)> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).map(cleaned).collect();
    let value = |name: &str| parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let weight = value("q").map_or(Some(1000), thousandths)?;
    let is = |name, wanted: &str| value(name).is_some_and(|v| v.eq_ignore_ascii_case(wanted));
    let format = match media.as_str() {
        "application/vnd.google.protobuf" => {
            let asked = is("proto", "io.prometheus.client.MetricFamily") && is("encoding", "delimited");
            asked.then_some(Format::Protobuf)?
        }
        "application/openmetrics-text" => {
            (value("version").is_none() || is("version", "1.0.0")).then_some(Format::OpenMetrics)?
        }
        "text/plain" => (value("version").is_none() || is("version", "0.0.4")).then_some(Format::Text)?,
        "text/*" | "*/*" => Format::Text,
        _ => return None,
    };
    Some((weight, format))
}

/// Name and value of a parameter without the blanks and quotes around them.
fn cleaned<'a>((name, value): (&'a str, &'a str)) -> (&'a str, &'a str) {
    (name.trim(), value.trim().trim_matches('"'))
}

/// A weight, `0.75`, in thousandths; `None` for what is no weight.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let legal = matches!(whole, "0" | "1") && fraction.len() <= 3 && fraction.bytes().all(|c| c.is_ascii_digit());
    let weight = format!("{whole}{fraction:0<3}").parse().ok().filter(|_| legal)?;
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Prometheus 2.42 sends.
    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                                text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    /// What it sends with native histograms switched on.
    const PROMETHEUS_2_NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;\
        q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    /// What Prometheus 3 sends.
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
        text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    /// What Prometheus 3 sends with native histograms switched on.
    const PROMETHEUS_3_NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
        text/plain;version=0.0.4;q=0.2,*/*;q=0.1";

    /// Check that each scraper gets what it likes best of what there is.
    #[test]
    fn scrapers() {
        assert_eq!(negotiate(Some(PROMETHEUS_2)), Format::OpenMetrics);
        assert_eq!(negotiate(Some(PROMETHEUS_2_NATIVE)), Format::Protobuf);
        assert_eq!(negotiate(Some(PROMETHEUS_3)), Format::OpenMetrics);
        assert_eq!(negotiate(Some(PROMETHEUS_3_NATIVE)), Format::Protobuf);
    }

    /// Check that weights decide, that blanks, quotes and case do not, and that the first of equals wins.
    #[test]
    fn weights_decide() {
        for (accept, format) in [
            ("text/plain;q=0.5, application/openmetrics-text;q=0.6", Format::OpenMetrics),
            ("text/plain;q=0.7, application/openmetrics-text;q=0.65", Format::Text),
            ("text/plain, application/openmetrics-text", Format::Text),
            ("Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.3", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=0.000,*/*;q=0.001", Format::Text),
        ] {
            assert_eq!(negotiate(Some(accept)), format, "{accept}");
        }
    }

    /// Check that text is the answer to everything else: browsers, other versions and nonsense.
    #[test]
    fn text_is_the_default() {
        for accept in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;version=0.0.1",
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q=1.001",
            "application/openmetrics-text;q=é",
            ";;;,,=,;q=",
        ] {
            assert_eq!(negotiate(Some(accept)), Format::Text, "{accept}");
        }
        assert_eq!(negotiate(None), Format::Text);
    }
}
