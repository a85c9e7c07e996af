//! The hash of values in a result. It is part of the file format: two folders can be compared whatever
//! version or machine has written them.

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// Folds the product of two numbers into one.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ (product >> 64) as u64
}

/// The hash of one value.
pub(crate) fn bytes(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), FACTOR);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(fold(hash ^ u64::from_le_bytes(last), FACTOR) ^ SEED, FACTOR)
}

/// The hash of NULL, which is that of no bytes that a value has: they are hashed with their length.
pub(crate) const NULL: u64 = 0x6e75_6c6c_6e75_6c6c;

/// The next link of a chain of values: their order counts.
pub(crate) fn chain(so_far: u64, value: u64) -> u64 {
    fold(so_far.rotate_left(17) ^ value ^ SEED, FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_the_format_says() {
        assert_eq!(bytes(b""), bytes(b""));
        assert_ne!(bytes(b""), bytes(b"\0"), "the length counts");
        assert_ne!(bytes(b"12345678"), bytes(b"12345678\0"));
        assert_ne!(chain(chain(0, 1), 2), chain(chain(0, 2), 1), "the order counts");
        // Written down once: files of other versions have to be read with the same.
        assert_eq!(bytes(b"forebay"), FOREBAY);
        assert_eq!(chain(1, 2), ONE_TWO);
    }

    const FOREBAY: u64 = 0xd020_b204_aed7_8754;
    const ONE_TWO: u64 = 0x79b9_030f_6529_cfbc;
}
