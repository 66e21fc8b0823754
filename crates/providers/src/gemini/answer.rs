//! One answer, from its first chunk to the finished turn.

use countersign_driver::provider::{ProposedCall, ProviderError, Turn};
use countersign_protocol::code::Code;
use countersign_protocol::result::{FinishReason, Usage};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::request::Native;
use super::wire::{Candidate, FunctionCall, Object, Part, invalid};

/// What has been heard so far.
#[derive(Default)]
pub(super) struct Answer {
    text: String,
    calls: Vec<ProposedCall>,
    native: Native,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
}

/// What is new in a chunk.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) text: String,
    /// Something else than text.
    pub(super) more: bool,
}

impl Answer {
    /// Takes a chunk of a stream, or a whole answer.
    pub(super) fn take(&mut self, object: Object<'_>) -> Result<Heard, ProviderError> {
        if let Some(error) = object.error {
            return Err(error.into_failure());
        }
        if object.candidates.is_none() && object.prompt_feedback.is_none() && object.usage_metadata.is_none()
        {
            return Err(invalid("neither candidates nor feedback nor usage nor an error"));
        }
        if let Some(counts) = object.usage_metadata {
            // The reports count up, so the last one counts.
            self.usage = counts.usage()?.or(self.usage.take());
        }
        if object.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            return Err(refused("the prompt was blocked"));
        }
        let mut candidates = object.candidates.map(|candidates| candidates.0).unwrap_or_default();
        match (candidates.pop(), candidates.is_empty()) {
            (None, _) => Ok(Heard::default()),
            (Some(candidate), true) if candidate.index.unwrap_or(0) == 0 => self.take_candidate(candidate),
            (Some(_), _) => Err(invalid("more than the one candidate that was asked for")),
        }
    }

    /// The turn, or `None` if no finish reason has come.
    pub(super) fn finish(self) -> Result<Option<Turn>, ProviderError> {
        let Some(finish) = self.finish else { return Ok(None) };
        if finish == FinishReason::Length && !self.calls.is_empty() {
            // A call comes whole, but perhaps not the last of several.
            return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL));
        }
        // Only a turn with calls is told again.
        let native = if self.calls.is_empty() { None } else { self.native.finish() };
        Ok(Some(Turn { text: self.text, calls: self.calls, usage: self.usage, finish, native }))
    }

    fn take_candidate(&mut self, candidate: Candidate<'_>) -> Result<Heard, ProviderError> {
        let mut heard = Heard::default();
        for raw in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            self.take_part(raw, &mut heard)?;
        }
        if let Some(reason) = candidate.finish_reason {
            // An answer that was cut stays one, whatever is said later.
            self.finish = match (self.finish, finish(&reason)?) {
                (Some(FinishReason::Length), _) => Some(FinishReason::Length),
                (_, later) => Some(later),
            };
        }
        Ok(heard)
    }

    fn take_part(&mut self, raw: &RawValue, heard: &mut Heard) -> Result<(), ProviderError> {
        let part = Part::read(raw)?;
        let signed = part.thought_signature.is_some();
        let text = part.text.as_deref().unwrap_or_default();
        if part.thought == Some(true) {
            // Only heard, never shown; told again if its signature asks for it.
            heard.more |= !text.is_empty() || signed;
        } else {
            heard.text.push_str(text);
            self.text.push_str(text);
        }
        if let Some(call) = part.function_call {
            heard.more = true;
            self.calls.push(proposed(call)?);
            self.native.push_raw(raw);
        } else if signed {
            heard.more = true;
            self.native.push_raw(raw);
        } else if part.thought != Some(true) {
            self.native.push_text(text);
        }
        Ok(())
    }
}

/// A server that leaves ids out tells calls apart by their order. Reviews need an id, so such a call gets a random one
/// (contract 11), which stays with it for the rest of the run and is not told to the server.
fn proposed(call: FunctionCall<'_>) -> Result<ProposedCall, ProviderError> {
    let id = call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| Uuid::new_v4().to_string());
    let name = call.name.filter(|name| !name.is_empty()).ok_or_else(|| invalid("a call without a name"))?;
    let arguments = call.args.map(|args| args.get().to_owned()).unwrap_or_default();
    Ok(ProposedCall { id, name, arguments })
}

/// Older servers write a finish reason into every chunk, so the last one counts; a bad one ends the answer at once.
fn finish(reason: &str) -> Result<FinishReason, ProviderError> {
    let failure = |code, cause: &'static str| ProviderError::new(code).with_source(cause);
    match reason {
        "STOP" => Ok(FinishReason::Stop),
        "MAX_TOKENS" => Ok(FinishReason::Length),
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "IMAGE_SAFETY" => Err(refused("the provider's filter ended the answer")),
        // The server has dropped what the model wrote, so that there is nothing to review.
        "MALFORMED_FUNCTION_CALL" => {
            Err(failure(Code::INVALID_TOOL_CALL, "the model wrote a call that the provider could not read"))
        }
        "UNEXPECTED_TOOL_CALL" => {
            Err(failure(Code::TOOL_NOT_ALLOWED, "the model called a tool that was not offered"))
        }
        "TOO_MANY_TOOL_CALLS" => Err(failure(Code::TOOL_LIMIT, "the model called too many tools at once")),
        "OTHER" => Err(failure(Code::PROVIDER_ERROR, "the provider ended the answer without a reason")),
        _ => Err(invalid("an unknown finish reason")),
    }
}

fn refused(cause: &'static str) -> ProviderError {
    ProviderError::new(Code::PROVIDER_REFUSAL).with_source(cause)
}
