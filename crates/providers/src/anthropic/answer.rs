//! One answer, from its first block to the finished turn.

use std::collections::BTreeMap;

use countersign_driver::provider::{ProposedCall, ProviderError, Turn};
use countersign_protocol::code::Code;
use countersign_protocol::result::FinishReason;

use super::request;
use super::wire::{Block, Counts, Event, Whole, failure, invalid};

/// What has been heard so far.
#[derive(Default)]
pub(super) struct Answer {
    /// The content by index. A block whose end was announced takes nothing more.
    blocks: BTreeMap<u64, (Content, State)>,
    /// The text in the order in which it was streamed; blocks may take turns.
    text: String,
    counts: Counts,
    finish: Option<Finish>,
}

/// A content block.
pub(super) enum Content {
    Text(String),
    Call(ProposedCall),
    Thinking { thinking: String, signature: String },
    RedactedThinking { data: String },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Ended,
}

/// The stop reasons that say that there is an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finish {
    Stop,
    ToolUse,
    Length,
}

/// What an event told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Text(String),
    Something,
    Nothing,
    End,
}

impl Answer {
    /// Takes an event of a stream.
    pub(super) fn take_event(&mut self, event: Event<'_>) -> Result<Heard, ProviderError> {
        match &*event.kind {
            "message_start" => {
                if let Some(counts) = event.message.and_then(|message| message.usage) {
                    self.counts.update(counts);
                }
                Ok(Heard::Nothing)
            }
            "content_block_start" => self.begin(event),
            "content_block_delta" => self.go_on(event),
            "content_block_stop" => {
                let (_, state) = self.open(event.index)?;
                *state = State::Ended;
                Ok(Heard::Nothing)
            }
            "message_delta" => {
                if let Some(counts) = event.usage {
                    self.counts.update(counts);
                }
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.take_finish(&reason)?;
                }
                Ok(Heard::Nothing)
            }
            "message_stop" => Ok(Heard::End),
            "error" => Err(event.error.map_or_else(|| invalid("an error event without an error"), failure)),
            // `ping` is no progress (contract 8), and neither is an event of a kind that came after this was written.
            _ => Ok(Heard::Nothing),
        }
    }

    /// Takes a whole message. Its text is not streamed; the turn carries it.
    pub(super) fn take_whole(&mut self, whole: Whole<'_>) -> Result<(), ProviderError> {
        if let Some(error) = whole.error {
            return Err(failure(error));
        }
        let blocks = whole.content.ok_or_else(|| invalid("no content"))?;
        for (index, raw) in (0..).zip(blocks) {
            let block = Block::read(raw)?;
            let input = block.input;
            let mut content = content(block)?;
            match &mut content {
                Content::Text(text) => self.text.push_str(text),
                Content::Call(call) => {
                    call.arguments = input.map(|input| input.get().to_owned()).unwrap_or_default();
                }
                Content::Thinking { .. } | Content::RedactedThinking { .. } => {}
            }
            self.blocks.insert(index, (content, State::Ended));
        }
        self.counts.update(whole.usage.unwrap_or_default());
        self.take_finish(&whole.stop_reason.ok_or_else(|| invalid("no stop reason"))?)
    }

    /// The turn, if the vendor said that it is complete.
    pub(super) fn finish(self) -> Result<Turn, ProviderError> {
        let finish = self.finish.ok_or_else(|| invalid("no stop reason"))?;
        let truncated = finish == Finish::Length;
        let usage = self.counts.usage()?;
        let mut contents = Vec::new();
        for (content, state) in self.blocks.into_values() {
            if state == State::Open && !truncated {
                return Err(invalid("a content block without an end"));
            }
            contents.push(content);
        }
        let native = request::native(&contents);
        let calls: Vec<_> = contents
            .into_iter()
            .filter_map(|content| if let Content::Call(call) = content { Some(call) } else { None })
            .collect();
        if finish == Finish::ToolUse && calls.is_empty() {
            return Err(invalid("stop reason tool_use without a call"));
        }
        if truncated && !calls.is_empty() {
            // The last call may be half of one that happens to be whole JSON.
            return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL));
        }
        let finish = if truncated { FinishReason::Length } else { FinishReason::Stop };
        // Only a turn with calls is told again.
        let native = if calls.is_empty() { None } else { native };
        Ok(Turn { text: self.text, calls, usage, finish, native })
    }

    fn begin(&mut self, event: Event<'_>) -> Result<Heard, ProviderError> {
        self.unfinished()?;
        let index = event.index.ok_or_else(|| invalid("a content block without an index"))?;
        let raw = event.content_block.ok_or_else(|| invalid("a content block that is missing"))?;
        let block = Block::read(raw)?;
        let input = block.input.map_or("", |input| input.get());
        let mut content = content(block)?;
        let heard = match &mut content {
            Content::Text(text) if text.is_empty() => Heard::Nothing,
            Content::Text(text) => {
                self.text.push_str(text);
                Heard::Text(text.clone())
            }
            Content::Call(call) => {
                // It is `{}`, and the input comes in pieces. Some servers write all of it here.
                if !is_empty_object(input) {
                    call.arguments = input.to_owned();
                }
                Heard::Something
            }
            Content::Thinking { .. } | Content::RedactedThinking { .. } => Heard::Something,
        };
        match self.blocks.insert(index, (content, State::Open)) {
            None => Ok(heard),
            Some(_) => Err(invalid("two content blocks with one index")),
        }
    }

    fn go_on(&mut self, event: Event<'_>) -> Result<Heard, ProviderError> {
        self.unfinished()?;
        let delta = event.delta.ok_or_else(|| invalid("a delta that is missing"))?;
        let (content, _) = self.open(event.index)?;
        let (told, piece) = match (delta.kind.as_deref(), content) {
            (Some("text_delta"), Content::Text(text)) => {
                let piece = delta.text.ok_or_else(|| invalid("a text delta without text"))?;
                text.push_str(&piece);
                self.text.push_str(&piece);
                return Ok(if piece.is_empty() { Heard::Nothing } else { Heard::Text(piece) });
            }
            (Some("input_json_delta"), Content::Call(call)) => (&mut call.arguments, delta.partial_json),
            (Some("thinking_delta"), Content::Thinking { thinking, .. }) => (thinking, delta.thinking),
            (Some("signature_delta"), Content::Thinking { signature, .. }) => (signature, delta.signature),
            (Some("text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta"), _) => {
                return Err(invalid("a delta that does not fit its content block"));
            }
            // It may be a piece of the input: without it another call than the model's would be reviewed (law 3).
            (_, Content::Call(_)) => return Err(invalid("a piece of a call in an unknown form")),
            // Citations and what else there may come: nothing that is carried.
            _ => return Ok(Heard::Nothing),
        };
        let piece = piece.ok_or_else(|| invalid("a delta without its piece"))?;
        told.push_str(&piece);
        Ok(if piece.is_empty() { Heard::Nothing } else { Heard::Something })
    }

    fn open(&mut self, index: Option<u64>) -> Result<&mut (Content, State), ProviderError> {
        let block = index.and_then(|index| self.blocks.get_mut(&index));
        match block {
            Some(block) if block.1 == State::Open => Ok(block),
            _ => Err(invalid("an event for a content block that is not open")),
        }
    }

    fn unfinished(&self) -> Result<(), ProviderError> {
        match self.finish {
            None => Ok(()),
            Some(_) => Err(invalid("an answer that goes on after its stop reason")),
        }
    }

    fn take_finish(&mut self, reason: &str) -> Result<(), ProviderError> {
        let finish = match reason {
            "end_turn" | "stop_sequence" => Finish::Stop,
            "tool_use" => Finish::ToolUse,
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => {
                return Err(ProviderError::new(Code::PROVIDER_REFUSAL).with_source("stop reason refusal"));
            }
            // `pause_turn` is of tools that the vendor runs, and none was offered.
            _ => return Err(invalid("an unknown stop reason")),
        };
        match self.finish.replace(finish) {
            Some(earlier) if earlier != finish => Err(invalid("two stop reasons")),
            _ => Ok(()),
        }
    }
}

/// A block as it begins. A call's input is not in it.
fn content(block: Block<'_>) -> Result<Content, ProviderError> {
    match block.kind.as_str() {
        "text" => Ok(Content::Text(block.text.unwrap_or_default())),
        "tool_use" => {
            let name = block.name.filter(|name| !name.is_empty());
            // A call may lack its id: the driver refuses it (contract 7.3).
            Ok(Content::Call(ProposedCall {
                id: block.id.unwrap_or_default(),
                name: name.ok_or_else(|| invalid("a call without a name"))?,
                arguments: String::new(),
            }))
        }
        "thinking" => Ok(Content::Thinking {
            thinking: block.thinking.unwrap_or_default(),
            signature: block.signature.unwrap_or_default(),
        }),
        "redacted_thinking" => Ok(Content::RedactedThinking { data: block.data.unwrap_or_default() }),
        // Such a block could neither be shown nor told again.
        _ => Err(invalid("a content block of a kind that was not asked for")),
    }
}

fn is_empty_object(text: &str) -> bool {
    text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).is_some_and(|text| text.trim().is_empty())
}
