//! The queue for run slots over HTTP (contract 6.4, 8). Fairness and bounds in random histories are in `slots/tests.rs`.

use std::time::Duration;

use countersign_host::{Concurrency, Queue};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use crate::support::{ANN, Ask, BOB, Fixture, Peer, decision, plain, reviewed, run_ask};

/// One slot, and a queue.
fn one_slot(queue: Queue) -> Fixture {
    let concurrency = Concurrency { total: 1, per_subject: 1, queue: Some(queue), ..Concurrency::default() };
    Fixture::with(concurrency, |builder| builder)
}

fn roomy() -> Fixture {
    one_slot(Queue { total: 10, per_subject: 10 })
}

/// A streamed run that has a place in the queue: its head and `run.started` are here.
async fn queued(fixture: &Fixture, token: &str, body: Value) -> Peer<DuplexStream> {
    let mut peer = fixture.connect();
    assert_eq!(peer.start(&run_ask(token, body)).await.status, 200);
    let first = peer.event().await.unwrap();
    assert_eq!((&first["type"], &first["sequence"]), (&json!("run.started"), &json!(1)));
    peer
}

fn buffered(token: &str, input: &str) -> Ask {
    Ask::post("/v1/runs").token(token).json(&plain(input))
}

// 6.4: a queued SSE run has already sent headers and run.started; it goes on when a slot is free.
#[tokio::test(start_paused = true)]
async fn a_queued_stream_has_begun_and_goes_on_with_a_slot() {
    let fixture = roomy();
    let (running, _) = fixture.waiting(ANN).await;
    let mut peer = queued(&fixture, BOB, plain("quick")).await;
    // Only heartbeats until then.
    let begun = Instant::now();
    assert_eq!(peer.frame().await.unwrap(), ": heartbeat\n\n");
    assert!(begun.elapsed() <= Duration::from_secs(16));
    drop(running);
    assert_eq!(peer.rest().await, ["step.started", "text.delta", "run.completed"]);
}

// 6.4: a buffered run waits for its slot too.
#[tokio::test(start_paused = true)]
async fn a_queued_buffered_run_is_answered_when_it_has_run() {
    let fixture = roomy();
    let (running, _) = fixture.waiting(ANN).await;
    let mut peer = fixture.connect();
    peer.send(&buffered(BOB, "quick").bytes()).await;
    sleep(Duration::from_secs(3_600)).await;
    drop(running);
    assert_eq!(peer.head().await.status, 200);
}

// 6.4, 5.3: over its bounds, in total and for a subject, the queue is full, and the caller may come again.
#[tokio::test(start_paused = true)]
async fn a_full_queue_says_so() {
    let fixture = one_slot(Queue { total: 2, per_subject: 1 });
    let _running = fixture.waiting(ANN).await;
    let full = (429, "QUEUE_FULL".to_owned());
    let _ann = queued(&fixture, ANN, plain("quick")).await;
    let answer = fixture.ask(&run_ask(ANN, plain("quick"))).await;
    assert_eq!((answer.outcome(), &answer.json()["error"]["retryable"]), (full.clone(), &json!(true)));
    assert_eq!(fixture.ask(&buffered(ANN, "quick")).await.outcome(), full, "one of ann");
    let _bob = queued(&fixture, BOB, plain("quick")).await;
    assert_eq!(fixture.ask(&buffered(BOB, "quick")).await.outcome(), full, "two in total");
    // 2.1: row 17 is before row 18, and row 18 waits for nobody.
    let asks = Ask::post("/v1/runs").token(ANN).json(&reviewed("quick"));
    assert_eq!(fixture.ask(&asks).await.outcome(), full, "17 before 18");
    let forbidden = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&json!({"provider": "mock"}))).await;
    assert_eq!(forbidden.outcome(), (400, "INVALID_REQUEST".into()), "1 before 17");
}

#[tokio::test(start_paused = true)]
async fn a_queued_buffered_run_that_needs_a_stream_is_told_at_once() {
    let fixture = roomy();
    let _running = fixture.waiting(ANN).await;
    let asks = Ask::post("/v1/runs").token(BOB).json(&reviewed("quick"));
    assert_eq!(fixture.ask(&asks).await.outcome(), (400, "APPROVAL_STREAM_REQUIRED".into()));
}

