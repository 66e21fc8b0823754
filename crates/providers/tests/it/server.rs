//! A server that sends exactly the bytes that it is given, in pieces as small as one byte, and tells what it was sent.
//! It knows no vendor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use url::Url;

/// What a connection is answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    head: String,
    body: Vec<u8>,
    pieces: Pieces,
    end: End,
}

/// How the body is divided into HTTP chunks, each of which the client gets on its own.
#[derive(Debug, Clone, Copy)]
enum Pieces {
    /// Of so many bytes each.
    Of(usize),
    /// Two, cut before this byte.
    Cut(usize),
}

/// What follows the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The last chunk, then the connection is closed.
    Whole,
    /// The connection is closed without the last chunk.
    Cut,
    /// Nothing, until the other side hangs up.
    Hold,
    /// As `Hold`, and not even the head is sent.
    Silence,
}

impl Reply {
    /// A stream with these bytes.
    pub(crate) fn stream(body: impl Into<Vec<u8>>) -> Self {
        Self::new("200 OK", "Content-Type: text/event-stream", body)
    }

    /// One JSON object.
    pub(crate) fn object(body: impl Into<Vec<u8>>) -> Self {
        Self::new("200 OK", "Content-Type: application/json; charset=utf-8", body)
    }

    pub(crate) fn new(status: &str, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}\r\nTransfer-Encoding: chunked\r\n\r\n");
        Self { head, body: body.into(), pieces: Pieces::Of(usize::MAX), end: End::Whole }
    }

    /// The body in chunks of so many bytes.
    pub(crate) fn pieces_of(self, bytes: usize) -> Self {
        Self { pieces: Pieces::Of(bytes), ..self }
    }

    /// The body in two chunks.
    pub(crate) fn cut_at(self, byte: usize) -> Self {
        Self { pieces: Pieces::Cut(byte), ..self }
    }

    pub(crate) fn ending(self, end: End) -> Self {
        Self { end, ..self }
    }

    fn chunks(&self) -> Vec<&[u8]> {
        let body = self.body.as_slice();
        match self.pieces {
            Pieces::Of(bytes) => body.chunks(bytes.min(body.len().max(1))).collect(),
            Pieces::Cut(byte) => {
                let (first, second) = body.split_at(byte);
                // An empty chunk would end the body.
                [first, second].into_iter().filter(|piece| !piece.is_empty()).collect()
            }
        }
    }
}

/// What the server saw.
#[derive(Debug)]
pub(crate) enum Saw {
    Request {
        head: String,
        body: String,
    },
    /// The other side hung up before the end.
    Hangup,
}

pub(crate) struct Server {
    url: Url,
    seen: mpsc::UnboundedReceiver<Saw>,
}

impl Server {
    /// Every request gets the same reply.
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::script(vec![reply]).await
    }

    /// One reply after the other; the last one is given again and again.
    pub(crate) async fn script(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let script = Arc::new(Script { replies, next: AtomicUsize::new(0) });
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (script, tell) = (Arc::clone(&script), tell.clone());
                tokio::spawn(async move {
                    // A client that hangs up early is what some tests are about.
                    let _ = answer(connection, &script, &tell).await;
                });
            }
        });
        Self { url, seen }
    }

    pub(crate) fn url(&self) -> Url {
        self.url.clone()
    }

    pub(crate) async fn saw(&mut self) -> Saw {
        self.seen.recv().await.unwrap()
    }

    /// What came already and no test has looked at.
    pub(crate) fn next_seen(&mut self) -> Option<Saw> {
        self.seen.try_recv().ok()
    }

    pub(crate) fn saw_nothing_more(&mut self) -> bool {
        self.next_seen().is_none()
    }
}

struct Script {
    replies: Vec<Reply>,
    next: AtomicUsize,
}

async fn answer(
    mut connection: TcpStream,
    script: &Script,
    tell: &mpsc::UnboundedSender<Saw>,
) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let (head, body) = read_request(&mut connection).await?;
    let reply = &script.replies[script.next.fetch_add(1, Ordering::SeqCst).min(script.replies.len() - 1)];
    let _ = tell.send(Saw::Request { head, body });
    if reply.end != End::Silence {
        let mut bytes = reply.head.clone().into_bytes();
        for piece in reply.chunks() {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        if reply.end == End::Whole {
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        connection.write_all(&bytes).await?;
    }
    if matches!(reply.end, End::Hold | End::Silence) {
        let mut rest = [0; 64];
        while connection.read(&mut rest).await.unwrap_or(0) > 0 {}
        let _ = tell.send(Saw::Hangup);
    }
    connection.shutdown().await
}

async fn read_request(connection: &mut TcpStream) -> std::io::Result<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Ok((head, String::from_utf8(bytes[end + 4..].to_vec()).unwrap()));
            }
        }
        if connection.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// A header's value, from a head as it was received.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
