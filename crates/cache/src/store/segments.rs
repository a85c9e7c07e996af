//! Memory: segments of atomic words that never move, and a directory that finds them without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(super) const LINE_WORDS: usize = 8;
/// Lines of a segment that hold rows or buckets.
pub(super) const SEGMENT_LINES: usize = 1024;
pub(super) const SEGMENT_WORDS: usize = SEGMENT_LINES * LINE_WORDS;
/// A bit for each line: a row that begins there was read. For eviction.
const REF_LINES: usize = SEGMENT_LINES / 64 / LINE_WORDS;
const LINES: usize = SEGMENT_LINES + REF_LINES;
/// What a segment takes, with the counters that share it.
pub(super) const SEGMENT_BYTES: u64 = (size_of::<[Line; LINES]>() + align_of::<Line>()) as u64;
/// Segments of one part of the directory.
const PART: usize = 512;

#[repr(align(64))]
#[derive(Default)]
pub(super) struct Line(pub(super) [AtomicU64; LINE_WORDS]);

#[derive(Clone)]
pub(super) struct Segment(Arc<[Line; LINES]>);

impl Segment {
    /// Zeros.
    fn new() -> Segment {
        let lines: Arc<[Line]> = (0..LINES).map(|_| Line::default()).collect();
        match lines.try_into() {
            Ok(lines) => Segment(lines),
            Err(_) => unreachable!("as many lines as were collected"),
        }
    }

    pub(super) fn line(&self, at: usize) -> &Line {
        &self.0[at % SEGMENT_LINES]
    }

    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        &self.0[at / LINE_WORDS % SEGMENT_LINES].0[at % LINE_WORDS]
    }

    pub(super) fn clear(&self) {
        for word in self.0.iter().flat_map(|line| &line.0) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The word with the reference bit of a line, and the bit.
    fn reference(&self, line: usize) -> (&AtomicU64, u64) {
        let word = line / 64;
        let of_line = &self.0[SEGMENT_LINES + word / LINE_WORDS];
        (&of_line.0[word % LINE_WORDS], 1 << (line % 64))
    }

    pub(super) fn referenced(&self, line: usize) -> bool {
        let (word, bit) = self.reference(line);
        word.load(Ordering::Relaxed) & bit != 0
    }

    pub(super) fn forget_references(&self) {
        for word in self.0[SEGMENT_LINES..].iter().flat_map(|line| &line.0) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// A place in memory, in words: which segment, and where in it. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(pub(super) u64);

impl Address {
    pub(super) fn new(segment: usize, word: usize) -> Address {
        Address((segment * SEGMENT_WORDS + word) as u64)
    }

    pub(super) fn segment(self) -> usize {
        self.0 as usize / SEGMENT_WORDS
    }

    pub(super) fn word(self) -> usize {
        self.0 as usize % SEGMENT_WORDS
    }
}

/// Words from an address on.
#[derive(Clone, Copy)]
pub(super) struct Words<'s> {
    segment: &'s Segment,
    at: usize,
}

impl Words<'_> {
    /// Beyond the end of the segment there is something, but nothing of meaning.
    pub(super) fn load(&self, word: usize) -> u64 {
        self.segment.word(self.at + word).load(Ordering::Relaxed)
    }

    pub(super) fn store(&self, word: usize, value: u64) {
        self.segment.word(self.at + word).store(value, Ordering::Relaxed);
    }

    /// Notes that it was read.
    pub(super) fn touch(&self) {
        let (word, bit) = self.segment.reference(self.at / LINE_WORDS);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Segments by number. They are added in place; taken away only by making another directory.
pub(super) struct Directory {
    parts: Box<[OnceLock<Part>]>,
}

type Part = Box<[OnceLock<Segment>]>;

impl Directory {
    /// With places for `segments`.
    pub(super) fn new(segments: usize) -> Directory {
        Directory {
            parts: empty(segments.div_ceil(PART)),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.parts.len() * PART
    }

    pub(super) fn get(&self, at: usize) -> Option<&Segment> {
        self.parts.get(at / PART)?.get()?[at % PART].get()
    }

    pub(super) fn words(&self, address: Address) -> Option<Words<'_>> {
        Some(Words {
            segment: self.get(address.segment())?,
            at: address.word(),
        })
    }

    pub(super) fn line(&self, at: usize) -> Option<&Line> {
        Some(self.get(at / SEGMENT_LINES)?.line(at))
    }

    /// Sets a place that is empty and below the capacity.
    pub(super) fn set(&self, at: usize, segment: Segment) {
        let part = self.parts[at / PART].get_or_init(|| empty(PART));
        let set = part[at % PART].set(segment);
        debug_assert!(set.is_ok(), "place {at} was taken");
    }

    pub(super) fn add(&self, at: usize) {
        self.set(at, Segment::new());
    }

    /// The same, but for some.
    pub(super) fn filtered(&self, keep: impl Fn(usize) -> bool) -> Directory {
        let directory = Directory::new(self.capacity());
        for at in (0..self.capacity()).filter(|&at| keep(at)) {
            if let Some(segment) = self.get(at) {
                directory.set(at, segment.clone());
            }
        }
        directory
    }

    /// Bytes of the directory itself.
    pub(super) fn bytes(&self) -> u64 {
        let parts = self.parts.iter().filter(|part| part.get().is_some()).count();
        (size_of_val(&*self.parts) + parts * PART * size_of::<OnceLock<Segment>>()) as u64
    }
}

fn empty<T>(places: usize) -> Box<[OnceLock<T>]> {
    (0..places).map(|_| OnceLock::new()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_where_its_address_says() {
        let directory = Directory::new(1000);
        for at in [0, 1, 511, 512, 1023] {
            directory.add(at);
        }
        let address = Address::new(512, 8000);
        assert_eq!((address.segment(), address.word()), (512, 8000));
        directory.words(address).unwrap().store(3, 77);
        assert_eq!(directory.words(Address::new(512, 8003)).unwrap().load(0), 77);
        assert_eq!(
            directory.get(512).unwrap().line(1000).0[3].load(Ordering::Relaxed),
            77
        );
        assert!(directory.words(Address::new(513, 0)).is_none() && directory.get(5000).is_none());
        let fewer = directory.filtered(|at| at != 1);
        assert!(fewer.get(1).is_none());
        assert_eq!(fewer.words(Address::new(512, 8003)).unwrap().load(0), 77);
    }

    #[test]
    fn references_are_kept_for_each_line() {
        let directory = Directory::new(1);
        directory.add(0);
        let segment = directory.get(0).unwrap();
        for line in [0, 63, 64, 1023] {
            assert!(!segment.referenced(line));
            directory
                .words(Address::new(0, line * LINE_WORDS + 5))
                .unwrap()
                .touch();
            assert!(segment.referenced(line));
        }
        assert!(!segment.referenced(1) && !segment.referenced(1022));
        segment.forget_references();
        assert!((0..SEGMENT_LINES).all(|line| !segment.referenced(line)));
    }

    #[test]
    fn a_segment_is_as_large_as_it_is_counted() {
        assert_eq!(SEGMENT_BYTES, 64 * 1024 + 128 + 64);
    }
}
