//! Playing a history: who does what is planned by dice, what comes of it is noted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::json::Exact;
use countersign_approval_core::registry::Limits;
use countersign_approval_core::review::{ApprovalRequest, Decision, IdlePolicy};
use countersign_client::{Client, Error, EventStream};
use countersign_driver::{ApprovalSettings, Output, RunLimits, Tool, ToolSpec, tool};
use countersign_host::{Concurrency, Service};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{Approvals, RunRequest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::dice::Dice;
use super::journal::{Attempt, Ended, Fact, Journal, Kind, Played, RunPlan, Said, Sink};
use crate::support::{
    ANN, ANN_ELSEWHERE, ANN_RUNNER, BOB, Gate, ROOMY, client, driver_of, gated_client, model, options, plain,
    tasks_fall_to,
};

const ARGUMENTS: [&str; 3] = [
    r#"{"k":[1,2],"s":"é","n":1.0}"#,
    "{}",
    r#"{"to":"a","amount":9007199254740992,"memo":"<b>\u2028</b>","tags":["x",null,true,-0]}"#,
];

/// A sink that notes everything and refuses now and then.
struct NotingSink {
    journal: Journal,
    dice: Mutex<Dice>,
    /// Refuses one in so many; none if it never does.
    refuses: Option<u64>,
    blocking: bool,
}

impl AuditSink for NotingSink {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let refuse = self.refuses.is_some_and(|times| self.dice.lock().unwrap().one_in(times));
        let sink = if refuse { Sink::Refused } else { Sink::Accepted };
        self.journal.add(Fact::Audit { record: record.clone(), sink });
        if refuse { Err("no space left on the device".into()) } else { Ok(()) }
    }

    fn blocking(&self) -> bool {
        self.blocking
    }
}

