//! Law 5: a dropped turn closes its connection, so that the server's model stops.

use std::time::Duration;

use countersign_approval_core::ids::ModelId;
use countersign_driver::provider::Provider;
use countersign_providers::OpenAiChat;

use super::config;
use super::server::{End, Reply, Saw, Server, delta, frames_open};
use crate::heard::{Heard, request, user};

/// Waits for the hangup; the bound only keeps a failing test from hanging.
async fn hangup(server: &mut Server) {
    let saw = tokio::time::timeout(Duration::from_secs(20), server.saw()).await.expect("it did not hang up");
    assert!(matches!(saw, Saw::Hangup));
}

#[tokio::test]
async fn in_the_middle_of_an_answer() {
    let body = frames_open(&[&delta(r#"{"content":"a"}"#)]);
    let mut server = Server::start(Reply::stream(body).ending(End::Hold)).await;
    let provider = OpenAiChat::new(config(server.url())).unwrap();
    let (model, messages, heard) = (ModelId::parse("demo").unwrap(), [user("x")], Heard::default());
    tokio::select! {
        turn = provider.turn(request(&model, &messages), &heard) => panic!("it ended: {turn:?}"),
        () = async { while heard.pieces().is_empty() { tokio::task::yield_now().await } } => {}
    }
    assert!(matches!(server.saw().await, Saw::Request { .. }));
    hangup(&mut server).await;
}

#[tokio::test]
async fn before_the_answer() {
    let mut server = Server::start(Reply::stream("").ending(End::Silence)).await;
    let provider = OpenAiChat::new(config(server.url())).unwrap();
    let (model, messages, heard) = (ModelId::parse("demo").unwrap(), [user("x")], Heard::default());
    tokio::select! {
        turn = provider.turn(request(&model, &messages), &heard) => panic!("it ended: {turn:?}"),
        saw = server.saw() => assert!(matches!(saw, Saw::Request { .. })),
    }
    hangup(&mut server).await;
}

/// A refused answer is not read to its end either.
#[tokio::test]
async fn after_an_error_in_the_stream() {
    let reply = Reply::stream("data: {\n\n").ending(End::Hold);
    let mut server = Server::start(reply).await;
    let provider = OpenAiChat::new(config(server.url())).unwrap();
    let (model, messages) = (ModelId::parse("demo").unwrap(), [user("x")]);
    assert!(provider.turn(request(&model, &messages), &Heard::default()).await.is_err());
    assert!(matches!(server.saw().await, Saw::Request { .. }));
    hangup(&mut server).await;
}
