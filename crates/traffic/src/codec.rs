//! Numbers and texts within a record.

/// A record does not say what one of its kind has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} makes no sense")]
pub struct Senseless(pub &'static str);

/// Seven bits a byte, the lowest first.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above have written; cannot panic, whatever the bytes are.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, Senseless> {
        let (&first, rest) = self.0.split_first().ok_or(Senseless(what))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, Senseless> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(Senseless(what));
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Senseless(what))
    }

    /// A number that fits into a smaller type.
    pub(crate) fn small<N: TryFrom<u64>>(&mut self, what: &'static str) -> Result<N, Senseless> {
        N::try_from(self.number(what)?).map_err(|_| Senseless(what))
    }

    pub(crate) fn fixed(&mut self, what: &'static str) -> Result<u64, Senseless> {
        let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or(Senseless(what))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Senseless> {
        let len: usize = self.small(what)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Senseless(what))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn end(self) -> Result<(), Senseless> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Senseless("what comes behind the record")),
        }
    }
}
