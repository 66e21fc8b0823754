//! Whole runs at `RUST_LOG=trace`: no secret that was used stands in a log, a metric or an answer (issue of the design,
//! "redaction of secrets everywhere"), and no log holds what people and models said.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::exposed::{CERTIFICATE, KEY as TLS_KEY, secured};
use crate::probe;
use crate::support::{Ended, Host, Place, countersign, finish};

const READER: &str = "metrics-7c1e5b9a4f6d2083-metrics-token";
const SECOND: &str = "second-0d9b3a7f6e5c4182-second-token";
/// No token of the host: somebody's typing error, or a token of another host.
const WRONG: &str = "wrong-5b8f0a1c2d3e4f60-of-another-host";
const FILE_KEY: &str = "sk-file-4f1d2c3b5a69788796a5b4c3";
const ENV_KEY: &str = "sk-env-8e7f6a5b4c3d2e1f00112233";
const TOOL_SECRET: &str = "tool-secret-91a2b3c4d5e6f708";
/// What is said; it belongs into answers, and not into logs.
const SAID: [&str; 3] = ["prompt-a1b2c3", "title-d4e5f6", "answer-071829"];

/// A model's server that remembers with which keys it was asked, and repeats them where it fails.
fn model(asked_with: Arc<Mutex<Vec<String>>>) -> String {
    probe::serve(move |head, body| {
        let key = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or("none");
        asked_with.lock().unwrap().push(key.to_owned());
        let choice = |message: Value, why: &str| {
            let message = json!({"choices": [{"index": 0, "message": message, "finish_reason": why}]});
            (200, message.to_string())
        };
        let (status, answer) = if body.contains("fail") {
            (500, json!({"error": {"message": format!("{head} {body}")}}).to_string())
        } else if body.contains(r#""role":"tool""#) {
            choice(json!({"role": "assistant", "content": "answer-071829"}), "stop")
        } else {
            let arguments = json!({"title": "title-d4e5f6", "body": "b"}).to_string();
            let call = json!({"id": "c1", "type": "function", "function": {"name": "save_proposal", "arguments": arguments}});
            choice(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
        };
        format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )
    })
}

