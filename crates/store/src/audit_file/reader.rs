//! Reading a file line by line, in bounded memory, along its chain.

use std::io::{self, BufRead, Read as _};

use super::entry::Entry;
use super::head::Head;
use super::line::{self, MAX_LINE_BYTES};
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
        Self { input, line: Vec::new(), head: Head::GENESIS, bytes: 0, state: State::Reading }
    }

    /// The last good line so far.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// How many bytes the good lines have so far, their newlines included.
    pub(crate) const fn intact_bytes(&self) -> u64 {
        self.bytes
    }

    /// The line that was read last, with its newline: after [`Why::Torn`], the torn tail.
    pub(crate) fn last_line(&self) -> &[u8] {
        &self.line
    }

    fn read(&mut self) -> Result<Option<Entry>, Error> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        self.input.by_ref().take(limit).read_until(b'\n', &mut self.line).map_err(unreadable)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        let Some(line) = self.line.strip_suffix(b"\n") else {
            let why = if self.line.len() > MAX_LINE_BYTES { Why::TooLong } else { self.torn() };
            return Err(self.broken(why));
        };
        let entry = match line::parse(line) {
            Ok(entry) => entry,
            Err(Why::NotJson) if self.input.fill_buf().map_err(unreadable)?.is_empty() => {
                return Err(self.broken(self.torn()));
            }
            Err(why) => return Err(self.broken(why)),
        };
        if entry.n != self.head.n + 1 {
            return Err(self.broken(Why::Number { found: entry.n }));
        }
        if entry.prev != self.head.hash {
            return Err(self.broken(Why::Prev));
        }
        self.head = Head { n: entry.n, hash: entry.hash };
        self.bytes += self.line.len() as u64;
        Ok(Some(entry))
    }

    fn torn(&self) -> Why {
        if self.head.n == 0 && !line::may_begin_a_file(&self.line) {
            return Why::NotJson;
        }
        Why::Torn { bytes: self.line.len() as u64 }
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
