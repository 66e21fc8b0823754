//! How a stream ends: by its host, by its reader, by the network.

use countersign_client::Error;
use futures_util::StreamExt;

use crate::events::*;
use crate::server::{Script, Server, Then, event_stream};

fn held(events: &[String]) -> Script {
    Script { bytes: event_stream(framed(events, "\n").as_bytes()), then: Then::Hold }
}

/// 10.4, `cancel-stream`; law 5; scenario F1: the host learns at once that nobody follows the run, though it has
/// nothing to write.
#[tokio::test]
async fn dropping_the_stream_hangs_up() {
    let mut server = Server::start(held(&base()[..2])).await;
    let mut events = server.client().stream(&hello()).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().type_name(), "run.started");
    assert_eq!(events.next().await.unwrap().unwrap().type_name(), "text.delta");
    drop(events);
    server.hang_up().await;
}

/// The same while the reader waits for an event that does not come.
#[tokio::test]
async fn dropping_a_waiting_stream_hangs_up() {
    let mut server = Server::start(held(&base()[..1])).await;
    let client = server.client();
    let reader = tokio::spawn(async move {
        let mut events = client.stream(&hello()).await.unwrap();
        while events.next().await.is_some() {}
    });
    while server.heard().is_empty() {
        tokio::task::yield_now().await;
    }
    reader.abort();
    server.hang_up().await;
}

/// Giving up before the host has accepted the run hangs up too.
#[tokio::test]
async fn dropping_the_request_hangs_up() {
    let mut server = Server::start(Script { bytes: Vec::new(), then: Then::Hold }).await;
    let client = server.client();
    let starting = tokio::spawn(async move { client.stream(&hello()).await });
    while server.heard().is_empty() {
        tokio::task::yield_now().await;
    }
    starting.abort();
    server.hang_up().await;
}

/// 10.2: after the terminal event clients close, whether or not the host does.
#[tokio::test]
async fn the_terminal_event_closes() {
    let mut server = Server::start(held(&base())).await;
    let events = server.client().stream(&hello()).await.unwrap();
    let (events, end) = follow(events).await;
    assert_eq!((events.len(), end.as_str()), (3, "ok"));
    server.hang_up().await;
}

/// An error closes the connection as well, and is given once.
#[tokio::test]
async fn an_error_closes() {
    let mut server = Server::start(held(&[started(), delta(3)])).await;
    let events = server.client().stream(&hello()).await.unwrap();
    let (events, end) = follow(events).await;
    assert_eq!((events.len(), end.as_str()), (1, "INVALID_STREAM"));
    server.hang_up().await;
}

/// Contract 3.4, host shutdown: a connection that breaks is told like a stream that ends too early.
#[tokio::test]
async fn a_broken_connection_is_an_incomplete_stream() {
    let body = framed(&base()[..2], "\n");
    // The second chunk is announced and does not come.
    let bytes = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n40\r\nid",
        body.len()
    );
    let server = Server::start(Script { bytes: bytes.into(), then: Then::Close }).await;
    let mut events = server.client().stream(&hello()).await.unwrap();
    assert!(events.next().await.unwrap().is_ok());
    assert!(events.next().await.unwrap().is_ok());
    let error = events.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::BrokenStream(_)), "{error:?}");
    assert_eq!(code(&error), "INCOMPLETE_STREAM");
    // Law 8: what the run does now is not known.
    assert!(error.is_uncertain());
    assert!(events.next().await.is_none());
}

/// The stream is a `futures::Stream` as well.
#[tokio::test]
async fn works_with_the_stream_trait() {
    let server = Server::start(held(&base())).await;
    let events = server.client().stream(&hello()).await.unwrap();
    let types: Vec<_> = events.map(|event| event.unwrap().type_name()).collect().await;
    assert_eq!(types, ["run.started", "text.delta", "run.completed"]);
}