fn secret_file(place: &Place, name: &str, value: &str) {
    fs::write(place.path(name), value).unwrap();
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// Uses every secret that a configuration can name.
fn configure(place: &Place, url: &str) {
    for (name, value) in [("reader.token", READER), ("second.token", SECOND), ("model.key", FILE_KEY)] {
        secret_file(place, name, value);
    }
    secret_file(place, "wrong.token", WRONG);
    place.edit(|config| {
        let provider = |id: &str, key: Value| {
            json!({
                "id": id, "kind": "openai-compatible", "baseUrl": url, "apiKeyRef": key, "models": ["demo"],
                "streaming": false,
            })
        };
        config["providers"] = json!([
            provider("by-file", json!({"file": "model.key"})),
            provider("by-env", json!({"env": "MODEL_KEY"})),
        ]);
        config["tokens"][0]["providers"] = json!(["by-file", "by-env"]);
        let mut second = config["tokens"][0].clone();
        second["id"] = "second".into();
        second["subject"] = "second".into();
        second["tokenRef"] = json!({"file": "second.token"});
        config["tokens"].as_array_mut().unwrap().push(second);
        config["tools"][0]["env"] = json!({"SERVICE_KEY": TOOL_SECRET});
        config["tools"][0]["command"] = json!([
            "/bin/sh",
            "-c",
            "cat >> proposals.jsonl; test -n \"$SERVICE_KEY\" && echo '{\"saved\": true}'"
        ]);
        config["metrics"] = json!({"tokenRef": {"file": "reader.token"}});
        config["operations"] = json!({"directory": "operations"});
    });
}

/// `countersign run` at the finest log level; both of its outputs.
fn run(host: &Host<'_>, token: &str, provider: &str, more: &[&str]) -> Ended {
    let mut client = countersign(&["run", "--json", "--url", &host.url, "--tools", "save_proposal"]);
    client
        .args(["--token-file", &host.place.arg(token), "--provider", provider, "--model", "demo"])
        .args(more);
    client.env("RUST_LOG", "trace").env("SSL_CERT_FILE", host.place.arg("ca.pem"));
    finish(&mut client)
}

/// One plain request and its whole answer.
fn ask(host: &Host<'_>, token: &str, line: &str, body: &str) -> String {
    let mut peer = TcpStream::connect(host.url.strip_prefix("http://").unwrap()).unwrap();
    write!(
        peer,
        "{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn no_secret_is_in_a_log_a_metric_or_an_answer() {
    for tls in [false, true] {
        let asked_with = Arc::<Mutex<Vec<String>>>::default();
        let url = model(Arc::clone(&asked_with));
        let place = if tls { secured(CERTIFICATE) } else { Place::new() };
        configure(&place, &url);
        let host = Host::start_with(&place, &[("RUST_LOG", "trace"), ("MODEL_KEY", ENV_KEY)]);
        let mut answers = Vec::new();
        for (token, provider, answer, status) in [
            ("token", "by-file", "approve", 0),
            ("second.token", "by-env", "approve", 0),
            ("token", "by-file", "deny", 3),
            ("wrong.token", "by-file", "approve", 1),
        ] {
            let ended = run(&host, token, provider, &["--decide", answer, SAID[0]]);
            assert_eq!(ended.status, Some(status), "{token}: {}{}", ended.out, ended.err);
            answers.extend([ended.out, ended.err]);
        }
        let failed = run(&host, "token", "by-env", &["--decide", "approve", "fail"]);
        assert_eq!(failed.status, Some(1), "{}", failed.out);
        answers.extend([failed.out, failed.err]);
        if !tls {
            for token in [READER, SECOND, WRONG] {
                for line in
                    ["GET /metrics", "GET /v1/protocol", "GET /v1/providers?refresh=true", "GET /nothing"]
                {
                    answers.push(ask(&host, token, line, ""));
                }
                // A secret in the wrong place, as somebody might put it.
                answers.push(ask(&host, token, &format!("GET /v1/{}", &token[..8]), ""));
                answers.push(ask(&host, token, "POST /v1/runs", "{}"));
                answers.push(ask(&host, token, "POST /v1/approvals/decisions", "{}"));
            }
            let metrics =
                answers.iter().find(|answer| answer.contains("countersign_runs_ended_total")).unwrap();
            assert!(metrics.contains("countersign_runs_ended_total{state=\"completed\"} 2"), "{metrics}");
            assert!(metrics.contains("countersign_decisions_rejected_total"), "{metrics}");
        }
        assert_eq!(host.stop().code(), Some(0));

        // All of them were used, and the log is one at the finest level.
        let keys = asked_with.lock().unwrap().clone();
        assert!(keys.iter().any(|key| key == FILE_KEY) && keys.iter().any(|key| key == ENV_KEY), "{keys:?}");
        assert_eq!(place.effects().len(), 2);
        let log = place.log();
        let run_id = place.audit()[0]["approval"]["runId"].as_str().unwrap().to_owned();
        for part in ["a model turn failed", "answered", "refused", "a review ended", "step{step=1}"] {
            assert!(log.contains(part), "{part}: {log}");
        }
        let answered =
            log.lines().find(|line| line.contains("answered") && line.contains("/v1/runs")).unwrap();
        assert!(answered.contains(&format!("runId={run_id}")), "a request names its run: {answered}");
        assert!(log.contains(&format!("run{{runId={run_id} ")), "and so does the run: {log}");

        let person = fs::read_to_string(place.path("token")).unwrap();
        let mut secrets = vec![person.trim(), READER, SECOND, WRONG, FILE_KEY, ENV_KEY, TOOL_SECRET];
        secrets.extend(TLS_KEY.lines().filter(|line| !line.starts_with("-----")));
        assert!(secrets.len() >= 9 && secrets.iter().all(|secret| secret.len() >= 16));
        let audit = fs::read_to_string(place.path("audit.jsonl")).unwrap();
        let texts = [&[log.clone(), audit][..], &answers].concat();
        for secret in secrets {
            // Not even half of one.
            let part = &secret[secret.len() / 2..];
            let found = texts.iter().find(|text| text.contains(part));
            assert!(found.is_none(), "{secret}: {}", found.unwrap());
        }
        for said in SAID {
            assert!(answers.iter().any(|answer| answer.contains(said)) || said == SAID[0]);
            let line = log.lines().find(|line| line.contains(said));
            assert!(line.is_none(), "{said}: {line:?}");
        }
    }
}

// Arguments in the log are the operator's explicit choice.
#[test]
fn arguments_are_logged_if_the_configuration_says_so() {
    let place = Place::new();
    place.edit(|config| config["log"] = json!({"arguments": true}));
    let host = Host::start(&place);
    assert_eq!(host.run(&["--json", "--decide", "approve", "Propose"]).status, Some(0));
    assert_eq!(host.stop().code(), Some(0));
    let log = place.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("arguments=")).collect();
    assert!(lines.len() == 1 && lines[0].contains("title"), "{log}");
    let id = place.audit()[0]["approval"]["runId"].as_str().unwrap().to_owned();
    assert!(lines[0].contains(&id), "{}", lines[0]);
}
