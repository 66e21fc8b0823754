//! Whether the server would serve a model.

use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::ModelId;
use serde_json::json;

use super::{Gemini, wire};
use crate::probe::{Probe, Questions, Verdict, ask};

#[async_trait]
impl Probe for Gemini {
    async fn probe(&self, model: &ModelId, limit: Duration) -> Verdict {
        let body = json!({
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "generationConfig": {"maxOutputTokens": 1},
        });
        let questions = Questions {
            free: Some(self.url(model, "")),
            turn: self.url(model, ":generateContent"),
            body: body.to_string().into_bytes(),
            members: &["name", "candidates", "promptFeedback", "usageMetadata"],
        };
        ask(&self.endpoint, questions, about_the_key, limit).await
    }
}

/// A wrong key is a 400 here.
fn about_the_key(status: u16, body: &[u8]) -> Option<Verdict> {
    wire::refusal(status, body).map(|_| Verdict::WrongKey(status))
}
