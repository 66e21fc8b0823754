//! Too many connections (law 9; the bound is the design's, as the contract names none): other runs go on.

use std::time::Duration;

use countersign_host::{Options, Service};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use crate::support::{ANN, Ask, BOB, Fixture, Peer, decision, options, plain, reviewed, run_ask};

fn bounded(max_connections: usize) -> Fixture {
    let mut fixture = Fixture::new();
    let options = Options { max_connections, ..options() };
    fixture.service = Service::new(fixture.driver.clone(), &options).unwrap();
    fixture
}

fn quick() -> Ask {
    Ask::post("/v1/runs").token(BOB).json(&plain("quick"))
}

async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

// At the bound the connection that has waited the longest makes room; a run keeps its place, and is decided.
#[tokio::test(start_paused = true)]
async fn a_newcomer_takes_the_place_of_the_longest_idle() {
    let fixture = bounded(4);
    let (mut running, approval) = fixture.waiting(ANN).await;
    let mut idle: Vec<_> = (0..3).map(|_| fixture.connect()).collect();
    settle().await;
    // A kept connection that was answered just now has not waited long.
    assert_eq!(idle[0].ask(&Ask::get("/health")).await.head.status, 200);
    assert_eq!(idle[1].ask(&Ask::get("/v1/protocol").token(ANN)).await.head.status, 200);
    let mut newcomer = fixture.connect();
    assert_eq!(newcomer.ask(&quick()).await.head.status, 200);
    settle().await;
    // Asking for health proves nothing, so that one had still waited the longest.
    assert!(idle.remove(0).is_closed().await);
    assert_eq!(idle[0].ask(&Ask::get("/health")).await.head.status, 200);
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(running.rest().await.last().unwrap(), "run.completed");
}

// A token that may nothing sends parts of requests on all connections that there are: it keeps nobody out.
#[tokio::test(start_paused = true)]
async fn parts_of_requests_keep_nobody_out() {
    let fixture = bounded(4);
    let (mut running, approval) = fixture.waiting(ANN).await;
    let part = quick().bytes();
    let mut parts = Vec::new();
    for _ in 0..3 {
        let mut peer = fixture.connect();
        peer.send(&part[..part.len() - 1]).await;
        settle().await;
        parts.push(peer);
    }
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert!(parts[0].is_closed().await, "it had waited the longest");
    assert_eq!(running.rest().await.last().unwrap(), "run.completed");
    // Whoever completes his request is answered.
    parts[1].send(&part[part.len() - 1..]).await;
    assert_eq!(parts[1].head().await.status, 200);
}

// If all are being answered the newcomer is closed without an answer: nothing of his was read.
#[tokio::test(start_paused = true)]
async fn a_newcomer_is_closed_where_all_are_answered() {
    let fixture = bounded(2);
    let (first, _) = fixture.waiting(ANN).await;
    let (mut second, _) = fixture.waiting(ANN).await;
    let mut newcomer = fixture.connect();
    let _ = newcomer.io.write_all(&quick().bytes()).await;
    assert!(newcomer.is_closed().await);
    drop(first);
    settle().await;
    assert_eq!(fixture.ask(&quick()).await.head.status, 200);
    assert_eq!(second.frame().await.unwrap(), ": heartbeat\n\n", "and the other one goes on");
}

/// Says nothing, or says a byte a second.
async fn closed_at(mut peer: Peer<DuplexStream>, said: &'static [u8]) -> Duration {
    let begun = Instant::now();
    for byte in said {
        if peer.io.write_all(&[*byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    while !peer.is_closed().await {}
    begun.elapsed()
}

// 5,000 connections that send nothing: each is closed after 10 s without an answer, and meanwhile others run and decide.
#[tokio::test(start_paused = true)]
async fn five_thousand_that_send_nothing() {
    let fixture = Fixture::new();
    let silent: Vec<_> = (0..5_000).map(|_| fixture.connect_with_buffer(64)).collect();
    let slow = fixture.connect();
    settle().await;
    let (mut running, approval) = fixture.waiting(ANN).await;
    let begun = Instant::now();
    assert_eq!(fixture.ask(&quick()).await.head.status, 200);
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(running.rest().await.last().unwrap(), "run.completed");
    assert!(begun.elapsed() < Duration::from_secs(1));
    let slow = tokio::spawn(closed_at(slow, b"POST /v1/runs HTTP/1.1\r\nHost: a\r\n"));
    for peer in silent {
        let waited = closed_at(peer, b"").await;
        assert!(waited <= Duration::from_secs(11), "{waited:?}");
    }
    let waited = slow.await.unwrap();
    assert!((9..13).contains(&waited.as_secs()), "a byte a second is no request in time: {waited:?}");
    let mut late = fixture.connect();
    assert_eq!(late.start(&run_ask(ANN, reviewed("write"))).await.status, 200);
}
