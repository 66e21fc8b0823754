//! Adding up what the model steps reported (contract 2.2).

use countersign_protocol::event::Usage;

/// A running total. A total is known only while every step reported that field; unknown is left out, never zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageTotal(Option<Usage>);

impl UsageTotal {
    /// Adds one step.
    pub(crate) fn add(&mut self, step: &Usage) {
        self.0 = Some(match self.0.take() {
            None => *step,
            Some(total) => Usage {
                input_tokens: tokens(total.input_tokens, step.input_tokens),
                output_tokens: tokens(total.output_tokens, step.output_tokens),
                cached_input_tokens: tokens(total.cached_input_tokens, step.cached_input_tokens),
                reasoning_tokens: tokens(total.reasoning_tokens, step.reasoning_tokens),
                cost_usd: cost(total.cost_usd, step.cost_usd),
                api_equivalent_cost_usd: cost(total.api_equivalent_cost_usd, step.api_equivalent_cost_usd),
            },
        });
    }

    /// The total so far.
    pub(crate) fn total(self) -> Usage {
        self.0.unwrap_or_default()
    }
}

/// Token counts stay exact in every client (contract 2.2).
const MAX_TOKENS: u64 = (1 << 53) - 1;

fn tokens(total: Option<u64>, step: Option<u64>) -> Option<u64> {
    total?.checked_add(step?).filter(|sum| *sum <= MAX_TOKENS)
}

fn cost(total: Option<f64>, step: Option<f64>) -> Option<f64> {
    Some(total? + step?).filter(|sum| sum.is_finite())
}
