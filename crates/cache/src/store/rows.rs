//! The writer's side: rows, forks and entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::{Full, Owner};
use super::classes::Class;
use super::index::NoLine;
use super::layout::{Entry, FORK, Header, PIECE, PIECE_BYTES, PLACE_MAX, key_is};
use super::segments::{Address, Directory, SEGMENT_LINES};
use super::types::MappingId;
use super::writer::{Change, Writer};

/// Which directory of an index.
#[derive(Clone, Copy)]
enum Lines {
    First,
    Further,
}

fn is_of(directory: &Directory, entry: Entry, key: &[u8]) -> bool {
    row_of(directory, entry)
        .is_some_and(|address| directory.words(address).is_some_and(|words| key_is(words, key)))
}

/// Where a row with the entry's key is.
fn row_of(directory: &Directory, entry: Entry) -> Option<Address> {
    if !entry.is_fork() {
        return Some(entry.address());
    }
    let fork = directory.words(entry.address())?;
    let side = [1, 2]
        .map(|side| Entry(fork.load(side)))
        .into_iter()
        .find(|side| !side.is_none());
    side.map(Entry::address)
}

impl Writer {
    pub(super) fn find(&mut self, mapping: MappingId, hash: u64, key: &[u8]) -> Option<Entry> {
        let directory = Arc::clone(&self.arena.directory);
        let opened = self.opened(mapping)?;
        let word = opened
            .growth
            .find(&opened.table.index, hash, |entry| is_of(&directory, entry, key))?;
        Some(Entry(word.load(Ordering::Relaxed)))
    }

    /// Changes the entry that is `was`.
    fn set(&mut self, mapping: MappingId, hash: u64, was: Entry, now: Entry) {
        let Some(opened) = self.opened(mapping) else {
            return;
        };
        let table = Arc::clone(&opened.table);
        let word: Option<&AtomicU64> = opened.growth.find(&table.index, hash, |entry| entry == was);
        debug_assert!(word.is_some(), "an entry is lost");
        match word {
            Some(word) if now.is_none() => opened.growth.remove(word),
            Some(word) => word.store(now.0, Ordering::Release),
            None => {}
        }
    }

    /// Adds an entry for a key that has none.
    pub(super) fn insert(&mut self, mapping: MappingId, hash: u64, entry: Entry) -> Result<(), Full> {
        loop {
            let Some(opened) = self.opened(mapping) else {
                return Err(Full);
            };
            let lines = match opened.growth.insert(&opened.table.index, hash, entry) {
                Ok(()) => break,
                Err(NoLine) if opened.segments[Lines::First as usize] == 0 => Lines::First,
                Err(NoLine) => Lines::Further,
            };
            self.add_lines(mapping, lines)?;
        }
        self.grow(mapping);
        Ok(())
    }

    /// Divides buckets as far as there are too few. Where there is no memory for more they just get longer.
    fn grow(&mut self, mapping: MappingId) {
        let (directory, hashes) = (Arc::clone(&self.arena.directory), Arc::clone(&self.store));
        let mut key = Vec::new();
        while let Some(opened) = self.opened(mapping)
            && opened.growth.is_due(&opened.table.index)
        {
            let segments = opened.segments[Lines::First as usize];
            if opened.table.index.buckets() as usize == segments * SEGMENT_LINES {
                if self.add_lines(mapping, Lines::First).is_err() {
                    return;
                }
                continue;
            }
            opened.growth.divide(&opened.table.index, |entry| {
                key.clear();
                let words = row_of(&directory, entry).and_then(|address| directory.words(address));
                words.map_or(0, |words| {
                    super::layout::append_key(words, &mut key);
                    hashes.hash(&key)
                })
            });
        }
    }

