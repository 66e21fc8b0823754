//! Random histories of runs with an idempotency key, over a store whose process dies at any of its calls (contract 9,
//! 4.10; laws 1 and 8). A history is a row of lives: in each, clients ask for runs, again, at once, and for others under
//! the same key; then its process ends, by itself or because it dies. What the store holds and what the tools did stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{CallId, RunId};
use countersign_approval_core::review::{Decision, Outcome};
use countersign_driver::operation::OperationSettings;
use countersign_driver::system::RandomIds;
use countersign_driver::{ApprovalSettings, Driver, EventStream};
use countersign_protocol::code::Code;
use countersign_protocol::event::{Event, EventBody};
use countersign_protocol::request::RunRequest;
use countersign_testkit::FakeClock;

use super::disk::{Disk, Fault};
use super::journal::{Journal, Sink, What};
use super::play::principal;
use super::scene::{Model, Plan, tools};
use super::{Blame, Random, Seen};

/// What must be seen in any long row of histories.
const WANTED: [&str; 13] = [
    "a tool ran",
    "died",
    "died with it stored",
    "the store failed",
    "a question",
    "told run.completed",
    "told run.failed",
    "told run.cancelled",
    "told again: run.completed",
    "told again: OPERATION_UNCERTAIN",
    "OPERATION_STORE_ERROR",
    "IDEMPOTENCY_CONFLICT",
    "OPERATION_IN_PROGRESS",
];

#[test]
fn keyed_runs_survive_any_death_of_their_process() {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut seen = Seen::new();
    if let Some(seed) = variable("COUNTERSIGN_SEED") {
        history(seed, &mut seen);
        println!("seed {seed}: {seen:?}");
        return;
    }
    let time = Duration::from_secs(variable("COUNTERSIGN_SECONDS").unwrap_or(3));
    let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let (start, mut histories) = (Instant::now(), 0);
    while start.elapsed() < time || histories < 20 {
        history(first + histories, &mut seen);
        histories += 1;
    }
    println!("seed {first}, {histories} histories of keyed runs: {seen:?}");
    let missing: Vec<_> = WANTED.iter().filter(|wanted| !seen.contains_key(*wanted)).collect();
    assert!(missing.is_empty() || histories < 300, "never seen: {missing:?}");
}

/// Which of the two requests under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    First,
    Other,
}

/// What a client was told in one life.
#[derive(Debug, Clone)]
struct Told {
    life: usize,
    plan: usize,
    variant: Variant,
    events: Vec<Event>,
}

fn history(seed: u64, seen: &mut Seen) {
    let _blame = Blame(seed);
    let mut random = Random(seed);
    let plans: Vec<Plan> = (0..1 + random.below(2) as usize).map(|n| Plan::random(n, &mut random)).collect();
    let disk = Arc::new(Disk::default());
    let mut past = Past::default();
    let lives = 2 + random.below(3) as usize;
    for life in 0..=lives {
        // The last life has no faults, and asks for everything.
        let last = life == lives;
        let fault = if last { Fault::None } else { Fault::random(&mut random) };
        disk.arm(fault, random.below(14), random.pick(&[0, 0, 1, 8]));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let (journal, sink) = runtime.block_on(async {
            let clock = Arc::new(FakeClock::new());
            let journal = Journal::new(Arc::clone(&clock));
            (Arc::clone(&journal), (Sink::new(journal, false, Random(0)), clock))
        });
        runtime.block_on(async {
            let driver = driver(&plans, &journal, &disk, sink);
            let clients = clients(driver, &plans, life, last, &told, &mut random);
            tokio::select! {
                () = disk.died() => {}
                ended = tokio::time::timeout(Duration::from_secs(86_400), clients) => {
                    ended.expect("nothing waits for ever");
                }
            }
        });
        // The process ends: all that it was doing is gone.
        drop(runtime);
        past.note(life, &journal, &told.lock().unwrap());
    }
    past.judge(&disk.faults(), seen);
}

