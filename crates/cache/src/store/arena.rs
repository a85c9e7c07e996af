//! Who has which part of memory: the writer's notes about segments, and places in them.
//!
//! A place that is given back may still be read by those who began before. It waits in `limbo` until the
//! writer has turned the sequence, from which on such readers find out that they have to begin again.

use std::sync::Arc;

use super::classes::{CLASSES, Class};
use super::layout::{Header, PIECE};
use super::segments::{Address, Directory, SEGMENT_BYTES, SEGMENT_WORDS};

/// Bytes that segments leave to notes: at least, and at most.
const RESERVE: (u64, u64) = (128 << 10, 1 << 20);

/// Whose a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    /// Of rows, of the mapping at this place among the writer's.
    Rows(u32),
    Index(u32),
    Forks,
}

/// What there is to know about a segment.
struct Note {
    owner: Owner,
    /// Of its places.
    class: Class,
    /// Places in use or in limbo.
    used: u16,
    /// One more than the word of the place that was given back last. 0 is none.
    free: u16,
    /// Words that were ever in use.
    touched: u16,
}

/// No place for it within the bound.
#[derive(Debug)]
pub(super) struct Full;

/// Segments of an owner that have free places, for each class. The last is the one to use; some may have none
/// any more, or be another's.
pub(super) struct Shelves([Vec<u32>; CLASSES]);

impl Default for Shelves {
    fn default() -> Shelves {
        Shelves(std::array::from_fn(|_| Vec::new()))
    }
}

impl Shelves {
    pub(super) fn bytes(&self) -> u64 {
        let numbers: usize = self.0.iter().map(Vec::capacity).sum();
        (numbers * size_of::<u32>()) as u64
    }
}

pub(super) struct Arena {
    pub(super) directory: Arc<Directory>,
    directory_bytes: u64,
    notes: Vec<Note>,
    /// Segments of nobody.
    pool: Vec<u32>,
    /// Numbers without a segment.
    vacant: Vec<u32>,
    limbo: Vec<Address>,
    pub(super) memory_max: u64,
    /// Bytes that are held outside of the arena.
    pub(super) others: u64,
    /// Segments of indexes.
    indexes: u64,
    /// Words of places in use or in limbo, other than indexes.
    used: u64,
}

impl Arena {
    pub(super) fn new(memory_max: u64) -> Arena {
        let segments = (memory_max / SEGMENT_BYTES) as usize + 1;
        let directory = Arc::new(Directory::new(segments + 1));
        Arena {
            directory_bytes: directory.bytes(),
            directory,
            // The first is never used, so that no address is 0.
            notes: vec![Note::EMPTY],
            pool: Vec::new(),
            vacant: Vec::new(),
            limbo: Vec::new(),
            memory_max,
            others: 0,
            indexes: 0,
            used: 0,
        }
    }

    /// Bytes from the allocator.
    pub(super) fn held(&self) -> u64 {
        self.held_by_segments() + self.noted()
    }

    fn held_by_segments(&self) -> u64 {
        self.segments() * SEGMENT_BYTES
    }

    fn noted(&self) -> u64 {
        self.directory_bytes + self.bytes() + self.others
    }

    /// What segments leave to notes, which grow with them and with transactions.
    fn reserve(&self) -> u64 {
        (self.memory_max / 32).clamp(RESERVE.0, RESERVE.1)
    }

    /// So many bytes of notes more would fit.
    pub(super) fn fits(&self, notes: u64) -> bool {
        self.held() + notes <= self.memory_max
    }

    fn segments(&self) -> u64 {
        (self.notes.len() - 1 - self.vacant.len()) as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        let numbers = self.pool.capacity() + self.vacant.capacity();
        (self.notes.capacity() * size_of::<Note>()
            + numbers * size_of::<u32>()
            + self.limbo.capacity() * size_of::<Address>()) as u64
    }

    pub(super) fn index_bytes(&self) -> u64 {
        self.indexes * SEGMENT_BYTES + self.directory_bytes
    }