    fn add_lines(&mut self, mapping: MappingId, lines: Lines) -> Result<(), Full> {
        let owner = Owner::Index(mapping.0);
        let segment = loop {
            match self.arena.take(owner, Class::SMALLEST, true) {
                Ok(segment) => break segment,
                Err(Full) => self.make_room(None)?,
            }
        };
        let directory = Arc::clone(&self.arena.directory);
        let (Some(opened), Some(segment)) = (self.opened(mapping), directory.get(segment as usize)) else {
            return Err(Full);
        };
        let number = &mut opened.segments[lines as usize];
        let index = &opened.table.index;
        let of = match lines {
            Lines::First => &index.first,
            Lines::Further => &index.further,
        };
        if *number >= of.capacity() {
            return Err(Full);
        }
        of.set(*number, segment.clone());
        *number += 1;
        opened.directories = index.bytes();
        Ok(())
    }

    fn place(&mut self, owner: Owner, words: usize) -> Result<Address, Full> {
        loop {
            let shelves = match owner {
                Owner::Rows(at) => &mut self.tables.get_mut(&at).ok_or(Full)?.shelves,
                _ => &mut self.forks,
            };
            match self.arena.place(owner, shelves, words) {
                Ok(address) => return Ok(address),
                Err(Full) => self.make_room(Some((owner, words)))?,
            }
        }
    }

    /// Puts a row, or that there is none, into fresh places.
    pub(super) fn write_row(
        &mut self,
        mapping: MappingId,
        hash: u64,
        key: &[u8],
        row: Option<&[u8]>,
    ) -> Result<Entry, Full> {
        let mut data = std::mem::take(&mut self.scratch);
        data.clear();
        data.extend_from_slice(key);
        data.extend_from_slice(row.unwrap_or_default());
        let header = Header::new(key.len(), data.len() - key.len());
        let owner = Owner::Rows(mapping.0);
        let written = if header.is_chain() {
            self.write_chain(owner, header, &data)
        } else {
            self.place(owner, header.words().0)
                .inspect(|&address| self.write(address, &[header.0], &data))
        };
        if data.capacity() <= 1 << 16 {
            self.scratch = data;
        }
        let address = written?;
        if let Some(opened) = self.opened(mapping) {
            opened.row_bytes += header.bytes();
        }
        Ok(Entry::row(hash, address, row.is_none()))
    }