/// `write`, which takes a while and fails now and then.
fn noting_tool(journal: &Journal, dice: Dice) -> Arc<dyn Tool> {
    let spec = ToolSpec::new("write", "Writes", r#"{"type":"object"}"#).unwrap().requires_approval();
    let (journal, dice) = (journal.clone(), Arc::new(Mutex::new(dice)));
    tool(spec, move |input, context| {
        journal.add(Fact::Tool {
            run: context.run_id,
            call: context.call_id,
            subject: context.subject,
            text: input.text().to_owned(),
        });
        let (works, fails) = {
            let mut dice = dice.lock().unwrap();
            (if dice.one_in(2) { 0 } else { dice.within(1..60) }, dice.one_in(12))
        };
        async move {
            sleep(Duration::from_millis(works)).await;
            if fails { Err("the tool failed".into()) } else { Ok(Output::json("written")?) }
        }
    })
}

/// A question, and the subject of its run.
type Shown = (Arc<ApprovalRequest>, &'static str);

/// What all parts of a history share.
#[derive(Clone)]
struct Stage {
    service: Service,
    journal: Journal,
    /// Every question that was shown to somebody.
    shown: Arc<Mutex<Vec<Shown>>>,
    attempts: Arc<Mutex<usize>>,
}

/// Plays one history to its end and leaves nothing behind (I6).
pub(crate) async fn play(seed: u64) -> Played {
    let mut dice = Dice::new(seed);
    let journal = Journal::default();
    let refuses = if dice.one_in(3) { Some(dice.within(4..20)) } else { None };
    let sink = Arc::new(NotingSink {
        journal: journal.clone(),
        dice: Mutex::new(dice.fork()),
        refuses,
        blocking: dice.one_in(4),
    });
    let rate_limited = dice.one_in(8);
    let limits = Limits {
        max_pending: if dice.one_in(4) { 2 } else { 1_000 },
        max_rejected_per_minute: if rate_limited { 3 } else { 100_000 },
    };
    let idle_timeout = if dice.one_in(4) { Some(dice.millis(30..400)) } else { None };
    let concurrency = if dice.one_in(4) {
        Concurrency { total: 3, per_subject: 2, ..Concurrency::default() }
    } else {
        ROOMY
    };
    let arguments = dice.of(&ARGUMENTS);
    let (driver, clock) = driver_of(model(arguments), noting_tool(&journal, dice.fork()), |builder| {
        builder
            .approvals(ApprovalSettings { limits, sink: Some(sink), ..ApprovalSettings::default() })
            .limits(RunLimits { idle_timeout, ..RunLimits::default() })
    });
    let service = Service::new(driver.clone(), &options(concurrency)).unwrap();
    let stage = Stage { service, journal: journal.clone(), shown: Arc::default(), attempts: Arc::default() };

    let mut runs = Vec::new();
    let mut parts = JoinSet::new();
    for index in 0..usize::try_from(dice.within(1..7)).unwrap() {
        let (plan, request) = run_plan(&mut dice);
        runs.push(plan.clone());
        parts.spawn(run(stage.clone(), index, plan, request, dice.fork()));
    }
    if dice.one_in(4) {
        let (clock, at, jump) = (clock, dice.millis(0..400), dice.within(0..50 * 24 * 3_600_000));
        parts.spawn(async move {
            sleep(at).await;
            clock.step_wall(i64::try_from(jump).unwrap() - 25 * 24 * 3_600_000);
        });
    }
    if dice.one_in(4) {
        let (stage, at) = (stage.clone(), dice.millis(0..500));
        parts.spawn(async move {
            sleep(at).await;
            stage.journal.add(Fact::Closing);
            stage.service.close().await;
        });
    }
    let all = async { while parts.join_next().await.transpose().unwrap().is_some() {} };
    timeout(Duration::from_secs(24 * 3600), all).await.expect("the history does not come to an end");
    // I6: nothing is pending and no task is left, of runs, reviews, connections and timers.
    tasks_fall_to(0).await;
    assert_eq!(driver.pending_approvals(), 0);
    let sink_fails = refuses.is_some();
    Played { facts: journal.facts(), runs, arguments: arguments.to_owned(), sink_fails, rate_limited }
}

fn run_plan(dice: &mut Dice) -> (RunPlan, RunRequest) {
    let policy = dice.of(&[IdlePolicy::Pause, IdlePolicy::Pause, IdlePolicy::Continue]);
    let (input, calls) = dice.of(&[("write", 1), ("write", 1), ("two", 2), ("quick", 0)]);
    let mut approvals = Approvals::new(policy);
    if dice.one_in(3) {
        approvals.expires_after_ms = Some(u32::try_from(dice.within(1..300)).unwrap());
    }
    let request = RunRequest {
        approvals: Some(approvals),
        idle_timeout_ms: dice.one_in(3).then(|| u32::try_from(dice.within(20..300)).unwrap()),
        ..plain(input)
    };
    (RunPlan { subject: dice.of(&["ann", "ann", "bob"]), calls, policy }, request)
}

/// One run and its client.
async fn run(stage: Stage, index: usize, plan: RunPlan, request: RunRequest, mut dice: Dice) {
    sleep(dice.millis(0..200)).await;
    let token = if plan.subject == "bob" { BOB } else { dice.of(&[ANN, ANN_RUNNER]) };
    let (client, gate) = gated_client(&stage.service, token);
    let mut parts = JoinSet::new();
    if dice.one_in(3) {
        parts.spawn(swing(gate, dice.fork()));
    }
    // Nobody reads for ever: a run that nobody decides is given up.
    let patience = if dice.one_in(5) { dice.millis(0..400) } else { Duration::from_secs(60) };
    let until = Instant::now() + patience;
    let how = tokio::select! {
        how = follow(&stage, index, &plan, &client, &request, &mut dice, &mut parts) => how,
        () = sleep_until(until) => Ended::HungUp,
    };
    stage.journal.add(Fact::Ended { run: index, how });
    while parts.join_next().await.transpose().unwrap().is_some() {}
}

/// Opens and shuts a gate for a while.
async fn swing(gate: Gate, mut dice: Dice) {
    for _ in 0..dice.within(1..4) {
        sleep(dice.millis(0..200)).await;
        gate.shut();
        sleep(dice.millis(0..300)).await;
        gate.reopen();
    }
}

/// Reads a run to its end, sometimes slowly, and has its questions answered.
async fn follow(
    stage: &Stage,
    index: usize,
    plan: &RunPlan,
    client: &Client,
    request: &RunRequest,
    dice: &mut Dice,
    reviewers: &mut JoinSet<()>,
) -> Ended {
    let mut events: EventStream = match client.stream(request).await {
        Ok(events) => events,
        Err(Error::Remote(info)) => return Ended::Refused(info.code.to_string()),
        Err(error) => return Ended::Broken(error.to_string()),
    };
    let slow = dice.one_in(4);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Ended::Broken(error.to_string()),
        };
        stage.journal.add(Fact::Event { run: index, event: event.clone() });
        if let EventBody::ApprovalRequested { approval, .. } = event.body {
            stage.shown.lock().unwrap().push((Arc::clone(&approval), plan.subject));
            for _ in 0..dice.within(0..6) {
                reviewers.spawn(review(stage.clone(), Arc::clone(&approval), plan.subject, dice.fork()));
            }
        }
        if slow {
            sleep(dice.millis(0..120)).await;
        }
    }
    Ended::Told
}

