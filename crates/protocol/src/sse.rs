//! Server-sent events (contract 1.8 and 10.2): the host's frames, and an incremental decoder.
//!
//! The decoder serves the client and the vendors' streams alike. It holds at most one frame plus the bytes that were
//! pushed and not yet taken, and ends at the first frame that is larger than its limit.

use crate::error::SseError;
use crate::event::Event;
use crate::version::MAX_FRAME_BYTES;

/// The keep-alive comment (contract 1.8). It is no event, has no sequence number and is no progress.
pub const HEARTBEAT: &[u8] = b": heartbeat\n\n";

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Appends an event as one frame: `id`, `event`, `data`, an empty line (contract 1.8).
pub fn encode_frame(event: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(event.sequence.to_string().as_bytes());
    out.extend_from_slice(b"\nevent: ");
    out.extend_from_slice(event.type_name().as_bytes());
    out.extend_from_slice(b"\ndata: ");
    event.write_json(out);
    out.extend_from_slice(b"\n\n");
}

/// One frame that carried data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The last `event:` line, if there was one. Clients of this protocol go by the data alone.
    pub event: Option<String>,
    /// The last `id:` line, if there was one.
    pub id: Option<String>,
    /// The `data:` lines, joined by line feeds.
    pub data: String,
}

/// Takes bytes as they arrive, cut anywhere, and gives whole frames.
///
/// Lines end with LF, CR or CRLF. A byte order mark at the start, comments, unknown fields and frames without data are
/// skipped. The lines of a frame, with field names and comments and without line ends, may sum to the limit
/// (contract 10.2).
///
/// ```
/// use countersign_protocol::sse::Decoder;
///
/// let mut decoder = Decoder::new();
/// decoder.push(b": heartbeat\n\ndata: {\"a\":");
/// assert!(decoder.next_frame().is_none());
/// decoder.push(b"1}\r\n\r\n");
/// assert_eq!(decoder.next_frame().unwrap()?.data, "{\"a\":1}");
/// decoder.finish()?;
/// # Ok::<(), countersign_protocol::error::SseError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// Pushed bytes; those before `taken` are done with.
    pending: Vec<u8>,
    taken: usize,
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Bytes of the finished lines of the current frame.
    used: usize,
    last_end: LineEnd,
    place: Place,
    frame: Partial,
    failed: Option<SseError>,
}

/// How the previous line ended: an LF right after a CR belongs to the same end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Cr,
    Other,
}

/// Only the first line of a stream may open with a byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    FirstLine,
    Later,
}

#[derive(Debug, Default)]
struct Partial {
    event: Option<String>,
    id: Option<String>,
    data: Option<String>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder with the protocol's limit, [`MAX_FRAME_BYTES`].
    pub fn new() -> Self {
        Self::with_limit(MAX_FRAME_BYTES)
    }

    /// A decoder whose frames may have `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            pending: Vec::new(),
            taken: 0,
            line: Vec::new(),
            used: 0,
            last_end: LineEnd::Other,
            place: Place::FirstLine,
            frame: Partial::default(),
            failed: None,
        }
    }

    /// Adds bytes. Take all frames with [`Decoder::next_frame`] before the next push: what is pushed and not taken is
    /// kept, and only the caller can bound it.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.pending.drain(..self.taken);
            self.taken = 0;
            self.pending.extend_from_slice(bytes);
        }
    }

    /// The next whole frame, or `None` until more bytes are pushed.
    ///
    /// # Errors
    /// The first [`SseError`] is given once, after the frames before it; then nothing more comes.
    pub fn next_frame(&mut self) -> Option<Result<Frame, SseError>> {
        if self.failed.is_some() {
            return None;
        }
        match self.advance() {
            Ok(frame) => frame.map(Ok),
            Err(error) => {
                self.failed = Some(error);
                self.pending = Vec::new();
                self.line = Vec::new();
                self.frame = Partial::default();
                Some(Err(error))
            }
        }
    }

    /// Says whether the input may end here.
    ///
    /// # Errors
    /// The error that ended decoding, or [`SseError::Unterminated`] if the input ends inside a frame: that frame is
    /// not given to anybody.
    pub fn finish(&self) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let rest = self.pending.get(self.taken..).unwrap_or(&[]);
        // The LF of a CRLF whose CR has already ended the last line.
        let rest = if self.last_end == LineEnd::Cr { rest.strip_prefix(b"\n").unwrap_or(rest) } else { rest };
        if self.used > 0 || !self.line.is_empty() || !rest.is_empty() {
            return Err(SseError::Unterminated);
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Frame>, SseError> {
        while self.taken < self.pending.len() {
            if self.last_end == LineEnd::Cr {
                self.last_end = LineEnd::Other;
                if self.pending[self.taken] == b'\n' {
                    self.taken += 1;
                    continue;
                }
            }
            let rest = &self.pending[self.taken..];
            let Some(length) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(rest);
                self.taken = self.pending.len();
                self.check_limit(&self.line)?;
                return Ok(None);
            };
            if rest[length] == b'\r' {
                self.last_end = LineEnd::Cr;
            }
            self.line.extend_from_slice(&rest[..length]);
            self.taken += length + 1;
            let line = std::mem::take(&mut self.line);
            let frame = self.end_line(&line)?;
            // The buffer goes back, so that a line costs no allocation.
            self.line = line;
            self.line.clear();
            if frame.is_some() {
                return Ok(frame);
            }
        }
        Ok(None)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<Option<Frame>, SseError> {
        self.check_limit(line)?;
        let line = self.without_bom(line);
        self.place = Place::Later;
        if line.is_empty() {
            self.used = 0;
            let Partial { event, id, data } = std::mem::take(&mut self.frame);
            return Ok(data.map(|data| Frame { event, id, data }));
        }
        self.used += line.len();
        let line = std::str::from_utf8(line).map_err(|_| SseError::Utf8)?;
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => match &mut self.frame.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.frame.data = Some(value.to_owned()),
            },
            "event" => self.frame.event = Some(value.to_owned()),
            "id" => self.frame.id = Some(value.to_owned()),
            // A comment has an empty name; other fields mean nothing here.
            _ => {}
        }
        Ok(None)
    }

    /// Checked while a line is still growing, so that an endless line is not collected.
    fn check_limit(&self, line: &[u8]) -> Result<(), SseError> {
        if self.used + self.without_bom(line).len() > self.limit {
            return Err(SseError::TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn without_bom<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match self.place {
            Place::FirstLine => line.strip_prefix(BOM).unwrap_or(line),
            Place::Later => line,
        }
    }
}
