//! The three formats of a scrape, and which of them the client wants.

mod negotiate;
mod number;
mod protobuf;
mod text;

pub use negotiate::negotiate;
use protobuf::protobuf;
use text::{open_metrics, text};

use super::exposition::Exposition;

/// A format of the answer to a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Delimited Protobuf messages: the one format with native histograms.
    Protobuf,
}

impl Format {
    /// What the `Content-Type` of the answer says.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

impl Exposition {
    /// The body of the answer in this format.
    #[must_use]
    pub fn encode(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Text => text(self),
            Format::OpenMetrics => open_metrics(self),
            Format::Protobuf => protobuf(self),
        }
    }
}
