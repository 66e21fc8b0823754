//! The bound on hyper: the smallest useful server that parks a run behind an open stream and takes a decision. No
//! authentication, no audit, no expiry, no validation, and none of the contract's limits.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bound: it says where it listens, and ends if it cannot"
)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

type Body = BoxBody<Bytes, Infallible>;

/// The call is kept as text: a tree of maps would be a fifth of the memory.
struct Entry {
    call: Vec<u8>,
    decided: oneshot::Sender<()>,
}

#[derive(Default)]
struct State {
    entries: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

struct Events(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Events {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
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
            let Ok((socket, _)) = listener.accept().await else { continue };
            let _ = socket.set_nodelay(true);
            let state = Arc::clone(&state);
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(Arc::clone(&state), request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(match path.as_str() {
        "/echo" => whole(serde_json::to_vec(&value).unwrap_or_default()),
        "/run" => run(state, &value),
        "/decide" => decide(&state, &value),
        _ => missing(),
    })
}

fn run(state: Arc<State>, call: &Value) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(2);
    let call = serde_json::to_vec(call).unwrap_or_default();
    tokio::spawn(async move {
        let id = state.next.fetch_add(1, Ordering::Relaxed);
        let (decided, decision) = oneshot::channel();
        let text = String::from_utf8_lossy(&call);
        let event = format!(
            "event: approval.requested\ndata: {{\"approvalId\":\"{id}\",\"runId\":\"{id}\",\"call\":{text}}}\n\n"
        );
        state.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Entry { call, decided });
        if sender.send(event.into()).await.is_ok() {
            let _ = decision.await;
            let _ = sender.send(Bytes::from_static(b"event: run.completed\ndata: {}\n\n")).await;
        }
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(Events(receiver))));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, const { hyper::header::HeaderValue::from_static("text/event-stream") });
    response
}

fn decide(state: &State, decision: &Value) -> Response<Body> {
    let id = decision["approvalId"].as_str().and_then(|id| id.parse().ok()).unwrap_or(u64::MAX);
    let mut entries = state.entries.lock().unwrap_or_else(PoisonError::into_inner);
    // Both texts come from trees whose members are sorted.
    let call = serde_json::to_vec(&decision["call"]).unwrap_or_default();
    if entries.get(&id).is_none_or(|entry| entry.call != call) {
        return missing();
    }
    let Some(entry) = entries.remove(&id) else { return missing() };
    drop(entries);
    let _ = entry.decided.send(());
    whole(json!({"approvalId": id.to_string(), "outcome": "approved"}).to_string())
}

fn whole(text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, const { hyper::header::HeaderValue::from_static("application/json") });
    response
}

fn missing() -> Response<Body> {
    let mut response = whole("{}");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
