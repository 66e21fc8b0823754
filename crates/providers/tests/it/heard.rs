//! What every test of a provider needs: a request to ask with, a sink that remembers, and what a turn came to.

use std::sync::Mutex;

use countersign_approval_core::ids::ModelId;
use countersign_driver::provider::{
    AssistantMessage, Message, Provider, ProviderError, RetryPolicy, Turn, TurnRequest, TurnSink,
};
use countersign_protocol::code::Code;

/// Everything that a sink was told, in order.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<Vec<Piece>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Progress,
}

impl Heard {
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.pieces()
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(text),
                Piece::Progress => None,
            })
            .collect()
    }
}

impl TurnSink for Heard {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push(Piece::Text(piece.to_owned()));
    }

    fn progress(&self) {
        self.0.lock().unwrap().push(Piece::Progress);
    }
}

pub(crate) fn user(text: &str) -> Message {
    Message::User(text.to_owned())
}

pub(crate) fn assistant(text: &str) -> Message {
    Message::Assistant(AssistantMessage { text: text.to_owned(), ..AssistantMessage::default() })
}

pub(crate) fn request<'a>(model: &'a ModelId, messages: &'a [Message]) -> TurnRequest<'a> {
    TurnRequest {
        model,
        instructions: None,
        messages,
        tools: &[],
        max_output_tokens: 4096,
        retry: RetryPolicy::default(),
    }
}

/// One turn for `messages`, and what was heard.
pub(crate) async fn ask(
    provider: &dyn Provider,
    messages: &[Message],
) -> (Result<Turn, ProviderError>, Heard) {
    let heard = Heard::default();
    let model = ModelId::parse("demo").unwrap();
    let turn = provider.turn(request(&model, messages), &heard).await;
    (turn, heard)
}

/// The calls as `(id, name, argument text)`.
pub(crate) fn calls(turn: &Turn) -> Vec<(&str, &str, &str)> {
    turn.calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str())).collect()
}

/// What a turn came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Came {
    Answer { text: String, calls: Vec<(String, String, String)>, finish: String },
    Failure { code: Code, retryable: bool },
}

impl Came {
    pub(crate) fn of(turn: &Result<Turn, ProviderError>) -> Self {
        match turn {
            Ok(turn) => Self::Answer {
                text: turn.text.clone(),
                calls: calls(turn)
                    .into_iter()
                    .map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.to_owned()))
                    .collect(),
                finish: format!("{:?}", turn.finish),
            },
            Err(error) => Self::Failure { code: error.info.code.clone(), retryable: error.info.retryable },
        }
    }
}

pub(crate) fn answer(text: &str, calls: &[(&str, &str, &str)]) -> Came {
    Came::Answer {
        text: text.to_owned(),
        calls: calls.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect(),
        finish: "Stop".to_owned(),
    }
}

pub(crate) fn failure(code: Code) -> Came {
    Came::Failure { code, retryable: false }
}
