//! What a Gemini server sends, as far as it is read. Unknown members are ignored, as the vendor adds some.

use std::borrow::Cow;

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::common::{MAX_COUNT, UpTo};

/// One is asked for; another is read so that it can be refused by name.
const MAX_CANDIDATES: usize = 2;

/// A chunk of a stream, or a whole answer, or an error in its place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<UpTo<MAX_CANDIDATES, Candidate<'a>>>,
    pub(super) prompt_feedback: Option<Feedback>,
    pub(super) usage_metadata: Option<Counts>,
    pub(super) error: Option<VendorError>,
}

/// One answer; we ask for one, so its index is 0.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<&'a RawValue>>,
}

/// Why the question was refused.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback {
    pub(super) block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) thought_signature: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionCall<'a>>,
    // What was not asked for and cannot be carried.
    #[serde(borrow)]
    inline_data: Option<&'a RawValue>,
    #[serde(borrow)]
    file_data: Option<&'a RawValue>,
    #[serde(borrow)]
    function_response: Option<&'a RawValue>,
    #[serde(borrow)]
    executable_code: Option<&'a RawValue>,
    #[serde(borrow)]
    code_execution_result: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    /// JSON itself, so its text is kept.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) args: Option<&'a RawValue>,
    // A call in pieces, which is another mode that was not asked for.
    #[serde(borrow)]
    partial_args: Option<&'a RawValue>,
    will_continue: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

/// An error, of which only the labels are read: its message may repeat the conversation or the key.
#[derive(Deserialize)]
pub(super) struct VendorError {
    code: Option<u16>,
    status: Option<String>,
    details: Option<Vec<Detail>>,
}

#[derive(Deserialize)]
struct Detail {
    reason: Option<String>,
}

impl<'a> Object<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, ProviderError> {
        read(text, "a generateContent answer")
    }
}

impl<'a> Part<'a> {
    pub(super) fn read(raw: &'a RawValue) -> Result<Self, ProviderError> {
        let part: Self = read(raw.get().as_bytes(), "a part")?;
        let other = [
            part.inline_data,
            part.file_data,
            part.function_response,
            part.executable_code,
            part.code_execution_result,
            part.tool_call,
            part.tool_response,
        ];
        let in_pieces = part
            .function_call
            .as_ref()
            .is_some_and(|call| call.partial_args.is_some() || call.will_continue == Some(true));
        if other.iter().any(Option::is_some) || in_pieces {
            return Err(invalid("a part of a kind that was not asked for"));
        }
        // A part without any content comes at the end of some answers.
        let known = part.text.is_some() || part.function_call.is_some() || part.thought_signature.is_some();
        if !known && part.thought.is_none() && !is_empty(raw) {
            return Err(invalid("a part of an unknown kind"));
        }
        if part.text.is_some() && part.function_call.is_some() {
            return Err(invalid("a part that is both text and a call"));
        }
        Ok(part)
    }
}

impl Counts {
    /// The report in the contract's terms; none if it says nothing that we know. The vendor counts thoughts apart from
    /// the rest of the output, and what came from a cache as a part of the input.
    pub(super) fn usage(&self) -> Result<Option<Usage>, ProviderError> {
        let output = match (self.candidates_token_count, self.thoughts_token_count) {
            (None, None) => None,
            (said, thought) => Some(said.unwrap_or(0).saturating_add(thought.unwrap_or(0))),
        };
        let usage = Usage {
            input_tokens: self.prompt_token_count,
            output_tokens: output,
            cached_input_tokens: self.cached_content_token_count,
            reasoning_tokens: self.thoughts_token_count,
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

impl VendorError {
    /// The failure of an error that was sent in place of an answer. Its `code` is documented as the HTTP status, so the
    /// codes and retry hints are those of that status.
    pub(super) fn into_failure(self) -> ProviderError {
        let (code, label) = match self.code {
            _ if self.is_about_the_key() => (Code::PROVIDER_AUTH, " reason=API_KEY_INVALID"),
            Some(401 | 403) => (Code::PROVIDER_AUTH, ""),
            Some(429) => (Code::RATE_LIMITED, ""),
            _ => (Code::PROVIDER_ERROR, ""),
        };
        let status = self.code.unwrap_or_default();
        let cause = format!("the provider sent an error code={status}{label}{}", self.label());
        let mut failure = ProviderError::new(code).with_source(cause);
        failure.info.retryable = matches!(status, 429 | 500..);
        failure
    }

    /// A wrong key is no 401 here, but a 400 with this reason.
    fn is_about_the_key(&self) -> bool {
        let mut reasons = self.details.iter().flatten().filter_map(|detail| detail.reason.as_deref());
        reasons.any(|reason| reason == "API_KEY_INVALID")
    }

    /// The status, if it looks like one of the vendor's.
    fn label(&self) -> String {
        let status = self.status.as_deref().unwrap_or_default();
        let plain = status.len() <= 40 && status.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        if plain && !status.is_empty() { format!(" status={status}") } else { String::new() }
    }
}

/// What a refusal says beyond its HTTP status.
pub(super) fn refusal(status: u16, body: &[u8]) -> Option<(Code, &'static str)> {
    let about_the_key = status == 400
        && serde_json::from_slice::<Object<'_>>(body)
            .ok()
            .and_then(|refusal| refusal.error)
            .is_some_and(|error| error.is_about_the_key());
    about_the_key.then_some((Code::PROVIDER_AUTH, "reason=API_KEY_INVALID"))
}

/// The answer is not what the protocol allows; `cause` is for the log.
pub(super) fn invalid(cause: impl Into<String>) -> ProviderError {
    ProviderError::new(Code::INVALID_PROVIDER_RESPONSE).with_source(cause.into())
}

fn is_empty(object: &RawValue) -> bool {
    object.get().trim_matches(['{', '}']).trim_ascii().is_empty()
}

/// `null` is a value: without this, arguments of `null` would be arguments that are missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8], what: &str) -> Result<T, ProviderError> {
    // serde_json's own message may quote the answer, so the log gets the place only.
    serde_json::from_slice(text).map_err(|error| {
        invalid(format!("not {what}: {:?} error at column {}", error.classify(), error.column()))
    })
}
