//! The host's `limits`: a request can lower them only (contract 2, 6.1, 8). The idle limit is in the driver's tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::RunLimits;
use countersign_driver::provider::{
    ProposedCall, Provider, ProviderError, RetryPolicy, Turn, TurnRequest, TurnSink,
};
use countersign_host::{Concurrency, Service};
use countersign_protocol::event::FinishReason;
use countersign_protocol::provider_info::{AuthMode, Capabilities, ProviderInfo};
use serde_json::json;

use crate::support::{ANN, Ask, Fixture, options};

/// Calls a tool in every step, and notes with which bounds it was asked.
struct Restless {
    info: ProviderInfo,
    asked: Arc<Mutex<Vec<(u32, RetryPolicy)>>>,
}

#[async_trait]
impl Provider for Restless {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, request: TurnRequest<'_>, _: &dyn TurnSink) -> Result<Turn, ProviderError> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((request.max_output_tokens, request.retry));
        Ok(Turn {
            text: String::new(),
            calls: vec![ProposedCall {
                id: format!("call-{}", asked.len()),
                name: "lookup".into(),
                arguments: "{}".into(),
            }],
            usage: None,
            finish: FinishReason::Stop,
            native: None,
        })
    }
}

#[tokio::test]
async fn the_smaller_bound_counts() {
    let tight = RunLimits { max_steps: 3, max_output_tokens: 100, max_attempts: 2, idle_timeout: None };
    // The host's limits, what the request says, and the steps, tokens and attempts that come of it.
    let rows = [
        (RunLimits::default(), json!({}), (8, 4_096, 1)),
        (
            RunLimits::default(),
            json!({"maxSteps": 64, "maxOutputTokens": 65_536, "retry": {"maxAttempts": 5}}),
            (64, 65_536, 5),
        ),
        (tight, json!({}), (3, 100, 1)),
        (tight, json!({"maxSteps": 64, "maxOutputTokens": 65_536, "retry": {"maxAttempts": 5}}), (3, 100, 2)),
        (tight, json!({"maxSteps": 2, "maxOutputTokens": 99, "retry": {"maxAttempts": 1}}), (2, 99, 1)),
    ];
    for (limits, asks, (steps, tokens, attempts)) in rows {
        let asked = Arc::<Mutex<Vec<(u32, RetryPolicy)>>>::default();
        let others = [("safeRetries".to_owned(), true)].into();
        let info = ProviderInfo {
            id: ProviderId::parse("spare-2").unwrap(),
            name: "Restless".into(),
            vendor: "test".into(),
            auth_mode: AuthMode::None,
            capabilities: Capabilities { tools: true, text_streaming: true, others },
            models: Some(vec![ModelId::parse("demo").unwrap()]),
            health: None,
            model_catalog: None,
        };
        let provider = Arc::new(Restless { info, asked: Arc::clone(&asked) });
        let mut fixture =
            Fixture::with(Concurrency::default(), |builder| builder.provider(provider).limits(limits));
        let mut options = options();
        options.tokens[0].providers.push("spare-2".into());
        fixture.service = Service::new(fixture.driver.clone(), &options).unwrap();
        let mut body = json!({"provider": "spare-2", "model": "demo", "input": "x", "tools": ["lookup"]});
        body.as_object_mut().unwrap().extend(asks.as_object().unwrap().clone());
        let answer = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&body)).await;
        assert_eq!(answer.outcome(), (502, "STEP_LIMIT".into()), "{body}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), steps, "{body}");
        assert!(asked.iter().all(|(of, retry)| (*of, retry.max_attempts) == (tokens, attempts)), "{asked:?}");
        assert_eq!(asked[0].1.base_delay, Duration::from_millis(500));
    }
}