// 6.4, 8: the idle clock does not run in the queue, and runs a full interval afterwards.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_slot_costs_no_idle_time() {
    let fixture = roomy();
    let (running, _) = fixture.waiting(ANN).await;
    let with_limit = |input| {
        let mut body = plain(input);
        body["idleTimeoutMs"] = json!(50);
        body
    };
    let mut quick = queued(&fixture, BOB, with_limit("quick")).await;
    let mut slow = queued(&fixture, BOB, with_limit("slow")).await;
    sleep(Duration::from_secs(3_600)).await;
    drop(running);
    assert_eq!(quick.rest().await.last().unwrap(), "run.completed");
    let admitted = Instant::now();
    assert_eq!(slow.event_of("step.started").await["step"], 1);
    assert_eq!(slow.rest().await, ["run.cancelled IDLE_TIMEOUT"]);
    let waited = admitted.elapsed();
    assert!((50..200).contains(&waited.as_millis()), "{waited:?}");
}

// 6.4 and law 5: who hangs up leaves the queue at once, streamed or buffered.
#[tokio::test(start_paused = true)]
async fn hanging_up_leaves_the_queue_at_once() {
    let fixture = one_slot(Queue { total: 1, per_subject: 1 });
    let (running, _) = fixture.waiting(ANN).await;
    for round in 0..20 {
        let begun = Instant::now();
        if round % 2 == 0 {
            drop(queued(&fixture, BOB, plain("quick")).await);
        } else {
            let mut peer = fixture.connect();
            peer.send(&buffered(BOB, "quick").bytes()).await;
            sleep(Duration::from_millis(1)).await;
            assert_eq!(fixture.ask(&buffered(ANN, "quick")).await.outcome(), (429, "QUEUE_FULL".into()));
            drop(peer);
        }
        // As soon as the host has read the end of the connection.
        sleep(Duration::from_millis(1)).await;
        assert!(begun.elapsed() < Duration::from_millis(10));
    }
    let mut last = queued(&fixture, BOB, plain("quick")).await;
    drop(running);
    assert_eq!(last.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written(), Vec::<String>::new());
}

// Law 5, design 4: closing empties the queue, and says so.
#[tokio::test(start_paused = true)]
async fn closing_empties_the_queue() {
    let fixture = roomy();
    let (mut running, _) = fixture.waiting(ANN).await;
    let mut streamed = queued(&fixture, BOB, reviewed("write")).await;
    let mut waits = fixture.connect();
    waits.send(&buffered(BOB, "quick").bytes()).await;
    sleep(Duration::from_millis(1)).await;
    let begun = Instant::now();
    fixture.service.close().await;
    assert!(begun.elapsed() < Duration::from_secs(2), "nobody had to be dropped");
    assert_eq!(running.rest().await, ["approval.resolved", "run.cancelled CANCELLED"]);
    assert_eq!(streamed.rest().await, ["run.cancelled CANCELLED"]);
    assert_eq!(waits.head().await.status, 503);
    assert_eq!(fixture.driver.pending_approvals(), 0);
}

// 6.4: round-robin over subjects, whoever came first; within a subject in the order of arrival.
#[tokio::test(start_paused = true)]
async fn slots_go_round_over_the_subjects() {
    let fixture = roomy();
    let (mut running, _) = fixture.waiting(ANN).await;
    let order = [("ann 1", ANN), ("ann 2", ANN), ("ann 3", ANN), ("bob 1", BOB), ("bob 2", BOB)];
    let mut waiting = Vec::new();
    for (name, token) in order {
        waiting.push((name, queued(&fixture, token, reviewed("write")).await));
    }
    let mut turns = Vec::new();
    while !waiting.is_empty() {
        drop(running);
        sleep(Duration::from_millis(1)).await;
        // Whoever has the slot shows a review; the others have nothing to say.
        let mut next = None;
        for (at, (_, peer)) in waiting.iter_mut().enumerate() {
            tokio::select! {
                biased;
                _ = peer.event_of("approval.requested") => next = Some(at),
                () = sleep(Duration::from_millis(1)) => {}
            }
        }
        let (name, peer) = waiting.remove(next.expect("a slot is free"));
        turns.push(name);
        running = peer;
    }
    assert_eq!(turns, ["ann 1", "bob 1", "ann 2", "bob 2", "ann 3"]);
}

