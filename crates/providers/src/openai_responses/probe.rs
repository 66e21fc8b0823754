//! Whether the server would serve a model.

use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::ModelId;
use serde::Deserialize;
use serde_json::json;

use super::OpenAiResponses;
use crate::probe::{Probe, Questions, Verdict, ask};

#[async_trait]
impl Probe for OpenAiResponses {
    async fn probe(&self, model: &ModelId, limit: Duration) -> Verdict {
        // The least that the vendor takes.
        let body = json!({"model": model.as_str(), "input": "Hi", "max_output_tokens": 16, "store": false});
        let questions = Questions {
            free: Some(self.endpoint.url(&["models", model.as_str()])),
            turn: self.endpoint.url(&["responses"]),
            body: body.to_string().into_bytes(),
        };
        ask(&self.endpoint, questions, about_the_model, limit).await
    }
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
    (status >= 400 && code == "model_not_found").then_some(Verdict::WrongModel(status))
}