/// One decision, right or wrong in some way.
async fn review(stage: Stage, approval: Arc<ApprovalRequest>, subject: &'static str, mut dice: Dice) {
    // Several at the same instant, often.
    sleep(Duration::from_millis(20 * dice.within(0..12))).await;
    let (approval, subject) = if dice.one_in(6) {
        // An old question, of any run.
        let shown = stage.shown.lock().unwrap();
        shown[usize::try_from(dice.next() % shown.len() as u64).unwrap()].clone()
    } else {
        (approval, subject)
    };
    let (token, attempt) = attempt(&approval, subject, &mut dice);
    let number = {
        let mut attempts = stage.attempts.lock().unwrap();
        *attempts += 1;
        *attempts
    };
    stage.journal.add(Fact::Attempt { number, attempt: attempt.clone() });
    let patience = if dice.one_in(8) { dice.millis(0..3) } else { Duration::from_secs(3600) };
    let sender = client(&stage.service, token);
    let said = match timeout(patience, sender.decide_approval(&attempt.decision)).await {
        Ok(Ok(receipt)) => Said::Receipt(receipt),
        Ok(Err(Error::Remote(info))) => Said::Refused(info.code.to_string(), info.message),
        Ok(Err(Error::Transport(_))) => Said::Broken,
        Ok(Err(other)) => panic!("{other:?}"),
        Err(_) => Said::HungUp,
    };
    stage.journal.add(Fact::Answer { number, said });
}

fn attempt(approval: &ApprovalRequest, subject: &'static str, dice: &mut Dice) -> (&'static str, Attempt) {
    let decision =
        dice.of(&[Decision::Approve, Decision::Approve, Decision::Approve, Decision::Deny, Decision::Cancel]);
    let mut decision = DecisionRequest::of(approval, decision);
    let (own, other) = if subject == "ann" { (ANN, BOB) } else { (BOB, ANN) };
    let stranger = if subject == "ann" { "bob" } else { "ann" };
    let (token, subject, kind) = match dice.within(0..10) {
        0 => (other, stranger, Kind::Stranger),
        1 if subject == "ann" => (dice.of(&[ANN_RUNNER, ANN_ELSEWHERE]), subject, Kind::Ungranted),
        2 => {
            decision.call.id = "call-9".into();
            (own, subject, Kind::Altered)
        }
        3 => {
            decision.call.arguments = Exact::parse(r#"{"k":[2,1],"s":"é","n":1.0}"#).unwrap();
            (own, subject, Kind::Altered)
        }
        4 => {
            decision.run_id = decision.approval_id.clone();
            (own, subject, Kind::Altered)
        }
        5 => {
            // The call's id where the approval's belongs (scenario A17), or one that nobody gave out.
            decision.approval_id =
                if dice.one_in(2) { decision.call.id.clone() } else { decision.run_id.clone() };
            (own, subject, Kind::Unknown)
        }
        _ => (own, subject, Kind::Honest),
    };
    (token, Attempt { decision, subject, kind })
}
