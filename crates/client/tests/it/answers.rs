//! Answers that are no streams (10.2; 10.4, catalog and protocol; 5.1).

use countersign_client::{Client, Error};

use crate::events::*;
use crate::server::{JSON_HEADERS, Script, Server, Then};

async fn served(body: impl AsRef<[u8]>) -> (Server, Client) {
    let server = Server::answering("200 OK", JSON_HEADERS, body).await;
    let client = server.client();
    (server, client)
}

fn told<T>(answer: Result<T, Error>) -> String {
    answer.map_or_else(|error| code(&error), |_| "ok".to_owned())
}

const PROVIDER: &str = r#"{"id":"mock","name":"Mock","vendor":"none","authMode":"none","capabilities":{"tools":true,"textStreaming":true,"safeRetries":false},"models":["demo"],"health":{"status":"ready","code":"OK","message":"m","checkedAt":"2026-09-20T12:00:00Z"},"modelCatalog":{"source":"configured","models":["demo"],"complete":false},"inputMediaTypes":["text/plain","image/png","application/pdf"],"usageStatId":"u","future":null}"#;

/// 10.4, catalog.
#[tokio::test]
async fn catalog() {
    let media = r#"["text/plain","image/png","application/pdf"]"#;
    for (row, from, to, expected) in [
        ("discovery-metadata, media-catalog-valid", "mock", "mock2", "ok"),
        ("bad-catalog", r#""vendor":"none","#, "", "INVALID_RESPONSE"),
        ("malformed-catalog-json", r#""vendor":"#, r#""vendor""#, "INVALID_RESPONSE"),
        ("invalid-auth-mode-type", r#""authMode":"none""#, r#""authMode":1"#, "INVALID_RESPONSE"),
        (
            "a capability that is no boolean",
            r#""safeRetries":false"#,
            r#""safeRetries":0"#,
            "INVALID_RESPONSE",
        ),
        (
            "invalid-health",
            r#"{"status":"ready","code":"OK","message":"m","checkedAt":"2026-09-20T12:00:00Z"}"#,
            "null",
            "INVALID_RESPONSE",
        ),
        ("invalid-health-time", "2026-09-20T12:00:00Z", "today", "INVALID_RESPONSE"),
        (
            "invalid-catalog-model",
            r#""configured","models":["demo"]"#,
            r#""configured","models":[7]"#,
            "INVALID_RESPONSE",
        ),
        ("invalid-catalog-completeness", r#""complete":false"#, r#""complete":"no""#, "INVALID_RESPONSE"),
        ("media-catalog-null", media, "null", "INVALID_RESPONSE"),
        ("media-catalog-wrong-type", media, r#""text/plain""#, "INVALID_RESPONSE"),
        ("media-catalog-unsupported", media, r#"["video/mp4"]"#, "INVALID_RESPONSE"),
        (
            "an optional member that is null",
            r#""usageStatId":"u""#,
            r#""usageStatId":null"#,
            "INVALID_RESPONSE",
        ),
    ] {
        let body = format!(r#"{{"providers":[{}]}}"#, changed(PROVIDER, from, to));
        let (_server, client) = served(&body).await;
        assert_eq!(told(client.providers().await), expected, "{row}");
    }
    let (_server, client) = served(format!(r#"{{"providers":[{PROVIDER}]}}"#)).await;
    let providers = client.providers().await.unwrap();
    assert_eq!((providers.len(), providers[0].id.as_str()), (1, "mock"));
}

/// 10.4, protocol; 1.6.
#[tokio::test]
async fn protocol() {
    let good = r#"{"protocol":"agenticdriver","version":"1.0","supportedVersions":["1.0"],"features":["event-stream"],"future":1}"#;
    for (row, from, to, expected) in [
        ("good", "event-stream", "event-stream", "ok"),
        ("bad-protocol: no versions", r#""supportedVersions":["1.0"],"#, "", "INVALID_RESPONSE"),
        ("bad-protocol: no features", r#","features":["event-stream"]"#, "", "INVALID_RESPONSE"),
        ("another protocol", "agenticdriver", "other", "INVALID_RESPONSE"),
        ("another version", r#""version":"1.0""#, r#""version":"2.0""#, "UNSUPPORTED_PROTOCOL_VERSION"),
    ] {
        let (_server, client) = served(good.replacen(from, to, 1)).await;
        assert_eq!(told(client.protocol().await), expected, "{row}");
    }
}

/// 2.2 and 10.2: the answer of a buffered run.
#[tokio::test]
async fn buffered_run() {
    let text = result();
    for (row, body, expected) in [
        ("good", text.clone(), "ok"),
        ("additional members", changed(&text, "{", r#"{"future":1,"#), "ok"),
        ("another provider", changed(&text, "mock", "other"), "INVALID_RESPONSE"),
        ("another model", changed(&text, "demo", "other"), "INVALID_RESPONSE"),
        ("no steps", changed(&text, r#""steps":1"#, r#""steps":0"#), "INVALID_RESPONSE"),
        ("session null", changed(&text, r#""steps":1"#, r#""steps":1,"session":null"#), "INVALID_RESPONSE"),
        ("a key twice", changed(&text, r#""steps":1"#, r#""steps":1,"steps":1"#), "INVALID_RESPONSE"),
        ("no run", changed(&text, RUN, ""), "INVALID_RESPONSE"),
        ("nothing", String::new(), "INVALID_RESPONSE"),
        ("null", "null".to_owned(), "INVALID_RESPONSE"),
        ("more than one value", format!("{text}{text}"), "INVALID_RESPONSE"),
        ("deep", "[".repeat(10_000), "INVALID_RESPONSE"),
    ] {
        let (_server, client) = served(&body).await;
        assert_eq!(told(client.run(&hello()).await), expected, "{row}");
    }
    let (before, after) = text.split_once("Hello").unwrap();
    let (_server, client) = served([before.as_bytes(), b"\xff", after.as_bytes()].concat()).await;
    assert_eq!(told(client.run(&hello()).await), "INVALID_RESPONSE", "not UTF-8");
}

/// 10.2: a JSON answer may have 2,000,000 bytes, and not one more; whether its length is announced or not.
#[tokio::test]
async fn size() {
    let padded = |size: usize| {
        let text = result();
        let spaces = " ".repeat(size - text.len());
        text + &spaces
    };
    for (size, expected) in [(2_000_000, "ok"), (2_000_001, "RESPONSE_TOO_LARGE")] {
        let (_server, client) = served(padded(size)).await;
        assert_eq!(told(client.run(&hello()).await), expected, "{size}");
        let bytes = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", padded(size).as_bytes()].concat();
        let server = Server::start(Script { bytes, then: Then::Close }).await;
        assert_eq!(told(server.client().run(&hello()).await), expected, "{size} without a length");
    }
}

/// Law 9: an endless answer is not read to its end.
#[tokio::test]
async fn an_endless_answer_is_cut() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    let bytes = format!("{head}{}", " ".repeat(2_100_000)).into_bytes();
    let mut server = Server::start(Script { bytes, then: Then::Hold }).await;
    assert_eq!(told(server.client().run(&hello()).await), "RESPONSE_TOO_LARGE");
    server.hang_up().await;
}

/// 10.2: a success that speaks another version is not read, on every endpoint.
#[tokio::test]
async fn version_of_answers() {
    for headers in
        ["AgenticDriver-Version: 2.0\r\n", "AgenticDriver-Version: 1.0\r\nAgenticDriver-Version: 1.0\r\n"]
    {
        let server = Server::answering("200 OK", headers, "not JSON").await;
        let client = server.client();
        for end in [
            told(client.protocol().await),
            told(client.providers().await),
            told(client.run(&hello()).await),
            told(client.stream(&hello()).await),
            told(client.decide_approval(&decision("approve")).await),
        ] {
            assert_eq!(end, "UNSUPPORTED_PROTOCOL_VERSION");
        }
    }
}

/// 5.1, 10.2 and 10.3 (`unknown-error-code`): what a refusal says, or that it says nothing.
#[tokio::test]
async fn refusals() {
    let body = |code: &str, more: &str| {
        format!(r#"{{"error":{{"code":"{code}","message":"m","retryable":true{more}}},"future":1}}"#)
    };
    let padded = |size: usize| {
        let text = body("BUSY", "");
        let spaces = " ".repeat(size - text.len());
        text + &spaces
    };
    for (row, status, body, expected) in [
        ("unknown-error-code", "503 X", body("FUTURE_CONDITION", ""), Some("FUTURE_CONDITION")),
        ("known", "429 X", body("BUSY", ""), Some("BUSY")),
        (
            "uncertain",
            "409 X",
            body("OPERATION_UNCERTAIN", r#","outcome":"uncertain""#),
            Some("OPERATION_UNCERTAIN"),
        ),
        ("outcome null", "409 X", body("BUSY", r#","outcome":null"#), None),
        ("empty code", "400 X", body("", ""), None),
        ("64,000 bytes", "400 X", padded(64_000), Some("BUSY")),
        ("64,001 bytes", "400 X", padded(64_001), None),
        ("a proxy's page", "502 Bad Gateway", "<html>".to_owned(), None),
        ("nothing", "500 X", String::new(), None),
        ("redirect", "302 X", String::new(), None),
        ("not modified", "304 X", String::new(), None),
    ] {
        // The status comes before the version (10.2).
        let server = Server::answering(status, "AgenticDriver-Version: 2.0\r\n", body).await;
        let client = server.client();
        for error in [
            client.run(&hello()).await.unwrap_err(),
            client.stream(&hello()).await.unwrap_err(),
            client.providers_refreshed().await.unwrap_err(),
            client.decide_approval(&decision("deny")).await.unwrap_err(),
        ] {
            match (&error, expected) {
                (Error::Remote(info), Some(code)) => {
                    assert_eq!(info.code.as_str(), code, "{row}");
                    assert!(info.retryable);
                    assert_eq!(error.is_uncertain(), row == "uncertain");
                }
                (Error::Http { status: number }, None) => {
                    assert!(status.starts_with(&number.to_string()), "{row}");
                    assert_eq!(code(&error), "INVALID_RESPONSE");
                    assert!(error.is_uncertain());
                }
                _ => panic!("{row}: {error:?}"),
            }
        }
    }
}
