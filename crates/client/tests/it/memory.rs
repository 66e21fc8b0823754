//! Without a network: every way to cut a stream into chunks, and testkit's transport over pipes.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use countersign_client::Client;
use countersign_client::transport::{BodyStream, Transport, TransportError};
use countersign_testkit::MemoryTransport;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use tokio::sync::mpsc;

use crate::events::*;
use crate::server::{JSON_HEADERS, Script, TOKEN, Then, answer, event_stream, serve};

/// A body of exactly these chunks.
struct Chunks(Vec<Bytes>);

#[async_trait]
impl Transport for Chunks {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
        let body: BodyStream = Box::pin(stream::iter(self.0.clone()).map(Ok));
        Ok(Response::builder().header("content-type", "text/event-stream").body(body).unwrap())
    }
}

async fn types(chunks: Vec<Bytes>) -> Vec<&'static str> {
    let client = Client::builder("http://localhost", "t".into()).transport(Arc::new(Chunks(chunks)));
    let events = client.build().unwrap().stream(&hello()).await.unwrap();
    let (events, end) = follow(events).await;
    assert_eq!(end, "ok");
    events.iter().map(|event| event.type_name()).collect()
}

/// Scenario F7 (CR at the end of one chunk, LF at the start of the next) and 10.4, `fragmented-unicode`: wherever the
/// stream is cut in two, and cut into single bytes, it holds the same events.
#[tokio::test]
async fn any_cut() {
    let text = event(2, "text.delta", r#""text":"añ🌍""#);
    for end in ["\n", "\r\n", "\r"] {
        let body = Bytes::from(framed(&[started(), text.clone(), completed(3)], end));
        let expected = ["run.started", "text.delta", "run.completed"];
        for at in 0..=body.len() {
            assert_eq!(types(vec![body.slice(..at), body.slice(at..)]).await, expected, "{end:?} {at}");
        }
        let single = (0..body.len()).map(|at| body.slice(at..=at)).collect();
        assert_eq!(types(single).await, expected);
    }
}

fn memory(script: Script) -> (Client, Arc<Mutex<Vec<String>>>, mpsc::UnboundedReceiver<()>) {
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let (hung_up, hang_ups) = mpsc::unbounded_channel();
    let log = Arc::clone(&heard);
    let transport = MemoryTransport::new(move |io| {
        tokio::spawn(serve(io, script.clone(), Arc::clone(&log), hung_up.clone()));
    });
    let client = Client::builder("http://localhost:7/x", TOKEN.into()).transport(Arc::new(transport));
    (client.build().unwrap(), heard, hang_ups)
}

/// The transport of the simulation behaves as the real one does: same request, same answer, same hang-up.
#[tokio::test(start_paused = true)]
async fn pipes() {
    let bytes = answer("200 OK", JSON_HEADERS, receipt("denied").as_bytes());
    let (client, heard, _) = memory(Script { bytes, then: Then::Close });
    client.decide_approval(&decision("deny")).await.unwrap();
    let request = heard.lock().unwrap().concat();
    assert!(request.starts_with("POST /x/v1/approvals/decisions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nhost: localhost:7\r\n"), "{request}");

    let large = event(2, "text.delta", &format!(r#""text":"{}""#, "🌍".repeat(70_000)));
    let body = event_stream(framed(&[started(), large, completed(3)], "\n").as_bytes());
    let (client, ..) = memory(Script { bytes: body, then: Then::Close });
    let (events, end) = follow(client.stream(&hello()).await.unwrap()).await;
    assert_eq!((events.len(), end.as_str()), (3, "ok"));

    let body = event_stream(framed(&base()[..1], "\n").as_bytes());
    let (client, _, mut hang_ups) = memory(Script { bytes: body, then: Then::Hold });
    let mut events = client.stream(&hello()).await.unwrap();
    events.next().await.unwrap().unwrap();
    drop(events);
    hang_ups.recv().await.unwrap();
}

/// Nothing is read ahead: a reader that does not ask lets the host wait (contract 1.8, back-pressure).
#[tokio::test(start_paused = true)]
async fn nothing_is_read_ahead() {
    struct Counting(Arc<Mutex<usize>>);
    #[async_trait]
    impl Transport for Counting {
        async fn send(&self, _: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
            let count = Arc::clone(&self.0);
            let chunks = base().into_iter().map(|event| Bytes::from(framed(&[event], "\n")));
            let body: BodyStream = Box::pin(stream::iter(chunks).map(move |chunk| {
                *count.lock().unwrap() += 1;
                Ok(chunk)
            }));
            Ok(Response::builder().header("content-type", "text/event-stream").body(body).unwrap())
        }
    }
    let taken = Arc::new(Mutex::new(0));
    let client =
        Client::builder("http://localhost", "t".into()).transport(Arc::new(Counting(Arc::clone(&taken))));
    let mut events = client.build().unwrap().stream(&hello()).await.unwrap();
    for count in 0..3 {
        assert_eq!(*taken.lock().unwrap(), count);
        events.next().await.unwrap().unwrap();
    }
}
