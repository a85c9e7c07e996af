//! Which entries a key may have: linear hashing. Buckets are lines of eight entries; where they do not
//! suffice the last word links to a further line. The table grows by one bucket at a time.
//!
//! Readers go through a bucket without any lock. An entry is one word, so each is read whole; but while a
//! bucket is divided an entry may be passed by. So a reader who found nothing looks whether buckets were
//! changed meanwhile (`shape`), and if so, again.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::Entry;
use super::segments::{Directory, LINE_WORDS, Line, SEGMENT_LINES};

/// Buckets to begin with: a segment.
pub(super) const BUCKETS_MIN: u64 = SEGMENT_LINES as u64;
/// Segments of buckets, and of further lines: enough for 1.4 G rows; beyond that buckets get longer.
const SEGMENTS_MAX: usize = 1 << 18;
/// Entries for each bucket, in sixteenths: above that the table grows.
const LOAD: u64 = 88;

pub(super) struct Index {
    /// Odd while entries change places.
    shape: AtomicU64,
    /// How many there are.
    buckets: AtomicU64,
    /// Buckets in order.
    pub(super) first: Directory,
    /// Further lines.
    pub(super) further: Directory,
}

/// Buckets changed while they were looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moved;

impl Index {
    /// Without any segment: the first must be added before use.
    pub(super) fn new() -> Index {
        Index {
            shape: AtomicU64::new(0),
            buckets: AtomicU64::new(BUCKETS_MIN),
            first: Directory::new(SEGMENTS_MAX),
            further: Directory::new(SEGMENTS_MAX),
        }
    }

    pub(super) fn buckets(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.first.bytes() + self.further.bytes()
    }

    /// The first of the entries with this hash for which `look` gives something.
    pub(super) fn search<T>(
        &self,
        hash: u64,
        mut look: impl FnMut(Entry) -> Option<T>,
    ) -> Result<Option<T>, Moved> {
        let shape = self.shape.load(Ordering::Acquire);
        let (bucket, _) = bucket_of(hash, self.buckets.load(Ordering::Acquire));
        let found = self.visit(bucket, |entry| if entry.fits(hash) { look(entry) } else { None });
        match found {
            Some(found) => Ok(Some(found)),
            None => self.unmoved(shape).map(|()| None),
        }
    }

    /// All entries of the bucket at a point: hashes in the order of their reversed bits. Returns the bits
    /// that the bucket takes of them.
    pub(super) fn each_at(&self, point: u64, mut each: impl FnMut(Entry)) -> Result<u32, Moved> {
        let shape = self.shape.load(Ordering::Acquire);
        let (bucket, bits) = bucket_of(point.reverse_bits(), self.buckets.load(Ordering::Acquire));
        self.visit(bucket, |entry| {
            each(entry);
            None::<()>
        });
        self.unmoved(shape).map(|()| bits)
    }

    fn visit<T>(&self, bucket: u64, mut look: impl FnMut(Entry) -> Option<T>) -> Option<T> {
        let mut line = self.first.line(bucket as usize);
        while let Some(words) = line {
            line = None;
            for word in &words.0 {
                let entry = Entry(word.load(Ordering::Acquire));
                if let Some(further) = entry.linked() {
                    line = self.further.line(further);
                } else if !entry.is_none()
                    && let Some(found) = look(entry)
                {
                    return Some(found);
                }
            }
        }
        None
    }

    /// No entry has changed its place since `shape` was read.
    fn unmoved(&self, shape: u64) -> Result<(), Moved> {
        fence(Ordering::Acquire);
        let same = shape.is_multiple_of(2) && self.shape.load(Ordering::Relaxed) == shape;
        if same { Ok(()) } else { Err(Moved) }
    }
}

/// The bucket of a hash, of so many, and how many bits of the hash it takes.
fn bucket_of(hash: u64, buckets: u64) -> (u64, u32) {
    let bits = 64 - (buckets - 1).leading_zeros();
    let bucket = hash & ((1 << bits) - 1);
    if bucket >= buckets {
        return (bucket & ((1 << (bits - 1)) - 1), bits - 1);
    }
    // Not yet divided: its other half would be a bucket.
    let half = 1 << (bits - 1);
    if bucket < half && bucket + half >= buckets {
        (bucket, bits - 1)
    } else {
        (bucket, bits)
    }
}

