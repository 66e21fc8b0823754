//! A sink that takes its time (scenario J11, reliability R7): whoever needs its answer waits, and nobody else.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::Subject;
use countersign_approval_core::review::Decision;
use countersign_client::EventStream;
use countersign_driver::ApprovalSettings;
use countersign_host::Concurrency;
use tokio::sync::mpsc;

use crate::support::{
    ANN, ARGUMENTS, BOB, ROOMY, World, answer, model, plain, question, rest, reviewed, tasks_fall_to, word,
};

/// What the sink does with the records of the subjects that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetGo {
    NotYet,
    Accepted,
    Refused,
}

/// Holds the records of one type and one subject, says so, and accepts all others at once.
struct Holding {
    kind: &'static str,
    held: Subject,
    entered: mpsc::UnboundedSender<()>,
    state: Mutex<LetGo>,
    changed: Condvar,
}

impl Holding {
    fn let_go(&self, how: LetGo) {
        *self.state.lock().unwrap() = how;
        self.changed.notify_all();
    }
}

impl AuditSink for Holding {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let (kind, subject) = match record {
            AuditRecord::Requested { subject, .. } => ("requested", subject),
            AuditRecord::Resolved { subject, .. } => ("resolved", subject),
            AuditRecord::ExecutionStarted(execution) => ("started", &execution.subject),
            _ => return Ok(()),
        };
        if kind != self.kind || *subject != self.held {
            return Ok(());
        }
        self.entered.send(())?;
        // Longer than any test, so that a failing one ends too.
        let state = self.state.lock().unwrap();
        let waiting = |state: &mut LetGo| *state == LetGo::NotYet;
        let (state, _) = self.changed.wait_timeout_while(state, Duration::from_secs(40), waiting).unwrap();
        if *state == LetGo::Accepted { Ok(()) } else { Err("the disk came back with an error".into()) }
    }

    fn blocking(&self) -> bool {
        true
    }
}

/// A world whose sink holds Ann's records of this type.
fn holding(
    kind: &'static str,
    concurrency: Concurrency,
) -> (World, Arc<Holding>, mpsc::UnboundedReceiver<()>) {
    let (entered, entering) = mpsc::unbounded_channel();
    let (state, changed) = (Mutex::new(LetGo::NotYet), Condvar::new());
    let sink = Arc::new(Holding { kind, held: Subject::parse("ann").unwrap(), entered, state, changed });
    let shown: Arc<dyn AuditSink> = sink.clone();
    let world = World::with(model(ARGUMENTS), concurrency, |builder, settings| {
        builder.approvals(ApprovalSettings { sink: Some(shown), ..settings })
    });
    (world, sink, entering)
}

/// Bob is not held: his whole review goes through meanwhile.
async fn bob_is_served(world: &World) {
    let before = world.effects.len();
    let (mut events, approval) = world.waiting(BOB).await;
    assert_eq!(world.decide(BOB, &approval, Decision::Approve).await, "approved");
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
    assert_eq!(world.effects.len(), before + 1);
}

// Law 2: the decision waits for its record, and so do its effect and every other decision of the review.
#[tokio::test]
async fn a_decision_waits_for_its_record() {
    for (how, said, last, effects) in [
        (LetGo::Accepted, "approved", "run.completed", 2),
        (LetGo::Refused, "APPROVAL_AUDIT_FAILED", "run.failed APPROVAL_AUDIT_FAILED", 1),
    ] {
        let (world, sink, mut entering) = holding("resolved", ROOMY);
        let (mut events, approval) = world.waiting(ANN).await;
        let (client, decision) = (world.client(ANN), DecisionRequest::of(&approval, Decision::Approve));
        let deciding = {
            let (client, decision) = (client.clone(), decision.clone());
            tokio::spawn(async move { answer(client.decide_approval(&decision).await) })
        };
        entering.recv().await.unwrap();
        bob_is_served(&world).await;
        assert!(!deciding.is_finished(), "no receipt before the record");
        assert_eq!(answer(client.decide_approval(&decision).await), "APPROVAL_NOT_FOUND");
        assert_eq!(world.effects.texts(), [ARGUMENTS], "Bob's only");
        sink.let_go(how);
        assert_eq!(deciding.await.unwrap(), said);
        assert_eq!(rest(&mut events).await.last().unwrap(), last);
        assert_eq!(world.effects.len(), effects);
        assert_eq!(world.driver.pending_approvals(), 0);
    }
}

// Law 2: nobody is asked before the question is recorded.
#[tokio::test]
async fn a_question_waits_for_its_record() {
    let (world, sink, mut entering) = holding("requested", ROOMY);
    let mut events = world.client(ANN).stream(&reviewed("write")).await.unwrap();
    let asked = tokio::spawn(async move {
        let (seen, approval) = question(&mut events).await;
        (seen, approval, events)
    });
    entering.recv().await.unwrap();
    bob_is_served(&world).await;
    assert!(!asked.is_finished(), "no question before its record");
    assert_eq!(world.driver.pending_approvals(), 1, "it has its place already");
    sink.let_go(LetGo::Accepted);
    let (_, approval, mut events) = asked.await.unwrap();
    assert_eq!(world.decide(ANN, &approval, Decision::Deny).await, "denied");
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.failed APPROVAL_DENIED");
}

// Design 4: `execution.started` is accepted before the tool is called. A client who goes meanwhile stops the call.
#[tokio::test]
async fn an_execution_waits_for_its_record() {
    let (world, sink, mut entering) =
        holding("started", Concurrency { total: 10, per_subject: 1, ..Concurrency::default() });
    let (mut events, approval) = world.waiting(ANN).await;
    assert_eq!(world.decide(ANN, &approval, Decision::Approve).await, "approved");
    assert_eq!(word(&events.next().await.unwrap().unwrap()), "approval.resolved approved");
    // The run is pulled on by a read that is pending, and given up when it is.
    let reading = tokio::spawn(async move { rest(&mut events).await });
    entering.recv().await.unwrap();
    bob_is_served(&world).await;
    assert_eq!(world.effects.len(), 1, "Bob's only");
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
    // Her one slot is free as soon as the host has noticed that she is gone.
    let again = async {
        while let Err(busy) = world.client(ANN).stream(&plain("quick")).await {
            assert_eq!(busy.code().unwrap().as_str(), "BUSY");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();
    sink.let_go(LetGo::Accepted);
    tasks_fall_to(0).await;
    assert_eq!(world.effects.len(), 1, "the run had ended before the tool was called");
}

// R7, law 5: twenty decisions that hang do not hold a twenty-first run, and the host can be closed when they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_decisions_hold_nobody_else() {
    let (world, sink, mut entering) = holding("resolved", ROOMY);
    let mut open: Vec<(EventStream, tokio::task::JoinHandle<String>)> = Vec::new();
    for _ in 0..20 {
        let (events, approval) = world.waiting(ANN).await;
        let (client, decision) = (world.client(ANN), DecisionRequest::of(&approval, Decision::Approve));
        open.push((events, tokio::spawn(async move { answer(client.decide_approval(&decision).await) })));
    }
    for _ in 0..20 {
        entering.recv().await.unwrap();
    }
    bob_is_served(&world).await;
    sink.let_go(LetGo::Accepted);
    for (mut events, deciding) in open {
        assert_eq!(deciding.await.unwrap(), "approved");
        assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
    }
    assert_eq!(world.effects.len(), 21);
    world.service.close().await;
}
