//! Plays one history.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::Subject;
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::{ApprovalRequest, Decision};
use countersign_driver::{ApprovalSettings, Driver, EventStream};
use countersign_protocol::event::EventBody;
use countersign_testkit::{CountingIds, FakeClock};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Random;
use super::journal::{Entry, Journal, Sink, What};
use super::scene::{Model, Plan, tools};

/// The questions that readers have seen, with the subject of each.
type Questions = Arc<Mutex<Vec<(Arc<ApprovalRequest>, &'static str)>>>;

struct Stage {
    driver: Driver,
    clock: Arc<FakeClock>,
    sink: Arc<Sink>,
    journal: Arc<Journal>,
    questions: Questions,
    attempts: usize,
    deciding: Vec<JoinHandle<()>>,
}

pub(super) async fn play(random: &mut Random) -> (Vec<Entry>, Vec<Plan>) {
    let plans: Vec<Plan> = (0..1 + random.below(4) as usize).map(|n| Plan::random(n, random)).collect();
    let mut stage = Stage::new(&plans, random);
    let end = CancellationToken::new();
    let mut readers = Vec::new();
    for plan in &plans {
        let stream = stage.driver.stream(plan.request(), principal(plan.subject)).unwrap();
        let reader = Reader {
            plan: plan.clone(),
            journal: Arc::clone(&stage.journal),
            questions: Arc::clone(&stage.questions),
            random: random.fork(),
        };
        readers.push(tokio::spawn(reader.read(stream, end.clone())));
        if random.one_in(2) {
            pass(random).await;
        }
    }
    for _ in 0..5 + random.below(40) {
        stage.step(random);
        pass(random).await;
        // Decisions on what is over are tried now and then, not most of the time.
        if readers.iter().all(JoinHandle::is_finished) && random.one_in(3) {
            break;
        }
    }
    if random.one_in(2) {
        stage.sink.fail_one_in(0);
    }
    end.cancel();
    for reader in readers {
        reader.await.unwrap();
    }
    for decision in std::mem::take(&mut stage.deciding) {
        decision.await.unwrap();
    }
    (stage.nothing_is_left(plans.len()).await, plans)
}

impl Stage {
    fn new(plans: &[Plan], random: &mut Random) -> Self {
        let clock = Arc::new(FakeClock::new());
        let journal = Journal::new(Arc::clone(&clock));
        let sink = Sink::new(Arc::clone(&journal), random.one_in(3), random.fork());
        let mut builder = Driver::builder()
            .provider(Model::new([plans, &[Plan::last(plans.len())]].concat()))
            .clock(Arc::clone(&clock) as _)
            .ids(Arc::new(CountingIds::default()))
            .approvals(ApprovalSettings {
                sink: Some(Arc::clone(&sink) as _),
                ..ApprovalSettings::default()
            });
        for tool in tools(&journal) {
            builder = builder.tool(tool);
        }
        let driver = builder.build().unwrap();
        Self { driver, clock, sink, journal, questions: Arc::default(), attempts: 0, deciding: Vec::new() }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(12) {
            0..=6 => self.decide(random),
            // Several at once on one question.
            7 => {
                for _ in 0..2 + random.below(4) {
                    self.decide(random);
                }
            }
            8 => self.sink.fail_one_in(random.pick(&[0, 0, 1, 3])),
            9 => {
                const DAY: i64 = 86_400_000;
                self.clock.step_wall(random.pick(&[-DAY, -30, 30, 2_000, DAY, 25 * DAY]));
                self.journal.note(What::Jumped);
            }
            _ => {}
        }
    }

    /// Somebody sends a decision; it goes on beside.
    fn decide(&mut self, random: &mut Random) {
        let questions = self.questions.lock().unwrap();
        if questions.is_empty() {
            return;
        }
        // Mostly one of the newest.
        let newest = questions.len().saturating_sub(3) as u64;
        let at = if random.one_in(4) { 0 } else { newest };
        let (approval, owner) = &questions[(at + random.below(questions.len() as u64 - at)) as usize];
        let decision = random.pick(&[
            Decision::Approve,
            Decision::Approve,
            Decision::Approve,
            Decision::Deny,
            Decision::Cancel,
        ]);
        let mut request = DecisionRequest::of(approval, decision);
        let mut caller =
            principal(if random.one_in(6) { random.pick(&["alice", "bob", "carol"]) } else { owner });
        let mut granted = true;
        if random.one_in(10) {
            granted = false;
            let names = Allow::only(["lookup"]);
            match random.below(2) {
                0 => caller.grants.approve_tools = names,
                _ => caller.grants.providers = names,
            }
        }
        match random.below(16) {
            0 => request.run_id = approval.approval_id.to_string(),
            1 => request.call.id.push('0'),
            2 => request.call.name = "lookup".into(),
            3 => {
                request.call.arguments =
                    Exact::parse(r#"{"run":0,"n":1,"wait":0,"end":"ok","more":1}"#).unwrap()
            }
            4 => request.approval_id = request.run_id.clone(),
            _ => {}
        }
        let body = random.one_in(3).then(|| {
            let body = serde_json::to_string(&request).unwrap();
            if random.one_in(6) {
                body.replace("\"decision\":", "\"subject\":\"bob\",\"decision\":")
            } else {
                body
            }
        });
        drop(questions);
        let attempt = self.attempts;
        self.attempts += 1;
        let (driver, journal) = (self.driver.clone(), Arc::clone(&self.journal));
        let hangs_up = random.one_in(12);
        let sending = tokio::spawn(async move {
            let subject = caller.subject.clone();
            journal.note(What::Deciding { attempt, caller: subject, granted, request: request.clone() });
            let result = match body {
                None => {
                    let told = driver.decide_approval(&request, &caller).await;
                    told.map_err(|error| (error.code().to_owned(), error.to_string()))
                }
                Some(body) => {
                    let told = driver.decide_text(&body, &caller).await;
                    told.map_err(|error| (error.code.as_str().to_owned(), error.message))
                }
            };
            journal.note(What::Told { attempt, result });
        });
        if hangs_up {
            let handle = sending.abort_handle();
            self.deciding.push(tokio::spawn(async move {
                tokio::task::yield_now().await;
                handle.abort();
                let _ = sending.await;
            }));
        } else {
            self.deciding.push(sending);
        }
    }

    /// I6: when all runs have ended nothing is left, and a new review works. Gives what was noted until then.
    async fn nothing_is_left(&self, last: usize) -> Vec<Entry> {
        // Tools have 5 seconds to stop; whoever watches for expiry looks once a second.
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(self.driver.pending_approvals(), 0, "nothing pending outlives its run");
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0, "no task is left");
        let entries = self.journal.entries();
        self.sink.fail_one_in(0);
        let plan = Plan::last(last);
        let mut stream = self.driver.stream(plan.request(), principal(plan.subject)).unwrap();
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                assert_eq!(self.driver.pending_approvals(), 1, "there is room for a new review");
                let approve = DecisionRequest::of(approval, Decision::Approve);
                self.driver.decide_approval(&approve, &principal(plan.subject)).await.unwrap();
            }
            told.push(event.type_name());
        }
        assert!(told.contains(&"approval.resolved") && told.last() == Some(&"run.completed"), "{told:?}");
        assert_eq!(self.driver.pending_approvals(), 0);
        entries
    }
}

