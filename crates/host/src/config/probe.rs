//! Asking the servers of a configuration, before a run needs them.

use std::time::Duration;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_providers::Verdict;
use tokio::task::JoinSet;

use super::HostConfig;

/// How many models of one provider are asked for. Each costs a request, and with some vendors a token.
const MAX_ASKED: usize = 8;

/// What a provider of the configuration came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The instance.
    pub id: ProviderId,
    /// Its kind, as the configuration calls it.
    pub kind: &'static str,
    /// What it said.
    pub answer: Answer,
}

/// What a provider said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// There is no server to ask.
    NoServer,
    /// One verdict for each model that was asked for, in the order of the configuration.
    Models {
        /// The models with their verdicts.
        asked: Vec<(ModelId, Verdict)>,
        /// How many models the configuration has.
        of: usize,
    },
}

impl Probed {
    /// Whether everything that was asked is good.
    pub fn is_good(&self) -> bool {
        match &self.answer {
            Answer::NoServer => true,
            Answer::Models { asked, .. } => asked.iter().all(|(_, verdict)| *verdict == Verdict::Good),
        }
    }
}

impl HostConfig {
    /// Asks the server of each provider whether it would serve the first 8 of its models: all at once, and each for at
    /// most `limit`. The answers come in the order of the configuration.
    pub async fn probe(&self, limit: Duration) -> Vec<Probed> {
        let mut asking = JoinSet::new();
        let mut answers = Vec::new();
        for (at, provider) in self.providers.iter().enumerate() {
            let models = provider.provider().info().models.clone().unwrap_or_default();
            let Some(probe) = provider.probe() else {
                answers.push(Probed {
                    id: provider.id().clone(),
                    kind: provider.kind(),
                    answer: Answer::NoServer,
                });
                continue;
            };
            for (number, model) in models.iter().take(MAX_ASKED).cloned().enumerate() {
                let probe = std::sync::Arc::clone(&probe);
                asking.spawn(async move {
                    let verdict = probe.probe(&model, limit).await;
                    (at, number, model, verdict)
                });
            }
            let answer = Answer::Models { asked: Vec::new(), of: models.len() };
            answers.push(Probed { id: provider.id().clone(), kind: provider.kind(), answer });
        }
        let mut verdicts = asking.join_all().await;
        verdicts.sort_by_key(|(at, number, ..)| (*at, *number));
        for (at, _, model, verdict) in verdicts {
            if let Answer::Models { asked, .. } = &mut answers[at].answer {
                asked.push((model, verdict));
            }
        }
        answers
    }
}