fn driver(
    plans: &[Plan],
    journal: &Arc<Journal>,
    disk: &Arc<Disk>,
    (sink, clock): (Arc<Sink>, Arc<FakeClock>),
) -> Driver {
    let settings = ApprovalSettings { sink: Some(sink), ..ApprovalSettings::default() };
    let mut builder = Driver::builder()
        .provider(Model::new(plans.to_vec()))
        .clock(clock)
        .ids(Arc::new(RandomIds))
        .approvals(settings)
        .operations(OperationSettings::new(Arc::clone(disk) as _));
    for tool in tools(journal) {
        builder = builder.tool(tool);
    }
    builder.build().unwrap()
}

async fn clients(
    driver: Driver,
    plans: &[Plan],
    life: usize,
    last: bool,
    told: &Arc<Mutex<Vec<Told>>>,
    random: &mut Random,
) {
    let mut clients = Vec::new();
    for _ in 0..if last { 0 } else { 1 + random.below(4) } {
        let plan = random.pick(&(0..plans.len()).collect::<Vec<_>>());
        let variant = if random.one_in(4) { Variant::Other } else { Variant::First };
        let client = Client { plan: plans[plan].clone(), variant, life, random: random.fork() };
        clients.push(tokio::spawn(client.ask(driver.clone(), Arc::clone(told))));
        if random.one_in(2) {
            tokio::time::sleep(Duration::from_millis(random.pick(&[1, 10, 100, 30_000]))).await;
        }
    }
    for client in clients {
        client.await.unwrap();
    }
    // Runs whose reader left come to their end, with the tools that do not stop.
    tokio::time::sleep(Duration::from_secs(7)).await;
    if last {
        for (plan, variant) in
            (0..plans.len()).flat_map(|plan| [(plan, Variant::First), (plan, Variant::Other)])
        {
            let client = Client { plan: plans[plan].clone(), variant, life, random: random.fork() };
            client.stays().ask(driver.clone(), Arc::clone(told)).await;
        }
    }
    assert_eq!(driver.pending_approvals(), 0, "nothing pending outlives its run");
}

struct Client {
    plan: Plan,
    variant: Variant,
    life: usize,
    random: Random,
}

impl Client {
    fn stays(mut self) -> Self {
        (self.plan.leaves, self.plan.cancels) = (None, None);
        self
    }

    fn request(&self) -> RunRequest {
        let mut request = self.plan.request();
        request.idempotency_key = Some(format!("key-{}", self.plan.number));
        if self.variant == Variant::Other {
            request.metadata.insert("other".into(), "yes".into());
        }
        request
    }

    async fn ask(mut self, driver: Driver, told: Arc<Mutex<Vec<Told>>>) {
        let mut stream = driver.stream(self.request(), principal(self.plan.subject)).unwrap();
        stream.read_ahead(self.random.pick(&[1, 1, 8]));
        let at = {
            let mut told = told.lock().unwrap();
            told.push(Told {
                life: self.life,
                plan: self.plan.number,
                variant: self.variant,
                events: Vec::new(),
            });
            told.len() - 1
        };
        self.read(&driver, &mut stream, |event| told.lock().unwrap()[at].events.push(event)).await;
    }

