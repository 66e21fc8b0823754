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
    /// Gone after the first failure, which makes it uncertain.
    operation: Result<Box<dyn Operation>, ErrorInfo>,
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
            operation: Ok(operation),
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
                let operation = self.operation.as_mut().map_err(|first| first.clone())?;
                match operation.append(events).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.fail(failure(self.run_id, &error)),
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
        let operation = self.operation?;
        operation.finish(ended, events).await.map_err(|error| failure(self.run_id, &error))
    }

    /// Keeps text, merged with the text before it.
    fn keep(&mut self, at: Timestamp, piece: &str) -> Result<(), ErrorInfo> {
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
        let message = format!("The operation's record would have more than {} bytes.", self.max_bytes);
        self.fail(ErrorInfo::new(Code::OPERATION_RECORD_LIMIT).with_message(message).uncertain())
    }

    fn fail(&mut self, error: ErrorInfo) -> Result<(), ErrorInfo> {
        if self.operation.is_ok() {
            self.operation = Err(error);
        }
        match &self.operation {
            Ok(_) => Ok(()),
            Err(first) => Err(first.clone()),
        }
    }
}

/// Contract 9: what a run says whose log cannot be written. Also a store that is full now: an effect may have happened
/// since the claim, so it is uncertain, as `OPERATION_STORE_FULL` never is (contract 5.4).
fn failure(run: RunId, error: &StoreError) -> ErrorInfo {
    tracing::error!(%run, cause = error as &dyn std::error::Error, "the operation store failed");
    ErrorInfo::new(Code::OPERATION_STORE_ERROR).uncertain()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersign_approval_core::ids::{ModelId, ProviderId, Subject};
    use countersign_approval_core::json::Digest;
    use countersign_protocol::event::Phase;

    use super::super::{Claim, Claimed, MemoryOperationStore, OperationKey, OperationStore, Origin};
    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_767_323_045_678);

    fn claim() -> Claim {
        Claim {
            key: OperationKey::of(&Subject::local(), "key-1"),
            fingerprint: Digest::of("a request"),
            origin: Origin {
                run_id: RunId::parse("7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11").unwrap(),
                provider: ProviderId::parse("mock").unwrap(),
                model: ModelId::parse("demo").unwrap(),
                claimed_at: AT,
            },
        }
    }

    async fn begin(max_bytes: u64) -> (Arc<MemoryOperationStore>, Journal) {
        let store = Arc::new(MemoryOperationStore::default());
        let Claimed::New(operation) = store.claim(claim()).await.unwrap() else { panic!("the key is new") };
        (store, Journal::new(operation, claim().origin.run_id, max_bytes))
    }

    async fn log(store: &MemoryOperationStore) -> (&'static str, Vec<String>) {
        match store.claim(claim()).await.unwrap() {
            Claimed::Replay(log) => ("replay", log.events),
            Claimed::Uncertain(log) => ("uncertain", log.events),
            other => panic!("{other:?}"),
        }
    }

    fn text(text: &str) -> EventBody {
        EventBody::TextDelta { text: text.into() }
    }

    fn cancelled() -> EventBody {
        EventBody::RunCancelled { error: ErrorInfo::new(Code::CANCELLED) }
    }

    // Contract 9: text waits for the next event and is merged; progress is not kept. Sequence numbers have no gap.
    #[tokio::test]
    async fn text_is_merged_and_progress_left_out() {
        let (store, mut journal) = begin(10_000).await;
        for body in [
            EventBody::StepStarted { step: 1 },
            text("He"),
            EventBody::RunProgress { phase: Phase::Model },
            text("llo"),
            EventBody::StepStarted { step: 2 },
            text("!"),
        ] {
            journal.note(AT, &body).await.unwrap();
        }
        journal.finish(AT, Some(&cancelled())).await.unwrap();
        let (state, events) = log(&store).await;
        let heads: Vec<String> = events
            .iter()
            .map(|event| {
                let event: serde_json::Value = serde_json::from_str(event).unwrap();
                format!("{} {} {}", event["sequence"], event["type"].as_str().unwrap(), event["text"])
            })
            .collect();
        assert_eq!(state, "replay");
        assert_eq!(
            heads,
            [
                "1 step.started null",
                "2 text.delta \"Hello\"",
                "3 step.started null",
                "4 text.delta \"!\"",
                "5 run.cancelled null"
            ]
        );
    }

    // Contract 10.2: merged text fits the frame that every client takes, escaped as badly as can be.
    #[tokio::test]
    async fn merged_text_is_bounded() {
        let (store, mut journal) = begin(100_000_000).await;
        for _ in 0..11 {
            journal.note(AT, &text(&"\u{1}".repeat(90_000))).await.unwrap();
        }
        journal.finish(AT, None).await.unwrap();
        let (state, events) = log(&store).await;
        assert_eq!((state, events.len()), ("uncertain", 6));
        assert!(events.iter().all(|event| event.len() < 2_000_000));
    }

    // Law 9: the bound at its edge, for an event and for text that waits; the first failure sticks.
    #[tokio::test]
    async fn the_limit_leaves_the_operation_uncertain() {
        let (store, mut journal) = begin(10_000).await;
        journal.note(AT, &EventBody::StepStarted { step: 1 }).await.unwrap();
        journal.finish(AT, Some(&cancelled())).await.unwrap();
        let bytes: u64 = log(&store).await.1.iter().map(|event| event.len() as u64).sum();
        for (limit, state) in [(bytes, "replay"), (bytes - 1, "uncertain")] {
            let (store, mut journal) = begin(limit).await;
            journal.note(AT, &EventBody::StepStarted { step: 1 }).await.unwrap();
            let ended = journal.finish(AT, Some(&cancelled())).await;
            assert_eq!(ended.is_ok(), limit == bytes);
            assert_eq!(log(&store).await.0, state);
        }

        let (store, mut journal) = begin(10).await;
        journal.note(AT, &text("0123456789")).await.unwrap();
        for body in [text("0"), text(""), EventBody::StepStarted { step: 1 }] {
            let error = journal.note(AT, &body).await.unwrap_err();
            assert_eq!(
                (error.code, error.outcome.is_some()),
                (Code::OPERATION_RECORD_LIMIT, true),
                "{body:?}"
            );
        }
        assert!(journal.finish(AT, Some(&cancelled())).await.is_err());
        assert_eq!(log(&store).await, ("uncertain", vec![]));
    }
}