    fn write(&self, address: Address, head: &[u64], data: &[u8]) {
        let Some(words) = self.arena.directory.words(address) else {
            return;
        };
        for (at, &word) in head.iter().enumerate() {
            words.store(at, word);
        }
        for (at, chunk) in data.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            words.store(head.len() + at, u64::from_le_bytes(bytes));
        }
    }

    fn write_chain(&mut self, owner: Owner, header: Header, data: &[u8]) -> Result<Address, Full> {
        let mut places = Vec::new();
        for piece in data.chunks(PIECE_BYTES) {
            let words = if places.is_empty() {
                PLACE_MAX
            } else {
                2 + piece.len().div_ceil(8)
            };
            match self.place(owner, words) {
                Ok(address) => {
                    // Nobody must take what was there before for a row.
                    self.write(address, &[PIECE, 0], &[]);
                    places.push(address);
                }
                Err(full) => {
                    places
                        .into_iter()
                        .for_each(|address| self.arena.give_back(address));
                    return Err(full);
                }
            }
        }
        for (at, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let next = places.get(at + 1).map_or(0, |next| next.0);
            let head = if at == 0 {
                [header.0, next]
            } else {
                [PIECE | next, places[0].0]
            };
            self.write(places[at], &head, piece);
        }
        Ok(places[0])
    }

    /// Gives back the places of a row.
    pub(super) fn give_back_row(&mut self, mapping: u32, entry: Entry) {
        if entry.is_none() {
            return;
        }
        let directory = Arc::clone(&self.arena.directory);
        let Some(first) = directory.words(entry.address()) else {
            return;
        };
        let header = Header(first.load(0));
        debug_assert!(header.is_header(), "no row at {entry:?}");
        self.arena.give_back(entry.address());
        if header.is_chain() {
            let mut next = first.load(1);
            while next != 0
                && let Some(piece) = directory.words(Address(next))
            {
                self.arena.give_back(Address(next));
                next = piece.load(0) & !PIECE;
            }
        }
        if let Some(opened) = self.opened(MappingId(mapping)) {
            opened.row_bytes -= header.bytes();
        }
    }

    /// From the commit on the key's entry is `new`.
    pub(super) fn fork(&mut self, mapping: MappingId, hash: u64, key: &[u8], new: Entry) -> Result<(), Full> {
        let had = self.find(mapping, hash, key).unwrap_or(Entry::NONE);
        if had.is_fork() {
            if let Some(fork) = Arc::clone(&self.arena.directory).words(had.address()) {
                self.give_back_row(mapping.0, Entry(fork.load(1)));
                fork.store(1, new.0);
            }
            return Ok(());
        }
        let place = self
            .note_room()
            .and_then(|()| self.place(Owner::Forks, FORK))
            .inspect_err(|_| self.give_back_row(mapping.0, new))?;
        // Finding a place may have evicted the row.
        let old = self.find(mapping, hash, key).unwrap_or(Entry::NONE);
        let entry = Entry::fork(hash, place);
        if let Some(fork) = self.arena.directory.words(place) {
            fork.store(0, self.next());
            fork.store(1, new.0);
            fork.store(2, old.0);
        }
        if !old.is_none() {
            self.set(mapping, hash, old, entry);
        } else if had.is_none() {
            self.insert(mapping, hash, entry).inspect_err(|_| {
                self.arena.give_back(place);
                self.give_back_row(mapping.0, new);
            })?;
        } else {
            self.arena.give_back(place);
            self.give_back_row(mapping.0, new);
            return Ok(());
        }
        self.changes.push(Change {
            mapping: mapping.0,
            hash,
            fork: place,
        });
        Ok(())
    }

    /// There is room to note a change, and what it gives back at last: its fork and two rows.
    fn note_room(&mut self) -> Result<(), Full> {
        if self.changes.len() < self.changes.capacity() {
            return Ok(());
        }
        self.account();
        let each = size_of::<Change>() + 3 * size_of::<Address>();
        let fits = self.arena.fits((self.changes.capacity() * each) as u64);
        if fits { Ok(()) } else { Err(Full) }
    }

    /// The new and the old side of a change.
    pub(super) fn sides(&self, change: &Change) -> (Entry, Entry) {
        let fork = self.arena.directory.words(change.fork);
        fork.map_or((Entry::NONE, Entry::NONE), |fork| {
            (Entry(fork.load(1)), Entry(fork.load(2)))
        })
    }

    /// Replaces a fork by one of its sides.
    pub(super) fn settle(&mut self, change: &Change, side: Entry) {
        let (_, old) = self.sides(change);
        self.count(change.mapping, old, side);
        self.set(
            MappingId(change.mapping),
            change.hash,
            Entry::fork(change.hash, change.fork),
            side,
        );
        self.arena.give_back(change.fork);
    }

    pub(super) fn count(&mut self, mapping: u32, old: Entry, new: Entry) {
        let Some(opened) = self.opened(MappingId(mapping)) else {
            return;
        };
        let rows = &opened.table.rows;
        match (old.is_row(), new.is_row()) {
            (false, true) => rows.fetch_add(1, Ordering::Relaxed),
            (true, false) => rows.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    /// Nothing is known about a key of a bounded mapping any more, from now on.
    pub(super) fn forget(&mut self, mapping: MappingId, hash: u64, key: &[u8]) {
        let Some(had) = self.find(mapping, hash, key) else {
            return;
        };
        if !had.is_fork() {
            self.drop_entry(mapping, hash, had);
            return;
        }
        // The fork stays until the transaction ends, with nothing on either side.
        let directory = Arc::clone(&self.arena.directory);
        if let Some(fork) = directory.words(had.address()) {
            let (new, old) = (Entry(fork.load(1)), Entry(fork.load(2)));
            fork.store(1, Entry::NONE.0);
            fork.store(2, Entry::NONE.0);
            self.give_back_row(mapping.0, new);
            self.give_back_row(mapping.0, old);
            self.count(mapping.0, old, Entry::NONE);
        }
    }

    /// Takes away an entry with its row.
    pub(super) fn drop_entry(&mut self, mapping: MappingId, hash: u64, entry: Entry) {
        self.set(mapping, hash, entry, Entry::NONE);
        self.give_back_row(mapping.0, entry);
        self.count(mapping.0, entry, Entry::NONE);
    }
}
