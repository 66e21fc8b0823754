//! A client that sends and reads bytes, and hides nothing.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A request to send.
#[derive(Clone)]
pub(crate) struct Ask {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Ask {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// A JSON body with its content type.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.text(&body.to_string())
    }

    /// A text body that is called JSON.
    pub(crate) fn text(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: countersign.test\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// The head of an answer. Names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// Every value of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The one value of a header.
    pub(crate) fn one(&self, name: &str) -> &str {
        let all = self.all(name);
        assert_eq!(all.len(), 1, "{name} in {self:?}");
        all[0]
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and code of an error, status and nothing of anything else.
    pub(crate) fn outcome(&self) -> (u16, String) {
        let code = serde_json::from_slice::<Value>(&self.body).ok();
        let code = code.and_then(|body| body["error"]["code"].as_str().map(str::to_owned));
        (self.head.status, code.unwrap_or_default())
    }

    /// The answer without the date, which is another one each second.
    pub(crate) fn undated(mut self) -> Self {
        self.head.headers.retain(|(name, _)| name != "date");
        self
    }
}

/// One end of a connection to a host.
pub(crate) struct Peer<S> {
    pub(crate) io: S,
    read: Vec<u8>,
    /// What the chunks of an event stream held that is not yet a whole frame.
    events: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(io: S) -> Self {
        Self { io, read: Vec::new(), events: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
        self.io.flush().await.unwrap();
    }

    /// Sends to a host that may not be there any more.
    pub(crate) async fn send_quietly(&mut self, ask: &Ask) {
        let _ = self.io.write_all(&ask.bytes()).await;
    }

    /// A request and its whole answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Answer {
        let head = self.start(ask).await;
        let body = self.body(&head).await;
        Answer { head, body }
    }

    /// A request and the head of its answer.
    pub(crate) async fn start(&mut self, ask: &Ask) -> Head {
        self.send(&ask.bytes()).await;
        self.head().await
    }

    pub(crate) async fn head(&mut self) -> Head {
        let text = self.until(b"\r\n\r\n").await.expect("an answer");
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Head { status, headers: lines.map(header).collect() }
    }

    pub(crate) async fn body(&mut self, head: &Head) -> Vec<u8> {
        if head.all("transfer-encoding") == ["chunked"] {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk().await {
                body.extend(chunk);
            }
            return body;
        }
        let length = head.all("content-length").first().map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            assert!(self.fill().await, "the body ended early");
        }
        self.read.drain(..length).collect()
    }

    /// The next chunk; none at the end of the body.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        self.try_chunk().await.expect("the body ended without its last chunk")
    }

    /// As [`Self::chunk`]; nothing at all if the connection ended.
    pub(crate) async fn try_chunk(&mut self) -> Option<Option<Vec<u8>>> {
        let line = self.until(b"\r\n").await?;
        let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        while self.read.len() < length + 2 {
            if !self.fill().await {
                return None;
            }
        }
        let chunk: Vec<u8> = self.read.drain(..length).collect();
        assert_eq!(self.read.drain(..2).collect::<Vec<_>>(), b"\r\n");
        Some((length > 0).then_some(chunk))
    }

    /// The next frame of an event stream, comments included; none at its proper end.
    pub(crate) async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.events.windows(2).position(|two| two == b"\n\n") {
                let frame = self.events.drain(..end + 2).collect();
                return Some(String::from_utf8(frame).unwrap());
            }
            let Some(chunk) = self.chunk().await else {
                assert!(self.events.is_empty(), "a frame was cut");
                return None;
            };
            self.events.extend(chunk);
        }
    }

    /// The next event; none at the proper end of the stream.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        loop {
            let frame = self.frame().await?;
            if let Some(data) = frame.lines().find_map(|line| line.strip_prefix("data: ")) {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next event of a type; the ones before it are passed over.
    pub(crate) async fn event_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().await.unwrap_or_else(|| panic!("the stream ended before {kind}"));
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// The types of all events up to the proper end.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        let mut kinds = Vec::new();
        while let Some(event) = self.event().await {
            let code = event["error"]["code"].as_str().map(|code| format!(" {code}"));
            kinds.push(format!("{}{}", event["type"].as_str().unwrap(), code.unwrap_or_default()));
        }
        kinds
    }

    /// Whether the host ends the connection without sending anything more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.fill().await
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|window| window == end) {
                return Some(self.read.drain(..at + end.len()).collect());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Reads more; false at the end of the connection.
    async fn fill(&mut self) -> bool {
        matches!(self.io.read_buf(&mut self.read).await, Ok(read) if read > 0)
    }
}
