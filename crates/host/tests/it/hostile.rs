//! Clients that are slow, silent or full, all at once: other runs go on, and the limits answer (law 9).

use std::time::Duration;

use countersign_testkit::Answer as SinkAnswer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{ANN, Ask, BOB, Fixture, Peer, decision, plain, reviewed, run_ask};

/// No run of somebody else takes longer, in a time in which only waiting takes time.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Sends a byte a second until it is sent or the host has closed; gives what was answered, and after how long.
fn drip(mut peer: Peer<DuplexStream>, bytes: Vec<u8>) -> JoinHandle<(String, Duration)> {
    tokio::spawn(async move {
        let begun = Instant::now();
        let mut answer = Vec::new();
        for byte in bytes {
            if peer.io.write_all(&[byte]).await.is_err() {
                break;
            }
            // A second, unless the host has said something.
            if let Ok(Ok(said)) = timeout(Duration::from_secs(1), peer.io.read_u8()).await {
                answer.push(said);
                break;
            }
        }
        let _ = peer.io.read_to_end(&mut answer).await;
        (String::from_utf8_lossy(&answer).into_owned(), begun.elapsed())
    })
}

/// A reviewed run of Bob from its request to its end, and a run without review.
async fn bob_is_served(fixture: &Fixture) {
    let begun = Instant::now();
    let effects = fixture.written().len();
    let (mut run, approval) = fixture.waiting(BOB).await;
    assert_eq!(fixture.decide(BOB, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written().len(), effects + 1);
    let quick = Ask::post("/v1/runs").token(BOB).json(&plain("quick"));
    assert_eq!(fixture.ask(&quick).await.head.status, 200);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

// A stopped reader, a slow reader, a byte a second in head and in body, and 300 who send nothing, together.
#[tokio::test(start_paused = true)]
async fn others_go_on_and_the_limits_answer() {
    let fixture = Fixture::new();
    // Ann's four slots: two streams that nobody reads, one of them with an idle limit, and two that are read a byte a
    // second.
    let limited = |mut body: serde_json::Value| {
        body["idleTimeoutMs"] = json!(20_000);
        body
    };
    let mut stopped = fixture.connect_with_buffer(64);
    stopped.send(&run_ask(ANN, limited(plain("chatty"))).bytes()).await;
    let mut patient = fixture.connect_with_buffer(64);
    patient.send(&run_ask(ANN, plain("chatty")).bytes()).await;
    let slow: Vec<_> = [plain("chatty"), reviewed("write")]
        .into_iter()
        .map(|body| {
            let mut peer = fixture.connect_with_buffer(64);
            tokio::spawn(async move {
                peer.send(&run_ask(ANN, body).bytes()).await;
                let mut read = Vec::new();
                while let Ok(byte) = peer.io.read_u8().await {
                    read.push(byte);
                    if read.ends_with(b"0\r\n\r\n") || read.ends_with(HEARTBEAT) {
                        break;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
                (peer, String::from_utf8(read).unwrap())
            })
        })
        .collect();
    let begun = Instant::now();
    let silent: Vec<_> = (0..300).map(|_| fixture.connect_with_buffer(64)).collect();
    let head = drip(fixture.connect(), b"GET /health HTTP/1.1\r\nHost: countersign.test\r\n\r\n".to_vec());
    let request = Ask::post("/v1/runs").token(BOB).json(&plain("quick")).bytes();
    let start = request.len() - 50;
    let mut dripping = fixture.connect();
    dripping.send(&request[..start]).await;
    let body = drip(dripping, request[start..].to_vec());
    sleep(Duration::from_millis(1)).await;

    // Law 9: Ann has used up what she may have; Bob does not notice.
    let over = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&plain("quick"))).await;
    assert_eq!(over.outcome(), (429, "BUSY".into()));
    for _ in 0..40 {
        bob_is_served(&fixture).await;
        sleep(Duration::from_secs(1)).await;
    }

    // Contract 1.8: 10 s for a head, 30 s for a request.
    let (answer, after) = head.await.unwrap();
    assert!(answer.is_empty() && (9..13).contains(&after.as_secs()), "{answer} {after:?}");
    let (answer, after) = body.await.unwrap();
    assert!(answer.is_empty() && (29..33).contains(&after.as_secs()), "{answer} {after:?}");
    for mut peer in silent {
        assert!(peer.is_closed().await);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "all of the silent were closed long ago");

    // Contract 8: an idle limit ends a run that nobody reads; its slot is free, and the reader finds how it ended.
    let quick = Ask::post("/v1/runs").token(ANN).json(&plain("quick"));
    drop(patient);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.ask(&quick).await.head.status, 200);
    stopped.head().await;
    assert_eq!(stopped.rest().await.last().unwrap(), "run.cancelled IDLE_TIMEOUT");
    // Whoever reads slowly misses nothing.
    let mut ends = Vec::new();
    for reader in slow {
        let (peer, read) = reader.await.unwrap();
        assert!(read.contains(": heartbeat") || read.contains("run.completed"), "{read}");
        ends.push((peer, read));
    }
    assert!(ends[0].1.contains("event: run.completed"), "{}", ends[0].1);
    assert!(ends[1].1.contains("event: approval.requested"), "{}", ends[1].1);
    assert!(
        begun.elapsed() > Duration::from_secs(900),
        "a byte a second takes its time: {:?}",
        begun.elapsed()
    );
    bob_is_served(&fixture).await;
}

const HEARTBEAT: &[u8] = b": heartbeat\n\n\r\n";

/// How a run of one gated call ended over HTTP.
struct Seen {
    end: String,
    receipt: (u16, String),
    effects: usize,
    kinds: Vec<String>,
}

/// One reviewed call, with the sink failing from its `at`-th record on, until the run has ended.
async fn fails_from(fixture: &Fixture, at: usize, failure: SinkAnswer, answer: &str) -> Seen {
    let (effects, before) = (fixture.written().len(), fixture.sink.kinds().len());
    fixture.sink.answer_from(at, failure);
    let mut run = fixture.connect();
    let head = run.start(&run_ask(ANN, reviewed("write"))).await;
    assert_eq!(head.status, 200);
    let mut receipt = (0, String::new());
    let mut end = String::new();
    while let Some(event) = run.event().await {
        let kind = event["type"].as_str().unwrap().to_owned();
        if kind == "approval.requested" {
            // A refused decision first, so that its record is among those that fail.
            let mut altered = decision(&event["approval"], answer);
            altered["call"]["arguments"]["k"] = json!([1, 3]);
            let refused = fixture.decide(ANN, &altered).await.outcome();
            let expected = if at > 1 { (409, "APPROVAL_MISMATCH") } else { (503, "APPROVAL_AUDIT_FAILED") };
            assert_eq!((refused.0, refused.1.as_str()), expected, "at {at}");
            receipt = fixture.decide(ANN, &decision(&event["approval"], answer)).await.outcome();
        }
        if kind.starts_with("run.") {
            end = format!("{kind} {}", event["error"]["code"].as_str().unwrap_or_default());
            if event["error"]["outcome"] == "uncertain" {
                end.push_str(" uncertain");
            }
        }
    }
    let kinds = fixture.sink.kinds().split_off(before);
    fixture.sink.answer(SinkAnswer::Accept);
    Seen { end: end.trim_end().into(), receipt, effects: fixture.written().len() - effects, kinds }
}

// Laws 1, 2 and 5; contract 4.8: the sink fails from any of its calls on. What was not recorded did not happen, the
// code says so, and after recovery the host is as new.
#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_at_any_call() {
    const ALL: [&str; 5] = [
        "approval.requested",
        "approval.rejected APPROVAL_MISMATCH",
        "approval.resolved approved",
        "execution.started",
        "execution.finished completed",
    ];
    const FAILED: &str = "run.failed APPROVAL_AUDIT_FAILED";
    // From which record on, how the run ends, what the decision is answered, and how often the tool ran.
    let rows = [
        (0, FAILED, 0, 0),
        (1, FAILED, 503, 0),
        (2, FAILED, 503, 0),
        (3, FAILED, 200, 0),
        (4, "run.failed APPROVAL_AUDIT_FAILED uncertain", 200, 1),
        (5, "run.completed", 200, 1),
    ];
    let fixture = Fixture::with_concurrency(1, 1);
    for failure in [SinkAnswer::Refuse, SinkAnswer::Panic] {
        for (at, end, receipt, effects) in rows {
            let seen = fails_from(&fixture, at, failure, "approve").await;
            assert_eq!((seen.end.as_str(), seen.receipt.0, seen.effects), (end, receipt, effects), "at {at}");
            assert_eq!(seen.kinds, ALL[..at], "at {at}");
            if receipt == 503 {
                assert_eq!(seen.receipt.1, "APPROVAL_AUDIT_FAILED");
            }
            assert_eq!(fixture.driver.pending_approvals(), 0, "at {at}");
            // The only slot is free, and a whole reviewed run goes through.
            sleep(Duration::from_millis(1)).await;
            bob_is_served(&fixture).await;
        }
        for (answer, outcome, code) in [
            ("deny", "denied", "run.failed APPROVAL_DENIED"),
            ("cancel", "cancelled", "run.cancelled CANCELLED"),
        ] {
            for at in 0..=3 {
                let seen = fails_from(&fixture, at, failure, answer).await;
                assert_eq!(seen.effects, 0, "{answer} at {at}");
                assert_eq!(seen.end, if at == 3 { code } else { FAILED }, "{answer} at {at}");
                let resolved = format!("approval.resolved {outcome}");
                assert_eq!(seen.kinds, [ALL[0], ALL[1], resolved.as_str()][..at], "{answer} at {at}");
                assert_eq!(fixture.driver.pending_approvals(), 0, "{answer} at {at}");
                sleep(Duration::from_millis(1)).await;
                bob_is_served(&fixture).await;
            }
        }
    }
}

