//! What the words mean: entries of the index, headers of rows, and rows.
//!
//! ```text
//! row    header │ key and row, one after the other                           up to INLINE_MAX bytes
//! chain  header │ address of the next piece │ the first PIECE_BYTES of them  and beyond
//! piece  PIECE and address of the next │ address of the header │ more of them
//! fork   transaction │ entry when it is committed │ entry until then
//! free   0 │ where the next free one in the segment is
//! ```

use super::classes::Class;
use super::segments::{Address, Directory, Words};

/// Bytes of key and row that are in one place.
pub(super) const INLINE_MAX: usize = (PLACE_MAX - 1) * 8;
/// Words of the largest place.
pub(super) const PLACE_MAX: usize = 1024;
/// Bytes in a place of a chain.
pub(super) const PIECE_BYTES: usize = (PLACE_MAX - 2) * 8;
pub(super) const PIECE: u64 = 1 << 62;
/// Words of a fork.
pub(super) const FORK: usize = 3;

/// A word of the index: where a row is, and sixteen bits of its key's hash. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

const ADDRESS: u64 = (1 << 44) - 1;
const IS_FORK: u64 = 1 << 44;
const IS_LINK: u64 = 1 << 45;
const IS_ABSENT: u64 = 1 << 46;
const TAG: u32 = 48;

impl Entry {
    pub(super) const NONE: Entry = Entry(0);

    pub(super) fn row(hash: u64, address: Address, absent: bool) -> Entry {
        let absent = if absent { IS_ABSENT } else { 0 };
        Entry((hash >> TAG << TAG) | absent | address.0)
    }

    pub(super) fn fork(hash: u64, address: Address) -> Entry {
        Entry((hash >> TAG << TAG) | IS_FORK | address.0)
    }

    /// To a further line of the bucket.
    pub(super) fn link(line: usize) -> Entry {
        Entry(IS_LINK | line as u64)
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn is_fork(self) -> bool {
        self.0 & IS_FORK != 0
    }

    /// The row is known not to exist.
    pub(super) fn is_absent(self) -> bool {
        self.0 & IS_ABSENT != 0
    }

    pub(super) fn is_row(self) -> bool {
        !self.is_none() && !self.is_absent()
    }

    pub(super) fn linked(self) -> Option<usize> {
        (self.0 & IS_LINK != 0).then_some((self.0 & ADDRESS) as usize)
    }

    pub(super) fn address(self) -> Address {
        Address(self.0 & ADDRESS)
    }

    /// It may be of a key with this hash.
    pub(super) fn fits(self, hash: u64) -> bool {
        (self.0 ^ hash) >> TAG == 0 && self.0 & IS_LINK == 0 && self.0 != 0
    }
}

/// The first word of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header(pub(super) u64);

impl Header {
    const IS_HEADER: u64 = 1 << 63;

    pub(super) fn new(key: usize, row: usize) -> Header {
        Header(Self::IS_HEADER | (key as u64) << 32 | row as u64)
    }

    pub(super) fn is_header(self) -> bool {
        self.0 & Self::IS_HEADER != 0
    }

    pub(super) fn key(self) -> usize {
        (self.0 >> 32) as usize & 0xffff
    }

    pub(super) fn row(self) -> usize {
        self.0 as usize & 0xffff_ffff
    }

    /// Bytes of key and row.
    pub(super) fn len(self) -> usize {
        self.key() + self.row()
    }

    pub(super) fn is_chain(self) -> bool {
        self.len() > INLINE_MAX
    }

    /// Words of its places: of the first, and of all.
    pub(super) fn words(self) -> (usize, usize) {
        if !self.is_chain() {
            let words = Class::of(1 + self.len().div_ceil(8)).words();
            return (words, words);
        }
        let rest = self.len() % PIECE_BYTES;
        let last = if rest == 0 {
            0
        } else {
            Class::of(2 + rest.div_ceil(8)).words()
        };
        (PLACE_MAX, self.len() / PIECE_BYTES * PLACE_MAX + last)
    }

    /// Bytes without rounding up.
    pub(super) fn bytes(self) -> u64 {
        let pieces = if self.is_chain() {
            self.len().div_ceil(PIECE_BYTES) * 2
        } else {
            1
        };
        (pieces * 8 + self.len()) as u64
    }

