//! What a vendor's list of models says, for `GET /v1/providers` (contract 1.7).

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::{Discovery, Provider};
use countersign_protocol::provider_info::HealthStatus;
use countersign_providers::{
    Anthropic, AnthropicConfig, Delivery, Gemini, GeminiConfig, OpenAiChat, OpenAiChatConfig,
    OpenAiResponses, OpenAiResponsesConfig, ResponsesVendor, Scripted, Step,
};
use url::Url;

use crate::server::{End, Reply, Saw, Server, header};

const KEY: &str = "sk-discover-0123456789";

fn all(url: &Url, key: &str) -> [(&'static str, Box<dyn Provider>); 4] {
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

fn json(status: &str, body: impl Into<Vec<u8>>) -> Reply {
    Reply::new(status, "Content-Type: application/json", body)
}

fn told(discovery: &Discovery) -> (HealthStatus, &str, Option<(Vec<&str>, bool)>) {
    let listed = discovery.models.as_ref();
    let models = listed.map(|listed| (listed.models.iter().map(ModelId::as_str).collect(), listed.complete));
    (discovery.status, discovery.code.as_str(), models)
}

/// One question, for the list, that costs nothing; the key only in its header.
#[tokio::test]
async fn the_list_is_asked_for_and_nothing_else() {
    let rows = [
        ("GET /v1/models HTTP/1.1", "authorization", format!("Bearer {KEY}")),
        ("GET /v1/models HTTP/1.1", "authorization", format!("Bearer {KEY}")),
        ("GET /v1/models?limit=1000 HTTP/1.1", "x-api-key", KEY.to_owned()),
        ("GET /v1/models?pageSize=1000 HTTP/1.1", "x-goog-api-key", KEY.to_owned()),
    ];
    for reply in [json("200 OK", r#"{"data":[]}"#), json("404 Not Found", "")] {
        let mut server = Server::start(reply).await;
        for ((name, provider), (line, key, value)) in all(&server.url(), KEY).into_iter().zip(&rows) {
            provider.discover().await.unwrap();
            let Saw::Request { head, body } = server.saw().await else { panic!("{name}") };
            assert_eq!(head.lines().next(), Some(*line));
            assert_eq!(header(&head, key), Some(value.as_str()), "{head}");
            assert_eq!((head.matches(KEY).count(), body.as_str()), (1, ""), "{head}");
            assert!(server.saw_nothing_more());
        }
    }
}

#[tokio::test]
async fn lists_of_every_vendor() {
    let data = |list: &str| list.to_owned();
    let gemini = |list: &str| list.replace("data", "models").replace("\"id\":\"", "\"name\":\"models/");
    let rows = [
        (r#"{"data":[{"id":"a","owned_by":"x"},{"id":"b/c"}],"object":"list"}"#, (vec!["a", "b/c"], true)),
        (r#"{"data":[]}"#, (vec![], true)),
        // No request can name these, so the list lacks them.
        (r#"{"data":[{"id":"a"},{"id":""},{"id":"/x y"},{"id":"\u0000"}]}"#, (vec!["a"], false)),
    ];
    for (list, (models, complete)) in rows {
        for at in 0..4 {
            let list = if at == 3 { gemini(list) } else { data(list) };
            let server = Server::start(json("200 OK", list.clone())).await;
            let (name, provider) = all(&server.url(), KEY).into_iter().nth(at).unwrap();
            let discovery = provider.discover().await.unwrap();
            let expected = (HealthStatus::Ready, "READY", Some((models.clone(), complete)));
            assert_eq!(told(&discovery), expected, "{name}: {list}");
        }
    }
    for (at, list) in [
        (2, r#"{"data":[{"id":"a"}],"has_more":true}"#),
        (3, r#"{"models":[{"name":"models/a"}],"nextPageToken":"x"}"#),
    ] {
        let server = Server::start(json("200 OK", list)).await;
        let (name, provider) = all(&server.url(), KEY).into_iter().nth(at).unwrap();
        let discovery = provider.discover().await.unwrap();
        assert_eq!(
            told(&discovery),
            (HealthStatus::Ready, "READY", Some((vec!["a"], false))),
            "{name}: more"
        );
    }
}

/// What means the same with every vendor. None of the vendor's words are told.
#[tokio::test]
async fn refusals_of_every_vendor() {
    use HealthStatus::{Unauthenticated, Unavailable, Unknown, Unsupported};
    let error = r#"{"error":{"message":"SECRET sk-discover-0123456789","type":"x"}}"#;
    let huge = format!(r#"{{"data":[],"x":"{}"}}"#, "x".repeat(2_000_001));
    let rows = [
        (json("401 Unauthorized", error), (Unauthenticated, "PROVIDER_AUTH")),
        (json("403 Forbidden", error), (Unauthenticated, "PROVIDER_AUTH")),
        (json("404 Not Found", error), (Unsupported, "DISCOVERY_UNSUPPORTED")),
        (json("405 Method Not Allowed", ""), (Unsupported, "DISCOVERY_UNSUPPORTED")),
        (json("429 Too Many Requests", error), (Unavailable, "RATE_LIMITED")),
        (json("500 Internal Server Error", "SECRET"), (Unavailable, "PROVIDER_ERROR")),
        (json("529 Overloaded", error), (Unavailable, "PROVIDER_ERROR")),
        (json("400 Bad Request", error), (Unknown, "INVALID_PROVIDER_RESPONSE")),
        (json("308 Permanent Redirect", ""), (Unknown, "INVALID_PROVIDER_RESPONSE")),
        (json("200 OK", error), (Unknown, "INVALID_PROVIDER_RESPONSE")),
        (json("200 OK", "[]"), (Unknown, "INVALID_PROVIDER_RESPONSE")),
        (
            json("200 OK", r#"{"data":[{"id":1}],"models":[{"name":1}]}"#),
            (Unknown, "INVALID_PROVIDER_RESPONSE"),
        ),
        (json("200 OK", b"\xff".to_vec()), (Unknown, "INVALID_PROVIDER_RESPONSE")),
        (json("200 OK", huge), (Unavailable, "PROVIDER_UNREACHABLE")),
        (json("200 OK", "{").ending(End::Cut), (Unavailable, "PROVIDER_UNREACHABLE")),
    ];
    for (reply, (status, code)) in rows {
        let server = Server::start(reply).await;
        for (name, provider) in all(&server.url(), KEY) {
            let discovery = provider.discover().await.unwrap();
            assert_eq!(told(&discovery), (status, code, None), "{name}: {discovery:?}");
            assert!(!discovery.message.is_empty() && discovery.message.ends_with('.'), "{discovery:?}");
            let shown = format!("{discovery:?}");
            assert!(!shown.contains(KEY) && !shown.contains("SECRET"), "{shown}");
        }
    }
    let about_the_key =
        r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;
    let server = Server::start(json("400 Bad Request", about_the_key)).await;
    let (_, gemini) = all(&server.url(), KEY).into_iter().nth(3).unwrap();
    assert_eq!(told(&gemini.discover().await.unwrap()), (Unauthenticated, "PROVIDER_AUTH", None));
}

#[tokio::test]
async fn nobody_to_ask() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    for (name, provider) in all(&nobody, KEY) {
        let discovery = provider.discover().await.unwrap();
        assert_eq!(told(&discovery), (HealthStatus::Unavailable, "PROVIDER_UNREACHABLE", None), "{name}");
        assert_eq!(discovery.message, "The provider's server is unreachable: nobody listens there.");
    }
    let mut server = Server::start(json("200 OK", "{}")).await;
    for (name, provider) in all(&server.url(), "") {
        let discovery = provider.discover().await.unwrap();
        assert_eq!(told(&discovery), (HealthStatus::Unauthenticated, "AUTH_REQUIRED", None), "{name}");
    }
    assert!(server.saw_nothing_more());
    let scripted =
        Scripted::builder("mock").models(["demo"]).default_script([Step::text("x")]).build().unwrap();
    assert_eq!(scripted.discover().await, None);
}
