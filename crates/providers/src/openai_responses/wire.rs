//! What a Responses server sends, as far as it is read. Unknown members are ignored, as vendors add their own.

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::common::MAX_COUNT;

/// One event of a stream. Which members it has depends on its type.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    /// Missing in what proxies put into a stream when something fails.
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    /// Which item is meant.
    pub(super) output_index: Option<u64>,
    /// Its id, which says it once more.
    pub(super) item_id: Option<String>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    /// A piece, where the type ends in `.delta`. Not text for every type.
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    /// The whole argument text, at its end.
    pub(super) arguments: Option<String>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// All of it: some errors stand in the event itself.
    #[serde(skip)]
    pub(super) whole: Option<&'a RawValue>,
}

/// A whole answer, or its state at an event.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    pub(super) status: Option<String>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    pub(super) incomplete_details: Option<Incomplete>,
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    pub(super) usage: Option<Counts>,
}

#[derive(Deserialize)]
pub(super) struct Incomplete {
    pub(super) reason: Option<String>,
}

/// One item of an answer.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: Option<String>,
    pub(super) status: Option<String>,
    /// Of a call: what its output refers to.
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    /// JSON text inside a JSON string: decoded once, and then carried as it is.
    pub(super) arguments: Option<String>,
    /// Of a message: its parts. Reasoning has another kind of content, which is not read.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputCounts>,
    output_tokens_details: Option<OutputCounts>,
}

#[derive(Deserialize)]
struct InputCounts {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputCounts {
    reasoning_tokens: Option<u64>,
}

/// Reads a whole answer.
pub(super) fn whole(text: &[u8]) -> Result<Response<'_>, ProviderError> {
    serde_json::from_slice(text).map_err(|error| unreadable("response", &error))
}

impl<'a> Event<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, ProviderError> {
        let whole: &RawValue = serde_json::from_str(text).map_err(|error| unreadable("event", &error))?;
        let event: Self = serde_json::from_str(whole.get()).map_err(|error| unreadable("event", &error))?;
        Ok(Self { whole: Some(whole), ..event })
    }

    /// Whether nothing comes after it.
    pub(super) fn ends(&self) -> bool {
        matches!(self.kind.as_str(), "response.completed" | "response.incomplete" | "response.failed")
    }

    /// The answer that an event carries whose type says how it ended. Its own status must say the same.
    pub(super) fn response(&self) -> Result<Response<'a>, ProviderError> {
        let raw = self.response.ok_or_else(|| invalid("an end without its response"))?;
        let mut response: Response<'a> =
            serde_json::from_str(raw.get()).map_err(|error| unreadable("response", &error))?;
        let ended = self.kind.strip_prefix("response.").unwrap_or_default();
        if response.status.get_or_insert_with(|| ended.to_owned()) != ended {
            return Err(invalid("a response that ends in two ways"));
        }
        Ok(response)
    }

    /// A piece of text.
    pub(super) fn text(&self) -> Result<String, ProviderError> {
        let raw = self.delta.ok_or_else(|| invalid("a delta event without a delta"))?;
        serde_json::from_str(raw.get()).map_err(|error| unreadable("delta", &error))
    }

    /// Whether its delta says anything.
    pub(super) fn says_something(&self) -> bool {
        self.delta.is_some_and(|raw| !matches!(raw.get(), "null" | "\"\"" | "[]" | "{}"))
    }
}

impl<'a> Item<'a> {
    pub(super) fn parse(raw: &'a RawValue) -> Result<Self, ProviderError> {
        serde_json::from_str(raw.get()).map_err(|error| unreadable("item", &error))
    }

    /// The text of a message. A refusal in it is the whole answer.
    pub(super) fn text(&self) -> Result<String, ProviderError> {
        let Some(content) = self.content else { return Ok(String::new()) };
        let parts: Vec<Part> =
            serde_json::from_str(content.get()).map_err(|error| unreadable("message", &error))?;
        let mut text = String::new();
        for part in parts {
            match part.kind.as_str() {
                "output_text" => text.push_str(part.text.as_deref().unwrap_or_default()),
                "refusal" => refusal(part.refusal.as_deref().unwrap_or_default())?,
                _ => return Err(invalid("a message with a part that is neither text nor a refusal")),
            }
        }
        Ok(text)
    }
}

impl Counts {
    /// The report in the contract's terms; none if it says nothing that we know.
    pub(super) fn usage(self) -> Result<Option<Usage>, ProviderError> {
        let usage = Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cached_input_tokens: self.input_tokens_details.and_then(|details| details.cached_tokens),
            reasoning_tokens: self.output_tokens_details.and_then(|details| details.reasoning_tokens),
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

/// Ends the turn if the model refuses in any words. They may be private to the run, so they are no cause for the log.
pub(super) fn refusal(words: &str) -> Result<(), ProviderError> {
    if words.is_empty() {
        return Ok(());
    }
    Err(ProviderError::new(Code::PROVIDER_REFUSAL).with_source("the model refused"))
}

/// The answer is not what the protocol allows; `cause` is for the log.
pub(super) fn invalid(cause: impl Into<String>) -> ProviderError {
    ProviderError::new(Code::INVALID_PROVIDER_RESPONSE).with_source(cause.into())
}

/// serde_json's own message may quote the answer, so the log gets the place only.
fn unreadable(what: &str, error: &serde_json::Error) -> ProviderError {
    invalid(format!("not a {what}: {:?} error at column {}", error.classify(), error.column()))
}
