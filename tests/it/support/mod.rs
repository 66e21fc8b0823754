//! A host with a scripted model and a gated tool, and real clients of it, in memory or on a socket.

mod pipe;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::ids::{CallId, ModelId, ProviderId, RunId, Subject, ToolName};
use countersign_approval_core::review::{ApprovalRequest, Decision, IdlePolicy, Resolution};
use countersign_approval_core::{audit::AuditSink, decision::DecisionRequest};
use countersign_client::{Client, Error, EventStream};
use countersign_driver::{ApprovalSettings, Builder, Driver, Output, Tool, ToolSpec, tool};
use countersign_host::{ApplicationToolGrant, Concurrency, Options, Service, Token};
use countersign_protocol::event::{Event, EventBody, Usage};
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_providers::{Scripted, Step};
use countersign_testkit::{FakeClock, MemoryTransport, RecordingSink};
use secrecy::SecretString;

pub(crate) use pipe::Gate;

/// Ann may run and decide everything.
pub(crate) const ANN: &str = "ann-ann-ann-ann-ann-ann-ann-ann-0001";
/// Ann's token without `approveTools`.
pub(crate) const ANN_RUNNER: &str = "ann-runner-ann-runner-ann-runner-0002";
/// Ann's token without a provider.
pub(crate) const ANN_ELSEWHERE: &str = "ann-elsewhere-ann-elsewhere-ann-e0003";
/// Bob may do what Ann may.
pub(crate) const BOB: &str = "bob-bob-bob-bob-bob-bob-bob-bob-0004";

/// What the scripted model proposes unless a test says otherwise.
pub(crate) const ARGUMENTS: &str = r#"{"k":[1,2],"s":"é","n":1.0}"#;

/// One execution of the gated tool, as the tool saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) subject: Subject,
    pub(crate) text: String,
}

/// What the tool did, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Arc<Mutex<Vec<Effect>>>);

impl Effects {
    pub(crate) fn add(&self, effect: Effect) {
        self.0.lock().unwrap().push(effect);
    }

    pub(crate) fn all(&self) -> Vec<Effect> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.all().into_iter().map(|effect| effect.text).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The gated tool `write`, which does nothing but say that it ran.
pub(crate) fn write_tool(effects: &Effects) -> Arc<dyn Tool> {
    let effects = effects.clone();
    let spec = ToolSpec::new("write", "Writes", r#"{"type":"object"}"#).unwrap().requires_approval();
    tool(spec, move |input, context| {
        let effects = effects.clone();
        async move {
            effects.add(Effect {
                run: context.run_id,
                call: context.call_id,
                subject: context.subject,
                text: input.text().to_owned(),
            });
            Ok(Output::json("written")?)
        }
    })
}

/// `write` proposes the given arguments once, `two` proposes them twice in one turn, `pick` proposes a call of an
/// application tool, `quick` only talks.
pub(crate) fn model(arguments: &str) -> Scripted {
    let usage = Usage { input_tokens: Some(3), output_tokens: Some(4), ..Usage::default() };
    let propose = || Step::text("I propose").and_call("call-1", "write", arguments).usage(usage);
    Scripted::builder("mock")
        .models(["demo"])
        .script("write", [propose(), Step::text("saved").usage(usage)])
        .script("two", [propose().and_call("call-2", "write", arguments), Step::text("saved").usage(usage)])
        .script(
            "pick",
            [
                Step::text("I propose").and_call("call-1", "pick", arguments).usage(usage),
                Step::text("picked").usage(usage),
            ],
        )
        .script("quick", [Step::text("hello").usage(usage)])
        .build()
        .unwrap()
}

/// Tokens of the host.
pub(crate) fn options(concurrency: Concurrency) -> Options {
    let bring = |mut token: Token, grant: ApplicationToolGrant| {
        token.application_tools.push(grant);
        token
    };
    let token = |token: &str, subject: &str, providers: &[&str], approve: &[&str]| Token {
        token: SecretString::from(token),
        subject: subject.into(),
        providers: providers.iter().map(ToString::to_string).collect(),
        tools: vec!["write".into()],
        approve_tools: approve.iter().map(ToString::to_string).collect(),
        application_tools: Vec::new(),
    };
    Options {
        port: 0,
        tokens: vec![
            bring(token(ANN, "ann", &["mock"], &["write", "pick"]), ApplicationToolGrant::unreviewed("pick")),
            bring(token(ANN_RUNNER, "ann", &["mock"], &[]), ApplicationToolGrant::reviewed("pick")),
            token(ANN_ELSEWHERE, "ann", &[], &["write"]),
            token(BOB, "bob", &["mock"], &["write"]),
        ],
        concurrency,
        ..Options::default()
    }
}

/// More than any test needs.
pub(crate) const ROOMY: Concurrency =
    Concurrency { total: 5_000, per_subject: 5_000, subjects: BTreeMap::new(), queue: None };

/// A host in memory, with what its tool, its clock and its sink saw.
pub(crate) struct World {
    pub(crate) service: Service,
    pub(crate) driver: Driver,
    pub(crate) sink: Arc<RecordingSink>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) effects: Effects,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::proposing(ARGUMENTS)
    }

