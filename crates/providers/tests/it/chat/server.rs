//! A server that sends exactly the bytes that it is given, in pieces as small as one byte, and tells what it was sent.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use url::Url;

/// What every connection is answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    head: String,
    body: Vec<u8>,
    /// Bytes in one HTTP chunk.
    piece: usize,
    end: End,
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
        Self { head, body: body.into(), piece: usize::MAX, end: End::Whole }
    }

    /// The body in chunks of so many bytes, each of which the client gets on its own.
    pub(crate) fn pieces_of(self, piece: usize) -> Self {
        Self { piece, ..self }
    }

    pub(crate) fn ending(self, end: End) -> Self {
        Self { end, ..self }
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
    pub(crate) async fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let reply = Arc::new(reply);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (reply, tell) = (Arc::clone(&reply), tell.clone());
                tokio::spawn(async move {
                    // A client that hangs up early is what some tests are about.
                    let _ = answer(connection, &reply, &tell).await;
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

    /// Whether anything came that no test has looked at.
    pub(crate) fn saw_nothing_more(&mut self) -> bool {
        self.seen.try_recv().is_err()
    }
}

async fn answer(
    mut connection: TcpStream,
    reply: &Reply,
    tell: &mpsc::UnboundedSender<Saw>,
) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let (head, body) = read_request(&mut connection).await?;
    let _ = tell.send(Saw::Request { head, body });
    if reply.end != End::Silence {
        let mut bytes = reply.head.clone().into_bytes();
        for piece in reply.body.chunks(reply.piece.min(reply.body.len().max(1))) {
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

/// Server-sent frames of these chunks, and `[DONE]`.
pub(crate) fn frames(chunks: &[&str]) -> String {
    frames_open(chunks) + "data: [DONE]\n\n"
}

/// The same without `[DONE]`.
pub(crate) fn frames_open(chunks: &[&str]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// A chunk with this delta.
pub(crate) fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

/// A chunk that ends the answer.
pub(crate) fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}
