//! Time limits (10.1), under paused time, with transports that never answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use countersign_client::transport::{BodyStream, Transport, TransportError};
use countersign_client::{Client, ClientBuilder, Error};
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use tokio::time::{sleep, timeout};

use crate::events::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Takes the request and says nothing more.
struct Silent;

#[async_trait]
impl Transport for Silent {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
        std::future::pending().await
    }
}

/// Answers with this status, one chunk, and a body that then waits for an hour and goes on with the next chunk.
struct Slow(u16, Vec<String>);

#[async_trait]
impl Transport for Slow {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
        let chunks = stream::iter(self.1.clone()).enumerate().then(|(index, chunk)| async move {
            if index > 0 {
                sleep(Duration::from_secs(3600)).await;
            }
            Ok(Bytes::from(chunk))
        });
        let body: BodyStream = Box::pin(chunks);
        let answer = Response::builder().status(self.0).header("content-type", "text/event-stream");
        Ok(answer.body(body).unwrap())
    }
}

fn builder(transport: impl Transport + 'static) -> ClientBuilder {
    Client::builder("http://localhost", "t".into()).transport(Arc::new(transport))
}

fn timed_out<T: std::fmt::Debug>(answer: Result<T, Error>) -> Duration {
    match answer {
        Err(Error::Timeout { limit }) => limit,
        other => panic!("{other:?}"),
    }
}

/// A `GET` has ten seconds in all, its body included.
#[tokio::test(start_paused = true)]
async fn gets_have_ten_seconds() {
    let begin = tokio::time::Instant::now();
    let silent = builder(Silent).build().unwrap();
    timed_out(silent.protocol().await);
    timed_out(silent.providers().await);
    let half = Slow(200, vec!["{".to_owned(), "}".to_owned()]);
    timed_out(builder(half).build().unwrap().providers_refreshed().await);
    assert_eq!(begin.elapsed(), Duration::from_secs(30));
}

/// Law 6: decisions and runs have no limit that nobody asked for.
#[tokio::test(start_paused = true)]
async fn posts_have_no_default_limit() {
    let client = builder(Silent).build().unwrap();
    assert!(timeout(DAY, client.decide_approval(&decision("approve"))).await.is_err());
    assert!(timeout(DAY, client.run(&hello())).await.is_err());
    assert!(timeout(DAY, client.stream(&hello())).await.is_err());
}

/// The builder's limit ends decisions, runs and the beginning of a stream. Law 8: a decision that ran out of time is
/// in doubt.
#[tokio::test(start_paused = true)]
async fn the_builders_limit() {
    let limit = Duration::from_secs(60);
    let client = builder(Silent).timeout(limit).build().unwrap();
    let begin = tokio::time::Instant::now();
    let late = client.decide_approval(&decision("approve")).await.unwrap_err();
    assert!(late.is_uncertain());
    assert_eq!(code(&late), "TIMEOUT");
    assert_eq!(timed_out(client.run(&hello()).await), limit);
    assert_eq!(timed_out(client.stream(&hello()).await), limit);
    assert_eq!(begin.elapsed(), 3 * limit);
    // A body that does not come to its end counts too.
    let half = builder(Slow(200, vec!["{".to_owned(), "}".to_owned()])).timeout(limit).build().unwrap();
    assert_eq!(timed_out(half.run(&hello()).await), limit);
}

/// Law 6: a stream that has begun waits for a person as long as it takes.
#[tokio::test(start_paused = true)]
async fn the_builders_limit_does_not_end_a_stream() {
    let frames = review().iter().map(|event| framed(std::slice::from_ref(event), "\n")).collect();
    let client = builder(Slow(200, frames)).timeout(Duration::from_secs(1)).build().unwrap();
    let (events, end) = follow(client.stream(&reviewed()).await.unwrap()).await;
    assert_eq!((events.len(), end.as_str()), (4, "ok"));
}

/// Law 9: a refusal whose body does not end is still a refusal.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_waited_for() {
    let client = builder(Slow(503, vec!["{".to_owned(), "}".to_owned()])).build().unwrap();
    let begin = tokio::time::Instant::now();
    let error = client.decide_approval(&decision("approve")).await.unwrap_err();
    assert!(matches!(error, Error::Http { status: 503 }), "{error:?}");
    assert_eq!(begin.elapsed(), Duration::from_secs(10));
}
