//! The words of the store's interface.

/// Which mapping: numbers given by whoever makes mappings. The store allows that one is used again after it
/// was closed; the feed never does that, so that whoever remembers one does not get another mapping's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub u32);

impl MappingId {
    pub const SLOTS: u32 = 1 << 12;

    /// A small number, from 1 to `SLOTS` - 2, that no other mapping has at the same time: for cursors, which
    /// have little room, and for the places of mappings among those that are open. Later it is another's.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.0 % Self::SLOTS
    }
}

/// How many transactions have become visible. It only rises, over failovers, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

/// What a mapping keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All rows: a key that is not here does not exist. Where memory ends the mapping is closed.
    Whole,
    /// The rows that were asked for, as long as there is room: a key that is not here may exist. A change of
    /// a row that is not here leaves nothing behind.
    Bounded,
}

/// The answer for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The row is in the caller's buffer.
    Row,
    /// It is known that there is no such row.
    Absent,
    /// Nothing is known ([`Mode::Bounded`]): the server has to be asked.
    Missing,
    /// Rows changed again and again while they were read. Try again a moment later, after a turn of the
    /// runtime.
    Busy,
    /// The mapping is not served now.
    Closed,
}

/// Why there is no answer about several rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// As [`Found::Busy`].
    #[error("rows changed again and again while they were read")]
    Busy,
    /// As [`Found::Closed`].
    #[error("the mapping is not served now")]
    Closed,
}

/// A mapping was closed because a row could not be kept. Its rows are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// Bytes.
    #[error("the rows do not fit into memory_max ({memory_max} bytes)")]
    MemoryMax { memory_max: u64 },
    #[error("a key of {len} bytes: more than {} are not kept", super::KEY_MAX)]
    KeyTooLong { len: usize },
    #[error("a row of {len} bytes: more than {} are not kept", super::ROW_MAX)]
    RowTooLong { len: usize },
}

/// The right to put into a bounded mapping what the server said, as long as no newer event was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillTicket {
    pub(super) mapping: MappingId,
    /// Which opening of the mapping.
    pub(super) opening: u64,
    /// What was applied when the server was going to be asked.
    pub(super) version: Version,
}

/// Where memory is. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accounting {
    pub memory_max: u64,
    /// All that the store has from the allocator: the sum of the following.
    pub held: u64,
    /// Rows with their keys and headers, as they are: without rounding up.
    pub rows: u64,
    /// What rounding up the rows' sizes costs.
    pub rounding: u64,
    /// Places for rows that are free, or about to be.
    pub free: u64,
    /// The index: buckets and directories.
    pub index: u64,
    /// What the writer notes about all this.
    pub notes: u64,
    /// How many rows there are, of all mappings; remembered absences, too.
    pub row_count: u64,
    /// How many rows were evicted so far.
    pub evicted: u64,
}
