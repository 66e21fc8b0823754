//! A host with a scripted model and two tools, and a client that sees every byte.

mod peer;

use std::sync::{Arc, Mutex};

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_driver::{ApprovalSettings, Builder, Driver, IdlePause, Output, Tool, ToolSpec, tool};
use countersign_host::{ApplicationToolGrant, Concurrency, Options, Service, Token};
use countersign_providers::{Scripted, ScriptedConfig};
use countersign_testkit::RecordingSink;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

pub(crate) use peer::{Answer, Ask, Head, Peer};

/// Ann may run and decide everything.
pub(crate) const ANN: &str = "ann-ann-ann-ann-ann-ann-ann-ann-0001";
/// Ann's second token: it may start no tool, but it may decide.
pub(crate) const ANN_REVIEWER: &str = "ann-reviewer-ann-reviewer-ann-re-0002";
/// Ann's third token: it may run, but decide nothing.
pub(crate) const ANN_RUNNER: &str = "ann-runner-ann-runner-ann-runner-0003";
/// Ann's fourth token: every tool, no provider.
pub(crate) const ANN_ELSEWHERE: &str = "ann-elsewhere-ann-elsewhere-ann--0004";
/// Bob may do what Ann may.
pub(crate) const BOB: &str = "bob-bob-bob-bob-bob-bob-bob-bob-0005";
/// Carl may do nothing.
pub(crate) const CARL: &str = "carl-carl-carl-carl-carl-carl-ca-0006";

/// The allowed web page.
pub(crate) const ORIGIN: &str = "https://app.example";

const PROVIDER: &str = r#"{
    "id": "mock", "kind": "scripted", "models": ["demo"],
    "scripts": {
        "quick": [{"text": "Hello."}],
        "json": [{"text": " { \"n\": 1.50, \"s\": \"\\u00e9\" }\n"}],
        "write": [{"calls": [{"id": "call-1", "name": "write", "arguments": {"k": [1, 2]}}]}, {"text": "Written."}],
        "lookup": [{"calls": [{"id": "call-1", "name": "lookup", "arguments": {"q": "x"}}]}, {"text": "Found."}],
        "pick": [{"calls": [{"id": "call-1", "name": "pick", "arguments": {"k": [1, 2]}}]}, {"text": "Picked."}],
        "slow": [{"text": "At last.", "delayMs": 100000000}],
        "chatty": [{"deltas": ["a", "b", "c", "d"]}],
        "broken": [{"error": {"code": "PROVIDER_REFUSAL", "message": "No."}}]
    }
}"#;

const SPARE: &str = r#"{
    "id": "spare", "kind": "scripted", "models": ["demo", "other"], "name": "Spare",
    "capabilities": {"tools": false}
}"#;

/// A host and what its tools and its audit sink saw.
pub(crate) struct Fixture {
    pub(crate) service: Service,
    pub(crate) driver: Driver,
    pub(crate) sink: Arc<RecordingSink>,
    /// The inputs of the executed `write` calls.
    pub(crate) written: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    /// Reviews on, `pause` allowed, the contract's concurrency.
    pub(crate) fn new() -> Self {
        Self::with(Concurrency::default(), |builder| builder)
    }

    pub(crate) fn with_concurrency(total: u32, per_subject: u32) -> Self {
        Self::with(Concurrency { total, per_subject, ..Concurrency::default() }, |builder| builder)
    }

    /// `change` sees the builder last.
    pub(crate) fn with(concurrency: Concurrency, change: impl FnOnce(Builder) -> Builder) -> Self {
        let sink = Arc::new(RecordingSink::new());
        let written = Arc::<Mutex<Vec<String>>>::default();
        let approvals = ApprovalSettings {
            idle_pause: IdlePause::Allowed,
            sink: Some(sink.clone()),
            ..ApprovalSettings::default()
        };
        let builder = base(&written).approvals(approvals);
        let driver = change(builder).build().unwrap();
        let options = Options { concurrency, ..options() };
        let service = Service::new(driver.clone(), &options).unwrap();
        Self { service, driver, sink, written }
    }

    /// A host whose sink hesitates over each `approval.resolved`: it says so on the first channel, and goes on when it
    /// is let go over the second.
    pub(crate) fn with_slow_sink() -> (Self, mpsc::UnboundedReceiver<()>, std::sync::mpsc::Sender<()>) {
        let (entered, entering) = mpsc::unbounded_channel();
        let (go, let_go) = std::sync::mpsc::channel();
        let sink: Arc<dyn AuditSink> = Arc::new(SlowSink { entered, let_go: let_go.into() });
        let settings = ApprovalSettings { sink: Some(sink), ..ApprovalSettings::default() };
        (Self::with(Concurrency::default(), |builder| builder.approvals(settings)), entering, go)
    }

    /// A host without interactive review.
    pub(crate) fn without_approvals() -> Self {
        let written = Arc::<Mutex<Vec<String>>>::default();
        let driver = base(&written).build().unwrap();
        let service = Service::new(driver.clone(), &options()).unwrap();
        Self { service, driver, sink: Arc::new(RecordingSink::new()), written }
    }

