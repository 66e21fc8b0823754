//! Whether the server would serve a model.

use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::ModelId;
use serde::Deserialize;
use serde_json::json;

use super::OpenAiResponses;
use crate::common::Delivery;
use crate::probe::{Probe, Questions, Verdict, ask};

#[async_trait]
impl Probe for OpenAiResponses {
    async fn probe(&self, model: &ModelId, limit: Duration) -> Verdict {
        // The least that the vendor takes.
        let stream = self.delivery == Delivery::Streamed;
        let body = json!({
            "model": model.as_str(),
            "input": "Hi",
            "max_output_tokens": 16,
            "store": false,
            "stream": stream,
        });
        let questions = Questions {
            free: Some(self.endpoint.url(&["models", model.as_str()])),
            turn: self.endpoint.url(&["responses"]),
            body: body.to_string().into_bytes(),
            members: &["id", "output"],
        };
        ask(&self.endpoint, questions, in_other_words, limit).await
    }
}

fn in_other_words(status: u16, body: &[u8]) -> Option<Verdict> {
    if (200..300).contains(&status) { streamed(status, body) } else { about_the_model(status, body) }
}

/// The turn is asked for as it will be later: some servers answer in one object well enough, and do not say in a stream
/// which item an event is about. Such a stream is refused by this adapter, and so it is no good answer here.
fn streamed(status: u16, body: &[u8]) -> Option<Verdict> {
    let text = std::str::from_utf8(body).ok()?;
    if text.starts_with('{') {
        return None;
    }
    let says = |word| text.contains(word);
    let complete = says("\"response.completed\"") || says("\"response.incomplete\"");
    let exact = says("\"output_index\"") || !says("\"response.output_item.done\"");
    Some(match (complete, exact) {
        (true, true) => Verdict::Good,
        (true, false) => Verdict::WrongAddress(status),
        (false, _) if says("\"error\"") => Verdict::Refused(status),
        (false, _) => Verdict::WrongAddress(status),
    })
}

/// A model that exists and is not for this key's project is a 403 here.
fn about_the_model(status: u16, body: &[u8]) -> Option<Verdict> {
    #[derive(Deserialize)]
    struct Refusal {
        error: Labels,
    }
    #[derive(Deserialize)]
    struct Labels {
        code: Option<String>,
    }
    let code = serde_json::from_slice::<Refusal>(body).ok()?.error.code?;
    (code == "model_not_found").then_some(Verdict::WrongModel(status))
}
