//! What a Chat Completions server sends, as far as it is read. Unknown members are ignored, as servers add their own.

use std::borrow::Cow;

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::common::{MAX_COUNT, UpTo};

/// One is asked for; another is read so that it can be refused by name.
const MAX_CHOICES: usize = 2;

/// The most calls, or fragments of calls, in one chunk or one whole answer. The driver runs 32 calls of a step.
const MAX_PARTS: usize = 1_024;

/// A chunk of a stream, or a whole answer.
#[derive(Deserialize)]
pub(super) struct Object<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<UpTo<MAX_CHOICES, Choice<'a>>>,
    pub(super) usage: Option<Counts>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// One answer; we ask for one, so its index is 0.
#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub(super) index: u64,
    /// In a chunk: what is new.
    #[serde(borrow)]
    pub(super) delta: Option<Said<'a>>,
    /// In a whole answer: everything.
    #[serde(borrow)]
    pub(super) message: Option<Said<'a>>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Said<'a> {
    pub(super) content: Option<String>,
    pub(super) refusal: Option<String>,
    /// Reasoning has no standard name and no standard form. It is only heard, never shown.
    #[serde(borrow)]
    pub(super) reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning: Option<&'a RawValue>,
    pub(super) tool_calls: Option<UpTo<MAX_PARTS, CallPart>>,
    /// How a call was told before there could be several.
    #[serde(borrow)]
    pub(super) function_call: Option<&'a RawValue>,
}

/// A call, or a fragment of one.
#[derive(Deserialize)]
pub(super) struct CallPart {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) function: Option<FunctionPart>,
}

#[derive(Deserialize, Default)]
pub(super) struct FunctionPart {
    pub(super) name: Option<String>,
    /// JSON text inside a JSON string: decoded once, and then carried as it is.
    pub(super) arguments: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptCounts>,
    completion_tokens_details: Option<CompletionCounts>,
}

#[derive(Deserialize)]
struct PromptCounts {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionCounts {
    reasoning_tokens: Option<u64>,
}

impl<'a> Object<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, ProviderError> {
        // serde_json's own message may quote the answer, so the log gets the place only.
        serde_json::from_slice(text).map_err(|error| {
            invalid(format!(
                "not a chat completion: {:?} error at column {}",
                error.classify(),
                error.column()
            ))
        })
    }
}

impl Said<'_> {
    /// Whether the model is thinking aloud. An empty piece is nothing heard.
    pub(super) fn reasons(&self) -> bool {
        [self.reasoning_content, self.reasoning]
            .into_iter()
            .flatten()
            .any(|raw| !matches!(raw.get(), "null" | "\"\"" | "[]" | "{}"))
    }
}

impl Counts {
    /// The report in the contract's terms; none if it says nothing that we know.
    pub(super) fn usage(self) -> Result<Option<Usage>, ProviderError> {
        let usage = Usage {
            input_tokens: self.prompt_tokens,
            output_tokens: self.completion_tokens,
            cached_input_tokens: self.prompt_tokens_details.and_then(|details| details.cached_tokens),
            reasoning_tokens: self.completion_tokens_details.and_then(|details| details.reasoning_tokens),
            ..Usage::default()
        };
        let counts =
            [usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.reasoning_tokens];
        if counts.iter().flatten().any(|count| *count > MAX_COUNT) {
            return Err(invalid("a token count is out of range"));
        }
        Ok(counts.iter().any(Option::is_some).then_some(usage))
    }
}

/// What a refusal says beyond its HTTP status: xAI tells a wrong key with a 400. Only the beginning of a message, or a
/// code, is surely the server's own; what follows may repeat the conversation.
pub(super) fn refusal(status: u16, body: &[u8]) -> Option<(Code, &'static str)> {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(borrow)]
        error: Words<'a>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words<'a> {
        Plain(Cow<'a, str>),
        Object { message: Option<Cow<'a, str>>, code: Option<Label<'a>> },
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Label<'a> {
        Word(Cow<'a, str>),
        Other(IgnoredAny),
    }
    if status != 400 {
        return None;
    }
    let (message, code) = match serde_json::from_slice::<Refusal<'_>>(body).ok()?.error {
        Words::Plain(message) => (Some(message), None),
        Words::Object { message, code } => (message, code),
    };
    let message = message.unwrap_or_default().to_ascii_lowercase();
    let about_the_key = matches!(code, Some(Label::Word(word)) if word == "invalid_api_key")
        || ["incorrect api key", "invalid api key"].iter().any(|words| message.starts_with(words));
    about_the_key.then_some((Code::PROVIDER_AUTH, "code=invalid_api_key"))
}

/// The answer is not what the protocol allows; `cause` is for the log.
pub(super) fn invalid(cause: impl Into<String>) -> ProviderError {
    ProviderError::new(Code::INVALID_PROVIDER_RESPONSE).with_source(cause.into())
}
