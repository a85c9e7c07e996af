//! What a client has to be told, until its connection tells it.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::lock;

/// Bytes of keys, with what keeping one takes, that wait for a client. With more it is told to forget
/// everything.
const MAIL_MAX: usize = 64 * 1024;
/// What keeping a key takes besides its bytes.
const KEY_COST: usize = 32;

/// Filled by any thread, emptied by the client's connection.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    mail: Option<Mail>,
    bytes: usize,
    waker: Option<Waker>,
}

/// What a client has to be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mail {
    /// Rows of these keys have changed.
    Keys(Vec<Box<[u8]>>),
    /// Whatever it keeps may have changed.
    All,
}

impl Mailbox {
    /// Passes on what another was to be told.
    pub(crate) fn pass_on(&self, mail: &Mail) {
        match mail {
            Mail::All => self.put_all(),
            Mail::Keys(keys) => self.put(keys.iter().map(|key| &**key)),
        }
    }

    /// Keys have changed.
    pub(crate) fn put<'k>(&self, changed: impl IntoIterator<Item = &'k [u8]>) {
        let mut inside = lock(&self.inside);
        for key in changed {
            inside.bytes += key.len() + KEY_COST;
            let is_full = inside.bytes > MAIL_MAX;
            match &mut inside.mail {
                Some(Mail::All) => break,
                mail if is_full => *mail = Some(Mail::All),
                Some(Mail::Keys(keys)) => keys.push(key.into()),
                mail => *mail = Some(Mail::Keys(vec![key.into()])),
            }
        }
        let waker = if inside.mail.is_some() {
            inside.waker.take()
        } else {
            None
        };
        drop(inside);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Anything may have changed.
    pub(crate) fn put_all(&self) {
        let mut inside = lock(&self.inside);
        inside.mail = Some(Mail::All);
        let waker = inside.waker.take();
        drop(inside);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ready when something is there.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inside = lock(&self.inside);
        if inside.mail.is_some() {
            return Poll::Ready(());
        }
        match &mut inside.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            waker => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    pub(crate) fn take(&self) -> Option<Mail> {
        let mut inside = lock(&self.inside);
        inside.bytes = 0;
        inside.mail.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_is_bounded() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.take(), None);
        mailbox.put([b"user@1".as_slice(), b"user@2"]);
        let keys = vec![b"user@1".as_slice().into(), b"user@2".as_slice().into()];
        assert_eq!(mailbox.take(), Some(Mail::Keys(keys)));
        for _ in 0..MAIL_MAX {
            mailbox.put([b"user@1".as_slice()]);
        }
        assert_eq!(mailbox.take(), Some(Mail::All));
        mailbox.put([b"user@3".as_slice()]);
        mailbox.put_all();
        mailbox.put([b"user@3".as_slice()]);
        assert_eq!((mailbox.take(), mailbox.take()), (Some(Mail::All), None));
        mailbox.put([b"user@3".as_slice()]);
        assert_eq!(
            mailbox.take(),
            Some(Mail::Keys(vec![b"user@3".as_slice().into()]))
        );
    }
}
