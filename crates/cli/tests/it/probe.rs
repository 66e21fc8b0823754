//! `serve --check --probe`: a wrong key, a wrong model and a host that cannot be reached are told apart, for every kind.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Ended, run};

const KEY: &str = "sk-right-0123456789";
const OTHER_KEY: &str = "sk-wrong-9876543210";
const KINDS: [&str; 5] = ["openai", "openai-compatible", "xai", "anthropic", "gemini"];

/// A server of a kind: it looks at the key, then at the model, and answers in its vendor's form.
fn vendor(kind: &'static str) -> String {
    serve(move |head, body| {
        let header = match kind {
            "anthropic" => format!("x-api-key: {KEY}\r\n"),
            "gemini" => format!("x-goog-api-key: {KEY}\r\n"),
            _ => format!("authorization: Bearer {KEY}\r\n"),
        };
        let (status, answer) = if !head.contains(&header) {
            match kind {
                "openai" | "openai-compatible" => (401, r#"{"error":{"code":"invalid_api_key"}}"#),
                "xai" => (
                    400,
                    r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: sk-wrong-9876543210"}"#,
                ),
                "anthropic" => (401, r#"{"type":"error","error":{"type":"authentication_error"}}"#),
                _ => (
                    400,
                    r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                ),
            }
        } else if !head.lines().next().unwrap_or_default().contains("/models/good")
            && !body.contains(r#""model":"good""#)
        {
            (404, r#"{"error":{"message":"no such model","code":404}}"#)
        } else {
            (200, r#"{"id":"good","name":"good","choices":[]}"#)
        };
        format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )
    })
}

/// A server that gives what `answer` makes of a request's head and body, and then hangs up.
pub(crate) fn serve(answer: impl Fn(&str, &str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            if let Some((head, body)) = read(&mut connection) {
                // A client that has gone is its own affair.
                let _ = connection.write_all(answer(&head, &body).as_bytes());
            }
        }
    });
    url
}

fn read(connection: &mut TcpStream) -> Option<(String, String)> {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some((format!("{head}\r\n"), body.to_owned()));
            }
        }
        let mut bytes = [0; 4096];
        let count = connection.read(&mut bytes).ok().filter(|count| *count > 0)?;
        text.push_str(std::str::from_utf8(&bytes[..count]).ok()?);
    }
}

/// Nobody listens here any more.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}

fn provider(id: &str, kind: &str, url: &str, key: &str, models: Value) -> Value {
    json!({"id": id, "kind": kind, "baseUrl": url, "apiKeyRef": {"file": key}, "models": models})
}

fn probe(providers: &[Value]) -> Ended {
    let folder = TempDir::new().unwrap();
    for (name, secret) in
        [("right", KEY), ("wrong", OTHER_KEY), ("token", "0123456789abcdef0123456789abcdef")]
    {
        let path = folder.path().join(name);
        fs::write(&path, secret).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let config = json!({
        "version": 1,
        "listen": {"port": 0},
        "providers": providers,
        "tokens": [{"id": "app", "subject": "app", "tokenRef": {"file": "token"}}],
    });
    let file = folder.path().join("host.json");
    fs::write(&file, config.to_string()).unwrap();
    let ended = run(&["serve", "--check", "--probe", "--config", file.to_str().unwrap()]);
    let shown = format!("{}{}", ended.out, ended.err);
    assert!(!shown.contains(KEY) && !shown.contains(OTHER_KEY), "{shown}");
    ended
}

/// The lines about providers, without the line about the file.
fn lines(ended: &Ended) -> Vec<&str> {
    assert!(ended.out.lines().next().unwrap().ends_with(": good"), "{ended:?}");
    ended.out.lines().skip(1).collect()
}

#[test]
fn all_is_good() {
    let mut providers = vec![json!({"id": "mock", "kind": "scripted", "models": ["demo"]})];
    let mut expected = vec!["provider mock (scripted): good, there is no server to ask".to_owned()];
    for kind in KINDS {
        providers.push(provider(kind, kind, &vendor(kind), "right", json!(["good"])));
        expected.push(format!("provider {kind} ({kind}): good, 1 model"));
    }
    let ended = probe(&providers);
    assert_eq!(lines(&ended), expected);
    assert_eq!(ended.status, Some(0));
}

#[test]
fn wrong_keys_wrong_models_and_nobody() {
    for kind in KINDS {
        let url = vendor(kind);
        let refusal = if matches!(kind, "gemini" | "xai") { 400 } else { 401 };
        let secure = url.replace("http:", "https:");
        let ended = probe(&[
            provider("key", kind, &url, "wrong", json!(["good", "bad"])),
            provider("model", kind, &url, "right", json!(["good", "bad", "worse"])),
            provider("closed", kind, &closed(), "right", json!(["good"])),
            provider("name", kind, "https://no-such-host.invalid/v1", "right", json!(["good"])),
            provider("tls", kind, &secure, "right", json!(["good"])),
            provider("mute", kind, &serve(|_, _| String::new()), "right", json!(["good"])),
            provider(
                "good",
                kind,
                &url,
                "right",
                json!(["good", "good", "good", "good", "good", "good", "good", "good", "bad"]),
            ),
        ]);
        let expected = [
            format!("provider key ({kind}): wrong key: the server does not accept it (HTTP {refusal})"),
            format!(
                "provider model ({kind}): wrong model: the server does not serve it (HTTP 404): bad, worse"
            ),
            format!("provider closed ({kind}): unreachable: nobody listens there"),
            format!("provider name ({kind}): unreachable: the host's name has no address"),
            format!("provider tls ({kind}): unreachable: no secure connection (TLS)"),
            format!("provider mute ({kind}): unreachable: the connection failed"),
            format!("provider good ({kind}): good, the first 8 of 9 models"),
        ];
        assert_eq!(lines(&ended), expected, "{}", ended.err);
        assert_eq!(ended.status, Some(1));
    }
}

/// All are asked at once, and each for 10 seconds: the whole does not take 10 seconds for each.
#[test]
fn a_server_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let providers: Vec<Value> =
        KINDS.iter().map(|kind| provider(kind, kind, &url, "right", json!(["a", "b"]))).collect();
    let start = std::time::Instant::now();
    let ended = probe(&providers);
    let expected: Vec<String> = KINDS
        .iter()
        .map(|kind| format!("provider {kind} ({kind}): unreachable: no answer in time"))
        .collect();
    assert_eq!(lines(&ended), expected);
    assert_eq!(ended.status, Some(1));
    assert!(start.elapsed().as_secs() < 40, "one after the other they would take 100 s");
}

/// What is wrong in the file is found first, and nothing is asked.
#[test]
fn a_wrong_configuration_is_2() {
    let ended = probe(&[provider("a", "anthropic", "http://example.com/v1", "right", json!(["good"]))]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("INVALID_CONFIG: providers[0].baseUrl"), "{}", ended.err);
    let ended = run(&["serve", "--probe", "--config", "host.json"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.err.contains("--check"), "{}", ended.err);
}
