//! The scripted provider: turns that were written down beforehand. It needs no network and records nothing.
//!
//! The script is chosen by the exact text of the last user message, else it is the default one; the step is the number
//! of assistant messages after that user message. So the provider holds no state: any number of runs may use it at
//! once, and a step is repeated exactly if it is asked for again. A script that runs out answers `done`.

mod builder;
mod config;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{
    Message, ProposedCall, Provider, ProviderError, Turn, TurnRequest, TurnSink,
};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::provider_info::{AuthMode, Capabilities, ProviderInfo};
use countersign_protocol::result::{FinishReason, Usage};

pub use builder::ScriptedBuilder;

/// Everything that a scripted provider says, read from data or made by [`Scripted::builder`].
///
/// Reading is strict: unknown, repeated, missing and `null` members are refused with their path. The form is
/// `{"id","kind":"scripted","models":[..],"name"?,"scripts"?:{"<exact input>":[STEP,..]},"default"?:[STEP,..],
/// "capabilities"?:{..}}`; [`Step`] says what a STEP is.
#[derive(Debug, Clone)]
pub struct ScriptedConfig {
    id: ProviderId,
    name: Option<String>,
    models: Vec<ModelId>,
    scripts: BTreeMap<String, Vec<Step>>,
    default: Vec<Step>,
    capabilities: Capabilities,
}

/// One turn of the model.
///
/// As data: `{"text"?,"deltas"?:[string,..],"calls"?:[{"id","name","arguments":{..}} |
/// {"id","name","argumentsText":"raw text"}],"usage"?,"delayMs"?,"finish"?:"stop"|"length","error"?:{"code","message"}}`.
/// `arguments` is proposed in the very text in which it is written, `argumentsText` may be anything, JSON or not.
#[derive(Debug, Clone)]
pub struct Step {
    text: String,
    deltas: Vec<String>,
    calls: Vec<ProposedCall>,
    usage: Option<Usage>,
    delay: Duration,
    finish: FinishReason,
    error: Option<ErrorInfo>,
}

/// A provider that plays a [`ScriptedConfig`].
#[derive(Debug)]
pub struct Scripted {
    info: ProviderInfo,
    scripts: BTreeMap<String, Vec<Step>>,
    default: Vec<Step>,
}

impl Scripted {
    /// The provider of a configuration.
    pub fn from_config(config: ScriptedConfig) -> Self {
        let info = ProviderInfo {
            name: config.name.unwrap_or_else(|| config.id.to_string()),
            id: config.id,
            vendor: "scripted".to_owned(),
            auth_mode: AuthMode::None,
            capabilities: config.capabilities,
            models: Some(config.models),
            health: None,
            model_catalog: None,
        };
        Self { info, scripts: config.scripts, default: config.default }
    }

    /// Starts a provider in code. `id` is the instance that requests name; it is checked by
    /// [`build`](ScriptedBuilder::build).
    pub fn builder(id: impl Into<String>) -> ScriptedBuilder {
        ScriptedBuilder::new(id.into())
    }

    fn step(&self, messages: &[Message]) -> Option<&Step> {
        let asked = messages.iter().rposition(|message| matches!(message, Message::User(_)));
        let (input, after) = match asked {
            Some(at) => match &messages[at] {
                Message::User(text) => (Some(text.as_str()), &messages[at + 1..]),
                Message::Assistant(_) | Message::Tool { .. } => (None, messages),
            },
            None => (None, messages),
        };
        let script = input.and_then(|text| self.scripts.get(text)).unwrap_or(&self.default);
        script.get(after.iter().filter(|message| matches!(message, Message::Assistant(_))).count())
    }
}

#[async_trait]
impl Provider for Scripted {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let exhausted;
        let step = match self.step(request.messages) {
            Some(step) => step,
            None => {
                exhausted = Step::text("done");
                &exhausted
            }
        };
        if !step.delay.is_zero() {
            tokio::time::sleep(step.delay).await;
        }
        for delta in &step.deltas {
            sink.text(delta);
            // As a network would: whoever reads the text, or gives up on it, has its turn between two pieces.
            tokio::task::yield_now().await;
        }
        if let Some(error) = &step.error {
            return Err(ProviderError { info: error.clone(), source: None });
        }
        Ok(Turn {
            text: step.text.clone(),
            calls: step.calls.clone(),
            usage: step.usage,
            finish: step.finish,
            native: None,
        })
    }
}

impl Step {
    /// An answer in one piece.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::empty() }
    }

    /// An answer that is streamed piece by piece; its text is all the pieces together.
    pub fn deltas<I>(deltas: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let deltas: Vec<String> = deltas.into_iter().map(Into::into).collect();
        Self { text: deltas.concat(), deltas, ..Self::empty() }
    }

    /// A turn that proposes one call. The argument text is proposed byte for byte, whatever it is.
    pub fn call(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::empty().and_call(id, name, arguments)
    }

    /// A turn that fails with the code's own retry hint (contract 5.3).
    pub fn error(code: impl Into<Code>, message: impl Into<String>) -> Self {
        Self { error: Some(ErrorInfo::new(code.into()).with_message(message.into())), ..Self::empty() }
    }

    /// The same turn with one more call.
    #[must_use]
    pub fn and_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.calls.push(ProposedCall { id: id.into(), name: name.into(), arguments: arguments.into() });
        self
    }

    /// The same turn with a usage report. Without one it reports nothing.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The same turn after a wait, during which nothing is streamed.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same turn with another reason for its end. `Length` beside calls is played as it is: that a cut call is never
    /// executed is the driver's rule (`TRUNCATED_TOOL_CALL`, contract 11).
    #[must_use]
    pub fn finish(mut self, finish: FinishReason) -> Self {
        self.finish = finish;
        self
    }

    fn empty() -> Self {
        Self {
            text: String::new(),
            deltas: Vec::new(),
            calls: Vec::new(),
            usage: None,
            delay: Duration::ZERO,
            finish: FinishReason::Stop,
            error: None,
        }
    }
}
