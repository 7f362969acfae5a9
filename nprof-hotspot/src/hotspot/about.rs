//! What a VM says about itself beside its classes: its name and version, and where it puts compiled code. All of it may
//! be missing from the tables; then it is simply not known.

use std::ops::Range;

use super::memory::{MemoryError, Reader, RemoteMemory, is_plausible};
use super::tables::{Tables, read_string};
use crate::model::VirtAddr;

/// The name and version of a VM; empty where it does not say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Such as `OpenJDK 64-Bit Server VM`.
    pub vm_name: String,
    /// Such as `17.0.15+6-Debian-1deb12u1`.
    pub release: String,
}

/// The variables that hold it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct About {
    release: Option<VirtAddr>,
    info: Option<VirtAddr>,
    code_low: Option<VirtAddr>,
    code_high: Option<VirtAddr>,
}

impl About {
    pub(super) fn of(tables: &Tables) -> Self {
        let variable = |name: &str| {
            let entry = tables.fields.get(name)?;
            (entry.is_static && is_plausible(entry.address)).then_some(entry.address)
        };
        Self {
            release: variable("Abstract_VM_Version::_s_vm_release"),
            info: variable("Abstract_VM_Version::_s_internal_vm_info_string"),
            code_low: variable("CodeCache::_low_bound"),
            code_high: variable("CodeCache::_high_bound"),
        }
    }

    pub(super) fn version<M: RemoteMemory>(&self, reader: &mut Reader<M>) -> Result<Version, MemoryError> {
        let release = string_behind(reader, self.release)?;
        let info = string_behind(reader, self.info)?;
        Ok(Version { vm_name: vm_name(&info).to_owned(), release })
    }

    pub(super) fn code_cache<M: RemoteMemory>(
        &self,
        reader: &mut Reader<M>,
    ) -> Result<Option<Range<VirtAddr>>, MemoryError> {
        let (Some(low), Some(high)) = (self.code_low, self.code_high) else {
            return Ok(None);
        };
        let bounds = reader.numbers([(low, 8), (high, 8)])?;
        Ok(bounds
            .map(|bounds| bounds.map(VirtAddr))
            .filter(|[low, high]| is_plausible(*low) && is_plausible(*high) && low < high)
            .map(|[low, high]| low..high))
    }
}

/// The string to which the variable at `variable` points; empty if there is none.
fn string_behind<M: RemoteMemory>(reader: &mut Reader<M>, variable: Option<VirtAddr>) -> Result<String, MemoryError> {
    let Some(variable) = variable else {
        return Ok(String::new());
    };
    let Some([pointer]) = reader.numbers([(variable, 8)])? else {
        return Ok(String::new());
    };
    let string = read_string(reader, VirtAddr(pointer))?.unwrap_or_default();
    Ok(string.chars().filter(|character| !character.is_control()).collect())
}

/// The name that the VM's build description begins with: `OpenJDK 64-Bit Server VM (17.0.15+6) for linux-amd64 …`.
fn vm_name(info: &str) -> &str {
    info.split_once(" (").map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the name ends where the version begins, and that a text of another form gives none.
    #[test]
    fn takes_the_name_from_the_description() {
        let info = "OpenJDK 64-Bit Server VM (25.0.3+9-LTS) for linux-amd64 JRE (25.0.3+9-LTS), built on";
        assert_eq!(vm_name(info), "OpenJDK 64-Bit Server VM");
        assert_eq!(vm_name("something else"), "");
    }
}