/// Whoever reads the events of a run.
struct Reader {
    plan: Plan,
    journal: Arc<Journal>,
    questions: Questions,
    random: Random,
}

impl Reader {
    async fn read(mut self, mut stream: EventStream, end: CancellationToken) {
        let mut taken = 0;
        let mut ended = false;
        loop {
            self.journal.note(What::Asks(self.plan.number));
            let event = tokio::select! {
                biased;
                () = end.cancelled(), if !ended => {
                    ended = true;
                    stream.cancel();
                    continue;
                }
                event = stream.next() => event,
            };
            let Some(event) = event else { return };
            taken += 1;
            if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                self.questions.lock().unwrap().push((Arc::clone(approval), self.plan.subject));
            }
            self.journal.note(What::Took(self.plan.number, event));
            if self.plan.leaves == Some(taken) {
                self.journal.note(What::Left(self.plan.number));
                return;
            }
            if self.plan.cancels == Some(taken) {
                stream.cancel();
            }
            let pause = self.random.below(self.plan.pace + 1);
            if pause > 0 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
    }
}

pub(super) fn principal(subject: &str) -> Principal {
    Principal { subject: Subject::parse(subject).unwrap(), grants: Grants::all() }
}

async fn pass(random: &mut Random) {
    match random.below(4) {
        0 => tokio::task::yield_now().await,
        1 => {}
        _ if random.one_in(8) => tokio::time::sleep(Duration::from_millis(1_600)).await,
        _ => tokio::time::sleep(Duration::from_millis(random.pick(&[1, 1, 5, 14, 40, 300]))).await,
    }
}
