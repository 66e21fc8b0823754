//! The form of a line: `{"n":1,"at":"…","prev":"…","record":{…}}`, written and read in exactly this spelling.

use std::io::Write as _;

use countersign_approval_core::clock::Timestamp;
use serde::de::IgnoredAny;

use super::entry::Entry;
use super::head::{Head, LineHash, number};
use crate::Error;
use crate::error::Why;

/// The most bytes that a line has, its newline not counted. The arguments of a reviewed call have at most 768,000 bytes
/// as they are spelled, so this leaves room.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// Lines are written and synced together up to this many bytes and one line more.
pub(crate) const WRITE_BYTES: usize = 1 << 20;

/// The most that one write leaves behind which was not synced.
pub(crate) const MAX_TORN_BYTES: u64 = (WRITE_BYTES + MAX_LINE_BYTES + 1) as u64;

/// A line without its number and its record. Times and hashes are always of one length.
const FRAME: &str = r#"{"n":,"at":"0000-00-00T00:00:00.000Z","prev":"","record":}"#;

/// Refuses a record with which line `n` would be longer than readers accept.
pub(crate) fn check_length(n: u64, record: usize) -> Result<(), Error> {
    let digits = n.checked_ilog10().map_or(1, |log| log as usize + 1);
    let bytes = FRAME.len() + digits + LineHash::DIGITS + record;
    if bytes > MAX_LINE_BYTES { Err(Error::LineTooLong { bytes }) } else { Ok(()) }
}

/// Appends the line after `head`, with its newline, and moves the head on.
pub(crate) fn push(buffer: &mut Vec<u8>, head: &mut Head, at: Timestamp, record: &[u8]) {
    let start = buffer.len();
    let n = head.n + 1;
    buffer.reserve(FRAME.len() + 20 + LineHash::DIGITS + record.len() + 1);
    // Writing to a `Vec` cannot fail.
    let _ = write!(buffer, r#"{{"n":{n},"at":"{at}","prev":""#);
    buffer.extend_from_slice(&head.hash.digits());
    buffer.extend_from_slice(br#"","record":"#);
    buffer.extend_from_slice(record);
    buffer.push(b'}');
    *head = Head { n, hash: LineHash::of(&buffer[start..]) };
    buffer.push(b'\n');
}

/// Reads one line, given without its newline. Whether it follows on the line before is not looked at here.
pub(crate) fn parse(line: &[u8]) -> Result<Entry, Why> {
    let text = std::str::from_utf8(line).map_err(|_| Why::NotJson)?;
    match split(text).and_then(|parts| Entry::parse(parts, LineHash::of(line))) {
        Some(entry) => Ok(entry),
        // Only a line that cannot be read is read twice, for the better message.
        None if serde_json::from_str::<IgnoredAny>(text).is_err() => Err(Why::NotJson),
        None => Err(Why::Shape),
    }
}

/// The members of a line.
pub(crate) struct Parts<'a> {
    pub(crate) n: u64,
    pub(crate) at: Timestamp,
    pub(crate) prev: LineHash,
    pub(crate) record: &'a str,
}

fn split(text: &str) -> Option<Parts<'_>> {
    let (n, rest) = text.strip_prefix(r#"{"n":"#)?.split_once(r#","at":""#)?;
    let (at, rest) = rest.split_once(r#"","prev":""#)?;
    let (prev, rest) = rest.split_once(r#"","record":"#)?;
    let record = rest.strip_suffix('}')?;
    let moment = Timestamp::parse(at)?;
    if moment.to_string() != at || !record.starts_with('{') || !record.ends_with('}') {
        return None;
    }
    Some(Parts { n: number(n)?, at: moment, prev: prev.parse().ok()?, record })
}

/// Whether these bytes may be the beginning of a first line, with the blocks after it that a crash left empty.
/// A file without a single whole line is touched only if this holds: it might be anything.
pub(crate) fn may_begin_a_file(tail: &[u8]) -> bool {
    const BEGINNING: &[u8] = br#"{"n":1,"at":""#;
    let written = tail.iter().position(|byte| *byte == 0).unwrap_or(tail.len());
    let common = written.min(BEGINNING.len());
    written > 0 && tail[..common] == BEGINNING[..common]
}
