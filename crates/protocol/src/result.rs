//! What a run gives: its result and its usage (contract 2.2).

use countersign_approval_core::ids::{ModelId, ProviderId, RunId};
use countersign_approval_core::json::{Exact, Gate};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::shape::present;

/// The greatest integer that every reader carries exactly, 2^53-1.
const MAX_COUNT: u64 = 9_007_199_254_740_991;

/// Tokens and costs, of a step or of a run (contract 2.2).
///
/// What is unknown is absent. A value that the protocol cannot carry (a count above 2^53-1, a cost that is negative or
/// not finite) is left out when it is written, because then the amount is not known to the reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens that the model read.
    #[serde(deserialize_with = "count", skip_serializing_if = "not_a_count")]
    pub input_tokens: Option<u64>,
    /// Tokens that the model wrote.
    #[serde(deserialize_with = "count", skip_serializing_if = "not_a_count")]
    pub output_tokens: Option<u64>,
    /// Those of the input that came from a cache.
    #[serde(deserialize_with = "count", skip_serializing_if = "not_a_count")]
    pub cached_input_tokens: Option<u64>,
    /// Those of the output that were reasoning.
    #[serde(deserialize_with = "count", skip_serializing_if = "not_a_count")]
    pub reasoning_tokens: Option<u64>,
    /// What it cost, in US dollars.
    #[serde(deserialize_with = "cost", skip_serializing_if = "not_a_cost")]
    pub cost_usd: Option<f64>,
    /// What it would have cost by the vendor's list prices, in US dollars.
    #[serde(deserialize_with = "cost", skip_serializing_if = "not_a_cost")]
    pub api_equivalent_cost_usd: Option<f64>,
}

/// Why the last model turn ended (contract 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The token limit was reached.
    Length,
}

/// The result of a completed run (contract 2.2).
///
/// Reading it refuses the members `session` and `retrieval`, which a host sends only when they were asked for
/// (contract 10.2), and this version cannot ask.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// The run.
    pub run_id: RunId,
    /// The request's provider.
    pub provider: ProviderId,
    /// The request's model.
    pub model: ModelId,
    /// Text of the final model turn.
    pub text: String,
    /// Usage of the whole run.
    pub usage: Usage,
    /// Number of the model step that finished, from 1.
    pub steps: u32,
    /// Why the final turn ended.
    pub finish_reason: FinishReason,
    /// The parsed JSON answer, where a schema was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Exact>,
}

impl<'de> Deserialize<'de> for RunResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        if wire.steps == 0 {
            return Err(D::Error::custom("steps count from 1"));
        }
        if wire.session.is_some() || wire.retrieval.is_some() {
            return Err(D::Error::custom("session and retrieval were not asked for"));
        }
        let output = match wire.output {
            Some(raw) => Some(Exact::parse_with(raw.get(), Gate::OUTPUT).map_err(D::Error::custom)?),
            None => None,
        };
        Ok(Self {
            run_id: wire.run_id,
            provider: wire.provider,
            model: wire.model,
            text: wire.text,
            usage: wire.usage,
            steps: wire.steps,
            finish_reason: wire.finish_reason,
            output,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    run_id: RunId,
    provider: ProviderId,
    model: ModelId,
    text: String,
    usage: Usage,
    steps: u32,
    finish_reason: FinishReason,
    #[serde(default, deserialize_with = "present")]
    output: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    session: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    retrieval: Option<IgnoredAny>,
    // Not served by this version, so only their kind is checked: they are never null (contract 10.4, context rows).
    #[serde(default, deserialize_with = "present", rename = "sources")]
    _sources: Option<Vec<IgnoredAny>>,
    #[serde(default, deserialize_with = "present", rename = "artifacts")]
    _artifacts: Option<Vec<IgnoredAny>>,
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let count = u64::deserialize(deserializer)?;
    if count > MAX_COUNT {
        return Err(D::Error::custom("a count above 2^53-1"));
    }
    Ok(Some(count))
}

fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    // serde_json's own reader may miss the nearest double by one step unless some crate turns on a feature of it;
    // the standard library's does not. Of JSON's values it reads numbers only.
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    match raw.get().parse::<f64>() {
        Ok(cost) if is_cost(cost) => Ok(Some(cost)),
        _ => Err(D::Error::custom("expected a number that is finite and not negative")),
    }
}

// serde hands these the field by reference.
fn not_a_count(count: &Option<u64>) -> bool {
    count.is_none_or(|count| count > MAX_COUNT)
}

fn not_a_cost(cost: &Option<f64>) -> bool {
    !cost.is_some_and(is_cost)
}

fn is_cost(cost: f64) -> bool {
    cost.is_finite() && cost >= 0.0
}
