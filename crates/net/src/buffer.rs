//! Read buffers from a pool that belongs to the current thread.
//!
//! An idle session holds no buffer: it takes one when it is about to read and drops it when the bytes have
//! gone on. A worker thread therefore needs about as many buffers as it has sessions with bytes in flight,
//! and no lock guards the pool. Buffers are zeroed when they are allocated and never again; what an earlier
//! user left in the unfilled part is visible only to code of this process that asks for [`Buffer::spare`].
//!
//! A source that fills its buffer is read into one of twice the size next: see [`take_wide`]. A buffer that
//! has to hold a whole packet grows: see [`Buffer::grow`].

use std::cell::{Cell, RefCell};
use std::mem;

/// Size of every buffer in bytes. Measured: with 16 KiB a result of 1000 rows costs 1.8 times the CPU.
pub const CAPACITY: usize = 64 * 1024;

/// Size of those that [`take_wide`] gives.
pub const WIDE: usize = 2 * CAPACITY;

/// Memory in bytes that the grown buffers of a thread may have until [`set_grown_limit`] says otherwise.
pub const DEFAULT_GROWN_LIMIT: usize = 256 * 1024 * 1024;

/// Buffers a thread keeps free until [`set_limit`] says otherwise.
pub const DEFAULT_LIMIT: usize = 64;

/// How much memory a thread has for buffers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// See [`set_limit`].
    pub free: usize,
    /// See [`set_grown_limit`].
    pub grown: usize,
}

thread_local! {
    static POOL: Pool = const { Pool {
        free: RefCell::new(Vec::new()),
        free_wide: RefCell::new(Vec::new()),
        limit: Cell::new(DEFAULT_LIMIT),
        in_use: Cell::new(0),
        grown: Cell::new(0),
        grown_limit: Cell::new(DEFAULT_GROWN_LIMIT),
    } };
}

struct Pool {
    /// Last in, first out: the buffer used last is the one still in the CPU's cache.
    free: RefCell<Vec<Box<[u8]>>>,
    /// Each counts as two, here and in use. Together they are at most half of what is kept.
    free_wide: RefCell<Vec<Box<[u8]>>>,
    limit: Cell<usize>,
    in_use: Cell<usize>,
    /// Bytes of all that have grown.
    grown: Cell<usize>,
    grown_limit: Cell<usize>,
}

impl Pool {
    fn give_back(&self, bytes: Box<[u8]>) {
        if bytes.len() > WIDE {
            return self.grown.set(self.grown.get().saturating_sub(bytes.len()));
        }
        let limit = self.limit.get();
        let (mut free, mut wide) = (self.free.borrow_mut(), self.free_wide.borrow_mut());
        if bytes.len() == CAPACITY {
            if free.len() + 2 * wide.len() < limit {
                free.push(bytes);
            }
        } else if 4 * (wide.len() + 1) <= limit {
            wide.push(bytes);
            free.truncate(limit - 2 * wide.len());
        }
    }
}

/// 64 KiB of memory, or twice as much, of which the range [`filled`](Self::filled) holds bytes.
///
/// Bytes are appended at the end of the filled range and consumed at its start. Dropping the buffer gives it
/// back to the pool of the thread that drops it.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    // As wide as they need to be: every session has room for two of these.
    start: u32,
    end: u32,
}

/// Takes an empty buffer from this thread's pool, or allocates one.
pub fn take() -> Buffer {
    let pooled = POOL.try_with(|pool| {
        pool.in_use.set(pool.in_use.get() + 1);
        pool.free.borrow_mut().pop()
    });
    Buffer::of(pooled.ok().flatten(), CAPACITY)
}

/// The same of [`WIDE`] bytes, for a source that has just filled one of the others: half as many system calls
/// for what comes in quantity.
pub fn take_wide() -> Buffer {
    let pooled = POOL.try_with(|pool| {
        pool.in_use.set(pool.in_use.get() + 2);
        pool.free_wide.borrow_mut().pop()
    });
    Buffer::of(pooled.ok().flatten(), WIDE)
}

/// Sets how many free buffers this thread keeps; those above are freed at once.
pub fn set_limit(limit: usize) {
    POOL.with(|pool| {
        pool.limit.set(limit);
        let (mut free, mut wide) = (pool.free.borrow_mut(), pool.free_wide.borrow_mut());
        wide.truncate(limit / 4);
        wide.shrink_to(limit / 4);
        free.truncate(limit - 2 * wide.len());
        free.shrink_to(limit);
    });
}

/// Memory of other things than buffers that counts among those that have grown, until this is dropped, on the
/// same thread.
#[derive(Debug)]
pub struct Reserved(usize);

/// Counts so many bytes. `None` where the grown buffers of this thread would have more than they may.
pub fn reserve(bytes: usize) -> Option<Reserved> {
    POOL.with(|pool| {
        let grown = pool.grown.get().saturating_add(bytes);
        let fits = grown <= pool.grown_limit.get();
        fits.then(|| {
            pool.grown.set(grown);
            Reserved(bytes)
        })
    })
}

