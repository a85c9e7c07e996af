//! How commands get at rows: by Redis keys, from memory, or from what the server was asked for.

use std::sync::Arc;

use config::MappingKind;
use mysql_wire::binlog::{BinlogError, Zone};

use super::refusal::{Refusal, shown};
use super::rights::Known;
use crate::mapping::{Decision, Mapping, MappingSet};
use crate::reader::Want;
use crate::store::{Found, NotRead, Store, View};
use crate::tracking::Tracker;

/// Why a command stops half way.
#[derive(Debug)]
pub(crate) enum Stop {
    /// For good.
    Refused(Refusal),
    /// Rows change just now: again, a moment later.
    Busy,
    /// Memory does not know: the server has to be asked for all keys of the command.
    Ask,
    /// Whether the user may read this table has to be found out.
    Right(Arc<Mapping>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NotRead> for Stop {
    fn from(not_read: NotRead) -> Self {
        match not_read {
            NotRead::Busy => Self::Busy,
            NotRead::Closed => Self::Refused(Refusal::Loading {
                mapping: String::new(),
                state: not_read.to_string(),
            }),
        }
    }
}

/// A row in memory that is not what its mapping says: never a reason to answer wrongly.
pub(crate) fn broken(mapping: &Mapping, error: &BinlogError) -> Stop {
    Stop::Refused(Refusal::Mapping {
        mapping: mapping.name.to_string(),
        reason: error.to_string(),
    })
}

/// A key that the server is asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) key: Vec<u8>,
}

impl Wanted {
    /// It for the reader.
    pub(crate) fn want(&self) -> Want<'_> {
        Want {
            mapping: &self.mapping,
            key: &self.key,
        }
    }
}

/// Where rows come from.
pub(crate) enum Source<'a> {
    /// Memory as it is.
    Store,
    /// One state of it.
    View(&'a View<'a>),
    /// Nowhere: what would be asked for is written down, and taken for absent.
    List(Vec<Wanted>),
    /// The server's answers, in the order in which they were written down.
    Fetched(std::vec::IntoIter<Option<Vec<u8>>>),
}

/// The rows that a command reads.
pub(crate) struct Rows<'a> {
    pub(crate) mappings: &'a MappingSet,
    pub(crate) store: &'a Store,
    /// In which TIMESTAMP values are shown.
    pub(crate) zone: Zone,
    pub(crate) source: Source<'a>,
    /// What the user may read.
    pub(crate) rights: &'a Known,
    /// Whoever has to know of keys before they are read.
    pub(crate) tracker: Option<&'a Tracker>,
    /// Memory that lasts from one command to the next.
    pub(crate) space: &'a mut Space,
}

/// See [`Rows::space`].
#[derive(Debug, Default)]
pub(crate) struct Space {
    key: Vec<u8>,
    row: Vec<u8>,
    random: u64,
    /// Bytes of rows that the request under way has read, and what takes as long.
    work: usize,
    /// The same of those before it, since others had their turn.
    before: usize,
}

/// Bytes of rows that memory reads for one request. Commands that show little of them have no other bound,
/// and while several are read from one state nothing becomes visible.
const WORK_MAX: usize = 64 << 20;
/// Bytes of rows that requests read before other connections have their turn.
const TURN: usize = 1 << 20;

impl Space {
    /// Bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.key.capacity() + self.row.capacity()
    }

    /// What was read is of no use any more: no more memory than this is kept.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if self.capacity() > bytes {
            (self.key, self.row) = Default::default();
        }
    }

    /// A request begins, or is tried once more.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.before += std::mem::take(&mut self.work);
    }

    /// Whether others should have their turn now. They have it then.
    #[inline]
    pub(crate) fn is_turn_over(&mut self) -> bool {
        let is_over = self.before + self.work >= TURN;
        if is_over {
            (self.before, self.work) = (0, 0);
        }
        is_over
    }
}

/// What stands in the state of a mapping that waits until its table is made.
const NO_TABLE: &str = "there is no such table";