    pub(crate) fn proposing(arguments: &str) -> Self {
        Self::with(model(arguments), ROOMY, |builder, settings| builder.approvals(settings))
    }

    /// `change` gives the builder its approvals, and whatever else it wants.
    pub(crate) fn with(
        model: Scripted,
        concurrency: Concurrency,
        change: impl FnOnce(Builder, ApprovalSettings) -> Builder,
    ) -> Self {
        let (sink, effects) = (Arc::new(RecordingSink::new()), Effects::default());
        let shown: Arc<dyn AuditSink> = sink.clone();
        let settings = ApprovalSettings { sink: Some(shown), ..ApprovalSettings::default() };
        let (driver, clock) = driver_of(model, write_tool(&effects), |builder| change(builder, settings));
        let service = Service::new(driver.clone(), &options(concurrency)).unwrap();
        Self { service, driver, sink, clock, effects }
    }

    /// A client whose connections never push back.
    pub(crate) fn client(&self, token: &str) -> Client {
        client(&self.service, token)
    }

    /// A client and the gate in front of it: while it is shut, the host cannot write.
    pub(crate) fn gated_client(&self, token: &str) -> (Client, Gate) {
        gated_client(&self.service, token)
    }

    /// A run of `write` that waits for a person.
    pub(crate) async fn waiting(&self, token: &str) -> (EventStream, Arc<ApprovalRequest>) {
        let mut events = self.client(token).stream(&reviewed("write")).await.unwrap();
        let (_, approval) = question(&mut events).await;
        (events, approval)
    }

    /// What a decision is answered: the outcome, or the code.
    pub(crate) async fn decide(&self, token: &str, approval: &ApprovalRequest, decision: Decision) -> String {
        answer(self.client(token).decide_approval(&DecisionRequest::of(approval, decision)).await)
    }

    /// Waits until nothing is pending; what waits for it has no other sign.
    pub(crate) async fn nothing_pending(&self) {
        for _ in 0..10_000 {
            if self.driver.pending_approvals() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} reviews are still pending", self.driver.pending_approvals());
    }
}

/// A driver with one provider and one tool, and the clock that it goes by.
pub(crate) fn driver_of(
    model: Scripted,
    tool: Arc<dyn Tool>,
    change: impl FnOnce(Builder) -> Builder,
) -> (Driver, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::new());
    let builder = Driver::builder().provider(Arc::new(model)).tool(tool).clock(clock.clone());
    (change(builder).build().unwrap(), clock)
}

/// Waits until no more than so many tasks are left in the runtime (I6).
pub(crate) async fn tasks_fall_to(most: usize) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let fallen = async {
        let mut pause = Duration::from_millis(1);
        while metrics.num_alive_tasks() > most {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(30), fallen).await;
    assert!(within.is_ok(), "{} tasks are left, and not {most}", metrics.num_alive_tasks());
}

