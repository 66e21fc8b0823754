//! One answer, from its first event to the finished turn.

use std::collections::BTreeMap;

use countersign_driver::provider::{ProviderError, Turn, TurnSink};
use countersign_protocol::code::Code;
use countersign_protocol::result::{FinishReason, Usage};
use serde_json::value::RawValue;

use super::item::{Done, Item, Kind, Meaning};
use super::wire::{Counts, Event, Response, invalid, refusal};
use crate::http::VendorError;

/// What has been heard so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// By their place in the answer.
    items: BTreeMap<u64, Item>,
    /// The text in the order in which it was streamed.
    text: String,
}

/// How an answer ended that is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Length,
}

impl Answer {
    /// Takes an event that does not end the answer, and tells `sink` what is new in it.
    pub(super) fn take(&mut self, event: Event<'_>, sink: &dyn TurnSink) -> Result<(), ProviderError> {
        match event.kind.as_str() {
            "response.output_item.added" => {
                self.item(&event)?.begin(raw(&event)?)?;
                sink.progress();
            }
            "response.output_text.delta" => {
                let piece = event.text()?;
                self.item(&event)?.expect(Kind::Message, event.item_id)?.add(&piece);
                self.say(&piece, sink);
            }
            "response.refusal.delta" => refusal(&event.text()?)?,
            "response.function_call_arguments.delta" => {
                let piece = event.text()?;
                self.item(&event)?.expect(Kind::Call, event.item_id)?.add(&piece);
                if !piece.is_empty() {
                    sink.progress();
                }
            }
            "response.function_call_arguments.done" => {
                let item = self.item(&event)?;
                item.expect(Kind::Call, event.item_id)?.end_arguments(event.arguments)?;
            }
            "response.output_item.done" => {
                let unheard = self.item(&event)?.end(raw(&event)?)?;
                self.say(&unheard.unwrap_or_default(), sink);
                sink.progress();
            }
            // Its labels stand in the event itself, or in an object of their own.
            "error" => {
                let error = event.error.or(event.whole).ok_or_else(|| invalid("an error without a form"))?;
                return Err(failed(error));
            }
            "" => {
                let error = event.error.ok_or_else(|| invalid("an event without a type"))?;
                return Err(failed(error));
            }
            // Reasoning, and whatever else a vendor tells of its work.
            other if other.ends_with(".delta") && event.says_something() => sink.progress(),
            _ => {}
        }
        Ok(())
    }

    /// The turn, if `response` says that the answer is complete.
    pub(super) fn finish(mut self, response: Response<'_>) -> Result<Turn, ProviderError> {
        let end = end_of(&response)?;
        let usage = response.usage.map_or(Ok(None), Counts::usage)?;
        let listed = response.output.unwrap_or_default();
        if end == End::Length {
            return self.cut(&listed, usage);
        }
        let listed: Vec<Done> = listed.into_iter().map(Done::parse).collect::<Result<_, _>>()?;
        let items = if self.items.is_empty() {
            // It was not streamed, and so nothing was heard of its text.
            listed
        } else {
            let heard: Option<Vec<Done>> = self.items.into_values().map(Item::into_done).collect();
            let heard = heard.ok_or_else(|| invalid("a complete response with an item that is not"))?;
            let alike = |(a, b): (&Done, &Done)| a.meaning == b.meaning;
            // Some servers leave the list out at the end.
            let agrees =
                listed.is_empty() || (listed.len() == heard.len() && listed.iter().zip(&heard).all(alike));
            if !agrees {
                return Err(invalid("a response in two versions"));
            }
            heard
        };
        let mut calls = Vec::new();
        let mut native = String::from("[");
        let streamed = !self.text.is_empty();
        for item in items {
            if native.len() > 1 {
                native.push(',');
            }
            native.push_str(&item.native);
            match item.meaning {
                Meaning::Call(call) => calls.push(call),
                Meaning::Message(text) if !streamed => self.text.push_str(&text),
                Meaning::Message(_) | Meaning::Reasoning => {}
            }
        }
        native.push(']');
        Ok(Turn { text: self.text, calls, usage, finish: FinishReason::Stop, native: Some(native.into()) })
    }

    /// An answer that the limit cut. Its last item is not finished; a call in it may be half of one that happens to be
    /// whole JSON.
    fn cut(mut self, listed: &[&RawValue], usage: Option<Usage>) -> Result<Turn, ProviderError> {
        let mut text = String::new();
        for raw in listed {
            match Done::parse(raw)?.meaning {
                Meaning::Message(said) => text.push_str(&said),
                Meaning::Call(_) => return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL)),
                Meaning::Reasoning => {}
            }
        }
        if self.items.values().any(Item::is_call) {
            return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL));
        }
        if self.text.is_empty() {
            self.text = text;
        }
        Ok(Turn { text: self.text, calls: Vec::new(), usage, finish: FinishReason::Length, native: None })
    }

    fn item(&mut self, event: &Event<'_>) -> Result<&mut Item, ProviderError> {
        let index =
            event.output_index.ok_or_else(|| invalid("an event that does not say which item it means"))?;
        Ok(self.items.entry(index).or_default())
    }

    fn say(&mut self, piece: &str, sink: &dyn TurnSink) {
        if !piece.is_empty() {
            self.text.push_str(piece);
            sink.text(piece);
        }
    }
}

fn raw<'a>(event: &Event<'a>) -> Result<&'a RawValue, ProviderError> {
    event.item.ok_or_else(|| invalid("an item event without an item"))
}

fn failed(error: &RawValue) -> ProviderError {
    VendorError::read(error).into_failure()
}

/// How the answer ended, if it is an answer.
fn end_of(response: &Response<'_>) -> Result<End, ProviderError> {
    if let Some(error) = response.error.filter(|error| error.get() != "null") {
        return Err(failed(error));
    }
    match response.status.as_deref() {
        Some("completed") => Ok(End::Complete),
        Some("incomplete") => {
            let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
            match reason {
                Some("max_output_tokens") => Ok(End::Length),
                Some("content_filter") => Err(ProviderError::new(Code::PROVIDER_REFUSAL)
                    .with_source("the provider's content filter ended the answer")),
                _ => Err(invalid("a response that is incomplete for an unknown reason")),
            }
        }
        Some("failed") => Err(ProviderError::new(Code::PROVIDER_ERROR).with_source("the response failed")),
        _ => Err(invalid("a response without an end")),
    }
}
