//! Sinks that wait: where they are called, and what a decision makes of their answers (laws 2 and 5, design 4).

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError, Done, Submitted};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::ApprovalSettings;
use countersign_testkit::RecordingSink;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::support::{Bench, question, rest, reviewed, words, writes};

/// What the sink says when a record is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Idle,
    /// Takes resolutions and keeps them until the test answers; idle for everything else.
    TakesResolutions,
    /// Takes everything and forgets whom to tell.
    Forgets,
    Panics,
}

struct Slow {
    mood: Mutex<Mood>,
    taken: Mutex<Vec<Done>>,
    /// Who submitted last.
    submitter: Mutex<Option<ThreadId>>,
    /// Kinds of records, and whether they were recorded by the thread that had submitted them.
    recorded: Mutex<Vec<(String, bool)>>,
}

impl Slow {
    fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            mood: Mutex::new(mood),
            taken: Mutex::default(),
            submitter: Mutex::default(),
            recorded: Mutex::default(),
        })
    }

    fn recorded(&self) -> Vec<String> {
        self.recorded.lock().unwrap().iter().map(|(kind, _)| kind.clone()).collect()
    }
}

fn kind(record: &AuditRecord) -> String {
    let value = serde_json::to_value(record).unwrap();
    value["type"].as_str().unwrap().into()
}

impl AuditSink for Slow {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let in_place = *self.submitter.lock().unwrap() == Some(thread::current().id());
        self.recorded.lock().unwrap().push((kind(record), in_place));
        Ok(())
    }

    fn blocking(&self) -> bool {
        true
    }

    fn submit(&self, record: &AuditRecord, done: Done) -> Submitted {
        *self.submitter.lock().unwrap() = Some(thread::current().id());
        match *self.mood.lock().unwrap() {
            Mood::Idle => Submitted::Idle,
            Mood::TakesResolutions if kind(record) == "approval.resolved" => {
                self.taken.lock().unwrap().push(done);
                Submitted::Taken
            }
            Mood::TakesResolutions => Submitted::Idle,
            Mood::Forgets => Submitted::Taken,
            Mood::Panics => panic!("as the test wants"),
        }
    }
}

fn bench(sink: &Arc<Slow>) -> Bench {
    Bench::with([writes()], RecordingSink::new(), |builder, _| {
        builder.approvals(ApprovalSettings { sink: Some(sink.clone()), ..ApprovalSettings::default() })
    })
}

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

const ALL: [&str; 4] = ["approval.requested", "approval.resolved", "execution.started", "execution.finished"];

// With one worker, so that a sink that held it would leave nobody to go on.
#[test]
fn an_idle_sink_is_called_in_place_on_a_worker() {
    let sink = Slow::new(Mood::Idle);
    let bench = Arc::new(bench(&sink));
    let run = bench.clone();
    let events = workers(1).block_on(async {
        tokio::spawn(async move { run.play(reviewed(IdlePolicy::Pause), Decision::Approve).await }).await
    });
    assert_eq!(words(&events.unwrap()).last().unwrap(), "run.completed done");
    assert_eq!(sink.recorded(), ALL);
    let recorded = sink.recorded.lock().unwrap();
    assert!(recorded.iter().all(|(_, in_place)| *in_place), "{recorded:?}");
}

// `block_in_place` panics in both.
#[test]
fn where_no_thread_can_take_over_the_sink_is_called_on_the_pool() {
    let played =
        |bench: Bench| async move { bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await };
    let sink = Slow::new(Mood::Idle);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let events = runtime.block_on(played(bench(&sink)));
    assert_eq!(words(&events).last().unwrap(), "run.completed done");
    assert!(sink.recorded.lock().unwrap().iter().all(|(_, in_place)| !in_place));

    let sink = Slow::new(Mood::Idle);
    let bench = bench(&sink);
    let events = workers(2).block_on(
        LocalSet::new().run_until(async move { tokio::task::spawn_local(played(bench)).await.unwrap() }),
    );
    assert_eq!(words(&events).last().unwrap(), "run.completed done");
    assert_eq!(sink.recorded(), ALL);
    assert!(sink.recorded.lock().unwrap().contains(&("approval.resolved".into(), false)));
}

// Design 4: a caller who hangs up changes nothing. Law 2: nothing runs before the record is accepted.
#[test]
fn a_decision_in_the_queue_does_not_need_its_caller() {
    for accepted in [true, false] {
        let sink = Slow::new(Mood::TakesResolutions);
        let bench = Arc::new(bench(&sink));
        workers(2).block_on(async {
            let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
            let approval = question(&mut stream).await;
            let decision = DecisionRequest::of(&approval, Decision::Approve);
            let caller = bench.clone();
            let call =
                tokio::spawn(
                    async move { caller.driver.decide_approval(&decision, &Principal::local()).await },
                );
            let done = loop {
                if let Some(done) = sink.taken.lock().unwrap().pop() {
                    break done;
                }
                thread::yield_now();
            };
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
            let again = bench.decide(&approval, Decision::Approve).await;
            assert_eq!(again.unwrap_err().code(), "APPROVAL_NOT_FOUND", "it is being settled");
            assert_eq!((bench.effects().len(), bench.driver.pending_approvals()), (0, 1));
            done(if accepted { Ok(()) } else { Err("the disk is full".into()) });
            let told = words(&rest(&mut stream).await);
            assert_eq!(
                told.last().unwrap(),
                if accepted { "run.completed done" } else { "run.failed APPROVAL_AUDIT_FAILED" }
            );
            assert_eq!(bench.effects().len(), usize::from(accepted));
            assert_eq!(bench.driver.pending_approvals(), 0);
        });
    }
}

// Law 2: whoever is not told has not been accepted.
#[test]
fn a_sink_that_forgets_or_panics_has_refused() {
    for mood in [Mood::Forgets, Mood::Panics] {
        let sink = Slow::new(Mood::Idle);
        let bench = bench(&sink);
        workers(1).block_on(async {
            let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
            let approval = question(&mut stream).await;
            *sink.mood.lock().unwrap() = mood;
            let error = bench.decide(&approval, Decision::Approve).await.unwrap_err();
            assert_eq!(error.code(), "APPROVAL_AUDIT_FAILED", "{mood:?}");
            let told = words(&rest(&mut stream).await);
            assert_eq!(told, ["run.failed APPROVAL_AUDIT_FAILED"], "{mood:?}");
            assert_eq!(bench.effects(), [] as [&str; 0]);
        });
        assert_eq!(sink.recorded(), ["approval.requested"]);
    }
}
