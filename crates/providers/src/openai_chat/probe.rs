//! Whether the server would serve a model.
//!
//! It is asked for one token: many servers list their models without looking at the key.

use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::ModelId;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::OpenAiChat;
use crate::probe::{Probe, Questions, Verdict, ask};

#[async_trait]
impl Probe for OpenAiChat {
    async fn probe(&self, model: &ModelId, limit: Duration) -> Verdict {
        let body = json!({
            "model": model.as_str(),
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 1,
            "stream": false,
        });
        let turn = self.endpoint.url(&["chat", "completions"]);
        let questions =
            Questions { free: None, turn, body: body.to_string().into_bytes(), members: &["choices"] };
        ask(&self.endpoint, questions, in_other_words, limit).await
    }
}

/// Servers that say with a 400 what others say with a status of its own, and a 403 that is about the model. Their words
/// are looked at and never shown.
fn in_other_words(status: u16, body: &[u8]) -> Option<Verdict> {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
    }
    if !matches!(status, 400 | 403 | 422) {
        return None;
    }
    let refusal: Refusal<'_> = serde_json::from_slice(body).ok()?;
    let words = [refusal.error, refusal.message, refusal.kind].into_iter().flatten();
    let words = words.map(|raw| raw.get().to_ascii_lowercase()).collect::<Vec<_>>().join(" ");
    let says = |known: &[&str]| known.iter().any(|phrase| words.contains(phrase));
    if says(&["model_not_found", "invalid_model", "model not exist", "not a valid model", "model not found"])
    {
        Some(Verdict::WrongModel(status))
    } else if status != 403 && says(&["incorrect api key", "invalid api key", "invalid_api_key"]) {
        Some(Verdict::WrongKey(status))
    } else {
        None
    }
}