// The same where nobody decides: an expiry, a hang-up and the host's own end settle a review whose record fails.
#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_while_nobody_decides() {
    for failure in [SinkAnswer::Refuse, SinkAnswer::Panic] {
        let fixture = Fixture::with_concurrency(1, 1);
        let mut body = reviewed("write");
        body["approvals"]["expiresAfterMs"] = json!(1_000);
        let mut run = fixture.connect();
        run.start(&run_ask(ANN, body)).await;
        let approval = run.event_of("approval.requested").await["approval"].take();
        fixture.sink.answer(failure);
        assert_eq!(run.rest().await, ["run.failed APPROVAL_AUDIT_FAILED"]);
        assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 503);
        fixture.sink.answer(SinkAnswer::Accept);
        let late = fixture.decide(ANN, &decision(&approval, "approve")).await;
        assert_eq!(late.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
        bob_is_served(&fixture).await;

        let (run, approval) = fixture.waiting(ANN).await;
        fixture.sink.answer(failure);
        drop(run);
        while fixture.driver.pending_approvals() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        fixture.sink.answer(SinkAnswer::Accept);
        let late = fixture.decide(ANN, &decision(&approval, "approve")).await;
        assert_eq!(late.outcome(), (404, "APPROVAL_NOT_FOUND".into()));
        bob_is_served(&fixture).await;

        let (mut run, _) = fixture.waiting(ANN).await;
        fixture.sink.answer(failure);
        fixture.service.close().await;
        let told = run.rest().await;
        assert!(told.last().unwrap().starts_with("run."), "{told:?}");
        assert!(
            told.iter().all(|event| !event.contains("approval.resolved")),
            "{told:?}: it was not recorded"
        );
        assert_eq!(fixture.driver.pending_approvals(), 0);
        assert_eq!(fixture.written().len(), 2, "Bob's");
    }
}
