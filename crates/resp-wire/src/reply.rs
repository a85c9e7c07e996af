//! Writes replies.

#[cfg(test)]
mod tests;

/// Room that is left for `$`, three digits and a line end before content whose length is not known yet.
const HEADER_ROOM: usize = 6;

/// Which protocol a client asked for with `HELLO`, by its number there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// RESP2, with which connections begin.
    #[default]
    V2 = 2,
    /// RESP3.
    V3 = 3,
}

/// Appends replies to a buffer, in one of the two protocols: a map is an array of keys and values in RESP2,
/// and so on.
///
/// After a header ([`array`](Self::array), [`map`](Self::map) …) as many replies must follow as it says.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

impl<'a> Writer<'a> {
    /// Writes behind what is in `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// The protocol that is written.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes in the buffer.
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was written since [`position`](Self::position) was `position`.
    pub fn rewind(&mut self, position: usize) {
        self.out.truncate(position);
    }

    /// A simple string, such as `OK`. Line ends in it become blanks.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: a word in capitals that programs look at, and a text for people. Line ends in it become
    /// blanks.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A string of bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A string of bytes that `write` appends: its length need not be known before.
    ///
    /// # Errors
    /// Those of `write`; nothing is written then.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "`write` only appends, and what it wrote begins at `before + header` by now"
    )]
    pub fn bulk_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let before = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_ROOM]);
        let start = before + HEADER_ROOM;
        if let Err(error) = write(self.out) {
            self.out.truncate(before);
            return Err(error);
        }
        let length = self.out.len().saturating_sub(start);
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(length).as_bytes();
        let header = digits.len() + 3;
        if header != HEADER_ROOM {
            self.move_content(start, length, before + header);
        }
        let room = &mut self.out[before..before + header];
        room[0] = b'$';
        room[1..=digits.len()].copy_from_slice(digits);
        room[header - 2..].copy_from_slice(b"\r\n");
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn move_content(&mut self, start: usize, length: usize, to: usize) {
        if to > start {
            self.out.resize(to + length, 0);
        }
        self.out.copy_within(start..start + length, to);
        self.out.truncate(to + length);
    }

    /// The absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::V2 => b"$-1\r\n",
            Version::V3 => b"_\r\n",
        });
    }

    /// The header of an array of so many replies.
    #[inline]
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length as i64);
    }

    /// The header of a map of so many pairs.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::V2 => self.header(b'*', pairs.saturating_mul(2) as i64),
            Version::V3 => self.header(b'%', pairs as i64),
        }
    }

    /// The header of a set of so many replies.
    pub fn set(&mut self, length: usize) {
        match self.version {
            Version::V2 => self.header(b'*', length as i64),
            Version::V3 => self.header(b'~', length as i64),
        }
    }

    /// The header of a message of so many parts that nobody asked for.
    pub fn push(&mut self, length: usize) {
        match self.version {
            Version::V2 => self.header(b'*', length as i64),
            Version::V3 => self.header(b'>', length as i64),
        }
    }

    /// A text for people, over lines.
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::V2 => self.bulk(text.as_bytes()),
            Version::V3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        self.out
            .extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &str) {
        self.out.push(kind);
        self.out.extend(text.bytes().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        }));
        self.out.extend_from_slice(b"\r\n");
    }
}