/// A client over pipes.
pub(crate) fn client(service: &Service, token: &str) -> Client {
    let service = service.clone();
    built(token, move |theirs| {
        let service = service.clone();
        tokio::spawn(async move { service.serve_connection(theirs).await });
    })
}

/// A client over narrow pipes with a gate in them.
pub(crate) fn gated_client(service: &Service, token: &str) -> (Client, Gate) {
    let (gate, service) = (Gate::open(), service.clone());
    let inside = gate.clone();
    let client = built(token, move |theirs| {
        let (service, host_end) = (service.clone(), inside.pump(theirs));
        tokio::spawn(async move { service.serve_connection(host_end).await });
    });
    (client, gate)
}

fn built(token: &str, accept: impl Fn(tokio::io::DuplexStream) + Send + Sync + 'static) -> Client {
    Client::builder("http://localhost", token.into())
        .transport(Arc::new(MemoryTransport::new(accept)))
        .build()
        .unwrap()
}

/// A request for a run without reviews.
pub(crate) fn plain(input: &str) -> RunRequest {
    let (provider, model) = (ProviderId::parse("mock").unwrap(), ModelId::parse("demo").unwrap());
    RunRequest { tools: vec![ToolName::parse("write").unwrap()], ..RunRequest::new(provider, model, input) }
}

/// A request for a run with reviews.
pub(crate) fn reviewed(input: &str) -> RunRequest {
    RunRequest { approvals: Some(Approvals::new(IdlePolicy::Pause)), ..plain(input) }
}

/// As [`reviewed`], with an idle limit and what happens to it during a review.
pub(crate) fn idle(policy: IdlePolicy, limit_ms: u32) -> RunRequest {
    RunRequest { approvals: Some(Approvals::new(policy)), idle_timeout_ms: Some(limit_ms), ..plain("write") }
}

/// As [`reviewed`], with an expiry.
pub(crate) fn expiring(after_ms: u32) -> RunRequest {
    let mut approvals = Approvals::new(IdlePolicy::Pause);
    approvals.expires_after_ms = Some(after_ms);
    RunRequest { approvals: Some(approvals), ..plain("write") }
}

/// Reads up to the question, and returns what came until then.
pub(crate) async fn question(events: &mut EventStream) -> (Vec<Event>, Arc<ApprovalRequest>) {
    let mut seen = Vec::new();
    loop {
        let next = events.next().await;
        let event = next.unwrap_or_else(|| panic!("no question, but {:?}", seen.last())).unwrap();
        seen.push(event.clone());
        if let EventBody::ApprovalRequested { approval, .. } = event.body {
            return (seen, approval);
        }
    }
}

/// Reads to the end, in words.
pub(crate) async fn rest(events: &mut EventStream) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        told.push(match event {
            Ok(event) => word(&event),
            Err(error) => format!("broken {:?}", error.code()),
        });
    }
    told
}

/// An event as the contract's 3.4 writes it.
pub(crate) fn word(event: &Event) -> String {
    let detail = match &event.body {
        EventBody::StepStarted { step } | EventBody::UsageReported { step, .. } => step.to_string(),
        EventBody::ToolCalled { call } => call.id.to_string(),
        EventBody::ToolCompleted { call_id, .. } => call_id.to_string(),
        EventBody::ApprovalResolved { resolution } => format!("{:?}", resolution.outcome).to_lowercase(),
        EventBody::RunFailed { error } | EventBody::RunCancelled { error } => {
            let outcome = if error.outcome.is_some() { " uncertain" } else { "" };
            format!("{}{outcome}", error.code)
        }
        _ => return event.type_name().to_owned(),
    };
    format!("{} {detail}", event.type_name())
}

/// The outcome of a receipt, or the code of a refusal.
pub(crate) fn answer(given: Result<Resolution, Error>) -> String {
    match given {
        Ok(receipt) => format!("{:?}", receipt.outcome).to_lowercase(),
        Err(error) => error.code().map_or_else(|| format!("{error:?}"), |code| code.to_string()),
    }
}
