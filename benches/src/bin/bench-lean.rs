//! The bound on bare sockets: how small a waiting run with its open stream can be. No buffer survives the wait. Its HTTP
//! is good enough for the load client and for nobody else.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bound: it says where it listens, and ends if it cannot"
)]

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

struct Entry {
    call: Box<[u8]>,
    decided: oneshot::Sender<()>,
}

#[derive(Default)]
struct State {
    entries: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

impl State {
    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn main() {
    countersign_bench::process::raise_file_limit().expect("open files");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("listening on {}", listener.local_addr().expect("its address"));
        let state = Arc::new(State::default());
        loop {
            let Ok((mut socket, _)) = listener.accept().await else { continue };
            let _ = socket.set_nodelay(true);
            let state = Arc::clone(&state);
            // Boxed, and another task for the wait: the large future of the front is gone by then.
            tokio::spawn(Box::pin(async move {
                if let Some((id, decision)) = front(&mut socket, &state).await {
                    tokio::spawn(parked(socket, state, id, decision));
                }
            }));
        }
    });
}

/// Serves requests until one starts a run.
async fn front(socket: &mut TcpStream, state: &State) -> Option<(u64, oneshot::Receiver<()>)> {
    let mut buffer = Vec::new();
    loop {
        let (path, body) = request(socket, &mut buffer).await?;
        let value: Value = serde_json::from_slice(&body).ok()?;
        match path.as_str() {
            "/run" => return run(socket, state, &value).await,
            "/decide" => {
                let id: u64 = value["approvalId"].as_str()?.parse().ok()?;
                let same = |entry: &Entry| {
                    serde_json::from_slice::<Value>(&entry.call).is_ok_and(|call| call == value["call"])
                };
                let entry = {
                    let mut entries = state.entries();
                    if entries.get(&id).is_some_and(same) { entries.remove(&id) } else { None }
                }?;
                let _ = entry.decided.send(());
                let receipt = json!({"approvalId": id.to_string(), "outcome": "approved"}).to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{receipt}",
                    receipt.len()
                );
                socket.write_all(answer.as_bytes()).await.ok()?;
            }
            _ => return None,
        }
    }
}

async fn run(socket: &mut TcpStream, state: &State, call: &Value) -> Option<(u64, oneshot::Receiver<()>)> {
    let id = state.next.fetch_add(1, Ordering::Relaxed);
    let call = call.to_string();
    let (decided, decision) = oneshot::channel();
    let event = format!(
        "event: approval.requested\ndata: {{\"approvalId\":\"{id}\",\"runId\":\"{id}\",\"call\":{call}}}\n\n"
    );
    state.entries().insert(id, Entry { call: call.into_bytes().into(), decided });
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(format!("{head}{}", chunk(&event)).as_bytes()).await.ok()?;
    Some((id, decision))
}

async fn parked(mut socket: TcpStream, state: Arc<State>, id: u64, mut decision: oneshot::Receiver<()>) {
    tokio::select! {
        _ = &mut decision => {
            // Boxed, so that the task is small while it waits.
            let _ = Box::pin(async move {
                socket.write_all(chunk("event: run.completed\ndata: {}\n\n").as_bytes()).await
            }).await;
        }
        _ = readable(&socket) => drop(state.entries().remove(&id)),
    }
}

async fn readable(socket: &TcpStream) -> io::Result<()> {
    socket.readable().await
}

async fn request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = std::str::from_utf8(&buffer[..head]).ok()?;
            let length = text.split("content-length: ").nth(1)?.split("\r\n").next()?;
            let end = head + 4 + length.parse::<usize>().ok()?;
            if buffer.len() >= end {
                let path = text.split(' ').nth(1)?.to_owned();
                let body = buffer[head + 4..end].to_vec();
                buffer.drain(..end);
                return Some((path, body));
            }
        }
        buffer.reserve(4096);
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
