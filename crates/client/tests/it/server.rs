//! A server of raw bytes on loopback: it hears one request a connection, writes what it is told, and remembers.

use std::sync::{Arc, Mutex};

use countersign_client::{Client, ClientBuilder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

pub(crate) const TOKEN: &str = "token-that-nobody-may-see";

/// What the server does after it has heard a request.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Then {
    /// Closes the connection.
    Close,
    /// Keeps it open and says when the peer has closed it.
    Hold,
}

pub(crate) struct Server {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
    hang_ups: mpsc::UnboundedReceiver<()>,
}

impl Server {
    /// Gives every connection the same answer.
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let (hung_up, hang_ups) = mpsc::unbounded_channel();
        let log = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, script.clone(), Arc::clone(&log), hung_up.clone()));
            }
        });
        Self { port, heard, hang_ups }
    }

    /// A whole answer with a `Content-Length`.
    pub(crate) async fn answering(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        Self::start(Script { bytes: answer(status, headers, body.as_ref()), then: Then::Close }).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(self.url(), TOKEN.into())
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// Every request so far, head and body.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Waits until a client has closed a held connection.
    pub(crate) async fn hang_up(&mut self) {
        self.hang_ups.recv().await.unwrap();
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// An event stream that ends with the connection.
pub(crate) fn event_stream(body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nAgenticDriver-Version: 1.0\r\nConnection: close\r\n\r\n";
    [head.as_bytes(), body].concat()
}

pub(crate) const JSON_HEADERS: &str =
    "Content-Type: application/json; charset=utf-8\r\nAgenticDriver-Version: 1.0\r\n";

pub(crate) async fn serve<S>(
    mut socket: S,
    script: Script,
    log: Arc<Mutex<Vec<String>>>,
    hung_up: mpsc::UnboundedSender<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(request) = hear(&mut socket).await else { return };
    log.lock().unwrap().push(request);
    // A client that has heard enough closes; that is what some tests are about.
    let _ = socket.write_all(&script.bytes).await;
    let _ = socket.flush().await;
    match script.then {
        Then::Close => drop(socket.shutdown().await),
        Then::Hold => {
            // Reading ends with end of file, or with a reset if the client left bytes unread.
            let mut rest = [0; 64];
            while matches!(socket.read(&mut rest).await, Ok(count) if count > 0) {}
            let _ = hung_up.send(());
        }
    }
}

async fn hear(socket: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
