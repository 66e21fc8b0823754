//! Whether the server would serve a model.

use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::ModelId;
use serde_json::json;

use super::Anthropic;
use crate::probe::{Probe, Questions, Verdict, ask};

#[async_trait]
impl Probe for Anthropic {
    async fn probe(&self, model: &ModelId, limit: Duration) -> Verdict {
        let body = json!({
            "model": model.as_str(),
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "Hi"}],
        });
        let questions = Questions {
            free: Some(self.endpoint.url(&["models", model.as_str()])),
            turn: self.endpoint.url(&["messages"]),
            body: body.to_string().into_bytes(),
            members: &["id", "content"],
        };
        ask(&self.endpoint, questions, |_status, _body| None, limit).await
    }
}
