//! Sets of words that are looked up in any case, built when this crate is compiled.

/// Words with a number each, in open addressing. `SLOTS` is a power of two and well above the number of
/// words.
pub(crate) struct Table<const SLOTS: usize> {
    slots: [(&'static [u8], u16); SLOTS],
}

impl<const SLOTS: usize> Table<SLOTS> {
    pub(crate) const EMPTY: Self = Self {
        slots: [(&[], 0); SLOTS],
    };

    /// Adds a word in upper case; of a word that is there already the bits of both numbers are kept.
    pub(crate) const fn with(mut self, word: &'static [u8], number: u16) -> Self {
        let mut slot = hash(word) & (SLOTS - 1);
        while !self.slots[slot].0.is_empty() && !same(self.slots[slot].0, word) {
            slot = (slot + 1) & (SLOTS - 1);
        }
        self.slots[slot] = (word, self.slots[slot].1 | number);
        self
    }

    /// Adds all words of a text with spaces between them.
    pub(crate) const fn with_all(mut self, words: &'static str, number: u16) -> Self {
        let mut rest = words.as_bytes();
        while !rest.is_empty() {
            let mut len = 0;
            while len < rest.len() && !rest[len].is_ascii_whitespace() {
                len += 1;
            }
            let (word, tail) = rest.split_at(len);
            if len > 0 {
                self = self.with(word, number);
            }
            rest = match tail.split_first() {
                Some((_, tail)) => tail,
                None => tail,
            };
        }
        self
    }

    /// The number of a word in any case; 0 where it is not known.
    #[inline]
    pub(crate) fn get(&self, word: &[u8]) -> u16 {
        self.find(word).1
    }

    /// A word in any case as it is in the table, and its number; nothing and 0 where it is not known.
    #[inline]
    pub(crate) fn find(&self, word: &[u8]) -> (&'static [u8], u16) {
        if word.is_empty() {
            return (&[], 0);
        }
        let mut slot = hash(word) & (SLOTS - 1);
        loop {
            let (known, number) = self.slots[slot];
            if known.is_empty() || known.eq_ignore_ascii_case(word) {
                return (known, number);
            }
            slot = (slot + 1) & (SLOTS - 1);
        }
    }
}

/// From the length and four letters, without their case.
#[inline]
const fn hash(word: &[u8]) -> usize {
    const fn letter(word: &[u8], at: usize) -> usize {
        (word[at] & 0x1F) as usize
    }
    let len = word.len();
    let second = if len > 1 { letter(word, 1) } else { 0 };
    let mixed =
        letter(word, 0) | second << 5 | letter(word, len / 2) << 10 | letter(word, len - 1) << 15 | len << 20;
    mixed.wrapping_mul(0x9E37_79B9) >> 12 & 0xFFFF
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: Table<16> = Table::<16>::EMPTY
        .with_all("SELECT  INSERT\nx_1", 1)
        .with_all("INSERT", 2);

    #[test]
    fn words_in_any_case() {
        assert_eq!(TABLE.get(b"select"), 1);
        assert_eq!(TABLE.get(b"Insert"), 3);
        assert_eq!(TABLE.get(b"X_1"), 1);
        assert_eq!(TABLE.get(b"SELEC"), 0);
        assert_eq!(TABLE.get(b""), 0);
    }
}