    /// Bytes of its places.
    pub(super) fn place_bytes(self) -> u64 {
        self.words().1 as u64 * 8
    }

    /// At which word the key begins.
    pub(super) fn data(self) -> usize {
        if self.is_chain() { 2 } else { 1 }
    }
}

pub(super) fn key_is(words: Words<'_>, key: &[u8]) -> bool {
    let header = Header(words.load(0));
    if !header.is_header() || header.key() != key.len() {
        return false;
    }
    let mut at = header.data();
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        if words.load(at).to_le_bytes() != *chunk {
            return false;
        }
        at += 1;
    }
    let rest = chunks.remainder();
    rest.is_empty() || words.load(at).to_le_bytes().starts_with(rest)
}

pub(super) fn append_key(words: Words<'_>, key: &mut Vec<u8>) {
    let header = Header(words.load(0));
    let end = key.len() + header.key();
    for at in 0..header.key().div_ceil(8) {
        key.extend_from_slice(&words.load(header.data() + at).to_le_bytes());
    }
    key.truncate(end);
}

/// Appends the row at `words`, whose header the caller has checked. `None`: what is there is no row any more.
pub(super) fn append_row<'d>(
    directory: &'d Directory,
    words: Words<'d>,
    header: Header,
    row: &mut Vec<u8>,
) -> Option<()> {
    let skip = header.key() / 8;
    if !header.is_chain() {
        let mut at = header.data() + skip;
        append(header, row, || {
            at += 1;
            Some(words.load(at - 1))
        })
    } else {
        let (mut piece, mut at) = (words, header.data() + skip);
        append(header, row, || {
            if at == PLACE_MAX {
                let next = piece.load(if Header(piece.load(0)).is_header() { 1 } else { 0 });
                piece = directory.words(Address(next & !PIECE))?;
                at = 2;
            }
            at += 1;
            Some(piece.load(at - 1))
        })
    }
}

/// The words that `next` gives begin with the one that the row begins in, behind the key.
fn append(header: Header, row: &mut Vec<u8>, mut next: impl FnMut() -> Option<u64>) -> Option<()> {
    let (start, len) = (row.len(), header.row());
    row.resize(start + len.next_multiple_of(8), 0);
    let (before, mut left) = (header.key() % 8, len);
    let mut word = if before > 0 && len > 0 { next()? } else { 0 };
    for chunk in row[start..].chunks_exact_mut(8) {
        let value = if before == 0 {
            next()?
        } else if left + before > 8 {
            let following = next()?;
            let value = word >> (before * 8) | following << (64 - before * 8);
            word = following;
            value
        } else {
            word >> (before * 8)
        };
        chunk.copy_from_slice(&value.to_le_bytes());
        left = left.saturating_sub(8);
    }
    row.truncate(start + len);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_what_they_are() {
        let address = Address(0xabc_def0_1234);
        let hash = 0x1234_5678_9abc_def0;
        let row = Entry::row(hash, address, false);
        assert!(row.is_row() && !row.is_fork() && row.linked().is_none() && row.fits(hash));
        assert!(!row.fits(hash ^ (1 << 48)) && row.fits(hash ^ (1 << 47)));
        assert_eq!(row.address(), address);
        let absent = Entry::row(hash, address, true);
        assert!(absent.is_absent() && !absent.is_row() && absent.address() == address);
        let fork = Entry::fork(hash, address);
        assert!(fork.is_fork() && fork.fits(hash) && fork.address() == address);
        assert_eq!(Entry::link(77).linked(), Some(77));
        assert!(!Entry::link(77).fits(0) && !Entry::NONE.fits(0) && !Entry::NONE.is_row());
    }

    #[test]
    fn headers_hold_the_longest() {
        let header = Header::new(super::super::KEY_MAX, super::super::ROW_MAX);
        assert!(header.is_header() && header.is_chain());
        assert_eq!(
            (header.key(), header.row()),
            (super::super::KEY_MAX, super::super::ROW_MAX)
        );
        assert!(!Header::new(9, INLINE_MAX - 9).is_chain() && Header::new(9, INLINE_MAX - 8).is_chain());
    }
}
