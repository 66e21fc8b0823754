//! A driver with a scripted model, a fake clock and a recording sink.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::Error;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::{ApprovalRequest, Decision, IdlePolicy, Resolution};
use countersign_driver::provider::{
    Message, ProposedCall, Provider, ProviderError, Turn, TurnRequest, TurnSink,
};
use countersign_driver::{ApprovalSettings, Builder, Driver, EventStream, Output, ToolSpec, tool};
use countersign_protocol::event::{Event, EventBody, FinishReason, Usage};
use countersign_protocol::provider_info::{AuthMode, Capabilities, ProviderInfo};
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_testkit::{CountingIds, FakeClock, RecordingSink};

pub(crate) const WRITE_ARGUMENTS: &str = r#"{"k":[1,2],"s":"é","n":1.0}"#;

/// One step of the fake model.
#[derive(Clone, Default)]
pub(crate) struct Step {
    pub(crate) deltas: Vec<&'static str>,
    pub(crate) text: &'static str,
    pub(crate) calls: Vec<ProposedCall>,
    pub(crate) delay: Duration,
    pub(crate) finish: Option<FinishReason>,
    pub(crate) error: Option<countersign_protocol::code::Code>,
    pub(crate) panics: bool,
}

pub(crate) fn says(text: &'static str) -> Step {
    Step { text, ..Step::default() }
}

pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Step {
    let calls = calls
        .iter()
        .map(|(id, name, arguments)| ProposedCall {
            id: (*id).into(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        })
        .collect();
    Step { calls, ..says("I propose") }
}

pub(crate) fn writes() -> Step {
    calls(&[("call-1", "write", WRITE_ARGUMENTS)])
}

/// A model that follows a script and remembers what it was told.
pub(crate) struct Model {
    info: ProviderInfo,
    script: Mutex<VecDeque<Step>>,
    pub(crate) told: Mutex<Vec<String>>,
    pub(crate) instructions: Mutex<Vec<Option<String>>>,
    pub(crate) turns: AtomicUsize,
}

#[async_trait]
impl Provider for Model {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.instructions.lock().unwrap().push(request.instructions.map(Into::into));
        for message in request.messages {
            if let Message::Tool { output, .. } = message {
                self.told.lock().unwrap().push(output.text().into());
            }
        }
        let step = self.script.lock().unwrap().pop_front().unwrap_or_else(|| says("done"));
        tokio::time::sleep(step.delay).await;
        assert!(!step.panics, "the model panics");
        if let Some(code) = step.error {
            return Err(ProviderError::new(code).with_source("private: key sk-secret"));
        }
        for delta in &step.deltas {
            sink.text(delta);
            tokio::task::yield_now().await;
        }
        let text = if step.deltas.is_empty() { step.text.to_owned() } else { step.deltas.concat() };
        Ok(Turn {
            text,
            calls: step.calls,
            usage: Some(Usage { input_tokens: Some(10), output_tokens: Some(5), ..Usage::default() }),
            finish: step.finish.unwrap_or(FinishReason::Stop),
            native: None,
        })
    }
}

