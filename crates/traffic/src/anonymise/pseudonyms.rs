//! Other values of the same kind and length. The same value is always the same other one, whether it stands
//! in a text or is a parameter.

use aws_lc_rs::hmac;

use crate::binary;
use crate::seal::Key;

pub(super) struct Pseudonyms {
    secret: hmac::Key,
}

/// What follows of one value: numbers that nobody can tell without the secret.
struct Draws(u64);

impl Draws {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

impl Pseudonyms {
    /// Without a secret by one that nobody keeps.
    pub(super) fn new(secret: Option<&Key>) -> Self {
        let mut bytes = [0; 32];
        match secret.and_then(|key| key.derived(b"pseudonyms")) {
            Some(derived) => bytes = derived,
            // Where there is no randomness nothing else of the program works, either.
            None => drop(aws_lc_rs::rand::fill(&mut bytes)),
        }
        Self {
            secret: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
        }
    }

    fn draws(&self, kind: u8, value: &[u8]) -> Draws {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(&[kind]);
        context.update(value);
        let tag = context.sign();
        Draws(tag.as_ref().first_chunk().copied().map_or(0, u64::from_le_bytes))
    }

    /// For the name of a user or a schema.
    pub(super) fn name(&self, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        String::from_utf8_lossy(&self.letters(name.as_bytes())).into_owned()
    }

    /// For the value of a text, or of bytes. It has the same length.
    pub(super) fn bytes(&self, value: &[u8]) -> Vec<u8> {
        let is_number = |value: &[u8]| is_digits(value) && !value.starts_with(b"0");
        match value {
            value if is_number(value) => self.number(value),
            value if is_date(value) => self.date(value),
            value => self.letters(value),
        }
    }

    /// Letters for letters, digits for digits; all else that ASCII has stays. Of what is no text nothing
    /// does.
    fn letters(&self, value: &[u8]) -> Vec<u8> {
        let is_odd = |letter: char| letter.is_control() && !matches!(letter, '\t' | '\n' | '\r');
        let text = std::str::from_utf8(value).ok();
        let Some(text) = text.filter(|text| !text.contains(is_odd)) else {
            return self.drawn(value);
        };
        let mut draws = self.draws(b't', value);
        let mut out = Vec::with_capacity(value.len());
        for letter in text.chars() {
            let from = |first: char, count: u64, draws: &mut Draws| {
                char::from_u32(first as u32 + draws.below(count) as u32).unwrap_or(first)
            };
            let other = match letter {
                'a'..='z' => from('a', 26, &mut draws),
                'A'..='Z' => from('A', 26, &mut draws),
                '0'..='9' => from('0', 10, &mut draws),
                '\0'..='\u{7f}' => letter,
                // Others with the same count of bytes.
                '\u{80}'..='\u{7ff}' => from('à', 22, &mut draws),
                '\u{800}'..='\u{ffff}' => from('\u{4e00}', 0x1000, &mut draws),
                _ => from('\u{1f600}', 64, &mut draws),
            };
            out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
        }
        out
    }

    /// So many bytes.
    fn drawn(&self, value: &[u8]) -> Vec<u8> {
        let mut draws = self.draws(b'b', value);
        let end = if value.is_ascii() { 0x80 } else { 0x100 };
        value.iter().map(|_| draws.below(end) as u8).collect()
    }

    /// One that is a date, too.
    fn date(&self, value: &[u8]) -> Vec<u8> {
        let mut draws = self.draws(b'd', value);
        let mut out = value.to_vec();
        let mut put = |at: usize, first: u64, count: u64| {
            if let Some(place) = out.get_mut(at..at + 2) {
                let number = first + draws.below(count);
                place.copy_from_slice(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]);
            }
        };
        // The century stays.
        put(2, 0, 38);
        put(5, 1, 12);
        put(8, 1, 28);
        put(11, 0, 24);
        put(14, 0, 60);
        put(17, 0, 60);
        for byte in out.iter_mut().skip(20).filter(|byte| byte.is_ascii_digit()) {
            *byte = b'0' + draws.below(10) as u8;
        }
        out
    }

