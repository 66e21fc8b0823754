//! What host and worker say to each other: frames of four bytes of length, most significant first, and JSON.
//!
//! | host says | worker answers |
//! | --- | --- |
//! | nothing | `ready`, when it has given up its rights; or `failed` |
//! | `start`: a program | `calls`, as many as there are, the last with `rest`; or `end` |
//! | `settle`: an outcome | the same |
//! | `stop`: the run is over | `ready` |
//!
//! After `end` the worker takes its engine apart and says `ready` by itself. End of input ends the worker.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::console::{Console, ConsoleLine};
use crate::engine::{NewCall, NotCompiled, Settlement, Step, Stop};
use crate::limits::Limits;

/// Bytes of a frame to the worker: a source or a result, with room for text that JSON escapes.
pub(super) const MAX_TO_WORKER: usize = 64 << 20;
/// Bytes of the first frame from the worker.
pub(super) const MAX_READY: usize = 64 << 10;
/// Bytes of inputs after which a worker begins another frame.
pub(super) const CHUNK: usize = 256 << 10;

/// Bytes of any other frame from the worker.
pub(super) fn max_from_worker(limits: &Limits) -> usize {
    // A byte of text is at most six of JSON. An error has a few texts of some 32 KiB.
    let texts = limits.console.saturating_add(1 << 20).saturating_mul(6);
    (2 * CHUNK).saturating_add(limits.input).saturating_add(limits.result).saturating_add(texts)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToWorker {
    Start(Box<Start>),
    Settle(Box<Settlement>),
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// The program, types erased, wrapped in a function.
    pub(super) text: Box<str>,
    pub(super) functions: Vec<String>,
    pub(super) limits: Limits,
    pub(super) seed: [u8; 32],
    pub(super) clock: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FromWorker {
    Ready(Ready),
    /// Instead of the first `ready`: why it cannot begin.
    Failed(String),
    Calls(Calls),
    End(Box<End>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ready {
    /// [`super::build`] of the worker.
    pub(super) build: String,
    /// What the worker tried and could not do, with the system's words.
    pub(super) refused: Vec<(String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calls {
    pub(super) calls: Vec<NewCall>,
    /// `None` if more calls of this step follow.
    pub(super) rest: Option<Rest>,
}

/// What a step leaves beside its calls.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rest {
    pub(super) console: Printed,
    /// Engine time of the pass so far.
    pub(super) spent: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub(super) how: How,
    pub(super) rest: Rest,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum How {
    Step(Step),
    NotCompiled(NotCompiled),
    /// The guard stopped the pass before it began.
    Stopped(Stop),
    NoEngine(String),
}

/// A console in pieces.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    head: Vec<ConsoleLine>,
    omitted: usize,
    tail: VecDeque<ConsoleLine>,
}

impl From<Console> for Printed {
    fn from(console: Console) -> Self {
        let (head, omitted, tail) = console.into_parts();
        Self { head, omitted, tail }
    }
}

impl Printed {
    pub(super) fn into_console(self, max: usize) -> Console {
        Console::of_parts(max, self.head, self.omitted, self.tail)
    }
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSent {
    #[error("a frame of {0} bytes")]
    TooLong(usize),
    #[error(transparent)]
    Closed(#[from] io::Error),
}

/// Writes one frame of at most `max` bytes.
pub(super) fn send<T: Serialize>(to: &mut impl Write, message: &T, max: usize) -> Result<(), NotSent> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(io::Error::from)?;
    let length = frame.len() - 4;
    let Some(prefix) = u32::try_from(length).ok().filter(|_| length <= max) else {
        return Err(NotSent::TooLong(length));
    };
    frame.splice(..4, prefix.to_be_bytes());
    to.write_all(&frame)?;
    to.flush()?;
    Ok(())
}

/// Why there is no message.
#[derive(Debug)]
pub(super) enum NoMessage {
    /// The other side is gone.
    Closed,
    /// It sent something that is no message.
    Nonsense(String),
}

/// Reads one frame of at most `max` bytes.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read, max: usize) -> Result<T, NoMessage> {
    let mut prefix = [0; 4];
    from.read_exact(&mut prefix).map_err(|_| NoMessage::Closed)?;
    let length = u32::from_be_bytes(prefix) as usize;
    if length > max {
        return Err(NoMessage::Nonsense(format!("a frame of {length} bytes, more than {max}")));
    }
    // Memory is taken as bytes arrive, not as they are announced.
    let mut frame = Vec::new();
    match from.take(length as u64).read_to_end(&mut frame) {
        Ok(read) if read == length => {}
        _ => return Err(NoMessage::Closed),
    }
    serde_json::from_slice(&frame).map_err(|error| NoMessage::Nonsense(error.to_string()))
}

#[cfg(test)]
mod tests {
    use countersign_approval_core::json::Exact;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::Outcome;

    fn there_and_back<T: Serialize, R: DeserializeOwned>(message: &T) -> R {
        let mut bytes = Vec::new();
        send(&mut bytes, message, 1 << 20).unwrap();
        receive(&mut bytes.as_slice(), 1 << 20).unwrap()
    }

    // Law 3: values cross as the text that they are.
    #[test]
    fn values_keep_their_text() {
        let text = r#"{"b":[1.0,-0,1e3,"\u0000é\ud83d\ude00"],"a":9007199254740992,"$serde_json::private::RawValue":"[1]"}"#;
        let outcome = Outcome::Value(Exact::parse(text).unwrap());
        let settlement = Settlement { number: 7, outcome, clock: -5, at: Some((1, 2)) };
        match there_and_back(&ToWorker::Settle(Box::new(settlement))) {
            ToWorker::Settle(it) => {
                assert!(matches!(&it.outcome, Outcome::Value(value) if value.text() == text));
                assert_eq!((it.number, it.clock, it.at), (7, -5, Some((1, 2))));
            }
            other => panic!("{other:?}"),
        }
        let call = NewCall { number: 1, function: 0, input: Exact::parse("[1.0]").unwrap(), at: None };
        match there_and_back(&FromWorker::Calls(Calls { calls: vec![call], rest: None })) {
            FromWorker::Calls(it) => assert_eq!(it.calls[0].input.text(), "[1.0]"),
            other => panic!("{other:?}"),
        }
    }

    // Law 9: what is no message is refused, and takes no more memory than was sent.
    #[test]
    fn frames_are_bounded() {
        let no = |bytes: &[u8]| match receive::<ToWorker>(&mut &*bytes, 100) {
            Err(NoMessage::Closed) => "closed",
            Err(NoMessage::Nonsense(_)) => "nonsense",
            Ok(_) => "ok",
        };
        for (bytes, expected) in [
            (&b""[..], "closed"),
            (b"\0\0\0", "closed"),
            (b"\0\0\0\x06\"stop", "closed"),
            (b"\0\0\0\x06\"stop\"", "ok"),
            (b"\0\0\0\x65", "nonsense"),
            (b"\xff\xff\xff\xff", "nonsense"),
            (b"\0\0\0\0", "nonsense"),
            (b"\0\0\0\x06\"stap\"", "nonsense"),
            (b"\0\0\0\x02\xff\xff", "nonsense"),
        ] {
            assert_eq!(no(bytes), expected, "{bytes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn nothing_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), announce in any::<bool>()) {
            if announce && bytes.len() >= 4 {
                let length = u32::try_from(bytes.len() - 4).unwrap().to_be_bytes();
                bytes[..4].copy_from_slice(&length);
            }
            drop(receive::<ToWorker>(&mut bytes.as_slice(), 1 << 16));
            drop(receive::<FromWorker>(&mut bytes.as_slice(), 1 << 16));
        }
    }
}
