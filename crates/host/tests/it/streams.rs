//! Event streams: heartbeats, back-pressure and hang-ups (contract 1.8; scenarios F, T5; laws 5 and 6).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_driver::provider::{Provider, ProviderError, Turn, TurnRequest, TurnSink};
use countersign_host::{Concurrency, Options, Service};
use countersign_protocol::provider_info::ProviderInfo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{ANN, Ask, Fixture, Peer, decision, options, plain, reviewed, run_ask};

const HEARTBEAT: &str = ": heartbeat\n\n";

// Contract 1.8 and 4.9: every 15 s, no event, no progress.
#[tokio::test(start_paused = true)]
async fn a_waiting_stream_has_a_heartbeat_every_fifteen_seconds() {
    let fixture = Fixture::new();
    let start = Instant::now();
    let (mut run, approval) = fixture.waiting(ANN).await;
    for beat in 1..=10 {
        assert_eq!(run.frame().await.unwrap(), HEARTBEAT);
        let due = Duration::from_secs(15 * beat);
        let waited = start.elapsed();
        assert!(waited >= due && waited < due + Duration::from_millis(100), "{waited:?}");
    }
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    let resolved = run.event().await.unwrap();
    assert_eq!((&resolved["type"], &resolved["sequence"]), (&json!("approval.resolved"), &json!(5)));
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
}

// Contract 4.9, law 6: heartbeats are no progress, so `continue` still runs out of idle time among them.
#[tokio::test(start_paused = true)]
async fn heartbeats_do_not_hold_the_idle_clock() {
    let fixture = Fixture::new();
    let mut run = fixture.connect();
    let mut body = reviewed("write");
    body["approvals"]["idlePolicy"] = json!("continue");
    body["idleTimeoutMs"] = json!(40_000);
    run.start(&run_ask(ANN, body)).await;
    run.event_of("approval.requested").await;
    assert_eq!(run.frame().await.unwrap(), HEARTBEAT);
    assert_eq!(run.frame().await.unwrap(), HEARTBEAT);
    assert_eq!(run.rest().await, ["approval.resolved", "run.cancelled IDLE_TIMEOUT"]);
}

// Law 6; contract 4.9 and 4.11, row 7: a day's wait for a person costs a run of 50 ms idle time nothing.
#[tokio::test(start_paused = true)]
async fn a_long_wait_costs_no_idle_time() {
    let fixture = Fixture::new();
    let mut run = fixture.connect();
    let mut body = reviewed("write");
    body["idleTimeoutMs"] = json!(50);
    run.start(&run_ask(ANN, body)).await;
    let approval = run.event_of("approval.requested").await["approval"].take();
    sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
}

/// A model that dies of a bug.
struct Bug(ProviderInfo);

#[async_trait]
impl Provider for Bug {
    fn info(&self) -> &ProviderInfo {
        &self.0
    }

    async fn turn(&self, _: TurnRequest<'_>, _: &dyn TurnSink) -> Result<Turn, ProviderError> {
        panic!("a bug in a provider, which this test wants")
    }
}

// Contract 5.1: a run that dies of a bug says so without its private text, and nobody else notices (law 9).
#[tokio::test]
async fn a_run_that_dies_fails_by_name_and_alone() {
    let info: ProviderInfo = serde_json::from_value(json!({
        "id": "bug", "name": "bug", "vendor": "test", "authMode": "none",
        "capabilities": {"tools": true, "textStreaming": true},
    }))
    .unwrap();
    let bug = Arc::new(Bug(info));
    let concurrency = Concurrency { total: 1, per_subject: 1, ..Concurrency::default() };
    let driver = Fixture::with(concurrency.clone(), |builder| builder.provider(bug)).driver;
    let mut options = Options { concurrency, ..options() };
    options.tokens[0].providers.push("bug".into());
    let service = Service::new(driver, &options).unwrap();
    let connect = || {
        let (near, far) = tokio::io::duplex(1 << 16);
        let service = service.clone();
        tokio::spawn(async move { service.serve_connection(far).await });
        Peer::new(near)
    };
    let mut body = plain("x");
    body["provider"] = json!("bug");
    let mut run = connect();
    assert_eq!(run.start(&run_ask(ANN, body)).await.status, 200);
    let failed = run.event_of("run.failed").await;
    assert_eq!(failed["error"]["code"], "INTERNAL_ERROR");
    assert!(!failed.to_string().contains("bug in a provider"));
    assert_eq!(run.event().await, None);
    let next = connect().ask(&Ask::post("/v1/runs").token(ANN).json(&plain("quick"))).await;
    assert_eq!(next.head.status, 200);
}

