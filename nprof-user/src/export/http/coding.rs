//! How a body is compressed, as its client asks (`Accept-Encoding`: RFC 9110, section 12.5.3).
//!
//! Both ways run at their lowest level. A scrape says nearly the same in each line: a higher one takes several times the CPU
//! time, of the host that is measured, for a few percent of what is left.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::body::Pieces;
use crate::export::format::weighted;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Zstd,
    Gzip,
    Identity,
}

/// Those that there are, the best first: of equal weights it is taken.
const ALL: [Coding; 3] = [Coding::Zstd, Coding::Gzip, Coding::Identity];

impl Coding {
    /// The coding that a client likes best. Where it has not asked, and where it refuses all that there are, none: a scraper
    /// makes more of that than of an error.
    pub(super) fn negotiate(accept: Option<&str>) -> Self {
        let asked: Vec<(String, u16)> = accept.map_or_else(Vec::new, |accept| weighted(accept).collect());
        let named = |name: &str| asked.iter().find(|(asked, _)| asked == name).map(|(_, weight)| *weight);
        let weight = |coding: &Self| match coding {
            // Without a word of it, it is possible, and nothing more.
            Self::Identity => named(coding.name()).unwrap_or(0),
            Self::Zstd | Self::Gzip => named(coding.name()).or_else(|| named("*")).unwrap_or(0),
        };
        // Of equal ones the last: the best, as they come from the worst on.
        let best = ALL.into_iter().rev().max_by_key(weight);
        best.filter(|coding| weight(coding) > 0).unwrap_or(Self::Identity)
    }

    /// What `Content-Encoding` says.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Identity => "identity",
        }
    }

    /// Writes a body to its end.
    pub(super) fn write(
        self,
        mut pieces: Pieces,
        body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::Identity => {
                body(&mut pieces)?;
                pieces.end()
            }
            Self::Gzip => {
                let mut encoder = GzEncoder::new(pieces, Compression::fast());
                body(&mut encoder)?;
                encoder.finish()?.end()
            }
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(pieces, ZSTD_LEVEL)?;
                body(&mut encoder)?;
                encoder.finish()?.end()
            }
        }
    }
}

/// The lowest level but those that leave out what makes it small.
const ZSTD_LEVEL: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what scrapers and browsers get.
    #[test]
    fn clients() {
        for (accept, coding) in [
            (None, Coding::Identity),
            // Prometheus and vmagent.
            (Some("gzip"), Coding::Gzip),
            (Some("gzip, deflate, br, zstd"), Coding::Zstd),
            (Some("deflate, gzip;q=1.0, *;q=0.5"), Coding::Gzip),
            (Some("*"), Coding::Zstd),
            (Some("identity"), Coding::Identity),
            (Some("br"), Coding::Identity),
        ] {
            assert_eq!(Coding::negotiate(accept), coding, "{accept:?}");
        }
    }

    /// Check that weights decide, and that what is refused is not sent, as long as anything else is possible.
    #[test]
    fn weights_decide() {
        for (accept, coding) in [
            ("", Coding::Identity),
            ("zstd;q=0.5, GZIP ; Q=0.8", Coding::Gzip),
            ("gzip;q=0", Coding::Identity),
            ("zstd;q=0, *", Coding::Gzip),
            ("gzip;q=0.1, identity;q=0.2", Coding::Identity),
            ("identity;q=0, gzip;q=0.001", Coding::Gzip),
            ("identity;q=0", Coding::Identity),
            ("*;q=0", Coding::Identity),
            ("gzip;q=2", Coding::Identity),
            ("gzip;;q=é,,;", Coding::Identity),
        ] {
            assert_eq!(Coding::negotiate(Some(accept)), coding, "{accept}");
        }
    }
}
