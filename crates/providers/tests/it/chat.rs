//! What Chat Completions alone has: the quirks of its many servers (contract 11, scenarios M). What every vendor has is
//! in `conformance`.
//!
//! The answers are written after the public documentation of Chat Completions and after what servers really send.

mod failures;
mod fidelity;
mod request;
mod streamed;
mod whole;
pub(crate) mod wire;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{ProviderError, Turn};
use countersign_providers::{Delivery, OpenAiChat, OpenAiChatConfig};
use url::Url;

use crate::heard::{Heard, ask, user};
use crate::server::{Reply, Server};

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

/// One turn against a server that gives `reply`.
pub(crate) async fn play(reply: Reply) -> (Result<Turn, ProviderError>, Heard) {
    let server = Server::start(reply).await;
    ask(&OpenAiChat::new(config(server.url())).unwrap(), &[user("Hello")]).await
}
