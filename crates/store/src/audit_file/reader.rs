//! Reading a file line by line, in bounded memory, along its chain.
//!
//! No line has a zero byte, as JSON escapes it. So a zero byte is room that nobody has written to yet: a writer keeps
//! some at the end of the file, and a power failure can leave some between blocks that reached the disk.

use std::io::{self, BufRead, Read as _};

use super::entry::Entry;
use super::head::Head;
use super::hole;
use super::line::{self, MAX_LINE_BYTES, MAX_TORN_BYTES};
use crate::error::{Broken, Error, Why};

/// Iterates over the entries of an audit file and checks the chain on the way. It ends after the first error.
///
/// Reading a file while it is written may find its last line half written, and call it torn.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    head: Head,
    bytes: u64,
    spare: u64,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Reading,
    Ended,
}

impl<R: BufRead> Reader<R> {
    /// Reads from the first byte of a file.
    pub const fn new(input: R) -> Self {
        Self { input, line: Vec::new(), head: Head::GENESIS, bytes: 0, spare: 0, state: State::Reading }
    }

    /// The last good line so far.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// How many bytes the good lines have so far, their newlines included.
    pub(crate) const fn intact_bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes follow the last good line without a meaning: room for lines to come.
    pub(crate) const fn spare_bytes(&self) -> u64 {
        self.spare
    }

    fn read(&mut self) -> Result<Option<Entry>, Error> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        self.input.by_ref().take(limit).read_until(b'\n', &mut self.line).map_err(unreadable)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        match self.line.strip_suffix(b"\n").map(line::parse) {
            Some(Ok(entry)) => return self.follow(entry).map(Some),
            Some(Err(Why::NotJson)) | None => {}
            Some(Err(why)) => return Err(self.broken(why)),
        }
        if self.line.contains(&0) {
            return self.unwritten();
        }
        if self.line.len() > MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
            return Err(self.broken(Why::TooLong));
        }
        let bytes = self.line.len() as u64;
        let why = if self.written_after(bytes)? == bytes { self.torn(bytes) } else { Why::NotJson };
        Err(self.broken(why))
    }

    fn follow(&mut self, entry: Entry) -> Result<Entry, Error> {
        if entry.n != self.head.n + 1 {
            return Err(self.broken(Why::Number { found: entry.n }));
        }
        if entry.prev != self.head.hash {
            return Err(self.broken(Why::Prev));
        }
        self.head = Head { n: entry.n, hash: entry.hash };
        self.bytes += self.line.len() as u64;
        Ok(entry)
    }

    /// The line that was read last has a byte that nobody wrote. What follows it can only be the rest of the write that
    /// was under way, or nothing.
    fn unwritten(&mut self) -> Result<Option<Entry>, Error> {
        let limit = MAX_TORN_BYTES.saturating_sub(self.line.len() as u64);
        self.input.by_ref().take(limit).read_to_end(&mut self.line).map_err(unreadable)?;
        let written = self.line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        let written = self.written_after(written)?;
        if written == 0 && self.head.n > 0 {
            return Ok(None);
        }
        // The first line is written without room, so zero bytes alone are a first write that was lost.
        let bytes = if written == 0 { self.spare } else { written };
        let rest = usize::try_from(bytes).ok().and_then(|bytes| self.line.get(..bytes));
        match rest {
            Some(rest) if written == 0 || hole::is_torn_write(rest, self.bytes) => {
                Err(self.broken(self.torn(bytes)))
            }
            _ => Err(self.broken(Why::Unwritten { bytes })),
        }
    }

    /// Reads to the end. Of the bytes from the line that was read last on, says where those end that somebody wrote:
    /// `written` as far as it was read.
    fn written_after(&mut self, mut written: u64) -> Result<u64, Error> {
        self.spare = self.line.len() as u64;
        loop {
            let more = self.input.fill_buf().map_err(unreadable)?;
            if more.is_empty() {
                return Ok(written);
            }
            if let Some(last) = more.iter().rposition(|byte| *byte != 0) {
                written = self.spare + last as u64 + 1;
            }
            let length = more.len();
            self.spare += length as u64;
            self.input.consume(length);
        }
    }

    fn torn(&self, bytes: u64) -> Why {
        let empty = self.line.iter().all(|byte| *byte == 0);
        if self.head.n == 0 && !empty && !line::may_begin_a_file(&self.line) {
            return Why::NotJson;
        }
        Why::Torn { bytes }
    }

    fn broken(&self, why: Why) -> Error {
        Broken { line: self.head.n + 1, why, intact: self.head }.into()
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let next = self.read().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.state = State::Ended;
        }
        next
    }
}

fn unreadable(source: io::Error) -> Error {
    Error::Io { action: "read the audit file".into(), source }
}