// Contract 1.8: no heartbeat is queued behind a client that does not read.
#[tokio::test(start_paused = true)]
async fn heartbeats_are_skipped_under_back_pressure() {
    let fixture = Fixture::new();
    let mut run = fixture.connect_with_buffer(64);
    run.send(&run_ask(ANN, reviewed("write")).bytes()).await;
    sleep(Duration::from_secs(3600)).await;
    run.head().await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &String| !frame.contains("approval.requested")) {
        frames.push(run.frame().await.unwrap());
    }
    assert_eq!(frames.iter().filter(|frame| *frame == HEARTBEAT).count(), 0, "{frames:?}");
    assert_eq!(run.frame().await.unwrap(), HEARTBEAT, "they go on afterwards");
}

// Contract 1.8, design 4: a client that never reads holds its run back; the run loop does not advance.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_holds_its_run_back() {
    let fixture = Fixture::new();
    let mut run = fixture.connect_with_buffer(64);
    run.send(&run_ask(ANN, reviewed("write")).bytes()).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.driver.pending_approvals(), 0, "the loop stands before the review");
    run.head().await;
    run.event_of("approval.requested").await;
    assert_eq!(fixture.driver.pending_approvals(), 1);
}

// Design 4: an approved call starts only once `approval.resolved` was written to the connection.
#[tokio::test(start_paused = true)]
async fn an_approved_call_starts_only_after_its_event_was_written() {
    let fixture = Fixture::new();
    let mut run = fixture.connect_with_buffer(64);
    run.start(&run_ask(ANN, reviewed("write"))).await;
    let approval = run.event_of("approval.requested").await["approval"].take();
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    sleep(Duration::from_secs(3600)).await;
    assert!(
        fixture.written().is_empty(),
        "the event is longer than the connection's buffer and nobody reads"
    );
    assert!(!fixture.sink.kinds().contains(&"execution.started".to_owned()));
    run.event_of("approval.resolved").await;
    run.event_of("tool.completed").await;
    assert_eq!(fixture.written().len(), 1);
}

/// Hangs up in one way.
type HangUp =
    fn(Peer<DuplexStream>) -> std::pin::Pin<Box<dyn Future<Output = Option<Peer<DuplexStream>>> + Send>>;

const WAYS: [(&str, HangUp); 3] = [
    ("closed", |peer| {
        Box::pin(async move {
            drop(peer);
            None
        })
    }),
    ("half-closed", |mut peer| {
        Box::pin(async move {
            peer.io.shutdown().await.unwrap();
            Some(peer)
        })
    }),
    ("closed behind another request", |mut peer| {
        Box::pin(async move {
            peer.send(&Ask::get("/health").bytes()).await;
            drop(peer);
            None
        })
    }),
];

// Contract 4.7 and 4.11, row 16; scenario T5; law 5: at once, though nothing is being written.
#[tokio::test(start_paused = true)]
async fn hanging_up_on_a_waiting_review_revokes_it_at_once() {
    for (way, hang_up) in WAYS {
        let fixture = Fixture::with_concurrency(1, 1);
        let (run, approval) = fixture.waiting(ANN).await;
        let start = Instant::now();
        let _rest = hang_up(run).await;
        wait_for(|| fixture.driver.pending_approvals() == 0).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{way}: {:?}", start.elapsed());
        let late = fixture.decide(ANN, &decision(&approval, "approve")).await;
        assert_eq!(late.outcome(), (404, "APPROVAL_NOT_FOUND".into()), "{way}");
        assert!(fixture.sink.kinds().contains(&"approval.resolved cancelled".to_owned()), "{way}");
        assert!(fixture.written().is_empty(), "{way}");
        // The slot is free again.
        let next = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&plain("quick"))).await;
        assert_eq!(next.head.status, 200, "{way}");
    }
}

// The same while the model thinks: streamed and buffered, before and after the first byte of the answer.
#[tokio::test(start_paused = true)]
async fn hanging_up_on_a_thinking_model_stops_it_at_once() {
    for (way, hang_up) in WAYS {
        for ask in [run_ask(ANN, plain("slow")), Ask::post("/v1/runs").token(ANN).json(&plain("slow"))] {
            let fixture = Fixture::with_concurrency(1, 1);
            let mut peer = fixture.connect();
            peer.send(&ask.bytes()).await;
            sleep(Duration::from_millis(10)).await;
            let quick = Ask::post("/v1/runs").token(ANN).json(&plain("quick"));
            assert_eq!(fixture.ask(&quick).await.head.status, 429, "{way}");
            let start = Instant::now();
            let _rest = hang_up(peer).await;
            sleep(Duration::from_millis(10)).await;
            assert_eq!(fixture.ask(&quick).await.head.status, 200, "{way}");
            assert!(start.elapsed() < Duration::from_secs(1), "{way}");
        }
    }
}

