//! Limits the operating system sets on this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open file descriptors to the hard limit and returns it.
///
/// Distributions keep the soft limit at 1024 for programs that use `select`; this one does not.
pub fn raise_nofile() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let current = maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
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
        let now = getrlimit(Resource::Nofile);
        assert_eq!(raised, now.maximum.unwrap_or(u64::MAX));
        assert_eq!(now.current, now.maximum);
        assert_eq!(raise_nofile().unwrap(), raised);
    }

    #[test]
    fn tells_exhaustion_from_other_errors() {
        assert!(is_exhausted(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(!is_exhausted(&io::Error::from_raw_os_error(libc::ECONNREFUSED)));
        assert!(!is_exhausted(&io::Error::other("no code")));
    }
}
