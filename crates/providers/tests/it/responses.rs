//! What the Responses API alone has: one answer told up to four times, items, and two vendors (contract 11). What every
//! vendor has is in `conformance`.

mod request;
mod streamed;
pub(crate) mod wire;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{ProviderError, Turn};
use countersign_providers::{Delivery, OpenAiResponses, OpenAiResponsesConfig, ResponsesVendor};
use url::Url;

use crate::heard::{Heard, ask, user};
use crate::server::{Reply, Server};

fn config(base_url: Url) -> OpenAiResponsesConfig {
    OpenAiResponsesConfig {
        id: ProviderId::parse("local").unwrap(),
        name: None,
        vendor: ResponsesVendor::OpenAi,
        base_url,
        api_key: Some("sk-test-0123456789".into()),
        models: vec![ModelId::parse("demo").unwrap()],
        delivery: Delivery::Streamed,
    }
}

/// One turn against a server that gives `reply`.
async fn play(reply: Reply) -> (Result<Turn, ProviderError>, Heard) {
    let server = Server::start(reply).await;
    ask(&OpenAiResponses::new(config(server.url())).unwrap(), &[user("Hello")]).await
}
