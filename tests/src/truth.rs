//! What the JVMTI agent (`tests/targets/truth_agent.c`) knows about a JVM's native methods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::name::MethodName;

/// Every native method of one JVM at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Truth {
    /// The methods of prepared classes, each with the addresses of those that are bound (one per class of the name)
    /// in rising order; 0 stands for one that is not bound.
    pub methods: BTreeMap<MethodName, Vec<u64>>,
    /// The classes that are loaded but not prepared. JVMTI does not tell their methods.
    pub unprepared: BTreeSet<String>,
}

impl Truth {
    /// Reads what the agent wrote.
    ///
    /// # Errors
    /// When the file cannot be read or is not of the agent's making.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        let mut truth = Self::default();
        for line in decode_modified_utf8(&bytes)?.lines() {
            truth.add(line)?;
        }
        truth.methods.values_mut().for_each(|addresses| addresses.sort_unstable());
        Ok(truth)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["native", class, method, signature, address] => {
                let address = u64::from_str_radix(address, 16).with_context(|| line.to_owned())?;
                self.methods.entry(MethodName::new(class, method, signature)).or_default().push(address);
            }
            ["unprepared", class] => {
                self.unprepared.insert(class.to_owned());
            }
            _ => bail!("not a line of the truth agent: {line}"),
        }
        Ok(())
    }
}

/// Decodes the VM's encoding of names: characters beyond 16 bits are two surrogates of three bytes each.
pub(crate) fn decode_modified_utf8(bytes: &[u8]) -> Result<String> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut at = bytes.iter().map(|&byte| u16::from(byte));
    while let Some(first) = at.next() {
        let mut more = || at.next().map(|byte| byte & 0x3f).context("a name ends in the middle of a character");
        units.push(match first {
            0..0x80 => first,
            0xc0..0xe0 => (first & 0x1f) << 6 | more()?,
            0xe0..0xf0 => (first & 0x0f) << 12 | more()? << 6 | more()?,
            _ => bail!("byte {first:#x} begins no character of modified UTF-8"),
        });
    }
    String::from_utf16(&units).context("a surrogate stands alone")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names of one, two, three and six bytes a character are decoded.
    #[test]
    fn decodes_modified_utf8() {
        let bytes = b"a\xc3\xa9\xe6\x97\xa5\xed\xa0\xb5\xed\xb2\xb3";
        assert_eq!(decode_modified_utf8(bytes).unwrap(), "aé日𝒳");
        assert!(decode_modified_utf8(b"\xed\xa0").is_err());
        assert!(decode_modified_utf8(b"\xf0\x9d\x92\xb3").is_err());
    }

    /// Check that both sorts of line are read and others refused.
    #[test]
    fn reads_lines() {
        let mut truth = Truth::default();
        truth.add("native\ta.B\tc\t()V\tff").unwrap();
        truth.add("unprepared\ta.C").unwrap();
        assert_eq!(truth.methods[&MethodName::new("a.B", "c", "()V")], [255]);
        assert!(truth.unprepared.contains("a.C"));
        assert!(truth.add("nonsense").is_err());
    }
}
