//! The three formats of a scrape, and which of them the client wants; and the one that is pushed.

mod negotiate;
mod number;
mod otlp;
mod protobuf;
mod text;

use std::io::{self, BufWriter, Write};

pub use negotiate::negotiate;
pub(in crate::export) use negotiate::weighted;
pub use otlp::Origin;
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
    /// Whether single calls are shown beside the buckets of distributions.
    #[must_use]
    pub fn shows_exemplars(self) -> bool {
        self == Self::OpenMetrics
    }

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
    /// Writes the body of the answer in this format, a few kilobytes at a time: nowhere is there all of it.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        match format {
            Format::Text => text(self, &mut out),
            Format::OpenMetrics => open_metrics(self, &mut out),
            Format::Protobuf => protobuf(self, &mut out),
        }?;
        out.flush()
    }
}
