//! Lines of a log, of which none is longer in memory than a statement may be.

use std::io::{self, BufRead, BufReader, Read};

/// Bytes that are kept of a line: as much as is written of a text, and what stands in front of it.
const LINE_MAX: usize = (1 << 20) + 4096;

pub(super) struct Lines<R> {
    source: BufReader<R>,
    /// Without its end.
    pub(super) line: Vec<u8>,
    /// From 1.
    pub(super) number: u64,
    /// It was longer than what is kept.
    pub(super) is_cut: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(256 << 10, source),
            line: Vec::new(),
            number: 0,
            is_cut: false,
        }
    }

    /// Reads the next line. False: there is none.
    pub(super) fn next(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.is_cut = false;
        self.number += 1;
        let mut is_there = false;
        loop {
            let bytes = self.source.fill_buf()?;
            if bytes.is_empty() {
                return Ok(is_there);
            }
            is_there = true;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let kept = part.len().min(LINE_MAX.saturating_sub(self.line.len()));
            self.line.extend_from_slice(&part[..kept]);
            self.is_cut |= kept < part.len();
            let consumed = part.len() + usize::from(end.is_some());
            self.source.consume(consumed);
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// Reads so many bytes and the end of a line behind them. False: they are not there.
    pub(super) fn exactly(&mut self, len: u64) -> io::Result<bool> {
        self.line.clear();
        let kept = len.min(LINE_MAX as u64);
        self.is_cut = kept < len;
        if (&mut self.source).take(kept).read_to_end(&mut self.line)? as u64 != kept {
            return Ok(false);
        }
        let left = len - kept;
        let mut rest = (&mut self.source).take(left);
        let is_there = io::copy(&mut rest, &mut io::sink())? == left;
        self.number += self.line.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let mut end = [0];
        Ok(is_there && self.source.read(&mut end)? == 1 && end == *b"\n")
    }
}