/// The writer's side of an index.
#[derive(Default)]
pub(super) struct Growth {
    entries: u64,
    /// Further lines that are not in use.
    spare: Vec<u32>,
    /// Further lines that were ever in use.
    lines: u32,
    /// The entries of a bucket that is divided: those that stay, and those that go.
    halves: [Vec<Entry>; 2],
}

/// A further line is needed, and there is none.
#[derive(Debug)]
pub(super) struct NoLine;

impl Growth {
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn bytes(&self) -> u64 {
        let halves: usize = self.halves.iter().map(Vec::capacity).sum();
        (self.spare.capacity() * size_of::<u32>() + halves * size_of::<Entry>()) as u64
    }

    /// Where the entry with this hash is that `is` says.
    pub(super) fn find<'i>(
        &self,
        index: &'i Index,
        hash: u64,
        mut is: impl FnMut(Entry) -> bool,
    ) -> Option<&'i AtomicU64> {
        let (bucket, _) = bucket_of(hash, index.buckets());
        let mut line = index.first.line(bucket as usize);
        while let Some(words) = line {
            let entry_of = |word: &AtomicU64| Entry(word.load(Ordering::Relaxed));
            let found = words.0.iter().find(|word| {
                let entry = entry_of(word);
                entry.fits(hash) && is(entry)
            });
            if found.is_some() {
                return found;
            }
            line = entry_of(&words.0[LINE_WORDS - 1])
                .linked()
                .and_then(|further| index.further.line(further));
        }
        None
    }

    /// Adds an entry for a key that has none.
    pub(super) fn insert(&mut self, index: &Index, hash: u64, entry: Entry) -> Result<(), NoLine> {
        let (bucket, _) = bucket_of(hash, index.buckets());
        let mut line = index.first.line(bucket as usize).ok_or(NoLine)?;
        loop {
            if let Some(free) = line.0.iter().find(|word| word.load(Ordering::Relaxed) == 0) {
                free.store(entry.0, Ordering::Release);
                self.entries += 1;
                return Ok(());
            }
            let last = &line.0[LINE_WORDS - 1];
            let was = Entry(last.load(Ordering::Relaxed));
            let Some(further) = was.linked() else {
                let further = self.line(index)?;
                let words = index.further.line(further).ok_or(NoLine)?;
                write(words, &[was, entry]);
                last.store(Entry::link(further).0, Ordering::Release);
                self.entries += 1;
                return Ok(());
            };
            line = index.further.line(further).ok_or(NoLine)?;
        }
    }

    /// Takes an entry away.
    pub(super) fn remove(&mut self, word: &AtomicU64) {
        word.store(Entry::NONE.0, Ordering::Release);
        self.entries -= 1;
    }

    fn line(&mut self, index: &Index) -> Result<usize, NoLine> {
        if let Some(line) = self.spare.pop() {
            return Ok(line as usize);
        }
        let line = self.lines as usize;
        index.further.line(line).ok_or(NoLine)?;
        self.lines += 1;
        Ok(line)
    }

    /// There are more entries than there should be for so many buckets.
    pub(super) fn is_due(&self, index: &Index) -> bool {
        self.entries * 16 > index.buckets() * LOAD
            && (index.buckets() as usize) < SEGMENTS_MAX * SEGMENT_LINES
    }

    /// Divides the bucket whose turn it is. There must be a line for the new one.
    pub(super) fn divide(&mut self, index: &Index, mut hash_of: impl FnMut(Entry) -> u64) {
        let buckets = index.buckets();
        let bit = buckets.ilog2();
        let places = index
            .first
            .line((buckets - (1 << bit)) as usize)
            .zip(index.first.line(buckets as usize));
        let Some((old, new)) = places else {
            debug_assert!(false, "no line for bucket {buckets}");
            return;
        };
        let mut halves = std::mem::take(&mut self.halves);
        halves.iter_mut().for_each(Vec::clear);
        let spare = self.spare.len();
        let mut line = Some(old);
        while let Some(words) = line.take() {
            for word in &words.0 {
                let entry = Entry(word.load(Ordering::Relaxed));
                match entry.linked() {
                    Some(further) => {
                        self.spare.push(further as u32);
                        line = index.further.line(further);
                    }
                    None if entry.is_none() => {}
                    None => halves[(hash_of(entry) >> bit & 1) as usize].push(entry),
                }
            }
        }
        self.spare[spare..].reverse();
        let shape = index.shape.load(Ordering::Relaxed);
        index.shape.store(shape + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.write_chain(index, new, &halves[1]);
        index.buckets.store(buckets + 1, Ordering::Release);
        self.write_chain(index, old, &halves[0]);
        index.shape.store(shape + 2, Ordering::Release);
        self.halves = halves;
    }

    /// Writes a bucket anew. Two halves need no more further lines than the whole had.
    fn write_chain<'i>(&mut self, index: &'i Index, mut line: &'i Line, mut entries: &[Entry]) {
        while entries.len() > LINE_WORDS {
            let (here, rest) = entries.split_at(LINE_WORDS - 1);
            let further = self.line(index).ok();
            let Some((further, words)) = further.and_then(|at| Some((at, index.further.line(at)?))) else {
                debug_assert!(false, "a bucket's own lines do not suffice");
                return;
            };
            write(line, here);
            line.0[LINE_WORDS - 1].store(Entry::link(further).0, Ordering::Release);
            (line, entries) = (words, rest);
        }
        write(line, entries);
    }
}