    async fn read(&mut self, driver: &Driver, stream: &mut EventStream, told: impl Fn(Event)) {
        let mut taken = 0;
        while let Some(event) = stream.next().await {
            taken += 1;
            told(event.clone());
            if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                tokio::time::sleep(Duration::from_millis(self.random.pick(&[0, 5, 500]))).await;
                let decision = self.random.pick(&[
                    Decision::Approve,
                    Decision::Approve,
                    Decision::Approve,
                    Decision::Approve,
                    Decision::Deny,
                    Decision::Cancel,
                ]);
                // It may be too late.
                let decision = DecisionRequest::of(approval, decision);
                let _ = driver.decide_approval(&decision, &principal(self.plan.subject)).await;
            }
            if self.plan.leaves == Some(taken) {
                return;
            }
            if self.plan.cancels == Some(taken) {
                stream.cancel();
            }
            let pause = self.random.below(self.plan.pace + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
}

/// All that happened, as it can be seen from outside.
#[derive(Default)]
struct Past {
    told: Vec<Told>,
    started: Vec<Started>,
    approved: BTreeSet<(usize, RunId, CallId)>,
}

struct Started {
    life: usize,
    run: RunId,
    call: CallId,
    tool: &'static str,
    text: String,
}

impl Past {
    fn note(&mut self, life: usize, journal: &Journal, told: &[Told]) {
        self.told.extend(told.iter().cloned());
        for entry in journal.entries() {
            match entry.what {
                What::Started { run, call, tool, text, .. } => {
                    // Law 1: a gated call follows the approval of that very call, in its own life.
                    assert!(
                        tool != "write" || self.approved.contains(&(life, run, call.clone())),
                        "{call} of {run} ran without an approval"
                    );
                    self.started.push(Started { life, run, call, tool, text });
                }
                What::Accepted(AuditRecord::Resolved { approval, resolution, .. })
                    if resolution.outcome == Outcome::Approved =>
                {
                    self.approved.insert((life, approval.run_id, approval.call.call().id.clone()));
                }
                _ => {}
            }
        }
    }

    fn judge(&self, faults: &[&'static str], seen: &mut Seen) {
        let mut count = |what: &'static str| *seen.entry(what).or_default() += 1;
        faults.iter().copied().for_each(&mut count);
        self.started.iter().for_each(|_| count("a tool ran"));
        let plans: BTreeSet<usize> = self.told.iter().map(|told| told.plan).collect();
        for plan in plans {
            self.judge_key(plan, !faults.is_empty(), &mut count);
        }
    }

    /// Everything that happened under one key.
    fn judge_key(&self, plan: usize, faulty: bool, count: &mut impl FnMut(&'static str)) {
        let told: Vec<&Told> = self.told.iter().filter(|told| told.plan == plan).collect();
        let (refused, runs): (Vec<&&Told>, Vec<&&Told>) = told
            .iter()
            .filter(|told| !told.events.is_empty())
            .partition(|told| matches!(told.events[0].body, EventBody::RunFailed { .. }));
        for told in refused {
            self.judge_refusal(told, faulty, count);
        }
        // Whatever happened under this key, in all lives, is one run of one request.
        let ids: BTreeSet<RunId> = runs.iter().map(|told| told.events[0].run_id).collect();
        let variants: BTreeSet<Variant> = runs.iter().map(|told| told.variant).collect();
        assert!(ids.len() <= 1 && variants.len() <= 1, "key {plan}: {ids:?} {variants:?}");
        let mark = format!(r#""run":{plan},"#);
        let started: Vec<&Started> = self.started.iter().filter(|s| s.text.contains(&mark)).collect();
        let calls: BTreeSet<&CallId> = started.iter().map(|started| &started.call).collect();
        assert_eq!(calls.len(), started.len(), "key {plan}: an effect happened twice");
        let runs_of: BTreeSet<RunId> = started.iter().map(|started| started.run).collect();
        assert!(runs_of.len() <= 1 && (ids.is_empty() || runs_of.is_subset(&ids)), "key {plan}: two runs");
        let lives: BTreeSet<usize> = started.iter().map(|started| started.life).collect();
        assert!(lives.len() <= 1, "key {plan}: effects in lives {lives:?}");
        assert!(started.iter().all(|started| ["write", "lookup"].contains(&started.tool)));

        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        let mut asked = 0;
        for told in &runs {
            judge_form(told);
            asked += usize::from(told.events.iter().any(|event| event.type_name().starts_with("approval.")));
            let Some(last) = told.events.last().filter(|event| event.is_terminal()) else { continue };
            count(match &last.body {
                EventBody::RunCompleted { .. } => "told run.completed",
                EventBody::RunCancelled { .. } => "told run.cancelled",
                _ => "told run.failed",
            });
            judge_end(told, last, &calls);
            if !matches!(&last.body, EventBody::RunFailed { error } if error.code == Code::OPERATION_STORE_ERROR)
            {
                *ends.entry(format!("{:?}", last.body)).or_default() += 1;
            } else {
                count("OPERATION_STORE_ERROR");
            }
        }
        assert!(asked <= 1, "key {plan}: {asked} streams asked a person");
        (0..asked).for_each(|_| count("a question"));
        assert!(ends.len() <= 1, "key {plan}: it ended in more than one way: {ends:#?}");
        for (end, times) in ends {
            if times > 1 && end.contains("RunCompleted") {
                count("told again: run.completed");
            }
            if end.contains("OPERATION_UNCERTAIN") {
                count("told again: OPERATION_UNCERTAIN");
            }
        }
        judge_same_story(plan, &runs);
    }

    /// A request that was not served: why it could be refused.
    fn judge_refusal(&self, told: &Told, faulty: bool, count: &mut impl FnMut(&'static str)) {
        let [Event { body: EventBody::RunFailed { error }, sequence: 1, .. }] = &told.events[..] else {
            panic!("a refusal is all of its stream: {told:?}");
        };
        let mut others = self.told.iter().filter(|other| other.plan == told.plan);
        if error.code == Code::IDEMPOTENCY_CONFLICT {
            assert!(others.any(|other| other.variant != told.variant), "no other request: {told:?}");
            count("IDEMPOTENCY_CONFLICT");
        } else if error.code == Code::OPERATION_IN_PROGRESS {
            let here = others.filter(|other| other.life == told.life && other.variant == told.variant);
            assert!(here.count() > 1, "nothing of this process is in progress: {told:?}");
            count("OPERATION_IN_PROGRESS");
        } else {
            assert_eq!(error.code, Code::OPERATION_STORE_ERROR);
            assert!(faulty && error.outcome.is_some(), "the store was well: {told:?}");
            count("OPERATION_STORE_ERROR");
        }
    }
}

/// Contract 3.1, 9: numbers from 1, one run, `run.started` first, nothing after the end.
fn judge_form(told: &Told) {
    let first = &told.events[0];
    assert_eq!(first.type_name(), "run.started", "{told:?}");
    for (event, sequence) in told.events.iter().zip(1..) {
        assert_eq!((event.sequence, event.run_id), (sequence, first.run_id), "{told:?}");
        let last = sequence as usize == told.events.len();
        assert!(last || !event.is_terminal(), "{told:?}");
    }
}

/// Law 8: an end that is not uncertain tells of every effect, and a completed run of nothing that did not happen.
fn judge_end(told: &Told, last: &Event, started: &BTreeSet<&CallId>) {
    let completed: BTreeSet<&CallId> = told
        .events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::ToolCompleted { call_id, .. } => Some(call_id),
            _ => None,
        })
        .collect();
    assert!(completed.is_subset(started), "an output of a call that did not run: {told:?}");
    let certain = match &last.body {
        EventBody::RunFailed { error } | EventBody::RunCancelled { error } => error.outcome.is_none(),
        _ => true,
    };
    if certain {
        assert_eq!(completed, *started, "the effects that are told, and those that happened: {told:?}");
    }
}

/// Nobody saw an event that the log does not hold, and every replay is the same.
fn judge_same_story(plan: usize, runs: &[&&Told]) {
    let lasting = |told: &Told| -> Vec<String> {
        let passing = |event: &&Event| {
            !["text.delta", "run.progress"].contains(&event.type_name()) && !event.is_terminal()
        };
        let events = told.events.iter().filter(passing);
        let events = events.filter(|event| !event.type_name().starts_with("approval."));
        events.map(|event| format!("{} {:?}", event.timestamp, event.body)).collect()
    };
    let mut stories: Vec<Vec<String>> = runs.iter().map(|told| lasting(told)).collect();
    stories.sort_by_key(Vec::len);
    for pair in stories.windows(2) {
        let mut longer = pair[1].iter();
        for event in &pair[0] {
            assert!(longer.any(|other| other == event), "key {plan}: {event} is missing in {:#?}", pair[1]);
        }
    }
}
