//! The compact log of a run that is an operation: what is stored of its events, and when (contract 9, 4.10).
//!
//! `text.delta` waits for the next event and is merged with its neighbours; `run.progress` is not stored. Every other
//! event is durable before anybody sees it. The first failure sticks: a log with a hole would tell a story that did
//! not happen.

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::RunId;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{Event, EventBody};

use super::{Ended, Operation, StoreError};

/// The most bytes of text that one merged event has. Escaped at six bytes each, they still fit the frame that every
/// client takes (contract 10.2), as the pieces did when they were sent one by one.
const MAX_MERGED_TEXT: usize = 200_000;

/// The log of one running operation.
pub(crate) struct Journal {
    /// Gone after the first failure.
    operation: Option<Box<dyn Operation>>,
    run_id: RunId,
    /// Of the last event that was encoded.
    sequence: u64,
    /// Text that nobody relies on yet.
    texts: Vec<Text>,
    text_bytes: u64,
    /// What is stored so far.
    bytes: u64,
    max_bytes: u64,
}

struct Text {
    at: Timestamp,
    text: String,
}

impl Journal {
    pub(crate) fn new(operation: Box<dyn Operation>, run_id: RunId, max_bytes: u64) -> Self {
        Self {
            operation: Some(operation),
            run_id,
            sequence: 0,
            texts: Vec::new(),
            text_bytes: 0,
            bytes: 0,
            max_bytes,
        }
    }

    /// Stores an event, or keeps it for the next one if it is text. It may be shown once this is `Ok`.
    pub(crate) async fn note(&mut self, at: Timestamp, body: &EventBody) -> Result<(), ErrorInfo> {
        match body {
            EventBody::RunProgress { .. } => Ok(()),
            EventBody::TextDelta { text } => self.keep(at, text),
            _ => {
                let events = self.encode(at, Some(body))?;
                let Some(operation) = &mut self.operation else { return Err(failed()) };
                match operation.append(events).await {
                    Ok(()) => Ok(()),
                    Err(error) => Err(self.fail(&error)),
                }
            }
        }
    }

    /// Ends the operation with its terminal event, or as uncertain if there is none. `Ok` means that every later claim
    /// of the key is told this end.
    pub(crate) async fn finish(
        mut self,
        at: Timestamp,
        terminal: Option<&EventBody>,
    ) -> Result<(), ErrorInfo> {
        let ended = match terminal {
            Some(EventBody::RunCompleted { .. }) => Ended::Completed,
            Some(EventBody::RunFailed { .. }) => Ended::Failed,
            Some(EventBody::RunCancelled { .. }) => Ended::Cancelled,
            Some(_) | None => Ended::Uncertain,
        };
        let events = self.encode(at, terminal)?;
        let Some(operation) = self.operation.take() else { return Err(failed()) };
        operation.finish(ended, events).await.map_err(|error| self.fail(&error))
    }

    /// Keeps text, merged with the text before it.
    fn keep(&mut self, at: Timestamp, piece: &str) -> Result<(), ErrorInfo> {
        if self.operation.is_none() {
            return Err(failed());
        }
        self.text_bytes += piece.len() as u64;
        // Text is bounded while it waits too, though its escapes are counted only when it is written.
        self.check_limit(self.text_bytes)?;
        match self.texts.last_mut() {
            Some(last) if last.text.len() + piece.len() <= MAX_MERGED_TEXT => last.text.push_str(piece),
            _ => self.texts.push(Text { at, text: piece.to_owned() }),
        }
        Ok(())
    }

    /// What waits and then this event, as they are stored.
    fn encode(&mut self, at: Timestamp, body: Option<&EventBody>) -> Result<Vec<String>, ErrorInfo> {
        let texts = std::mem::take(&mut self.texts);
        self.text_bytes = 0;
        let texts = texts.into_iter().map(|Text { at, text }| (at, EventBody::TextDelta { text }));
        let all = texts.chain(body.map(|body| (at, body.clone())));
        let events: Vec<String> = all
            .map(|(timestamp, body)| {
                self.sequence += 1;
                Event { run_id: self.run_id, sequence: self.sequence, timestamp, body }.to_json()
            })
            .collect();
        let bytes = events.iter().map(|event| event.len() as u64).sum();
        self.check_limit(bytes)?;
        self.bytes += bytes;
        Ok(events)
    }

    /// The operation is left as uncertain where its log would be too long: what is stored is not all.
    fn check_limit(&mut self, more: u64) -> Result<(), ErrorInfo> {
        if self.bytes.saturating_add(more) <= self.max_bytes {
            return Ok(());
        }
        self.operation = None;
        Err(ErrorInfo::new(Code::OPERATION_RECORD_LIMIT)
            .with_message(format!("The operation's record would have more than {} bytes.", self.max_bytes))
            .uncertain())
    }

    fn fail(&mut self, error: &StoreError) -> ErrorInfo {
        tracing::error!(run = %self.run_id, cause = error as &dyn std::error::Error, "the operation store failed");
        self.operation = None;
        failed()
    }
}

/// Contract 9: what a run says whose log cannot be written. Also a store that is full now: an effect may have happened
/// since the claim, so it is uncertain, as `OPERATION_STORE_FULL` never is (contract 5.4).
fn failed() -> ErrorInfo {
    ErrorInfo::new(Code::OPERATION_STORE_ERROR).uncertain()
}