    /// Bytes of places in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used * 8
    }

    /// Bytes of segments that no row, fork or index is in.
    pub(super) fn free_bytes(&self) -> u64 {
        (self.segments() - self.indexes) * SEGMENT_BYTES - self.used_bytes()
    }

    /// A segment for `owner`, of zeros if `clear`.
    pub(super) fn take(&mut self, owner: Owner, class: Class, clear: bool) -> Result<u32, Full> {
        let segment = match self.pool.pop() {
            Some(segment) => {
                if clear && let Some(segment) = self.directory.get(segment as usize) {
                    segment.clear();
                }
                segment
            }
            None => self.add()?,
        };
        let note = &mut self.notes[segment as usize];
        *note = Note {
            owner,
            class,
            ..Note::EMPTY
        };
        self.indexes += u64::from(matches!(owner, Owner::Index(_)));
        Ok(segment)
    }

    fn add(&mut self) -> Result<u32, Full> {
        let number = self
            .vacant
            .last()
            .map_or(self.notes.len(), |&number| number as usize);
        if self.held_by_segments() + SEGMENT_BYTES + self.noted().max(self.reserve()) > self.memory_max
            || number >= self.directory.capacity()
        {
            return Err(Full);
        }
        match self.vacant.pop() {
            Some(_) => {}
            None => self.notes.push(Note::EMPTY),
        }
        self.directory.add(number);
        self.directory_bytes = self.directory.bytes();
        Ok(number as u32)
    }

    /// A place of at least `words`.
    pub(super) fn place(
        &mut self,
        owner: Owner,
        shelves: &mut Shelves,
        words: usize,
    ) -> Result<Address, Full> {
        let class = Class::of(words);
        let shelf = &mut shelves.0[class.index()];
        while let Some(&segment) = shelf.last() {
            let note = &mut self.notes[segment as usize];
            if note.owner == owner
                && note.class == class
                && let Some(word) = note.give(&self.directory, segment)
            {
                self.used += class.words() as u64;
                return Ok(Address::new(segment as usize, word));
            }
            shelf.pop();
        }
        let segment = self.take(owner, class, false)?;
        shelves.0[class.index()].push(segment);
        self.place(owner, shelves, words)
    }

    /// There is a segment of nobody.
    pub(super) fn has_segment(&self) -> bool {
        !self.pool.is_empty()
    }

    /// There is a place of this size, or a segment for it.
    pub(super) fn has_place(&self, owner: Owner, shelves: &Shelves, words: usize) -> bool {
        let class = Class::of(words);
        let usable = |&segment: &u32| {
            let note = &self.notes[segment as usize];
            note.owner == owner && note.class == class && note.has_room()
        };
        !self.pool.is_empty() || shelves.0[class.index()].iter().rev().take(8).any(usable)
    }

    /// Gives a place back: free when the sequence has turned.
    pub(super) fn give_back(&mut self, address: Address) {
        self.limbo.push(address);
    }

    /// Nobody reads what was given back before the sequence turned. `with_shelves` calls with those of an
    /// owner.
    pub(super) fn turned(&mut self, mut with_shelves: impl FnMut(Owner, &mut dyn FnMut(&mut Shelves))) {
        let mut limbo = std::mem::take(&mut self.limbo);
        for address in limbo.drain(..) {
            let segment = address.segment();
            let owner = self.notes[segment].owner;
            self.free(address);
            let note = &self.notes[segment];
            if note.owner == owner && note.used as usize == note.places() - 1 {
                with_shelves(owner, &mut |shelves| {
                    shelves.0[note.class.index()].push(segment as u32)
                });
            }
        }
        // After a large transaction.
        if limbo.capacity() > 1 << 16 {
            limbo = Vec::new();
        }
        self.limbo = limbo;
    }

    pub(super) fn in_limbo(&self) -> usize {
        self.limbo.len()
    }

    fn free(&mut self, address: Address) {
        let note = &mut self.notes[address.segment()];
        debug_assert!(
            matches!(note.owner, Owner::Rows(_) | Owner::Forks),
            "{address:?} of {:?}",
            note.owner
        );
        if let Some(words) = self.directory.words(address) {
            words.store(0, 0);
            words.store(1, u64::from(note.free));
        }
        note.free = address.word() as u16 + 1;
        note.used -= 1;
        self.used -= note.class.words() as u64;
        if note.used == 0 {
            *note = Note::EMPTY;
            self.pool.push(address.segment() as u32);
        }
    }

    /// All segments of a mapping that is gone are nobody's. No reader can be in it, as the sequence has
    /// turned.
    pub(super) fn forsake(&mut self, mapping: u32) {
        for (segment, note) in self.notes.iter_mut().enumerate() {
            match note.owner {
                Owner::Index(of) if of == mapping => self.indexes -= 1,
                Owner::Rows(of) if of == mapping => {
                    self.used -= u64::from(note.used) * note.class.words() as u64
                }
                _ => continue,
            }
            *note = Note::EMPTY;
            self.pool.push(segment as u32);
        }
    }

    /// Gives segments of nobody back to the allocator, where they are many. The directory is another then.
    pub(super) fn shrink(&mut self, keep: usize) -> bool {
        if self.pool.len() <= keep {
            return false;
        }
        self.vacant.extend(self.pool.drain(keep..));
        let mut gone = vec![false; self.notes.len()];
        for &number in &self.vacant {
            gone[number as usize] = true;
        }
        self.directory = Arc::new(
            self.directory
                .filtered(|at| !gone.get(at).copied().unwrap_or(false)),
        );
        self.directory_bytes = self.directory.bytes();
        self.pool.shrink_to_fit();
        true
    }

    /// How many numbers of segments there are.
    pub(super) fn numbers(&self) -> usize {
        self.notes.len()
    }

    pub(super) fn owner(&self, segment: usize) -> Owner {
        self.notes[segment].owner
    }

    /// Places of a segment that hold a row or a piece of one, whether it is still in use or in limbo.
    pub(super) fn taken(&self, segment: usize, into: &mut Vec<Address>) {
        let note = &self.notes[segment];
        let words = note.class.words();
        for at in 0..note.touched as usize / words {
            let address = Address::new(segment, at * words);
            let first = self.directory.words(address).map_or(0, |place| place.load(0));
            if Header(first).is_header() || first & PIECE != 0 {
                into.push(address);
            }
        }
    }
}

impl Note {
    const EMPTY: Note = Note {
        owner: Owner::Nobody,
        class: Class::SMALLEST,
        used: 0,
        free: 0,
        touched: 0,
    };

    fn places(&self) -> usize {
        SEGMENT_WORDS / self.class.words()
    }

    fn has_room(&self) -> bool {
        (self.used as usize) < self.places()
    }

    /// A free place's first word.
    fn give(&mut self, directory: &Directory, segment: u32) -> Option<usize> {
        let words = self.class.words();
        let at = match self.free {
            0 if self.touched as usize + words > SEGMENT_WORDS => return None,
            0 => {
                self.touched += words as u16;
                self.touched as usize - words
            }
            free => {
                let at = free as usize - 1;
                self.free = directory.words(Address::new(segment as usize, at))?.load(1) as u16;
                at
            }
        };
        self.used += 1;
        Some(at)
    }
}
