//! Chat Completions, spoken with a small raw HTTP server on loopback (contract 11, scenarios M).
//!
//! The answers are written after the public documentation of Chat Completions and after what servers really send.

mod cancel;
mod failures;
mod fidelity;
mod request;
mod server;
mod streamed;
mod whole;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{ProviderError, Turn};
use countersign_protocol::code::Code;
use countersign_providers::{Delivery, OpenAiChat, OpenAiChatConfig};
use url::Url;

use crate::heard::{Heard, ask, calls, user};
use server::{Reply, Server};

pub(crate) const KEY: &str = "sk-test-0123456789";

pub(crate) fn config(base_url: Url) -> OpenAiChatConfig {
    OpenAiChatConfig {
        id: ProviderId::parse("local").unwrap(),
        name: None,
        base_url,
        api_key: Some(KEY.into()),
        models: vec![ModelId::parse("demo").unwrap()],
        delivery: Delivery::Streamed,
    }
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

/// One turn against a server that gives `reply`.
pub(crate) async fn play(reply: Reply) -> (Result<Turn, ProviderError>, Heard) {
    let server = Server::start(reply).await;
    ask(&OpenAiChat::new(config(server.url())).unwrap(), &[user("Hello")]).await
}