/// Everything that a test looks at.
pub(crate) struct Bench {
    pub(crate) driver: Driver,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) sink: Arc<RecordingSink>,
    pub(crate) model: Arc<Model>,
    /// What `write` was executed with.
    pub(crate) effects: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    pub(crate) fn new(script: impl IntoIterator<Item = Step>) -> Self {
        Self::with(script, RecordingSink::new(), |builder, settings| builder.approvals(settings))
    }

    pub(crate) fn with(
        script: impl IntoIterator<Item = Step>,
        sink: RecordingSink,
        adapt: impl FnOnce(Builder, ApprovalSettings) -> Builder,
    ) -> Self {
        let model = Arc::new(Model {
            info: ProviderInfo {
                id: ProviderId::parse("mock").unwrap(),
                name: "Mock".into(),
                vendor: "test".into(),
                auth_mode: AuthMode::None,
                capabilities: Capabilities { tools: true, text_streaming: true, others: Default::default() },
                models: Some(vec![ModelId::parse("demo").unwrap()]),
                health: None,
                model_catalog: None,
            },
            script: Mutex::new(script.into_iter().collect()),
            told: Mutex::default(),
            instructions: Mutex::default(),
            turns: AtomicUsize::new(0),
        });
        let (clock, sink) = (Arc::new(FakeClock::new()), Arc::new(sink));
        let effects: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&effects);
        let write = tool(
            ToolSpec::new("write", "Writes.", r#"{"type":"object","properties":{"n":{"type":"number"}}}"#)
                .unwrap()
                .requires_approval(),
            move |input, _| {
                seen.lock().unwrap().push(input.text().into());
                async { Ok(Output::json("written")?) }
            },
        );
        let lookup =
            tool(ToolSpec::new("lookup", "Looks up.", r#"{"type":"object"}"#).unwrap(), |_, _| async {
                Ok(Output::json(&[1, 2])?)
            });
        let builder = Driver::builder()
            .provider(Arc::clone(&model) as Arc<dyn Provider>)
            .tool(write)
            .tool(lookup)
            .clock(Arc::clone(&clock) as _)
            .ids(Arc::new(CountingIds::default()));
        let settings = ApprovalSettings { sink: Some(Arc::clone(&sink) as _), ..ApprovalSettings::default() };
        let driver = adapt(builder, settings).build().unwrap();
        Self { driver, clock, sink, model, effects }
    }

    pub(crate) fn stream(&self, request: RunRequest) -> EventStream {
        self.driver.stream(request, Principal::local()).unwrap()
    }

    pub(crate) async fn decide(
        &self,
        approval: &ApprovalRequest,
        decision: Decision,
    ) -> Result<Resolution, Error> {
        self.driver.decide_approval(&DecisionRequest::of(approval, decision), &Principal::local()).await
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        self.effects.lock().unwrap().clone()
    }

    /// Reads the whole stream and gives every review the same answer.
    pub(crate) async fn play(&self, request: RunRequest, decision: Decision) -> Vec<Event> {
        let mut stream = self.stream(request);
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                self.decide(approval, decision).await.unwrap();
            }
            events.push(event);
        }
        events
    }
}

pub(crate) fn request() -> RunRequest {
    let mut request =
        RunRequest::new(ProviderId::parse("mock").unwrap(), ModelId::parse("demo").unwrap(), "Hello");
    request.tools = vec![ToolName::parse("write").unwrap(), ToolName::parse("lookup").unwrap()];
    request
}

pub(crate) fn reviewed(idle_policy: IdlePolicy) -> RunRequest {
    RunRequest { approvals: Some(Approvals::new(idle_policy)), ..request() }
}

/// Reads until the question.
pub(crate) async fn question(stream: &mut EventStream) -> Arc<ApprovalRequest> {
    while let Some(event) = stream.next().await {
        if let EventBody::ApprovalRequested { approval, .. } = event.body {
            return approval;
        }
    }
    panic!("the run ended without a question");
}

pub(crate) async fn rest(stream: &mut EventStream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

/// Events as short words: type, and what matters of the payload.
pub(crate) fn words(events: &[Event]) -> Vec<String> {
    for (event, sequence) in events.iter().skip(1).zip(events[0].sequence + 1..) {
        assert_eq!(event.sequence, sequence, "sequence numbers have no gaps");
        assert_eq!(event.run_id, events[0].run_id);
    }
    events.iter().map(word).collect()
}

fn word(event: &Event) -> String {
    let detail = match &event.body {
        EventBody::StepStarted { step } => step.to_string(),
        EventBody::UsageReported { step, .. } => step.to_string(),
        EventBody::TextDelta { text } => text.clone(),
        EventBody::ToolCalled { call } => call.id.to_string(),
        EventBody::ApprovalResolved { resolution } => format!("{:?}", resolution.outcome).to_lowercase(),
        EventBody::ToolCompleted { output, .. } => output.text().into(),
        EventBody::RunCompleted { result } => result.text.clone(),
        EventBody::RunFailed { error } | EventBody::RunCancelled { error } => {
            let uncertain = if error.outcome.is_some() { " uncertain" } else { "" };
            let retryable = if error.retryable { " retryable" } else { "" };
            format!("{}{uncertain}{retryable}", error.code)
        }
        _ => String::new(),
    };
    format!("{} {detail}", event.type_name()).trim_end().to_owned()
}
