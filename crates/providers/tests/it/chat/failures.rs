//! Answers that are no model turn, servers that are not there, and what is never shown.

use std::error::Error as _;

use countersign_driver::provider::Provider;
use countersign_protocol::code::Code;
use countersign_protocol::provider_info::AuthMode;
use countersign_providers::{Error, OpenAiChat, OpenAiChatConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

use super::wire::{delta, finish, frames};
use super::{KEY, config, play};
use crate::heard::{Came, answer, ask, failure, user};
use crate::server::{Reply, Saw, Server, header};

fn base(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// The log learns what kind of refusal it was, and an odd body is no second failure.
#[tokio::test]
async fn a_refusal_is_named_in_the_log() {
    for (body, label) in [
        (
            r#"{"error":{"type":"exceed_context_size_error","code":400}}"#.to_owned(),
            "type=exceed_context_size_error code=400",
        ),
        (r#"{"error":"plain"}"#.to_owned(), "400"),
        ("<html>".to_owned(), "400"),
        ("x".repeat(100_000), "400"),
    ] {
        let (turn, _) = play(Reply::new("400 Bad Request", "X-A: b", body)).await;
        let error = turn.unwrap_err();
        assert_eq!(error.info.code, Code::PROVIDER_ERROR);
        assert!(error.source().unwrap().to_string().contains(label));
    }
}

/// xAI tells a wrong key with a 400. Only words that are surely the server's own are believed: a message may go on with
/// the conversation.
#[tokio::test]
async fn a_wrong_key_that_is_no_401() {
    let xai =
        r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: sk***89."}"#;
    let rows = [
        (xai, Code::PROVIDER_AUTH),
        (r#"{"error":{"message":"Invalid API key","code":null}}"#, Code::PROVIDER_AUTH),
        (r#"{"error":{"message":"no","code":"invalid_api_key"}}"#, Code::PROVIDER_AUTH),
        (r#"{"error":{"message":"cannot read: Incorrect API key provided","code":7}}"#, Code::PROVIDER_ERROR),
        (r#"{"error":"message 3: incorrect api key"}"#, Code::PROVIDER_ERROR),
        (r#"{"error":null}"#, Code::PROVIDER_ERROR),
        (r#"{"error":["Incorrect API key provided"]}"#, Code::PROVIDER_ERROR),
    ];
    for (body, code) in rows {
        let (turn, _) = play(Reply::new("400 Bad Request", "X-A: b", body)).await;
        assert_eq!(Came::of(&turn), failure(code), "{body}");
    }
    let (turn, _) = play(Reply::new("500 Internal Server Error", "X-A: b", xai)).await;
    assert_eq!(Came::of(&turn), Came::Failure { code: Code::PROVIDER_ERROR, retryable: true });
}

/// Law 9: what is small on the wire and large in memory is bounded by its number, at the edge.
#[tokio::test]
async fn lists() {
    let fragments = |count: usize| {
        let parts = vec![r#"{"index":0,"id":"a","function":{"name":"f"}}"#; count].join(",");
        frames(&[&delta(&format!(r#"{{"tool_calls":[{parts}]}}"#)), &finish("tool_calls")])
    };
    let (turn, _) = play(Reply::stream(fragments(1_024))).await;
    assert_eq!(Came::of(&turn), answer("", &[("a", "f", "")]));
    let choices = frames(&[&format!(r#"{{"choices":[{}]}}"#, vec!["{}"; 100_000].join(","))]);
    for body in [fragments(1_025), choices] {
        let (turn, _) = play(Reply::stream(body)).await;
        assert_eq!(Came::of(&turn), failure(Code::INVALID_PROVIDER_RESPONSE));
    }
}

/// HTTPS is really spoken: the first byte is that of a TLS handshake, and a server that cannot go on is not reached.
#[tokio::test]
async fn a_server_without_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider =
        match OpenAiChat::new(config(base(&format!("https://{}/v1", listener.local_addr().unwrap())))) {
            Ok(provider) => provider,
            // A machine without certificate authorities says so, and cannot go on.
            Err(error) => return assert!(matches!(error, Error::NoRoots), "{error}"),
        };
    let in_the_clear = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let first = connection.read_u8().await.unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        first
    };
    let messages = [user("x")];
    let ((turn, _), first) = tokio::join!(ask(&provider, &messages), in_the_clear);
    assert_eq!(first, 0x16);
    assert_eq!(Came::of(&turn), Came::Failure { code: Code::PROVIDER_UNREACHABLE, retryable: true });
}

/// Contract 11, "missing key"; a server without keys is asked without a header.
#[tokio::test]
async fn keys() {
    let mut server = Server::start(Reply::object("{}")).await;
    let with = |key: Option<&str>| {
        OpenAiChat::new(OpenAiChatConfig { api_key: key.map(Into::into), ..config(server.url()) })
    };
    let missing = with(Some("")).unwrap();
    let (turn, _) = ask(&missing, &[user("x")]).await;
    assert_eq!(Came::of(&turn), failure(Code::AUTH_REQUIRED));

    let (none, some) = (with(None).unwrap(), with(Some(KEY)).unwrap());
    assert_eq!((none.info().auth_mode, some.info().auth_mode), (AuthMode::None, AuthMode::ApiKey));
    for bad in ["a\nb", "a b", "ключ", "a\0"] {
        let error = with(Some(bad)).unwrap_err();
        assert!(matches!(error, Error::Key) && !format!("{error} {error:?}").contains(bad));
    }
    for (provider, expected) in [(&none, None), (&some, Some(format!("Bearer {KEY}")))] {
        let _ = ask(provider, &[user("x")]).await;
        let Saw::Request { head, .. } = server.saw().await else { panic!() };
        assert_eq!(header(&head, "authorization"), expected.as_deref());
    }
    assert!(server.saw_nothing_more(), "without its key nothing was sent");
}

/// Contract 6.1: HTTPS, or HTTP that stays here; nothing else in the URL.
#[test]
fn base_urls() {
    let rows = [
        ("http://127.0.0.1:8100/v1", true),
        ("http://127.9.9.9/", true),
        ("http://localhost:8100", true),
        ("http://[::1]:8100/v1/", true),
        ("http://example.com/v1", false),
        ("http://localhost.example.com/v1", false),
        ("http://10.0.0.1/v1", false),
        ("http://0.0.0.0/v1", false),
        ("ftp://127.0.0.1/v1", false),
        ("data:text/plain,x", false),
        ("unix:/run/model.sock", false),
        ("http://user@127.0.0.1/v1", false),
        ("http://:pass@127.0.0.1/v1", false),
        ("http://127.0.0.1/v1?x=1", false),
        ("http://127.0.0.1/v1?", false),
        ("http://127.0.0.1/v1#x", false),
    ];
    for (url, accepted) in rows {
        let provider = OpenAiChat::new(config(base(url)));
        assert_eq!(provider.is_ok(), accepted, "{url}");
        assert!(provider.is_ok() || matches!(provider, Err(Error::BaseUrl(_))), "{url}");
    }
}

#[test]
fn names_and_models() {
    let good = config(base("http://127.0.0.1/v1"));
    let none = OpenAiChatConfig { models: vec![], ..good.clone() };
    assert_eq!(OpenAiChat::new(none).unwrap_err().to_string(), "models: expected 1 to 1000 models");
    for (length, accepted) in [(0, false), (1, true), (100, true), (101, false)] {
        let named = OpenAiChatConfig { name: Some("n".repeat(length)), ..good.clone() };
        assert_eq!(OpenAiChat::new(named).is_ok(), accepted, "{length}");
    }
    let info = OpenAiChat::new(good).unwrap().info().clone();
    assert_eq!((info.name.as_str(), info.vendor.as_str()), ("local", "openai-compatible"));
    // A run may then ask for a retry policy (contract 2.1, step 7).
    assert!(
        info.capabilities.tools && info.capabilities.text_streaming && info.capabilities.has("safeRetries")
    );
}
