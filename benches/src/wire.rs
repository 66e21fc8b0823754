//! HTTP on blocking sockets, no more of it than the load client needs: a client that costs little leaves the figures to
//! the server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::peer::Peer;

/// No answer of a healthy server takes this long, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is kept for one exchange after the other.
pub struct Exchange {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Exchange {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self { socket: connect(address)?, buffer: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a request. Its answer is the next that [`answered`](Self::answered) waits for.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(request)?)
    }

    /// Waits for one whole answer, which must be a 200.
    ///
    /// # Errors
    /// Any other answer, and a connection that is lost.
    pub fn answered(&mut self) -> Result<()> {
        self.buffer.clear();
        loop {
            let read = fill(&mut self.socket, &mut self.buffer)?;
            ensure!(read > 0, "the server hung up before it answered");
            let Some(head) = find(&self.buffer, b"\r\n\r\n") else { continue };
            ensure!(
                self.buffer.starts_with(b"HTTP/1.1 200"),
                "refused: {}",
                String::from_utf8_lossy(&self.buffer)
            );
            let length = content_length(&self.buffer[..head]).context("an answer without its length")?;
            if self.buffer.len() >= head + 4 + length {
                return Ok(());
            }
        }
    }

    /// One exchange.
    ///
    /// # Errors
    /// As both halves.
    pub fn post(&mut self, request: &[u8]) -> Result<()> {
        self.send(request)?;
        self.answered()
    }
}

/// A run that waits for a decision, with its stream open.
pub struct Waiting {
    socket: TcpStream,
    /// The body of the decision that approves it.
    pub decision: String,
}

impl Waiting {
    /// Starts a run on a connection of its own and reads its stream until it asks. `scratch` is any buffer.
    ///
    /// # Errors
    /// The run does not come to ask.
    pub fn start(peer: &Peer, request: &[u8], scratch: &mut Vec<u8>) -> Result<Self> {
        let mut socket = connect(peer.address)?;
        socket.write_all(request)?;
        let at = until(&mut socket, b"event: approval.requested", scratch)?;
        let frame = std::str::from_utf8(&scratch[at..])?;
        Ok(Self { socket, decision: peer.dialect.approve(frame)? })
    }

    /// Reads on until the run has completed.
    ///
    /// # Errors
    /// It ends otherwise.
    pub fn completed(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        until(&mut self.socket, b"event: run.completed", scratch).map(drop)
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Reads until `name` and the end of its frame have come, and says where `name` stands in `scratch`.
fn until(socket: &mut TcpStream, name: &[u8], scratch: &mut Vec<u8>) -> Result<usize> {
    scratch.clear();
    let (mut found, mut searched) = (None, 0);
    loop {
        if fill(socket, scratch)? == 0 {
            bail!("the stream ended: {}", String::from_utf8_lossy(scratch));
        }
        if found.is_none() {
            found = find(&scratch[searched..], name).map(|at| at + searched);
            searched = found.unwrap_or_else(|| scratch.len().saturating_sub(name.len()));
        }
        let Some(at) = found else {
            for end in [&b"event: run.failed"[..], b"event: run.cancelled", b"HTTP/1.1 4", b"HTTP/1.1 5"] {
                ensure!(find(scratch, end).is_none(), "refused: {}", String::from_utf8_lossy(scratch));
            }
            continue;
        };
        if let Some(end) = find(&scratch[searched..], b"\n\n") {
            scratch.truncate(searched + end);
            return Ok(at);
        }
        searched = scratch.len().saturating_sub(1).max(searched);
    }
}

/// Reads once, behind what is there.
fn fill(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<usize> {
    let before = buffer.len();
    buffer.resize(before + 8 * 1024, 0);
    let read = socket.read(&mut buffer[before..]);
    buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
    read.context("nothing came")
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

/// Both servers write the header's name in small letters, with one space.
fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length: ";
    let digits = &head[find(head, NAME)? + NAME.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