    /// For a number as it stands in a text; `None` for one in bits. It is no greater, so that it fits where
    /// the other did. One digit alone says nothing of anybody.
    pub(super) fn literal(&self, token: &[u8]) -> Option<Vec<u8>> {
        match token.split_at_checked(2) {
            Some((b"0b", _)) => return None,
            Some((head @ b"0x", digits)) => {
                let other = self.hex(digits).unwrap_or_else(|| self.letters(digits));
                return Some([head, &other].concat());
            }
            _ => {}
        }
        let mut out = self.number(token);
        let is_zero = |pair: &&[u8]| pair[0] == b'0' && pair[1].is_ascii_digit();
        let zeros = out.windows(2).take_while(is_zero).count();
        out.drain(..zeros);
        Some(out)
    }

    /// The same with as many digits, if there have to be zeros in front. What only looks like a number is a
    /// text.
    fn number(&self, token: &[u8]) -> Vec<u8> {
        let end = token.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = token.split_at(end.unwrap_or(token.len()));
        let dot = mantissa.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = mantissa.split_at(dot.unwrap_or(mantissa.len()));
        let is_exponent = match exponent {
            [] => true,
            [_, b'+' | b'-', digits @ ..] | [_, digits @ ..] => digits.len() < 4 && is_digits(digits),
        };
        if !is_digits(whole) || !is_digits(fraction.get(1..).unwrap_or_default()) || !is_exponent {
            return self.letters(token);
        }
        let mut draws = self.draws(b'n', mantissa);
        let mut out = match (whole, exponent) {
            // A digit alone says nothing, and much with an exponent.
            ([digit], [_, ..]) => vec![b'0' + draws.below(u64::from(digit - b'0')) as u8],
            _ => lesser(whole, &mut draws),
        };
        let digit = |byte: &u8| {
            if *byte == b'.' {
                *byte
            } else {
                b'0' + draws.below(10) as u8
            }
        };
        out.extend(fraction.iter().map(digit));
        out.extend_from_slice(exponent);
        out
    }

    /// For hexadecimal digits that stand for bytes.
    fn hex(&self, digits: &[u8]) -> Option<Vec<u8>> {
        let digits = std::str::from_utf8(digits).ok()?;
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        let bytes = bytes?;
        // A number may look like signs.
        let is_text = |letter: char| letter == ' ' || letter.is_alphanumeric();
        let text = std::str::from_utf8(&bytes).ok();
        let other = match text.is_some_and(|text| text.chars().all(is_text)) {
            true => self.bytes(&bytes),
            false => self.drawn(&bytes),
        };
        Some(
            other
                .iter()
                .flat_map(|byte| format!("{byte:02x}").into_bytes())
                .collect(),
        )
    }

    /// For a text with its quotes, and what stands in front of them.
    pub(super) fn quoted(&self, token: &[u8]) -> Option<Vec<u8>> {
        let begin = token.iter().position(|byte| matches!(byte, b'\'' | b'"'))?;
        let (head, rest) = token.split_at(begin);
        let (quote, inner) = rest.split_first()?;
        let inner = inner.strip_suffix(&[*quote])?;
        match head {
            b"x" | b"X" => return Some([head, b"'", &self.hex(inner)?[..], b"'"].concat()),
            b"b" | b"B" => return None,
            _ => {}
        }
        let mut out = [head, &[*quote]].concat();
        for byte in self.bytes(&meant(inner, *quote)?) {
            match byte {
                b'\\' => out.extend_from_slice(b"\\\\"),
                byte if byte == *quote => out.extend_from_slice(&[byte, byte]),
                byte => out.push(byte),
            }
        }
        out.push(*quote);
        Some(out)
    }

