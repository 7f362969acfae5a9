//! Recordings as files: a [`Profile`] in, bytes out, and back, perhaps years later and on another machine.
//!
//! A file is twelve bytes of header, the magic and the version, and then gzip. Compressed in there are *parts*, each after
//! its length (four bytes, least significant first), and a length of zero at the end. A part is a Protobuf message
//! (`wire.rs`) with some rows of the profile: neither side ever holds more than a part besides the profile itself.
//!
//! Gzip's own checksum and length tell a damaged or cut file. Beyond that a file is not trusted: what it takes in memory is bounded (`room.rs`), and
//! every index and number in it is checked, so that whoever gets the profile need not.

mod checks;
mod error;
mod limits;
mod numbers;
mod pack;
mod pack_trees;
mod room;
mod rows;
mod unpack;
mod unpack_trees;
mod values;
mod wire;

#[cfg(test)]
mod tests;

use std::io::{self, BufReader, Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message as _;

pub use self::error::Error;
use self::room::{Counted, Room};
use self::unpack::Unpacked;
use self::wire::Part;
use crate::model::Profile;

/// What every recording begins with. The first byte is no text; the last two show a transfer that changes line ends.
const MAGIC: [u8; 8] = *b"\x89nprof\r\n";
/// The version of the format. It is raised by every change that an older nprof would misread, new numbers included.
const VERSION: u32 = 1;
/// The largest part that is read. Written ones are much smaller.
const LARGEST_PART: usize = 4 << 20;

/// Writes a recording.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    let mut packed = GzEncoder::new(out, Compression::default());
    pack::parts(profile, |part| write_part(&part.encode_to_vec(), &mut packed))?;
    write_part(&[], &mut packed)?;
    packed.finish()?.flush()
}

fn write_part(part: &[u8], out: &mut impl Write) -> io::Result<()> {
    let length = u32::try_from(part.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(part)
}

/// Reads a recording. Reads in large pieces: `file` need not be buffered.
///
/// # Errors
/// If `file` cannot be read or is not a whole recording that this version of nprof knows.
pub fn read(file: &mut dyn Read) -> Result<Profile, Error> {
    let file = Counted::new(file);
    let room = Room::new(file.so_far());
    read_within(room, file)
}

/// Reads a recording for which there is this much room.
fn read_within(mut room: Room, file: Counted<&mut dyn Read>) -> Result<Profile, Error> {
    let mut file = BufReader::new(file);
    check_header(&mut file)?;
    let mut packed = GzDecoder::new(file);
    let mut unpacked = Unpacked::default();
    while let Some(part) = read_part(&mut packed)? {
        room.take(&part)?;
        unpacked.add(Part::decode(part.as_slice()).map_err(|source| Error::Part { source })?)?;
    }
    // Only the end of the compressed data shows whether all of it is right.
    expect_end(&mut packed, "data after its last part")?;
    expect_end(&mut packed.into_inner(), "data after its end")?;
    unpacked.finish()
}

fn check_header(file: &mut impl Read) -> Result<(), Error> {
    let mut magic = [0; MAGIC.len()];
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Error::NotARecording),
        read => read.map_err(Error::reading)?,
    }
    if magic != MAGIC {
        return Err(Error::NotARecording);
    }
    match read_number(file)? {
        0 => Err(Error::Damaged { what: "the version" }),
        version if version > VERSION => Err(Error::Newer { version, known: VERSION }),
        _ => Ok(()),
    }
}

/// The next part, not decoded yet; `None` at the end.
fn read_part(file: &mut impl Read) -> Result<Option<Vec<u8>>, Error> {
    let length = read_number(file)? as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > LARGEST_PART {
        return Err(Error::Damaged { what: "the length of a part" });
    }
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes).map_err(Error::reading)?;
    Ok(Some(bytes))
}

fn read_number(file: &mut impl Read) -> Result<u32, Error> {
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes).map_err(Error::reading)?;
    Ok(u32::from_le_bytes(bytes))
}

fn expect_end(file: &mut impl Read, what: &'static str) -> Result<(), Error> {
    match file.read(&mut [0]).map_err(Error::reading)? {
        0 => Ok(()),
        _ => Err(Error::Damaged { what }),
    }
}