/// These entries, and no others.
fn write(line: &Line, entries: &[Entry]) {
    let all = entries.iter().copied().chain(std::iter::repeat(Entry::NONE));
    for (word, entry) in line.0.iter().zip(all) {
        word.store(entry.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::segments::Address;
    use super::*;

    /// Of one bucket and tag, but for the bit by which the first bucket is divided.
    const STAYS: u64 = 7 << 48;
    const GOES: u64 = 7 << 48 | BUCKETS_MIN;

    fn hash_of(entry: Entry) -> u64 {
        if entry.address() == Address(1) {
            STAYS
        } else {
            GOES
        }
    }

    #[test]
    fn an_entry_that_moves_while_it_is_looked_for_is_not_taken_for_missing() {
        let (index, mut growth) = (Index::new(), Growth::default());
        index.first.add(0);
        index.first.add(1);
        growth
            .insert(&index, STAYS, Entry::row(STAYS, Address(1), false))
            .unwrap();
        growth
            .insert(&index, GOES, Entry::row(GOES, Address(2), false))
            .unwrap();
        let mut divided = false;
        let found = index.search(GOES, |entry| {
            if !std::mem::replace(&mut divided, true) {
                growth.divide(&index, hash_of);
            }
            (entry.address() == Address(2)).then_some(())
        });
        assert_eq!(found, Err(Moved));
        for (hash, address) in [(STAYS, 1), (GOES, 2)] {
            let found = index.search(hash, |entry| (entry.address() == Address(address)).then_some(()));
            assert_eq!(found, Ok(Some(())));
        }
        assert_eq!(index.search(1 << 48, |_| Some(())), Ok(None));
    }

    #[test]
    fn a_bucket_that_is_full_goes_on_and_is_divided_as_a_whole() {
        let (index, mut growth) = (Index::new(), Growth::default());
        index.first.add(0);
        index.first.add(1);
        index.further.add(0);
        let hash = |number: u64| (number << 48) | ((number % 3) * BUCKETS_MIN);
        for number in 1..60 {
            growth
                .insert(
                    &index,
                    hash(number),
                    Entry::row(hash(number), Address(number), false),
                )
                .unwrap();
        }
        for removed in (1..60).step_by(5) {
            let word = growth
                .find(&index, hash(removed), |entry| entry.address() == Address(removed))
                .unwrap();
            growth.remove(word);
        }
        growth.divide(&index, |entry| hash(entry.address().0));
        for number in 1..60 {
            let found = index.search(hash(number), |entry| {
                (entry.address() == Address(number)).then_some(())
            });
            assert_eq!(found, Ok((number % 5 != 1).then_some(())), "{number}");
        }
        assert_eq!(growth.entries(), 59 - 12);
    }

    #[test]
    fn buckets_take_the_bits_that_they_have() {
        assert_eq!(
            [bucket_of(0x7ff, 1024), bucket_of(0x400, 1024)],
            [(0x3ff, 10), (0, 10)]
        );
        assert_eq!(
            [bucket_of(0, 1025), bucket_of(0x400, 1025)],
            [(0, 11), (0x400, 11)]
        );
        assert_eq!([bucket_of(1, 1025), bucket_of(0x401, 1025)], [(1, 10), (1, 10)]);
    }
}
