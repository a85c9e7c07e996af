//! Compressors and decompressors, lent to streams by the thread.
//!
//! Their state is large (zlib: 270 KiB to compress, 48 KiB to expand) and means nothing between two frames,
//! so a stream holds one only while a frame is under way. Ten thousand idle compressed sessions cost no more
//! than a few.

use std::cell::RefCell;

use mysql_wire::WireError;
use mysql_wire::compression::{Algorithm, Compressor, Decompressor};

/// Codecs of each kind that a thread keeps, enough for the few sessions that are in the middle of a frame at
/// a time.
const LIMIT: usize = 8;

thread_local! {
    static COMPRESSORS: RefCell<Vec<(Algorithm, Compressor)>> = const { RefCell::new(Vec::new()) };
    static DECOMPRESSORS: RefCell<Vec<(Algorithm, Decompressor)>> = const { RefCell::new(Vec::new()) };
}

/// A compressor; its sequence number is anything.
pub(super) fn compressor(algorithm: Algorithm) -> Result<Compressor, WireError> {
    COMPRESSORS
        .with_borrow_mut(|kept| find(kept, algorithm))
        .map_or_else(|| Compressor::new(algorithm), Ok)
}

/// A decompressor before the first byte of a frame; its sequence number is anything.
pub(super) fn decompressor(algorithm: Algorithm) -> Result<Decompressor, WireError> {
    DECOMPRESSORS
        .with_borrow_mut(|kept| find(kept, algorithm))
        .map_or_else(|| Decompressor::new(algorithm), Ok)
}

pub(super) fn keep_compressor(algorithm: Algorithm, compressor: Compressor) {
    COMPRESSORS.with_borrow_mut(|kept| keep(kept, algorithm, compressor));
}

/// Only one that is [`at_boundary`](Decompressor::at_boundary).
pub(super) fn keep_decompressor(algorithm: Algorithm, decompressor: Decompressor) {
    debug_assert!(
        decompressor.at_boundary(),
        "the next stream would get the rest of this one's frame"
    );
    DECOMPRESSORS.with_borrow_mut(|kept| keep(kept, algorithm, decompressor));
}

fn find<C>(kept: &mut Vec<(Algorithm, C)>, algorithm: Algorithm) -> Option<C> {
    let at = kept.iter().rposition(|(of, _)| *of == algorithm)?;
    Some(kept.remove(at).1)
}

/// Where there are enough, the one unused for longest goes: levels that nobody asks for any more fade out.
fn keep<C>(kept: &mut Vec<(Algorithm, C)>, algorithm: Algorithm, codec: C) {
    if kept.len() == LIMIT {
        kept.remove(0);
    }
    kept.push((algorithm, codec));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_ones_used_and_gives_them_for_their_algorithm_only() {
        let mut kept = Vec::new();
        for n in 0..LIMIT + 2 {
            keep(&mut kept, Algorithm::Zstd { level: n as u8 }, n);
        }
        keep(&mut kept, Algorithm::Zlib, 100);
        assert_eq!(kept.len(), LIMIT);
        assert_eq!(find(&mut kept, Algorithm::Zlib), Some(100));
        assert_eq!(find(&mut kept, Algorithm::Zlib), None);
        assert_eq!(find(&mut kept, Algorithm::Zstd { level: 2 }), None);
        assert_eq!(find(&mut kept, Algorithm::Zstd { level: 3 }), Some(3));
    }
}
