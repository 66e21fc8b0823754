//! One answer, from its first piece to the finished turn.

use countersign_driver::provider::{ProposedCall, ProviderError, Turn, TurnSink};
use countersign_protocol::code::Code;
use countersign_protocol::result::{FinishReason, Usage};

use super::calls::{Calls, Heard};
use super::wire::{Choice, Object, Said, invalid};
use crate::http::VendorError;

/// What has been heard so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    text: String,
    calls: Calls,
    /// Calls of a whole answer, which have no index: their order is their identity.
    whole_calls: Vec<ProposedCall>,
    /// Whether there was a call in the form of before there were several.
    legacy: bool,
    usage: Option<Usage>,
    finish: Option<Finish>,
}

/// The finish reasons that say that there is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Stop,
    ToolCalls,
    Length,
}

impl Answer {
    /// Takes a chunk of a stream and tells `sink` what is new in it.
    pub(super) fn take_chunk(&mut self, chunk: Object<'_>, sink: &dyn TurnSink) -> Result<(), ProviderError> {
        let Some(choice) = self.take_envelope(chunk)? else { return Ok(()) };
        if let Some(said) = choice.delta {
            self.take_delta(said, sink)?;
        }
        self.take_finish(choice.finish_reason.as_deref())
    }

    /// Takes a whole answer. Its text is not streamed; the turn carries it.
    pub(super) fn take_whole(&mut self, answer: Object<'_>) -> Result<(), ProviderError> {
        let choice = self.take_envelope(answer)?.ok_or_else(|| invalid("no choices"))?;
        let said = choice.message.ok_or_else(|| invalid("a choice without a message"))?;
        refusal(&said)?;
        self.legacy |= said.function_call.is_some();
        self.text = said.content.unwrap_or_default();
        for part in said.tool_calls.map(|parts| parts.0).unwrap_or_default() {
            let mut calls = Calls::default();
            calls.take(super::wire::CallPart { index: Some(0), ..part }).map_err(invalid)?;
            self.whole_calls.extend(calls.finish().map_err(invalid)?);
        }
        self.take_finish(choice.finish_reason.as_deref())
    }

    /// The turn, if the vendor said that it is complete.
    pub(super) fn finish(self) -> Result<Turn, ProviderError> {
        let finish = self.finish.ok_or_else(|| invalid("no finish reason"))?;
        let mut calls = self.calls.finish().map_err(invalid)?;
        calls.extend(self.whole_calls);
        if self.legacy && calls.is_empty() {
            // Some servers tell a call in both forms. One that is told in this form alone would be lost.
            return Err(invalid("a call in a form that was not asked for"));
        }
        if finish == Finish::ToolCalls && calls.is_empty() {
            return Err(invalid("finish reason tool_calls without a call"));
        }
        let finish = match finish {
            // Some servers say `stop` beside calls.
            Finish::Stop | Finish::ToolCalls => FinishReason::Stop,
            Finish::Length => FinishReason::Length,
        };
        if finish == FinishReason::Length && !calls.is_empty() {
            // The last call may be half of one that happens to be whole JSON.
            return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL));
        }
        Ok(Turn { text: self.text, calls, usage: self.usage, finish, native: None })
    }

    /// Errors, usage, and the choice if there is one. The last report of usage counts: servers that send more than one
    /// count up.
    fn take_envelope<'a>(&mut self, object: Object<'a>) -> Result<Option<Choice<'a>>, ProviderError> {
        if let Some(error) = object.error {
            return Err(VendorError::read(error).into_failure());
        }
        if object.choices.is_none() && object.usage.is_none() {
            return Err(invalid("neither choices nor usage nor an error"));
        }
        if let Some(counts) = object.usage {
            self.usage = counts.usage()?.or(self.usage.take());
        }
        let mut choices = object.choices.map(|choices| choices.0).unwrap_or_default();
        match (choices.pop(), choices.is_empty()) {
            (None, _) => Ok(None),
            (Some(choice), true) if choice.index == 0 => Ok(Some(choice)),
            (Some(_), _) => Err(invalid("more than the one choice that was asked for")),
        }
    }

    fn take_delta(&mut self, said: Said<'_>, sink: &dyn TurnSink) -> Result<(), ProviderError> {
        refusal(&said)?;
        self.legacy |= said.function_call.is_some();
        let reasons = said.reasons();
        let content = said.content.unwrap_or_default();
        let parts = said.tool_calls.map(|parts| parts.0).unwrap_or_default();
        if self.finish.is_some() && !(content.is_empty() && parts.is_empty()) {
            return Err(invalid("an answer that goes on after its finish reason"));
        }
        if !content.is_empty() {
            self.text.push_str(&content);
            sink.text(&content);
        }
        let mut heard = if reasons { Heard::Something } else { Heard::Nothing };
        for part in parts {
            if self.calls.take(part).map_err(invalid)? == Heard::Something {
                heard = Heard::Something;
            }
        }
        if heard == Heard::Something {
            sink.progress();
        }
        Ok(())
    }

    fn take_finish(&mut self, reason: Option<&str>) -> Result<(), ProviderError> {
        let finish = match reason {
            // Some servers write an empty reason where there is none yet.
            None | Some("") => return Ok(()),
            Some("stop") => Finish::Stop,
            Some("tool_calls") => Finish::ToolCalls,
            Some("length") => Finish::Length,
            Some("content_filter") => {
                return Err(ProviderError::new(Code::PROVIDER_REFUSAL)
                    .with_source("the provider's content filter ended the answer"));
            }
            Some(_) => return Err(invalid("an unknown finish reason")),
        };
        match self.finish.replace(finish) {
            Some(earlier) if earlier != finish => Err(invalid("two finish reasons")),
            _ => Ok(()),
        }
    }
}

fn refusal(said: &Said<'_>) -> Result<(), ProviderError> {
    match said.refusal.as_deref() {
        None | Some("") => Ok(()),
        // The model's own words may be private to the run, so they are not a cause for the log.
        Some(_) => Err(ProviderError::new(Code::PROVIDER_REFUSAL).with_source("the model refused")),
    }
}
