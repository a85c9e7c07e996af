//! Limits the operating system sets on this process.

use std::io;

use crate::sys;

/// Raises the soft limit of open file descriptors to the hard limit and returns it.
///
/// Distributions keep the soft limit at 1024 for programs that use `select`; this one does not.
pub fn raise_nofile() -> io::Result<u64> {
    let mut limit = sys::nofile_limit()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        sys::set_nofile_limit(&limit)?;
    }
    Ok(limit.rlim_cur)
}

/// Whether an error of `accept` or `connect` means that the process or the machine has run out of descriptors
/// or memory. Retrying at once is useless then: something must be closed first.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_the_soft_limit_to_the_hard_limit() {
        let raised = raise_nofile().unwrap();
        let now = sys::nofile_limit().unwrap();
        assert_eq!(raised, now.rlim_max);
        assert_eq!(now.rlim_cur, now.rlim_max);
        assert_eq!(raise_nofile().unwrap(), raised);
    }

    #[test]
    fn tells_exhaustion_from_other_errors() {
        assert!(is_exhausted(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(!is_exhausted(&io::Error::from_raw_os_error(libc::ECONNREFUSED)));
        assert!(!is_exhausted(&io::Error::other("no code")));
    }
}