impl<'a> Rows<'a> {
    /// The mapping that a key names, and the text behind the `@`.
    ///
    /// # Errors
    /// There is none, it is not served yet, or the user is not known to be allowed to read it.
    #[inline]
    pub(crate) fn mapping<'k>(&self, redis_key: &'k [u8]) -> Result<(&'a Arc<Mapping>, &'k [u8]), Stop> {
        let Some(at) = redis_key.iter().position(|&byte| byte == b'@') else {
            return Err(Refusal::NoMappingInKey(shown(redis_key)).into());
        };
        let (name, text) = (&redis_key[..at], &redis_key[at + 1..]);
        let Some(mapping) = self.mappings.by_name(name) else {
            let mapping = shown(name);
            return Err(match self.mappings.unready(name) {
                Some(state) if state.starts_with("stopped: ") || state.contains(NO_TABLE) => {
                    Refusal::Stopped {
                        mapping,
                        state: state.to_owned(),
                    }
                }
                Some(state) => Refusal::Loading {
                    mapping,
                    state: state.to_owned(),
                },
                None => Refusal::UnknownMapping(mapping),
            }
            .into());
        };
        match self.rights.of(mapping) {
            Some(true) => Ok((mapping, text)),
            Some(false) => Err(Refusal::NoRight(mapping.name.to_string()).into()),
            None => Err(Stop::Right(Arc::clone(mapping))),
        }
    }

    /// The mapping of a key, and whether it has a row, which is then in [`row`](Self::row).
    ///
    /// # Errors
    /// The key is wrong, or nothing can be said now.
    #[inline]
    pub(crate) fn find(&mut self, redis_key: &[u8]) -> Result<(&'a Arc<Mapping>, bool), Stop> {
        let (mapping, text) = self.mapping(redis_key)?;
        let decision = mapping.parse_key(text, &mut self.space.key);
        let decision = decision.map_err(|error| Refusal::Key {
            key: shown(redis_key),
            reason: error.to_string(),
        })?;
        if let Some(tracker) = self.tracker {
            tracker.reads(mapping, &self.space.key, decision, redis_key);
        }
        let found = match decision {
            Decision::Nowhere => false,
            Decision::Memory => self.get(mapping, true)?,
            Decision::Server => self.get(mapping, false)?,
        };
        Ok((mapping, found))
    }

    /// The same, where the mapping has to be of a kind.
    ///
    /// # Errors
    /// It is of another.
    #[inline]
    pub(crate) fn find_kind(
        &mut self,
        redis_key: &[u8],
        kind: MappingKind,
    ) -> Result<(&'a Arc<Mapping>, bool), Stop> {
        let (mapping, found) = self.find(redis_key)?;
        if mapping.kind == kind {
            Ok((mapping, found))
        } else if found {
            Err(Refusal::WrongType.into())
        } else {
            Ok((mapping, false))
        }
    }

    /// The row that was found last.
    #[inline]
    pub(crate) fn row(&self) -> &[u8] {
        &self.space.row
    }

    /// Bytes that it takes in memory, with its share of the index; as it is, where it is not in memory.
    pub(crate) fn row_size(&self, mapping: &Mapping) -> u64 {
        let size = self.store.row_size(mapping.id, &self.space.key);
        size.unwrap_or(self.space.row.len() as u64)
    }

    /// So many bytes of work are done for the request.
    pub(crate) fn work(&self) -> usize {
        self.space.work
    }

    /// So many more are about to be done, or have just been.
    ///
    /// # Errors
    /// It had done enough before.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.space.work > WORK_MAX {
            return Err(Refusal::TooMuchRead(WORK_MAX));
        }
        self.space.work += bytes;
        Ok(())
    }

    /// Some number: successive ones have nothing to do with one another, as far as anybody who looks for keys
    /// is concerned.
    pub(crate) fn random(&mut self) -> u64 {
        // SplitMix64, by Steele, Lea and Flood.
        self.space.random = self.space.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.space.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Reads the row of the key in `space`. `in_memory`: memory can tell which row that is.
    #[inline]
    fn get(&mut self, mapping: &Arc<Mapping>, in_memory: bool) -> Result<bool, Stop> {
        let Space { key, row, .. } = &mut *self.space;
        let found = match &mut self.source {
            Source::List(list) => {
                list.push(Wanted {
                    mapping: Arc::clone(mapping),
                    key: key.clone(),
                });
                return Ok(false);
            }
            Source::Fetched(rows) => {
                // Whoever wants more than was asked for is not told that it does not exist.
                let fetched = rows.next().ok_or(Stop::Ask)?;
                let found = fetched.is_some();
                *row = fetched.unwrap_or_default();
                return Ok(found);
            }
            _ if !in_memory => return Err(Stop::Ask),
            Source::Store => self.store.get(mapping.id, key, row),
            Source::View(view) => view.get(mapping.id, key, row),
        };
        match found {
            Found::Row => {
                let bytes = self.space.row.len();
                self.spend(bytes)?;
                Ok(true)
            }
            Found::Absent if mapping.may_be_beyond() => Err(Stop::Ask),
            Found::Absent => Ok(false),
            Found::Missing => Err(Stop::Ask),
            Found::Busy => Err(Stop::Busy),
            Found::Closed => Err(Refusal::Loading {
                mapping: mapping.name.to_string(),
                state: NotRead::Closed.to_string(),
            }
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_long_row_is_bounded() {
        let mut space = Space {
            row: vec![0; 2000],
            random: 7,
            ..Space::default()
        };
        space.shrink_to(2000);
        assert_eq!(space.capacity(), 2000);
        space.shrink_to(1999);
        assert_eq!((space.capacity(), space.random), (0, 7));
    }
}
