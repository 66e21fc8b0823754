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
            let path = if is_none_found(asked) { PATH } else { "" };
            if bad.is_empty() { format!("good, {number}") } else { format!("{}{path}", bad.join("; ")) }
        }
    };
    format!("provider {} ({}): {told}", provider.id, provider.kind)
}

/// Behind the verdict if no model at all was found: servers say the same 404 of a path that they do not have.
const PATH: &str = " (or baseUrl has the wrong path)";

fn is_none_found<M>(asked: &[(M, Verdict)]) -> bool {
    asked.iter().all(|(_, verdict)| *verdict == Verdict::WrongModel(404))
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

    /// A wrong path looks like a wrong model, but like nothing else, and not where another model is there.
    #[test]
    fn a_path_may_be_wrong_if_no_model_is_found() {
        let none = Verdict::WrongModel(404);
        for (asked, expected) in [
            (&[("a", none), ("b", none)][..], true),
            (&[("a", none), ("b", Verdict::Good)], false),
            (&[("a", Verdict::WrongModel(400))], false),
            (&[("a", Verdict::WrongKey(401))], false),
        ] {
            assert_eq!(is_none_found(asked), expected, "{asked:?}");
        }
    }
}