// 6.4, 4.7: decisions need no slot, however many wait; a subject's override counts.
#[tokio::test(start_paused = true)]
async fn a_full_queue_is_decided_and_an_override_counts() {
    let concurrency = Concurrency {
        total: 3,
        per_subject: 1,
        subjects: [("bob".to_owned(), 2)].into(),
        queue: Some(Queue { total: 1, per_subject: 1 }),
    };
    let fixture = Fixture::with(concurrency, |builder| builder);
    let (mut running, approval) = fixture.waiting(ANN).await;
    let _two_of_bob = [fixture.waiting(BOB).await, fixture.waiting(BOB).await];
    let mut next = queued(&fixture, ANN, plain("quick")).await;
    assert_eq!(fixture.ask(&buffered(BOB, "quick")).await.outcome(), (429, "QUEUE_FULL".into()));
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(running.rest().await.last().unwrap(), "run.completed");
    assert_eq!(next.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written().len(), 1);
}

/// What a history draws from.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// One who streams a run of `write`, and what he knows of it.
struct Streaming {
    token: &'static str,
    peer: Peer<DuplexStream>,
    approval: Option<Value>,
}

// 6.4, law 9: whole histories of runs that come, hang up and are approved. As many run as may, no more and no fewer; the
// bounds of the queue hold; and at the end nothing is left.
#[test]
fn random_histories() {
    let seed = std::env::var("COUNTERSIGN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x5eed);
    println!("histories of the queue from seed {seed} (COUNTERSIGN_SEED)");
    for round in 0..25 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let mut dice = Dice(seed + round + 1);
        runtime.block_on(history(&mut dice));
    }
}

async fn history(dice: &mut Dice) {
    let draw = |dice: &mut Dice, most: usize| u32::try_from(1 + dice.below(most)).unwrap();
    let queue = Queue { total: draw(dice, 6), per_subject: draw(dice, 4) };
    let concurrency = Concurrency {
        total: draw(dice, 4),
        per_subject: draw(dice, 3),
        subjects: [("bob".to_owned(), draw(dice, 3))].into(),
        queue: Some(queue),
    };
    let fixture = Fixture::with(concurrency.clone(), |builder| builder);
    let bound =
        |token| if token == BOB { concurrency.subjects["bob"] } else { concurrency.per_subject } as usize;
    let mut all: Vec<Streaming> = Vec::new();
    for _ in 0..60 {
        match dice.below(5) {
            0..=2 => {
                let token = [ANN, BOB][dice.below(2)];
                let of = |token| all.iter().filter(|one| one.token == token).count();
                let running: usize = [ANN, BOB].map(|token| of(token).min(bound(token))).iter().sum();
                let running = running.min(concurrency.total as usize);
                // How many of one subject wait is not known from outside where the total bound holds some back.
                let can_run = running < concurrency.total as usize && of(token) < bound(token);
                let mut peer = fixture.connect();
                let status = peer.start(&run_ask(token, reviewed("write"))).await.status;
                if can_run || all.len() - running < queue.total.min(queue.per_subject) as usize {
                    assert_eq!(status, 200, "there is room");
                } else if all.len() - running >= queue.total as usize {
                    assert_eq!(status, 429, "there is none");
                }
                if status == 200 {
                    assert_eq!(peer.event().await.unwrap()["type"], "run.started");
                    all.push(Streaming { token, peer, approval: None });
                }
            }
            3 if !all.is_empty() => drop(all.remove(dice.below(all.len()))),
            _ => {
                let asked: Vec<usize> = (0..all.len()).filter(|at| all[*at].approval.is_some()).collect();
                if !asked.is_empty() {
                    let mut one = all.remove(asked[dice.below(asked.len())]);
                    let decision = decision(one.approval.as_ref().unwrap(), "approve");
                    assert_eq!(fixture.decide(one.token, &decision).await.head.status, 200);
                    assert_eq!(one.peer.rest().await.last().unwrap(), "run.completed");
                }
            }
        }
        sleep(Duration::from_millis(1)).await;
        for one in all.iter_mut().filter(|one| one.approval.is_none()) {
            tokio::select! {
                biased;
                mut event = one.peer.event_of("approval.requested") => one.approval = Some(event["approval"].take()),
                () = sleep(Duration::from_millis(1)) => {}
            }
        }
        let of = |token| all.iter().filter(|one| one.token == token).count().min(bound(token));
        let expected = (of(ANN) + of(BOB)).min(concurrency.total as usize);
        assert_eq!(fixture.driver.pending_approvals(), expected, "as many run as may: {concurrency:?}");
        assert_eq!(all.iter().filter(|one| one.approval.is_some()).count(), expected);
    }
    drop(all);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.driver.pending_approvals(), 0);
    for _ in 0..50 {
        assert_eq!(fixture.ask(&buffered(ANN, "quick")).await.head.status, 200, "every slot is free again");
    }
}
