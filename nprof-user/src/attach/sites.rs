//! Attaches many sites at once, and finds the few that the kernel refuses.

use std::io;

/// So many sites have one link at most: to take it away interrupts the target for each of them, one right after the other.
const MOST_TOGETHER: usize = 64;

/// What became of a batch of sites.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome<S> {
    /// The sites that are linked.
    pub accepted: Vec<S>,
    /// The sites that the kernel refused one by one.
    pub refused: Vec<S>,
}

/// Links `sites` by as few calls of `link` as it takes. The kernel refuses a whole batch for one bad site, so a
/// refused batch is halved until the bad ones stand alone.
///
/// # Errors
/// An answer of `link` that is not about the code at a site, such as missing permission.
pub(super) fn link_all<S: Copy>(sites: &[S], link: &mut impl FnMut(&[S]) -> io::Result<()>) -> io::Result<Outcome<S>> {
    let mut outcome = Outcome { accepted: Vec::new(), refused: Vec::new() };
    let mut batches: Vec<&[S]> = sites.chunks(MOST_TOGETHER).rev().collect();
    while let Some(batch) = batches.pop() {
        match link(batch) {
            _ if batch.is_empty() => {}
            Ok(()) => outcome.accepted.extend_from_slice(batch),
            Err(error) if !is_about_the_code(&error) => return Err(error),
            Err(_) if batch.len() == 1 => outcome.refused.extend_from_slice(batch),
            Err(_) => {
                let (left, right) = batch.split_at(batch.len() / 2);
                batches.extend([right, left]);
            }
        }
    }
    Ok(outcome)
}

/// Whether the kernel's answer can be due to the instruction at a site: one that it cannot decode or run out of
/// line (`ENOTSUPP` is 524 and has no name in user space), or an offset that it does not take.
fn is_about_the_code(error: &io::Error) -> bool {
    const ENOTSUPP: i32 = 524;
    let code = error.raw_os_error();
    matches!(code, Some(libc::EINVAL | libc::EIO | libc::ENOEXEC | libc::EOPNOTSUPP | libc::EEXIST | ENOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that refuses the sites in `bad`.
    fn refusing(bad: &[u32], calls: &mut usize, sites: &[u32]) -> io::Result<Outcome<u32>> {
        link_all(sites, &mut |batch: &[u32]| {
            *calls += 1;
            if batch.iter().any(|site| bad.contains(site)) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            Ok(())
        })
    }

    /// Check that clean batches take one call each.
    #[test]
    fn one_call_for_many() {
        let mut calls = 0;
        let sites: Vec<u32> = (0..2_000).collect();
        let outcome = refusing(&[], &mut calls, &sites).unwrap();
        assert_eq!((outcome.accepted, calls), (sites, 2_000_usize.div_ceil(MOST_TOGETHER)));
    }

    /// Check that exactly the bad sites are refused, in few calls, and the order of the rest is kept.
    #[test]
    fn isolates_refused() {
        let mut calls = 0;
        let sites: Vec<u32> = (0..256).collect();
        let outcome = refusing(&[17, 200], &mut calls, &sites).unwrap();
        assert_eq!(outcome.refused, [17, 200]);
        assert_eq!(outcome.accepted.len(), 254);
        assert!(outcome.accepted.is_sorted());
        assert!(calls < 40, "{calls} calls");
    }

    /// Check that missing permission ends the attempt at once instead of refusing sites one by one.
    #[test]
    fn permission_is_no_refusal() {
        let mut calls = 0;
        let error = link_all(&[1, 2, 3], &mut |_: &[i32]| -> io::Result<()> {
            calls += 1;
            Err(io::Error::from_raw_os_error(libc::EPERM))
        });
        assert_eq!((error.unwrap_err().raw_os_error(), calls), (Some(libc::EPERM), 1));
    }
}
