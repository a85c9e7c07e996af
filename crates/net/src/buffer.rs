//! Read buffers from a pool that belongs to the current thread.
//!
//! An idle session holds no buffer: it takes one when it is about to read and drops it when the bytes have gone
//! on. A worker thread therefore needs about as many buffers as it has sessions with bytes in flight, and no lock
//! guards the pool. Buffers are zeroed when they are allocated and never again; what an earlier user left in the
//! unfilled part is visible only to code of this process that asks for [`Buffer::spare`].

use std::cell::{Cell, RefCell};
use std::mem;

/// Size of every buffer in bytes. Measured: with 16 KiB a result of 1000 rows costs 1.8 times the CPU.
pub const CAPACITY: usize = 64 * 1024;

/// Buffers a thread keeps free until [`set_limit`] says otherwise.
pub const DEFAULT_LIMIT: usize = 64;

thread_local! {
    static POOL: Pool = const { Pool {
        free: RefCell::new(Vec::new()),
        limit: Cell::new(DEFAULT_LIMIT),
        in_use: Cell::new(0),
    } };
}

struct Pool {
    /// Last in, first out: the buffer used last is the one still in the CPU's cache.
    free: RefCell<Vec<Box<[u8]>>>,
    limit: Cell<usize>,
    in_use: Cell<usize>,
}

/// 64 KiB of memory of which the range [`filled`](Self::filled) holds bytes.
///
/// Bytes are appended at the end of the filled range and consumed at its start. Dropping the buffer gives it back
/// to the pool of the thread that drops it.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Takes an empty buffer from this thread's pool, or allocates one.
pub fn take() -> Buffer {
    let pooled = POOL.try_with(|pool| {
        pool.in_use.set(pool.in_use.get() + 1);
        pool.free.borrow_mut().pop()
    });
    let bytes = pooled
        .ok()
        .flatten()
        .unwrap_or_else(|| vec![0; CAPACITY].into_boxed_slice());
    Buffer {
        bytes,
        start: 0,
        end: 0,
    }
}

/// Sets how many free buffers this thread keeps; those above are freed at once.
pub fn set_limit(limit: usize) {
    POOL.with(|pool| {
        pool.limit.set(limit);
        let mut free = pool.free.borrow_mut();
        free.truncate(limit);
        free.shrink_to(limit);
    });
}

/// Buffers waiting in this thread's pool.
pub fn free_count() -> usize {
    POOL.with(|pool| pool.free.borrow().len())
}

/// Buffers taken on this thread and not yet dropped on it.
pub fn in_use_count() -> usize {
    POOL.with(|pool| pool.in_use.get())
}

impl Buffer {
    /// The bytes received and not yet consumed.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The same, for rewriting in place (sequence numbers, flags).
    #[inline]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// The room behind the filled bytes; write here, then call [`advance_filled`](Self::advance_filled). It holds
    /// leftovers of earlier use, not zeros.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// Declares the first `n` bytes of [`spare`](Self::spare) filled.
    ///
    /// # Panics
    /// If `n` is more than there is room for.
    #[inline]
    pub fn advance_filled(&mut self, n: usize) {
        assert!(
            n <= self.bytes.len() - self.end,
            "{n} bytes do not fit in the buffer"
        );
        self.end += n;
    }

    /// Removes the first `n` filled bytes. When none are left the whole buffer is room again.
    ///
    /// # Panics
    /// If fewer than `n` bytes are filled.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes are not in the buffer");
        self.start += n;
        if self.start == self.end {
            self.clear();
        }
    }

    /// Moves the filled bytes to the front so that all room is behind them.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Copies as many of `bytes` as there is room for and returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + n].copy_from_slice(&bytes[..n]);
        self.end += n;
        n
    }

    /// Forgets all bytes.
    #[inline]
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Number of filled bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether no byte is filled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing fits behind the filled bytes. [`compact`](Self::compact) may help.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.end == self.bytes.len()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        // A failure means that the thread is ending and its pool is gone: the memory is freed instead.
        let _ = POOL.try_with(|pool| {
            pool.in_use.set(pool.in_use.get().saturating_sub(1));
            let mut free = pool.free.borrow_mut();
            if free.len() < pool.limit.get() {
                free.push(bytes);
            }
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
