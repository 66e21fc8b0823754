//! Law 5: a turn that is dropped closes its connection at once, so that the vendor's model stops.

use countersign_approval_core::ids::ModelId;

use super::vendor::{Ending, Said, Vendor};
use super::{hangup, provider, runs};
use crate::heard::{Heard, request, user};
use crate::server::{End, Reply, Saw, Server};

pub(crate) async fn in_the_middle_of_an_answer<V: Vendor>() {
    let body = V::stream(&Said::text(&["a"]).ending(Ending::Open));
    let mut server = Server::start(Reply::stream(body).ending(End::Hold)).await;
    let provider = provider::<V>(&server);
    let (model, messages, heard) = (ModelId::parse("demo").unwrap(), [user("x")], Heard::default());
    tokio::select! {
        turn = provider.turn(request(&model, &messages), &heard) => panic!("it ended: {turn:?}"),
        () = async { while heard.texts().is_empty() { tokio::task::yield_now().await } } => {}
    }
    assert!(matches!(server.saw().await, Saw::Request { .. }));
    hangup(&mut server).await;
}

pub(crate) async fn before_the_answer<V: Vendor>() {
    let mut server = Server::start(Reply::stream("").ending(End::Silence)).await;
    let provider = provider::<V>(&server);
    let (model, messages, heard) = (ModelId::parse("demo").unwrap(), [user("x")], Heard::default());
    tokio::select! {
        turn = provider.turn(request(&model, &messages), &heard) => panic!("it ended: {turn:?}"),
        saw = server.saw() => assert!(matches!(saw, Saw::Request { .. })),
    }
    hangup(&mut server).await;
}

/// An answer that is refused is not read to its end either.
pub(crate) async fn after_an_answer_that_was_refused<V: Vendor>() {
    for reply in [Reply::stream("data: {\n\n"), Reply::new("500 Broken", "Content-Type: text/plain", "x")] {
        let mut server = Server::start(reply.ending(End::Hold)).await;
        let provider = provider::<V>(&server);
        let (model, messages) = (ModelId::parse("demo").unwrap(), [user("x")]);
        assert!(provider.turn(request(&model, &messages), &Heard::default()).await.is_err());
        assert!(matches!(server.saw().await, Saw::Request { .. }));
        hangup(&mut server).await;
    }
}

/// The same through a driver: whoever lets go of a run's events frees the vendor's slot.
pub(crate) async fn with_its_run<V: Vendor>() {
    let body = V::stream(&Said::text(&["a"]).ending(Ending::Open));
    let mut server = Server::start(Reply::stream(body).ending(End::Hold)).await;
    let bench = runs::Bench::<V>::new(&server);
    let mut events = bench.stream(runs::Bench::<V>::request());
    while let Some(event) = events.next().await {
        if event.type_name() == "text.delta" {
            break;
        }
    }
    assert!(matches!(server.saw().await, Saw::Request { .. }));
    drop(events);
    hangup(&mut server).await;
}
