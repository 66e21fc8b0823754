//! What a server's answers mean for a configuration, and what it is asked.

use std::time::Duration;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_providers::{
    Anthropic, AnthropicConfig, Delivery, Gemini, GeminiConfig, OpenAiChat, OpenAiChatConfig,
    OpenAiResponses, OpenAiResponsesConfig, Probe, ResponsesVendor, Unreachable, Verdict,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

use crate::server::{End, Reply, Saw, Server, header};

const KEY: &str = "sk-probe-0123456789";
/// A good answer of every vendor.
const GOOD: &str = r#"{"id":"demo","name":"models/demo","choices":[]}"#;
/// No test waits for it.
const LONG: Duration = Duration::from_secs(60);

fn all(url: &Url, key: &str) -> [(&'static str, Box<dyn Probe>); 4] {
    let id = ProviderId::parse("local").unwrap();
    let models = vec![ModelId::parse("demo").unwrap()];
    let (base_url, name, api_key, delivery) = (url.clone(), None, Some(key.into()), Delivery::Streamed);
    let responses = OpenAiResponsesConfig {
        id: id.clone(),
        name: name.clone(),
        vendor: ResponsesVendor::OpenAi,
        base_url: base_url.clone(),
        api_key: api_key.clone(),
        models: models.clone(),
        delivery,
    };
    let chat = OpenAiChatConfig {
        id: id.clone(),
        name: name.clone(),
        base_url: base_url.clone(),
        api_key: api_key.clone(),
        models: models.clone(),
        delivery,
    };
    let anthropic = AnthropicConfig {
        id: id.clone(),
        name: name.clone(),
        base_url: base_url.clone(),
        api_key: api_key.clone(),
        models: models.clone(),
    };
    let gemini = GeminiConfig { id, name, base_url, api_key, models };
    [
        ("responses", Box::new(OpenAiResponses::new(responses).unwrap())),
        ("chat", Box::new(OpenAiChat::new(chat).unwrap())),
        ("anthropic", Box::new(Anthropic::new(anthropic).unwrap())),
        ("gemini", Box::new(Gemini::new(gemini).unwrap())),
    ]
}

async fn verdict(probe: &dyn Probe, limit: Duration) -> Verdict {
    probe.probe(&ModelId::parse("demo").unwrap(), limit).await
}

fn json(status: &str, body: &str) -> Reply {
    Reply::new(status, "Content-Type: application/json", body)
}

/// What means the same with every vendor. With 404 the cheaper question is not believed, and the other one asked.
#[tokio::test]
async fn verdicts_of_every_vendor() {
    let error = r#"{"error":{"message":"SECRET","type":"x"}}"#;
    let page = Reply::new("200 OK", "Content-Type: text/html", "<html>");
    let rows = [
        (vec![json("200 OK", GOOD)], Verdict::Good),
        (vec![json("200 OK", r#"{"status":"ok"}"#)], Verdict::WrongAddress(200)),
        (vec![json("200 OK", "{}")], Verdict::WrongAddress(200)),
        (vec![json("401 Unauthorized", error)], Verdict::WrongKey(401)),
        (vec![json("401 Unauthorized", "")], Verdict::WrongKey(401)),
        (vec![json("403 Forbidden", error)], Verdict::WrongKey(403)),
        (vec![json("404 Not Found", error)], Verdict::WrongModel(404)),
        (vec![json("404 Not Found", r#"{"object":"error","message":"no"}"#)], Verdict::WrongModel(404)),
        (vec![json("404 Not Found", "404 page not found")], Verdict::WrongAddress(404)),
        (vec![json("404 Not Found", r#"{"detail":"Not Found"}"#)], Verdict::WrongAddress(404)),
        (vec![page], Verdict::WrongAddress(200)),
        (vec![json("200 OK", "[]")], Verdict::WrongAddress(200)),
        (vec![json("200 OK", error)], Verdict::Refused(200)),
        (vec![json("308 Permanent Redirect", "")], Verdict::WrongAddress(308)),
        (vec![json("405 Method Not Allowed", "")], Verdict::WrongAddress(405)),
        (vec![json("400 Bad Request", error)], Verdict::Refused(400)),
        (vec![json("429 Too Many Requests", error)], Verdict::Limited),
        (vec![json("500 Internal Server Error", "x")], Verdict::Refused(500)),
        (vec![json("529 Overloaded", error)], Verdict::Refused(529)),
        (vec![json("200 OK", "{}").ending(End::Cut)], Verdict::Unreachable(Unreachable::Other)),
    ];
    for (replies, expected) in rows {
        let server = Server::script(replies.clone()).await;
        for (name, probe) in all(&server.url(), KEY) {
            let verdict = verdict(probe.as_ref(), LONG).await;
            assert_eq!(verdict, expected, "{name}: {replies:?}");
            let shown = format!("{verdict} {verdict:?}");
            assert!(!shown.contains(KEY) && !shown.contains("SECRET"), "{shown}");
        }
    }
}

/// A server that describes no model, such as a proxy, may serve it.
#[tokio::test]
async fn a_server_that_describes_nothing() {
    let error = r#"{"error":{"type":"not_found_error"}}"#;
    let good = || json("200 OK", GOOD);
    for first in
        [json("404 Not Found", error), json("404 Not Found", "x"), json("405 Method Not Allowed", "")]
    {
        for (second, expected) in [
            (good(), Verdict::Good),
            (json("401 Unauthorized", error), Verdict::WrongKey(401)),
            (json("404 Not Found", error), Verdict::WrongModel(404)),
        ] {
            for at in [0, 2, 3] {
                let mut server = Server::script(vec![first.clone(), second.clone()]).await;
                let (name, probe) = all(&server.url(), KEY).into_iter().nth(at).unwrap();
                assert_eq!(verdict(probe.as_ref(), LONG).await, expected, "{name}");
                assert!(matches!(server.saw().await, Saw::Request { .. }));
                assert!(matches!(server.saw().await, Saw::Request { .. }));
                assert!(server.saw_nothing_more());
            }
        }
    }
}

/// What one vendor says in its own way.
#[tokio::test]
async fn verdicts_of_one_vendor() {
    let gemini =
        r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;
    let project = r#"{"error":{"code":"model_not_found","type":"invalid_request_error"}}"#;
    let rows = [
        ("gemini", "400 Bad Request", gemini, Verdict::WrongKey(400)),
        ("responses", "403 Forbidden", project, Verdict::WrongModel(403)),
        ("chat", "403 Forbidden", project, Verdict::WrongModel(403)),
        (
            "chat",
            "400 Bad Request",
            r#"{"code":"x","error":"Incorrect API key provided: sk"}"#,
            Verdict::WrongKey(400),
        ),
        (
            "chat",
            "400 Bad Request",
            r#"{"message":"Invalid model: x","type":"invalid_model"}"#,
            Verdict::WrongModel(400),
        ),
        ("chat", "400 Bad Request", r#"{"error":{"message":"Model Not Exist"}}"#, Verdict::WrongModel(400)),
        (
            "chat",
            "400 Bad Request",
            r#"{"error":{"message":"x is not a valid model ID"}}"#,
            Verdict::WrongModel(400),
        ),
        ("chat", "403 Forbidden", r#"{"error":{"message":"no"}}"#, Verdict::WrongKey(403)),
        ("anthropic", "400 Bad Request", project, Verdict::Refused(400)),
    ];
    for (vendor, status, body, expected) in rows {
        let server = Server::start(json(status, body)).await;
        let (_, probe) = all(&server.url(), KEY).into_iter().find(|(name, _)| *name == vendor).unwrap();
        assert_eq!(verdict(probe.as_ref(), LONG).await, expected, "{vendor}: {status} {body}");
    }
}

/// Responses servers that answer well in one object and whose streams this adapter could not follow, as llama.cpp's.
#[tokio::test]
async fn streams_of_responses() {
    let stream = |events: &[&str]| {
        let events: String = events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect();
        Reply::stream(events)
    };
    let item = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message"}}"#;
    let bare = r#"{"type":"response.output_item.done","item":{"type":"message"}}"#;
    let (end, cut) = (
        r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        r#"{"type":"response.incomplete","response":{"status":"incomplete"}}"#,
    );
    let rows = [
        (stream(&[item, end]), Verdict::Good),
        (stream(&[item, cut]), Verdict::Good),
        (stream(&[cut]), Verdict::Good),
        (stream(&[bare, end]), Verdict::WrongAddress(200)),
        (stream(&[item]), Verdict::WrongAddress(200)),
        (stream(&[r#"{"type":"error","error":{"message":"SECRET"}}"#]), Verdict::Refused(200)),
    ];
    for (reply, expected) in rows {
        let server = Server::script(vec![json("404 Not Found", ""), reply.clone()]).await;
        let (_, probe) = all(&server.url(), KEY).into_iter().next().unwrap();
        assert_eq!(verdict(probe.as_ref(), LONG).await, expected, "{reply:?}");
    }
}

/// What is asked: the free question where there is one, else one token; the key only in its header.
#[tokio::test]
async fn questions() {
    let rows = [
        ("GET /v1/models/demo HTTP/1.1", "authorization", format!("Bearer {KEY}"), ""),
        (
            "POST /v1/chat/completions HTTP/1.1",
            "authorization",
            format!("Bearer {KEY}"),
            r#"{"max_tokens":1,"messages":[{"content":"Hi","role":"user"}],"model":"demo","stream":false}"#,
        ),
        ("GET /v1/models/demo HTTP/1.1", "x-api-key", KEY.to_owned(), ""),
        ("GET /v1/models/demo HTTP/1.1", "x-goog-api-key", KEY.to_owned(), ""),
    ];
    let mut server = Server::start(json("200 OK", GOOD)).await;
    for ((name, probe), (line, key, value, asked)) in all(&server.url(), KEY).into_iter().zip(rows) {
        verdict(probe.as_ref(), LONG).await;
        let Saw::Request { head, body } = server.saw().await else { panic!("{name}") };
        assert_eq!(head.lines().next(), Some(line));
        assert_eq!(header(&head, key), Some(value.as_str()), "{head}");
        assert_eq!(head.matches(KEY).count(), 1, "{head}");
        assert_eq!(body, asked);
    }
    let costly = [
        (
            "/v1/responses",
            r#"{"input":"Hi","max_output_tokens":16,"model":"demo","store":false,"stream":true}"#,
        ),
        ("", ""),
        ("/v1/messages", r#"{"max_tokens":1,"messages":[{"content":"Hi","role":"user"}],"model":"demo"}"#),
        (
            "/v1/models/demo:generateContent",
            r#"{"contents":[{"parts":[{"text":"Hi"}],"role":"user"}],"generationConfig":{"maxOutputTokens":1}}"#,
        ),
    ];
    let mut server = Server::start(json("404 Not Found", "")).await;
    for ((_, probe), (path, asked)) in all(&server.url(), KEY).into_iter().zip(costly) {
        verdict(probe.as_ref(), LONG).await;
        let Saw::Request { mut head, mut body } = server.saw().await else { panic!() };
        if !path.is_empty() {
            let Saw::Request { head: second, body: told } = server.saw().await else { panic!() };
            (head, body) = (second, told);
            assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
            assert_eq!(body, asked);
        }
        assert!(head.starts_with("POST ") && body.contains("Hi") && server.saw_nothing_more());
    }
}

#[tokio::test]
async fn no_answer() {
    // It hears and is silent.
    let server = Server::start(Reply::stream("").ending(End::Silence)).await;
    for (name, probe) in all(&server.url(), KEY) {
        let verdict = verdict(probe.as_ref(), Duration::from_millis(50)).await;
        assert_eq!(verdict, Verdict::Unreachable(Unreachable::Timeout), "{name}");
    }
    // It begins an answer and never ends it.
    let server = Server::start(Reply::object("{").ending(End::Hold)).await;
    for (name, probe) in all(&server.url(), KEY) {
        let verdict = verdict(probe.as_ref(), Duration::from_millis(50)).await;
        assert_eq!(verdict, Verdict::Unreachable(Unreachable::Timeout), "{name}");
    }
    // Nobody listens.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    for (name, probe) in all(&nobody, KEY) {
        let verdict = verdict(probe.as_ref(), LONG).await;
        assert_eq!(verdict, Verdict::Unreachable(Unreachable::Refused), "{name}");
    }
    // A server that does not speak TLS, and says so or only hangs up.
    for words in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = Url::parse(&format!("https://{}/v1", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                // All of the greeting, so that the end is no reset.
                let _ = connection.read(&mut [0; 4096]).await;
                let _ = connection.write_all(words.as_bytes()).await;
            }
        });
        for (name, probe) in all(&plain, KEY) {
            let verdict = verdict(probe.as_ref(), LONG).await;
            assert_eq!(verdict, Verdict::Unreachable(Unreachable::Tls), "{name}: {words:?}");
        }
    }
    // A name without an address.
    for (name, probe) in all(&Url::parse("https://no-such-host.invalid/v1").unwrap(), KEY) {
        let verdict = verdict(probe.as_ref(), LONG).await;
        assert_eq!(verdict, Verdict::Unreachable(Unreachable::Name), "{name}");
    }
    // Without a key nothing is asked.
    let mut server = Server::start(json("200 OK", "{}")).await;
    for (name, probe) in all(&server.url(), "") {
        assert_eq!(verdict(probe.as_ref(), LONG).await, Verdict::NoKey, "{name}");
    }
    assert!(server.saw_nothing_more());
}
