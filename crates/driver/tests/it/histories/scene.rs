//! What a history plays with: plans of runs, a model that follows them, and tools that note that they were called.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::IdlePolicy;
use countersign_driver::provider::{
    Message, ProposedCall, Provider, ProviderError, Turn, TurnRequest, TurnSink,
};
use countersign_driver::{Output, Tool, ToolSpec, tool};
use countersign_protocol::event::FinishReason;
use countersign_protocol::provider_info::{AuthMode, Capabilities, ProviderInfo};
use countersign_protocol::request::{Approvals, RunRequest};
use serde::Deserialize;

use super::Random;
use super::journal::{Journal, What};

/// A run before it starts.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) number: usize,
    pub(super) subject: &'static str,
    pub(super) policy: IdlePolicy,
    pub(super) expires_after: Option<u32>,
    pub(super) idle: Option<u32>,
    pub(super) steps: Vec<Vec<ProposedCall>>,
    /// The model thinks so long in each step.
    pub(super) thinks: u64,
    /// The reader waits up to so long before it asks for more.
    pub(super) pace: u64,
    /// The reader drops the stream after so many events.
    pub(super) leaves: Option<usize>,
    /// The reader cancels the run after so many events, and reads on.
    pub(super) cancels: Option<usize>,
}

impl Plan {
    pub(super) fn random(number: usize, random: &mut Random) -> Self {
        let mut id = 0;
        let steps = (0..1 + random.below(2))
            .map(|_| (0..1 + random.below(2)).map(|_| call(number, &mut id, random)).collect())
            .collect();
        let sometimes = |random: &mut Random, n: u64| random.one_in(n).then(|| 1 + random.below(12) as usize);
        Self {
            number,
            subject: random.pick(&["alice", "bob"]),
            policy: random.pick(&[IdlePolicy::Pause, IdlePolicy::Continue]),
            expires_after: random.pick(&[None, None, Some(1), Some(40), Some(2_000), Some(60_000)]),
            idle: random.pick(&[None, None, Some(15), Some(100), Some(3_000)]),
            steps,
            thinks: random.pick(&[0, 0, 3, 20]),
            pace: random.pick(&[0, 0, 0, 5, 60]),
            leaves: sometimes(random, 8),
            cancels: sometimes(random, 8),
        }
    }

    /// One gated call and nothing that goes wrong.
    pub(super) fn last(number: usize) -> Self {
        let arguments = r#"{"wait":0,"end":"ok"}"#.into();
        Self {
            number,
            subject: "dave",
            policy: IdlePolicy::Pause,
            expires_after: None,
            idle: Some(1),
            steps: vec![vec![ProposedCall { id: "call-1".into(), name: "write".into(), arguments }]],
            thinks: 0,
            pace: 0,
            leaves: None,
            cancels: None,
        }
    }

    pub(super) fn request(&self) -> RunRequest {
        let mut approvals = Approvals::new(self.policy);
        approvals.expires_after_ms = self.expires_after;
        let name = |name| ToolName::parse(name).unwrap();
        let mut request = RunRequest::new(
            ProviderId::parse("mock").unwrap(),
            ModelId::parse("demo").unwrap(),
            self.number.to_string(),
        );
        request.tools = vec![name("write"), name("lookup")];
        request.approvals = Some(approvals);
        request.idle_timeout_ms = self.idle;
        request
    }
}

/// A call whose arguments say what the tool will do. No two are alike, so that one cannot stand for another.
fn call(run: usize, id: &mut usize, random: &mut Random) -> ProposedCall {
    *id += 1;
    let wait = random.pick(&[0, 0, 2, 30, 200]);
    let end = random.pick(&["ok", "ok", "ok", "ok", "error", "panic"]);
    ProposedCall {
        id: format!("call-{id}"),
        name: random.pick(&["write", "write", "write", "lookup"]).into(),
        arguments: format!(r#"{{ "run":{run}, "n":{id}.0, "wait":{wait}, "end":"{end}" }}"#),
    }
}

/// Proposes what the plan says. The input names the plan; the conversation so far names the step.
pub(super) struct Model {
    info: ProviderInfo,
    plans: Vec<Plan>,
}

impl Model {
    pub(super) fn new(plans: Vec<Plan>) -> Arc<Self> {
        let info = ProviderInfo {
            id: ProviderId::parse("mock").unwrap(),
            name: "Mock".into(),
            vendor: "test".into(),
            auth_mode: AuthMode::None,
            capabilities: Capabilities { tools: true, text_streaming: true, others: Default::default() },
            models: None,
            health: None,
            model_catalog: None,
        };
        Arc::new(Self { info, plans })
    }
}

#[async_trait]
impl Provider for Model {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let Some(Message::User(number)) = request.messages.first() else { panic!("the input comes first") };
        let step = request.messages.iter().filter(|m| matches!(m, Message::Assistant(_))).count();
        let plan = &self.plans[number.parse::<usize>().unwrap()];
        sink.text("I think. ");
        tokio::time::sleep(Duration::from_millis(plan.thinks)).await;
        Ok(Turn {
            text: "I think. ".into(),
            calls: plan.steps.get(step).cloned().unwrap_or_default(),
            usage: None,
            finish: FinishReason::Stop,
            native: None,
        })
    }
}

#[derive(Deserialize)]
struct Orders {
    wait: u64,
    end: String,
}

/// `write` is gated, `lookup` is not; both do what their arguments say.
pub(super) fn tools(journal: &Arc<Journal>) -> [Arc<dyn Tool>; 2] {
    let spec = |name| ToolSpec::new(name, "Obeys.", r#"{"type":"object"}"#).unwrap();
    [obeying(spec("write").requires_approval(), "write", journal), obeying(spec("lookup"), "lookup", journal)]
}

fn obeying(spec: ToolSpec, tool_name: &'static str, journal: &Arc<Journal>) -> Arc<dyn Tool> {
    let journal = Arc::clone(journal);
    tool(spec, move |input, context| {
        let journal = Arc::clone(&journal);
        async move {
            let (run, call) = (context.run_id, context.call_id.clone());
            let text = input.text().to_owned();
            let subject = context.subject.clone();
            journal.note(What::Started { run, call: call.clone(), tool: tool_name, subject, text });
            let orders: Orders = input.parse()?;
            tokio::time::sleep(Duration::from_millis(orders.wait)).await;
            match orders.end.as_str() {
                "error" => Err("private: it broke".into()),
                // As a panic, without the noise of its hook.
                "panic" => std::panic::resume_unwind(Box::new("private: it burst")),
                _ => {
                    journal.note(What::Returned { run, call });
                    Ok(Output::json("done")?)
                }
            }
        }
    })
}