    /// A new connection in memory, big enough not to push back.
    pub(crate) fn connect(&self) -> Peer<DuplexStream> {
        self.connect_with_buffer(1 << 20)
    }

    /// A new connection in memory that holds so many bytes in each direction.
    pub(crate) fn connect_with_buffer(&self, bytes: usize) -> Peer<DuplexStream> {
        let (near, far) = tokio::io::duplex(bytes);
        let service = self.service.clone();
        tokio::spawn(async move { service.serve_connection(far).await });
        Peer::new(near)
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, ask: &Ask) -> Answer {
        self.connect().ask(ask).await
    }

    /// Starts a run of `write` that waits for a person, and returns its connection and the approval.
    pub(crate) async fn waiting(&self, token: &str) -> (Peer<DuplexStream>, Value) {
        let mut peer = self.connect();
        let head = peer.start(&run_ask(token, reviewed("write"))).await;
        assert_eq!(head.status, 200);
        let approval = peer.event_of("approval.requested").await["approval"].take();
        (peer, approval)
    }

    pub(crate) async fn decide(&self, token: &str, body: &Value) -> Answer {
        self.ask(&Ask::post("/v1/approvals/decisions").token(token).json(body)).await
    }

    pub(crate) fn written(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }
}

struct SlowSink {
    entered: mpsc::UnboundedSender<()>,
    let_go: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl AuditSink for SlowSink {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        if matches!(record, AuditRecord::Resolved { .. }) {
            self.entered.send(())?;
            self.let_go.lock().unwrap().recv()?;
        }
        Ok(())
    }

    fn blocking(&self) -> bool {
        true
    }
}

fn base(written: &Arc<Mutex<Vec<String>>>) -> Builder {
    Driver::builder()
        .provider(Arc::new(Scripted::from_config(ScriptedConfig::parse(PROVIDER).unwrap())))
        .provider(Arc::new(Scripted::from_config(ScriptedConfig::parse(SPARE).unwrap())))
        .tool(write_tool(written))
        .tool(lookup_tool())
}

fn write_tool(written: &Arc<Mutex<Vec<String>>>) -> Arc<dyn Tool> {
    let written = Arc::clone(written);
    let spec = ToolSpec::new("write", "Writes", r#"{"type":"object"}"#).unwrap().requires_approval();
    tool(spec, move |input, _| {
        let written = Arc::clone(&written);
        async move {
            written.lock().unwrap().push(input.text().to_owned());
            Ok(Output::json(&json!({"ok": true}))?)
        }
    })
}

fn lookup_tool() -> Arc<dyn Tool> {
    let spec = ToolSpec::new("lookup", "Looks up", r#"{"type":"object"}"#).unwrap();
    tool(spec, |_, _| async { Ok(Output::json("found")?) })
}

/// Tokens and origins of the fixture.
pub(crate) fn options() -> Options {
    let token = |token: &str, subject: &str, providers: &[&str], tools: &[&str], approve: &[&str]| Token {
        token: SecretString::from(token),
        subject: subject.into(),
        providers: providers.iter().map(ToString::to_string).collect(),
        tools: tools.iter().map(ToString::to_string).collect(),
        approve_tools: approve.iter().map(ToString::to_string).collect(),
        application_tools: Vec::new(),
    };
    let bring = |mut token: Token, grant: ApplicationToolGrant| {
        token.application_tools.push(grant);
        token
    };
    let (reviewed, unreviewed) = (ApplicationToolGrant::reviewed, ApplicationToolGrant::unreviewed);
    let both = &["mock", "spare"];
    let tools = &["write", "lookup", "pick"];
    Options {
        tokens: vec![
            bring(token(ANN, "ann", both, tools, tools), unreviewed("pick")),
            bring(token(ANN_REVIEWER, "ann", both, &[], tools), reviewed("pick")),
            token(ANN_RUNNER, "ann", both, tools, &[]),
            bring(token(ANN_ELSEWHERE, "ann", &[], tools, tools), unreviewed("pick")),
            bring(token(BOB, "bob", both, tools, tools), unreviewed("pick")),
            token(CARL, "carl", &[], &[], &[]),
        ],
        allowed_origins: vec![ORIGIN.into()],
        port: 0,
        ..Options::default()
    }
}

/// A request body for a run without reviews.
pub(crate) fn plain(input: &str) -> Value {
    json!({"provider": "mock", "model": "demo", "input": input})
}

/// A request body for a run with both tools and reviews.
pub(crate) fn reviewed(input: &str) -> Value {
    json!({
        "provider": "mock", "model": "demo", "input": input, "tools": ["write", "lookup"],
        "approvals": {"mode": "interactive", "idlePolicy": "pause"},
    })
}

/// A streamed run.
pub(crate) fn run_ask(token: &str, body: Value) -> Ask {
    Ask::post("/v1/runs").token(token).header("Accept", "text/event-stream").json(&body)
}

/// The decision that a person's client sends for a review.
pub(crate) fn decision(approval: &Value, decision: &str) -> Value {
    json!({
        "approvalId": approval["approvalId"], "runId": approval["runId"], "call": approval["call"],
        "decision": decision,
    })
}
