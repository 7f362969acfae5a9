//! The cheapest honest place for a probe: the entry of the function, or an instruction behind it that is cheaper, if it
//! can be proven that a probe there means the same.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::code::{self, Kept};
use super::image::{Image, ImageError};
use super::proof::{MAX_MOVE, Move, proven};
use crate::model::{FileOffset, ProbeCost};

/// Where a probe would sit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// Where the function begins.
    pub entry: FileOffset,
    /// Where the probe sits and what a hit costs there; `None` if the kernel takes none.
    pub probe: Option<(FileOffset, ProbeCost)>,
}

/// What the first instructions of a function offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    entry: FileOffset,
    /// What a hit costs at the entry; `None` if the kernel refuses the instruction there.
    at_entry: Option<ProbeCost>,
    /// The first better place that straight-line code leads to.
    behind: Option<(FileOffset, ProbeCost)>,
}

/// Chooses the sites for functions of one library. The answers are in the order of `entries`.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn choose(image: &Image, entries: &[FileOffset], keep: Kept) -> Result<Vec<Choice>, ImageError> {
    let offers = entries.iter().map(|&entry| look(image, entry, keep)).collect::<Result<Vec<_>, _>>()?;
    let moves: Vec<Move> =
        offers.iter().filter_map(|offer| offer.behind.map(|(place, _)| Move { entry: offer.entry, place })).collect();
    let proven = proven(image, &moves, entries)?;
    let choices = offers.into_iter().map(|Offer { entry, at_entry, behind }| {
        let behind = behind.filter(|_| proven.contains(&entry));
        Choice { entry, probe: behind.or(at_entry.map(|cost| (entry, cost))) }
    });
    Ok(choices.collect())
}

/// Looks at the first instructions for one that the kernel emulates or, if it refuses the first, one that it takes.
fn look(image: &Image, entry: FileOffset, keep: Kept) -> Result<Offer, ImageError> {
    let bytes = image.code(entry, MAX_MOVE)?;
    let mut offer = Offer { entry, at_entry: None, behind: None };
    let mut info = InstructionInfoFactory::new();
    let mut decoder = Decoder::with_ip(64, &bytes, entry.0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let place = decoder.position();
        let instruction = decoder.decode();
        let cost = code::cost(&instruction, &bytes[place..]);
        if place == 0 {
            offer.at_entry = cost;
        } else if cost == Some(ProbeCost::Emulated) || (offer.at_entry.is_none() && offer.behind.is_none()) {
            offer.behind = cost.map(|cost| (FileOffset(entry.0 + place as u64), cost)).or(offer.behind);
        }
        if cost == Some(ProbeCost::Emulated) || !code::can_be_passed(&instruction, &mut info, keep) {
            break;
        }
    }
    Ok(offer)
}