impl Reserved {
    /// How many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // A thread that ends has nothing to count any more.
        let _ = POOL.try_with(|pool| pool.grown.set(pool.grown.get().saturating_sub(self.0)));
    }
}

/// Sets how many bytes the grown buffers of this thread may have together.
pub fn set_grown_limit(limit: usize) {
    POOL.with(|pool| pool.grown_limit.set(limit));
}

/// Buffers waiting in this thread's pool.
pub fn free_count() -> usize {
    POOL.with(|pool| pool.free.borrow().len() + 2 * pool.free_wide.borrow().len())
}

/// Buffers taken on this thread and not yet dropped on it.
pub fn in_use_count() -> usize {
    POOL.with(|pool| pool.in_use.get())
}

impl Buffer {
    fn of(pooled: Option<Box<[u8]>>, capacity: usize) -> Self {
        Self {
            bytes: pooled.unwrap_or_else(|| vec![0; capacity].into_boxed_slice()),
            start: 0,
            end: 0,
        }
    }

    /// The bytes received and not yet consumed.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start as usize..self.end as usize]
    }

    /// The same, for rewriting in place (sequence numbers, flags).
    #[inline]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start as usize..self.end as usize]
    }

    /// The room behind the filled bytes; write here, then call [`advance_filled`](Self::advance_filled). It
    /// holds leftovers of earlier use, not zeros.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end as usize..]
    }

    /// The same, after [`compact`](Self::compact) where there would be none.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        if self.is_full() {
            self.compact();
        }
        debug_assert!(
            !self.is_full(),
            "a full buffer must be emptied before it is read into"
        );
        self.spare()
    }

    /// Declares the first `n` bytes of [`spare`](Self::spare) filled.
    ///
    /// # Panics
    /// If `n` is more than there is room for.
    #[inline]
    pub fn advance_filled(&mut self, n: usize) {
        assert!(
            n <= self.bytes.len() - self.end as usize,
            "{n} bytes do not fit in the buffer"
        );
        self.end += n as u32;
    }

    /// Removes the first `n` filled bytes. When none are left the whole buffer is room again.
    ///
    /// # Panics
    /// If fewer than `n` bytes are filled.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes are not in the buffer");
        self.start += n as u32;
        if self.start == self.end {
            self.clear();
        }
    }

    /// Moves the filled bytes to the front so that all room is behind them.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start as usize..self.end as usize, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Makes room for more than [`WIDE`] bytes, so that the buffer holds `capacity` of them. False, and
    /// nothing has changed, where the grown buffers of this thread would have more memory than they may.
    pub fn grow(&mut self, capacity: usize) -> bool {
        let capacity = capacity.max(WIDE + 1);
        let old = self.bytes.len();
        let given = match old > WIDE {
            true => old,
            false => 0,
        };
        if capacity <= old {
            return true;
        }
        let is_allowed = u32::try_from(capacity).is_ok()
            && POOL.with(|pool| {
                let grown = pool.grown.get().saturating_sub(given) + capacity;
                let fits = grown <= pool.grown_limit.get();
                if fits {
                    pool.grown.set(grown);
                    let in_use = pool.in_use.get().saturating_sub(old / CAPACITY);
                    pool.in_use.set(in_use + capacity / CAPACITY);
                }
                fits
            });
        if is_allowed {
            let mut bytes = vec![0; capacity].into_boxed_slice();
            bytes[..self.len()].copy_from_slice(self.filled());
            (self.start, self.end) = (0, self.end - self.start);
            let old = mem::replace(&mut self.bytes, bytes);
            if old.len() <= WIDE {
                POOL.with(|pool| pool.give_back(old));
            }
        }
        is_allowed
    }

    /// Copies as many of `bytes` as there is room for and returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let room = self.spare();
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.end += n as u32;
        n
    }

    #[inline]
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Number of bytes that fit into the buffer.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Number of filled bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing fits behind the filled bytes. [`compact`](Self::compact) may help.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.end as usize == self.bytes.len()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        // A failure means that the thread is ending and its pool is gone: the memory is freed instead.
        let _ = POOL.try_with(|pool| {
            let counts_as = bytes.len() / CAPACITY;
            pool.in_use.set(pool.in_use.get().saturating_sub(counts_as));
            pool.give_back(bytes);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every test has a thread and so a pool of its own.
    fn on_fresh_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn fills_consumes_and_compacts() {
        let mut buffer = take();
        assert!(buffer.is_empty());
        assert_eq!(buffer.spare().len(), CAPACITY);
        buffer.spare()[..5].copy_from_slice(b"hello");
        buffer.advance_filled(5);
        assert_eq!(buffer.filled(), b"hello");
        buffer.consume(2);
        assert_eq!(buffer.filled(), b"llo");
        assert_eq!(buffer.spare().len(), CAPACITY - 5);
        buffer.compact();
        assert_eq!(buffer.filled(), b"llo");
        assert_eq!(buffer.spare().len(), CAPACITY - 3);
        buffer.filled_mut()[0] = b'L';
        assert_eq!(buffer.filled(), b"Llo");
        buffer.consume(3);
        assert!(buffer.is_empty());
        assert_eq!(buffer.spare().len(), CAPACITY);
    }

    #[test]
    fn append_stops_at_the_end() {
        let mut buffer = take();
        assert_eq!(buffer.append(&vec![1; CAPACITY - 1]), CAPACITY - 1);
        assert_eq!(buffer.append(b"xyz"), 1);
        assert!(buffer.is_full());
        assert_eq!(buffer.append(b"z"), 0);
        buffer.consume(CAPACITY - 1);
        assert!(buffer.is_full());
        buffer.compact();
        assert_eq!(buffer.filled(), b"x");
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn refuses_to_advance_past_the_end() {
        take().advance_filled(CAPACITY + 1);
    }

    #[test]
    #[should_panic(expected = "not in the buffer")]
    fn refuses_to_consume_what_is_not_there() {
        take().consume(1);
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        on_fresh_thread(|| {
            set_limit(3);
            let taken: Vec<_> = (0..10).map(|_| take()).collect();
            assert_eq!((in_use_count(), free_count()), (10, 0));
            drop(taken);
            assert_eq!((in_use_count(), free_count()), (0, 3));
            set_limit(1);
            assert_eq!(free_count(), 1);
            set_limit(0);
            drop(take());
            assert_eq!((in_use_count(), free_count()), (0, 0));
        });
    }

    #[test]
    fn a_wide_buffer_counts_as_two_and_may_have_the_place_of_two() {
        on_fresh_thread(|| {
            set_limit(8);
            let (narrow, wide): (Vec<_>, Vec<_>) = (0..10).map(|_| (take(), take_wide())).unzip();
            assert_eq!((in_use_count(), wide[0].bytes.len()), (30, WIDE));
            drop(narrow);
            assert_eq!((in_use_count(), free_count()), (20, 8));
            drop(wide);
            assert_eq!((in_use_count(), free_count()), (0, 8));
            POOL.with(|pool| assert_eq!(pool.free_wide.borrow().len(), 2));
            drop((take(), take_wide()));
            assert_eq!((in_use_count(), free_count()), (0, 8));
            set_limit(4);
            assert_eq!(free_count(), 4);
            POOL.with(|pool| assert_eq!(pool.free_wide.borrow().len(), 1));
            set_limit(3);
            drop(take_wide());
            POOL.with(|pool| assert_eq!(pool.free_wide.borrow().len(), 0));
        });
    }

    #[test]
    fn wide_buffers_are_used_again_and_take_the_room_of_others() {
        on_fresh_thread(|| {
            set_limit(8);
            let (first, second, narrow) = (take_wide(), take_wide(), (0..8).map(|_| take()));
            let narrow: Vec<_> = narrow.collect();
            let addresses = [&first, &second].map(|buffer| buffer.bytes.as_ptr());
            drop((first, second));
            drop(narrow);
            assert_eq!(free_count(), 8, "no more than the limit beside wide ones");
            let again = [take_wide(), take_wide()];
            assert!(
                again
                    .iter()
                    .all(|buffer| addresses.contains(&buffer.bytes.as_ptr()))
            );
        });
    }

    #[test]
    fn a_grown_buffer_keeps_its_bytes_and_gives_its_memory_back() {
        on_fresh_thread(|| {
            set_limit(2);
            set_grown_limit(10 * CAPACITY);
            let mut long = take();
            long.append(b"xhello");
            long.consume(1);
            assert!(long.grow(4 * CAPACITY) && long.grow(8 * CAPACITY));
            assert_eq!((long.filled(), long.capacity()), (&b"hello"[..], 8 * CAPACITY));
            assert_eq!((in_use_count(), free_count()), (8, 1));
            let mut other = take();
            assert!(!other.grow(3 * CAPACITY), "there is room for two");
            drop(long);
            assert!(other.grow(3 * CAPACITY));
            let reserved = reserve(7 * CAPACITY).expect("there is room for as much");
            assert!(reserve(1).is_none() && !other.grow(4 * CAPACITY));
            drop(reserved);
            assert!(other.grow(4 * CAPACITY));
            drop(other);
            assert_eq!((in_use_count(), free_count()), (0, 1));
            POOL.with(|pool| assert_eq!(pool.grown.get(), 0));
        });
    }

    #[test]
    fn memory_is_used_again() {
        on_fresh_thread(|| {
            let mut first = take();
            first.append(b"left over");
            let address = first.filled().as_ptr();
            drop(first);
            let mut second = take();
            assert!(second.is_empty());
            assert_eq!(second.spare().as_ptr(), address);
        });
    }

    #[test]
    fn a_buffer_may_end_on_another_thread() {
        on_fresh_thread(|| {
            let buffer = take();
            std::thread::spawn(move || {
                drop(buffer);
                assert_eq!((in_use_count(), free_count()), (0, 1));
            })
            .join()
            .unwrap();
            assert_eq!(free_count(), 0);
        });
    }
}