// A client that stopped reading long ago and then goes.
#[tokio::test(start_paused = true)]
async fn hanging_up_under_back_pressure_is_noticed() {
    let fixture = Fixture::with_concurrency(1, 1);
    let mut run = fixture.connect_with_buffer(64);
    run.send(&run_ask(ANN, plain("chatty")).bytes()).await;
    sleep(Duration::from_secs(3600)).await;
    drop(run);
    sleep(Duration::from_millis(10)).await;
    let next = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&plain("quick"))).await;
    assert_eq!(next.head.status, 200);
}

// What a peer sends ahead of its answer is bounded (law 9); requests within the bound are answered in their turn.
#[tokio::test(start_paused = true)]
async fn sending_ahead_is_bounded() {
    let fixture = Fixture::new();
    let (mut run, approval) = fixture.waiting(ANN).await;
    run.send(&Ask::get("/health").bytes()).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    let head = run.head().await;
    assert_eq!((head.status, run.body(&head).await.is_empty()), (200, false));

    let (mut run, _) = fixture.waiting(ANN).await;
    run.send(&vec![b'x'; 17 * 1024]).await;
    assert!(run.is_closed().await);
    wait_for(|| fixture.driver.pending_approvals() == 0).await;
}

// The same over a real socket, where only the system says that the peer has gone.
#[tokio::test]
async fn hanging_up_a_socket_revokes_the_review_before_any_heartbeat() {
    let fixture = Fixture::new();
    let host = countersign_host::serve(fixture.driver.clone(), options()).await.unwrap();
    for half in [false, true] {
        let mut run = Peer::new(TcpStream::connect(host.local_addr()).await.unwrap());
        run.start(&run_ask(ANN, reviewed("write"))).await;
        run.event_of("approval.requested").await;
        assert_eq!(fixture.driver.pending_approvals(), 1);
        let mut stream = run.io;
        if half {
            stream.shutdown().await.unwrap();
        } else {
            drop(stream);
        }
        // Far less than a heartbeat, far more than a busy machine needs.
        timeout(Duration::from_secs(10), wait_for(|| fixture.driver.pending_approvals() == 0)).await.unwrap();
    }
    host.close().await;
}

// Law 5, laws 6 and 9: a thousand at once, no thread each, every one decided, every effect once.
#[tokio::test]
async fn a_thousand_streams_wait_at_once() {
    const MANY: usize = 1_000;
    let fixture = Fixture::with(
        Concurrency { total: 1_000, per_subject: 1_000, ..Concurrency::default() },
        |builder| builder,
    );
    let mut runs = Vec::new();
    for _ in 0..MANY {
        let mut run = fixture.connect_with_buffer(8 * 1024);
        run.start(&run_ask(ANN, reviewed("write"))).await;
        runs.push(run);
    }
    let mut approvals = Vec::new();
    for run in &mut runs {
        approvals.push(run.event_of("approval.requested").await["approval"].take());
    }
    assert_eq!(fixture.driver.pending_approvals(), MANY);
    assert!(fixture.written().is_empty());
    let over = fixture.ask(&run_ask(ANN, reviewed("write"))).await;
    assert_eq!(over.outcome(), (429, "BUSY".into()));
    let mut reviewer = fixture.connect();
    for approval in approvals.iter().rev() {
        let ask = Ask::post("/v1/approvals/decisions").token(ANN).json(&decision(approval, "approve"));
        assert_eq!(reviewer.ask(&ask).await.head.status, 200);
    }
    for run in &mut runs {
        assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    }
    assert_eq!(fixture.written().len(), MANY);
    assert_eq!(fixture.driver.pending_approvals(), 0);
}

// A stream ends its chunked body properly and nothing follows; the connection can be used again.
#[tokio::test]
async fn nothing_follows_the_terminal_event() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect();
    peer.start(&run_ask(ANN, plain("quick"))).await;
    assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
    assert!(
        timeout(Duration::from_millis(50), peer.io.read_u8()).await.is_err(),
        "no byte more, and not closed"
    );
    assert_eq!(peer.ask(&Ask::get("/health")).await.head.status, 200);
}

async fn wait_for(done: impl Fn() -> bool) {
    while !done() {
        sleep(Duration::from_millis(1)).await;
    }
}
