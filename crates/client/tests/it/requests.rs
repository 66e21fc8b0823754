//! What is sent, and what is refused before anything is sent (10.1).

use std::error::Error as _;

use countersign_client::{Client, Error, Misuse};
use countersign_protocol::request::RunRequest;
use tokio::net::TcpListener;

use crate::events::*;
use crate::server::{JSON_HEADERS, Server, TOKEN};

/// The headers of 10.1, the paths of 1.1, and bodies that carry every token of the call (law 3).
#[tokio::test]
async fn what_is_sent() {
    let server = Server::answering("404 X", JSON_HEADERS, "").await;
    let client = Client::builder(format!("{}/prefix", server.url()), TOKEN.into()).build().unwrap();
    let _ = client.protocol().await;
    let _ = client.providers().await;
    let _ = client.providers_refreshed().await;
    let _ = client.run(&hello()).await;
    let _ = client.stream(&reviewed()).await;
    let _ = client.decide_approval(&decision("deny")).await;
    let heard = server.heard();
    let json = "application/json";
    for (request, (line, accept, body)) in heard.iter().zip([
        ("GET /prefix/v1/protocol HTTP/1.1", json, ""),
        ("GET /prefix/v1/providers HTTP/1.1", json, ""),
        ("GET /prefix/v1/providers?refresh=true HTTP/1.1", json, ""),
        ("POST /prefix/v1/runs HTTP/1.1", json, r#"{"provider":"mock","model":"demo","input":"Hello"}"#),
        (
            "POST /prefix/v1/runs HTTP/1.1",
            "text/event-stream",
            r#"{"provider":"mock","model":"demo","input":"Hello","approvals":{"mode":"interactive","idlePolicy":"pause"}}"#,
        ),
        (
            "POST /prefix/v1/approvals/decisions HTTP/1.1",
            json,
            &format!(
                r#"{{"approvalId":"{APPROVAL}","runId":"{RUN}","call":{{"id":"call-1","name":"write","arguments":{{"k":[1,2]}}}},"decision":"deny"}}"#
            ),
        ),
    ]) {
        let (head, sent) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!((head.lines().next().unwrap(), sent), (line, body));
        let mut headers: Vec<String> = head
            .lines()
            .skip(1)
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
            .collect();
        headers.sort();
        let mut wanted = vec![
            format!("accept: {accept}"),
            "agenticdriver-accept-optional-events: true".to_owned(),
            "agenticdriver-version: 1.0".to_owned(),
            format!("authorization: Bearer {TOKEN}"),
            format!("host: {}", server.url().trim_start_matches("http://")),
        ];
        if !body.is_empty() {
            wanted.extend([format!("content-length: {}", body.len()), "content-type: application/json".to_owned()]);
            wanted.sort();
        }
        assert_eq!(headers, wanted);
    }
    assert_eq!(heard.len(), 6);
}

#[test]
fn base_urls() {
    for url in [
        "https://host.example",
        "https://host.example:8443/a/b/",
        "http://localhost:1",
        "http://127.0.0.1",
        "http://[::1]:80/x",
    ] {
        assert!(Client::builder(url, TOKEN.into()).build().is_ok(), "{url}");
    }
    for url in [
        "http://host.example",
        "http://10.0.0.1",
        "http://127.0.0.2",
        "http://0.0.0.0",
        "http://[::ffff:127.0.0.1]",
        "http://localhost.example",
        "http://localhost@host.example",
        "https://user@host.example",
        "https://:secret@host.example",
        "https://host.example/?",
        "https://host.example?a=b",
        "https://host.example/#",
        "ftp://localhost",
        "ws://localhost",
        "file:///tmp",
        "host.example",
        "/v1",
        "",
    ] {
        let error = Client::builder(url, TOKEN.into()).build().unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::BaseUrl(_))), "{url}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}

/// 10.1: an empty token is refused here; so is one that a host could not tell from none (1.2, step 6).
#[test]
fn tokens() {
    let longest = "x".repeat(4096);
    for (token, good) in [
        ("t", true),
        (longest.as_str(), true),
        ("", false),
        (&format!("{longest}x"), false),
        ("a b", false),
        ("a\n", false),
        ("a\0", false),
        ("\u{fc}", false),
    ] {
        let built = Client::builder("http://localhost", token.into()).build();
        match built {
            Ok(_) => assert!(good, "{token:?}"),
            Err(error) => assert!(!good && matches!(error, Error::Misuse(Misuse::Token)), "{error:?}"),
        }
    }
}

/// 10.1: `run()` with approvals is refused here, application tools first, and nothing is sent. Law 3: what cannot be
/// sent is not left out.
#[tokio::test]
async fn refused_before_sending() {
    let server = Server::answering("200 OK", JSON_HEADERS, result()).await;
    let client = server.client();
    let read = |members: &str| {
        RunRequest::decode(&format!(r#"{{"provider":"mock","model":"demo","input":"Hello",{members}}}"#))
            .unwrap()
    };
    let approvals = r#""approvals":{"mode":"interactive","idlePolicy":"pause"}"#;
    let tools = r#""applicationTools":[{"name":"a","description":"b","inputSchema":{}}]"#;
    let session = r#""session":{}"#;
    for (members, expected) in [
        (approvals.to_owned(), "APPROVAL_STREAM_REQUIRED"),
        (tools.to_owned(), "TOOL_STREAM_REQUIRED"),
        (format!("{approvals},{tools}"), "TOOL_STREAM_REQUIRED"),
        (session.to_owned(), "none"),
    ] {
        let error = client.run(&read(&members)).await.unwrap_err();
        assert_eq!(code(&error), expected, "{members}");
        assert!(!error.is_uncertain());
    }
    let error = client.stream(&read(session)).await.unwrap_err();
    assert!(matches!(error, Error::Misuse(Misuse::UnsendableRequest)), "{error:?}");
    assert!(server.heard().is_empty());
}

/// The token is in no text that a program might log (scenario group S).
#[tokio::test]
async fn the_token_is_never_shown() {
    let server = Server::answering("500 X", "", "").await;
    let builder = server.builder();
    assert!(!format!("{builder:?}").contains(TOKEN));
    let client = builder.build().unwrap();
    assert!(!format!("{client:?} {client:#?}").contains(TOKEN));
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let unreachable = Client::builder(format!("http://127.0.0.1:{port}"), TOKEN.into()).build().unwrap();
    let bad = Client::builder("http://localhost", format!("{TOKEN} ").into()).build().unwrap_err();
    for error in [bad, client.protocol().await.unwrap_err(), unreachable.run(&hello()).await.unwrap_err()] {
        let mut text = format!("{error} {error:?}");
        let mut source = error.source();
        while let Some(cause) = source {
            text += &format!(" {cause} {cause:?}");
            source = cause.source();
        }
        assert!(!text.contains(TOKEN), "{text}");
    }
}
