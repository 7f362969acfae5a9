//! Names of functions of the kernel, as it lists them itself (`/proc/kallsyms`).
//!
//! The list is read once and as a whole. A service has to do so before it gives up the right to see addresses, and all threads then
//! share one table.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::OnceLock;

const LIST: &str = "/proc/kallsyms";
/// More than any kernel has; a list that goes on is not believed in.
const MOST: usize = 4 << 20;
/// What stands for a function that is not known.
const UNKNOWN: &str = "?";

/// The functions of the kernel and its modules by address.
#[derive(Default, PartialEq, Eq)]
pub struct KernelSymbols {
    /// Where each begins, in rising order, and its name in `names`.
    functions: Vec<(u64, u32)>,
    /// The names, each with a newline behind it.
    names: String,
}

impl KernelSymbols {
    /// The table of this kernel. It is read when somebody asks for the first time.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<KernelSymbols> = OnceLock::new();
        SHARED.get_or_init(|| {
            let read = File::open(LIST).and_then(|list| Self::read(BufReader::new(list)));
            let symbols = read.unwrap_or_else(|error| {
                tracing::warn!("functions of the kernel have no names: {LIST}: {error}");
                Self::default()
            });
            if symbols.functions.is_empty() {
                tracing::warn!("functions of the kernel have no names: {LIST} shows no addresses without CAP_SYSLOG");
            }
            symbols
        })
    }

    /// Reads lines such as `ffffffff81000000 T _stext`. What is no code is left out, and what has no address.
    fn read(list: impl BufRead) -> io::Result<Self> {
        let mut symbols = Self::default();
        for line in list.lines().take(MOST) {
            symbols.add(&line?);
        }
        symbols.functions.sort_unstable();
        symbols.functions.shrink_to_fit();
        symbols.names.shrink_to_fit();
        Ok(symbols)
    }

    fn add(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { return };
        let address = u64::from_str_radix(address, 16).unwrap_or(0);
        if let ("t" | "T" | "w" | "W", Ok(place)) = (kind, u32::try_from(self.names.len()))
            && address != 0
        {
            self.functions.push((address, place));
            self.names.push_str(name);
            self.names.push('\n');
        }
    }

    /// The functions that return addresses are in.
    #[must_use]
    pub fn names(&self, addresses: &[u64]) -> Vec<String> {
        // A return address may be the first of the next function.
        addresses.iter().map(|address| self.name(address.saturating_sub(1)).to_owned()).collect()
    }

    fn name(&self, address: u64) -> &str {
        let next = self.functions.partition_point(|(start, _)| *start <= address);
        let Some((_, place)) = next.checked_sub(1).and_then(|place| self.functions.get(place)) else { return UNKNOWN };
        let name = self.names.get(*place as usize..).and_then(|names| names.split('\n').next());
        name.unwrap_or(UNKNOWN)
    }
}

impl fmt::Debug for KernelSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSymbols").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "ffffffff81000200 T do_nanosleep\n\
                         ffffffff81000100 t schedule\n\
                         ffffffff81000180 d some_data\n\
                         ffffffffc0000000 t ext4_read\t[ext4]\n\
                         0000000000000000 A hidden\n\
                         not a line\n";

    /// Check that an address has the function that it lies in, whatever the order of the list, and that data names nothing.
    #[test]
    fn names_by_address() {
        let symbols = KernelSymbols::read(LINES.as_bytes()).unwrap();
        let names = symbols.names(&[
            0xffff_ffff_8100_0150,
            0xffff_ffff_8100_01a0,
            0xffff_ffff_8100_0201,
            0xffff_ffff_c000_0010,
        ]);
        assert_eq!(names, ["schedule", "schedule", "do_nanosleep", "ext4_read"]);
    }

    /// Check that a return address behind the last instruction of a function is that function's, and that what lies before all of
    /// them has no name; nor has anything where addresses are hidden.
    #[test]
    fn borders() {
        let symbols = KernelSymbols::read(LINES.as_bytes()).unwrap();
        assert_eq!(symbols.names(&[0xffff_ffff_8100_0200, 0xffff_ffff_8100_0100]), ["schedule", "?"]);
        let hidden = KernelSymbols::read("0000000000000000 T _stext\n".as_bytes()).unwrap();
        assert_eq!(hidden.names(&[0xffff_ffff_8100_0000]), ["?"]);
    }
}
