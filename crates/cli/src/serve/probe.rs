//! `serve --check --probe`: a line about each provider of a configuration.

use std::io::{Write, stdout};
use std::time::Duration;

use countersign_host::{Answer, HostConfig, Probed};
use countersign_providers::Verdict;

use crate::error::{Error, Status};
use crate::review::inline;

/// How long each server may take; all are asked at once.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks all servers and prints what came of it.
pub(super) fn probe(config: &HostConfig) -> Result<Status, Error> {
    let runtime = crate::runtime()?;
    let providers = runtime.block_on(config.probe(LIMIT));
    // The system may go on looking for a name for much longer than the limit, and cannot be stopped.
    runtime.shutdown_background();
    let mut out = stdout().lock();
    for provider in &providers {
        writeln!(out, "{}", inline(&line(provider))).map_err(Error::io("cannot write"))?;
    }
    let good = providers.iter().all(Probed::is_good);
    Ok(if good { Status::Good } else { Status::Failed })
}

fn line(provider: &Probed) -> String {
    let told = match &provider.answer {
        Answer::NoServer => "good, there is no server to ask".to_owned(),
        Answer::Models { asked, of } => {
            let bad = bad(asked);
            let number = match asked.len() {
                1 if *of == 1 => "1 model".to_owned(),
                asked if asked == *of => format!("{asked} models"),
                asked => format!("the first {asked} of {of} models"),
            };
            if bad.is_empty() { format!("good, {number}") } else { bad.join("; ") }
        }
    };
    format!("provider {} ({}): {told}", provider.id, provider.kind)
}

/// Each verdict that is not good, once, with the models that it is about where it is not about all of them.
fn bad<M: std::fmt::Display>(asked: &[(M, Verdict)]) -> Vec<String> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for (_, verdict) in asked {
        if *verdict != Verdict::Good && !verdicts.contains(verdict) {
            verdicts.push(*verdict);
        }
    }
    let with_models = |verdict: Verdict| {
        let about: Vec<_> =
            asked.iter().filter(|(_, of)| *of == verdict).map(|(model, _)| model.to_string()).collect();
        if about.len() == asked.len() && !matches!(verdict, Verdict::WrongModel(_)) {
            verdict.to_string()
        } else {
            format!("{verdict}: {}", about.join(", "))
        }
    };
    verdicts.into_iter().map(with_models).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_told_once_with_their_models() {
        let key = "wrong key: the server does not accept it (HTTP 401)";
        let model = "wrong model: the server does not serve it (HTTP 404)";
        let rows = [
            (&[("a", Verdict::Good), ("b", Verdict::Good)][..], vec![]),
            (&[("a", Verdict::WrongKey(401)), ("b", Verdict::WrongKey(401))], vec![key.to_owned()]),
            (&[("a", Verdict::WrongModel(404))], vec![format!("{model}: a")]),
            (&[("a", Verdict::Good), ("b", Verdict::WrongModel(404))], vec![format!("{model}: b")]),
            (
                &[("a", Verdict::WrongKey(401)), ("b", Verdict::Good), ("c", Verdict::WrongModel(404))],
                vec![format!("{key}: a"), format!("{model}: c")],
            ),
        ];
        for (asked, expected) in rows {
            assert_eq!(bad(asked), expected, "{asked:?}");
        }
    }
}