    /// Changes a parameter of a prepared statement, as the protocol has it.
    pub(super) fn parameter(&self, [kind, flags]: [u8; 2], value: &mut [u8]) {
        match (kind, value.len()) {
            (1 | 2 | 3 | 8 | 9 | 13, len @ (1 | 2 | 4 | 8)) => {
                let is_unsigned = flags & 0x80 != 0;
                let signed = binary::signed(value);
                let size = match is_unsigned {
                    true => binary::little(value),
                    false => signed.unsigned_abs(),
                };
                let other = self.number(size.to_string().as_bytes());
                let other: u64 = String::from_utf8_lossy(&other).parse().unwrap_or(0);
                let is_negative = !is_unsigned && signed < 0;
                let other = if is_negative { other.wrapping_neg() } else { other };
                value.copy_from_slice(&other.to_le_bytes()[..len]);
            }
            (4, 4) => {
                let number = value.first_chunk().copied().map_or(0.0, f32::from_le_bytes);
                value.copy_from_slice(&(self.float(f64::from(number)) as f32).to_le_bytes());
            }
            (5, 8) => {
                let number = value.first_chunk().copied().map_or(0.0, f64::from_le_bytes);
                value.copy_from_slice(&self.float(number).to_le_bytes());
            }
            // Year, month, day, hour, minute, second, microseconds.
            (7 | 10 | 12, len) if len >= 4 => {
                let mut draws = self.draws(b'd', value);
                let year = 2000 + draws.below(38) as u16;
                value[..2].copy_from_slice(&year.to_le_bytes());
                let limits = [(2, 1, 12), (3, 1, 28), (4, 0, 24), (5, 0, 60), (6, 0, 60)];
                for (at, first, count) in limits {
                    if let Some(place) = value.get_mut(at) {
                        *place = first + draws.below(count) as u8;
                    }
                }
                micros(value, &mut draws);
            }
            // Whether it is negative, days, hour, minute, second, microseconds.
            (11, len) if len >= 8 => {
                let mut draws = self.draws(b'd', value);
                if let Some(days) = value[1..].first_chunk_mut() {
                    let lesser = draws.below(u64::from(u32::from_le_bytes(*days)) + 1);
                    *days = (lesser as u32).to_le_bytes();
                }
                for (at, count) in [(5, 24), (6, 60), (7, 60)] {
                    value[at] = draws.below(count) as u8;
                }
                micros(value, &mut draws);
            }
            (0 | 246, _) => {
                let signs = value.iter().take_while(|byte| b"+- ".contains(byte)).count();
                let other = self.number(&value[signs..]);
                value[signs..].copy_from_slice(&other);
            }
            (7 | 10..=12, _) => {}
            _ => {
                let other = self.bytes(value);
                value.copy_from_slice(&other);
            }
        }
    }

    fn float(&self, number: f64) -> f64 {
        // Without an exponent, which would stay.
        let text = number.abs().to_string();
        let other = self.number(text.as_bytes());
        let other: f64 = String::from_utf8_lossy(&other).parse().unwrap_or(number);
        other.copysign(number)
    }
}

fn is_digits(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit)
}

/// Digits of the same length that make a lesser number.
fn lesser(digits: &[u8], draws: &mut Draws) -> Vec<u8> {
    if digits.len() < 2 {
        return digits.to_vec();
    }
    let number = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok());
    match number {
        Some(number) => format!("{:0len$}", draws.below(number), len = digits.len()).into_bytes(),
        None => {
            let mut out: Vec<u8> = digits.iter().map(|_| b'0' + draws.below(10) as u8).collect();
            out[0] = b'0';
            out
        }
    }
}

/// Microseconds at the end of a time, where there are some.
fn micros(value: &mut [u8], draws: &mut Draws) {
    if let (11 | 12, Some((_, last))) = (value.len(), value.split_last_chunk_mut()) {
        *last = (draws.below(1_000_000) as u32).to_le_bytes();
    }
}

/// `2026-11-28`, alone or with a time behind it.
fn is_date(value: &[u8]) -> bool {
    let shape = b"0000-00-00 00:00:00.";
    let is_like = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        b' ' => matches!(byte, b' ' | b'T'),
        shape => byte == shape,
    };
    let has_rest = value.iter().skip(shape.len()).all(u8::is_ascii_digit);
    matches!(value.len(), 10 | 19..=26) && value.iter().zip(shape).all(is_like) && has_rest
}

/// What a text in quotes means.
fn meant(inner: &[u8], quote: u8) -> Option<Vec<u8>> {
    let mut bytes = inner.iter().copied();
    let mut meant = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next()? {
                b'0' => meant.push(0),
                b'b' => meant.push(8),
                b'n' => meant.push(b'\n'),
                b'r' => meant.push(b'\r'),
                b't' => meant.push(b'\t'),
                b'Z' => meant.push(26),
                // In patterns they are what they are.
                wild @ (b'%' | b'_') => meant.extend_from_slice(&[b'\\', wild]),
                other => meant.push(other),
            },
            byte if byte == quote => {
                bytes.next()?;
                meant.push(quote);
            }
            byte => meant.push(byte),
        }
    }
    Some(meant)
}
