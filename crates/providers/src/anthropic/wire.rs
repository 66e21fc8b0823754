//! What a Messages server sends, as far as it is read. Unknown members and unknown events are ignored, as the vendor
//! announces that it adds some.

use std::borrow::Cow;

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::common::MAX_COUNT;
use crate::http::VendorError;

/// One event of a stream. Which members there are depends on `kind`.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) index: Option<u64>,
    pub(super) message: Option<Started>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    pub(super) usage: Option<Counts>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The message of `message_start`.
#[derive(Deserialize)]
pub(super) struct Started {
    pub(super) usage: Option<Counts>,
}

/// A whole message, or an error in its place.
#[derive(Deserialize)]
pub(super) struct Whole<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Vec<&'a RawValue>>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: Option<Counts>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// What a content block is when it begins, or all of it in a whole message.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    /// JSON itself, so its text is kept.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) input: Option<&'a RawValue>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) data: Option<String>,
}

/// What is new in a block, or at the end in the message.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) text: Option<String>,
    pub(super) partial_json: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) stop_reason: Option<String>,
}

/// What a message cost so far. Later reports replace earlier ones, member by member.
#[derive(Deserialize, Default)]
pub(super) struct Counts {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl<'a> Event<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, ProviderError> {
        read(text.as_bytes(), "an event")
    }
}

impl<'a> Whole<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, ProviderError> {
        read(text, "a message")
    }
}

impl<'a> Block<'a> {
    pub(super) fn read(raw: &'a RawValue) -> Result<Self, ProviderError> {
        read(raw.get().as_bytes(), "a content block")
    }
}

impl Counts {
    /// Takes a later report.
    pub(super) fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
    }

    /// The report in the contract's terms; none if it says nothing that we know. The vendor counts what came from a
    /// cache and what went into one apart from the rest of the input.
    pub(super) fn usage(&self) -> Result<Option<Usage>, ProviderError> {
        let parts = [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens];
        if parts.iter().chain([&self.output_tokens]).flatten().any(|count| *count > MAX_COUNT) {
            return Err(invalid("a token count is out of range"));
        }
        // Each is below 2^53, so that the sum cannot overflow.
        let input = self.input_tokens.map(|_| parts.iter().flatten().sum::<u64>());
        if input.is_some_and(|sum| sum > MAX_COUNT) {
            return Err(invalid("a token count is out of range"));
        }
        let usage = Usage {
            input_tokens: input,
            output_tokens: self.output_tokens,
            cached_input_tokens: self.cache_read_input_tokens,
            ..Usage::default()
        };
        let known = input.or(usage.output_tokens).or(usage.cached_input_tokens);
        Ok(known.is_some().then_some(usage))
    }
}

/// The failure of an error that was sent in place of an answer. The vendor documents which status each type has, so
/// the codes and retry hints are those of that status.
pub(super) fn failure(error: &RawValue) -> ProviderError {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(rename = "type", borrow)]
        kind: Option<Cow<'a, str>>,
    }
    let kind = serde_json::from_str::<Kind<'_>>(error.get()).ok().and_then(|error| error.kind);
    let (code, retryable) = match kind.as_deref() {
        Some("authentication_error" | "permission_error") => (Code::PROVIDER_AUTH, false),
        Some("rate_limit_error") => (Code::RATE_LIMITED, true),
        Some("overloaded_error" | "api_error" | "timeout_error") => (Code::PROVIDER_ERROR, true),
        _ => (Code::PROVIDER_ERROR, false),
    };
    let labels = VendorError::read(error).labels();
    let mut failure = ProviderError::new(code).with_source(format!("the provider sent an error{labels}"));
    failure.info.retryable = retryable;
    failure
}

/// The answer is not what the protocol allows; `cause` is for the log.
pub(super) fn invalid(cause: impl Into<String>) -> ProviderError {
    ProviderError::new(Code::INVALID_PROVIDER_RESPONSE).with_source(cause.into())
}

/// `null` is a value: without this, an input of `null` would be one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8], what: &str) -> Result<T, ProviderError> {
    // serde_json's own message may quote the answer, so the log gets the place only.
    serde_json::from_slice(text).map_err(|error| {
        invalid(format!("not {what}: {:?} error at column {}", error.classify(), error.column()))
    })
}
