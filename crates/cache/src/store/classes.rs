//! Sizes of places: eight to a doubling, so that rounding up costs 6 % on average and 12 % at most.

use super::layout::PLACE_MAX;

pub(super) const CLASSES: usize = 15 + 8 * 6;

/// A size of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Class(u8);

impl Class {
    pub(super) const SMALLEST: Class = Class(0);

    /// The smallest that has room for `words`, of which there are 1 to [`PLACE_MAX`].
    pub(super) fn of(words: usize) -> Class {
        debug_assert!((1..=PLACE_MAX).contains(&words));
        if words <= 16 {
            return Class(words.max(2) as u8 - 2);
        }
        let doubling = (words - 1).ilog2() as usize - 4;
        let step = 2 << doubling;
        Class((15 + doubling * 8 + (words - (16 << doubling)).div_ceil(step) - 1) as u8)
    }

    pub(super) fn words(self) -> usize {
        let class = self.0 as usize;
        match class.checked_sub(15) {
            None => class + 2,
            Some(above) => (16 << (above / 8)) + (above % 8 + 1) * (2 << (above / 8)),
        }
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        for words in 2..=PLACE_MAX {
            let class = Class::of(words);
            assert!(
                class.index() < CLASSES && class.words() >= words,
                "{words} {class:?} {}",
                class.words()
            );
            assert!(class.words() <= words + words / 8, "{words} {}", class.words());
            assert!(class.index() == 0 || Class(class.0 - 1).words() < words);
        }
        assert_eq!(Class::of(PLACE_MAX).index(), CLASSES - 1);
    }
}
