//! `GET /metrics` (decision 0017): who may read it, and what it says.

use std::time::Duration;

use countersign_host::{Concurrency, HostConfig, MetricsAccess, Options, Queue, Service};
use countersign_testkit::Answer as SinkAnswer;
use secrecy::SecretString;
use serde_json::json;
use tokio::time::sleep;

use crate::config::{directory, with};
use crate::support::{ANN, Ask, BOB, CARL, Fixture, decision, options, plain, run_ask};

const READER: &str = "prometheus-prometheus-prometheus-0007";

fn host(metrics: Option<MetricsAccess>) -> Fixture {
    with_options(Options { metrics, ..options() })
}

fn with_options(options: Options) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.service = Service::new(fixture.driver.clone(), &options).unwrap();
    fixture
}

fn own_token() -> Option<MetricsAccess> {
    Some(MetricsAccess::Token(SecretString::from(READER)))
}

fn metrics(token: &str) -> Ask {
    Ask::get("/metrics").token(token)
}

/// What is told, without comments and without what is zero.
async fn told(fixture: &Fixture, token: &str) -> Vec<String> {
    let answer = fixture.ask(&metrics(token)).await;
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.head.one("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = String::from_utf8(answer.body).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
    // How long a test took is nobody's business.
    lines.filter(|line| !line.contains("_sum{")).map(|line| line.replace("countersign_", "")).collect()
}

// Contract 1.2: where it is off, and for whoever may not read it, the path is one that does not exist; law 4.
#[tokio::test]
async fn to_whoever_may_not_read_it_it_is_an_unknown_path() {
    let own = own_token;
    let any = || Some(MetricsAccess::AnyToken);
    let ask = |method: &str, target: &str, token: Option<&str>| {
        let ask = Ask::new(method, target);
        token.map_or_else(|| ask.clone(), |token| ask.clone().token(token))
    };
    // The host, method, token: each is answered as `/nothing` is.
    let rows: [(Option<MetricsAccess>, &str, Option<&str>, u16); 11] = [
        (None, "GET", None, 401),
        (None, "GET", Some(READER), 401),
        (None, "GET", Some(ANN), 404),
        (own(), "GET", None, 401),
        (own(), "GET", Some("wrong-wrong-wrong-wrong-wrong-wro"), 401),
        (own(), "GET", Some(ANN), 404),
        (own(), "POST", Some(ANN), 404),
        (own(), "POST", Some(READER), 401),
        (any(), "GET", None, 401),
        (any(), "GET", Some(READER), 401),
        (any(), "POST", Some(ANN), 404),
    ];
    for (access, method, token, status) in rows {
        let fixture = host(access.clone());
        let answer = fixture.ask(&ask(method, "/metrics", token)).await;
        let unknown = fixture.ask(&ask(method, "/nothing", token)).await;
        assert_eq!(answer.head.status, status, "{access:?} {method} {token:?}");
        assert_eq!(answer.undated(), unknown.undated(), "{access:?} {method} {token:?}");
    }
    // Another target is another path.
    let fixture = host(own());
    assert_eq!(fixture.ask(&Ask::get("/metrics?x=1").token(READER)).await.head.status, 401);
    assert_eq!(fixture.ask(&Ask::get("/metrics/").token(READER)).await.head.status, 401);
}

// Its own token opens nothing else; with `AnyToken` each of the host's reads it. Checks before are those of every request.
#[tokio::test]
async fn who_may_read_it() {
    let fixture = host(own_token());
    assert_eq!(fixture.ask(&metrics(READER)).await.head.status, 200);
    for ask in [
        Ask::get("/v1/protocol").token(READER),
        Ask::get("/v1/providers").token(READER),
        Ask::post("/v1/runs").token(READER).json(&plain("quick")),
        Ask::post("/v1/approvals/decisions").token(READER).text("{}"),
    ] {
        assert_eq!(fixture.ask(&ask).await.outcome(), (401, "UNAUTHORIZED".into()));
    }
    let other = fixture.ask(&metrics(READER).header("AgenticDriver-Version", "2.0")).await;
    assert_eq!(other.outcome(), (400, "UNSUPPORTED_PROTOCOL_VERSION".into()));
    let page = fixture.ask(&metrics(READER).header("Origin", "https://evil.example")).await;
    assert_eq!(page.outcome(), (403, "ORIGIN_DENIED".into()));
    let fixture = host(Some(MetricsAccess::AnyToken));
    for token in [ANN, CARL] {
        assert_eq!(fixture.ask(&metrics(token)).await.head.status, 200);
    }
}

#[test]
fn a_token_that_cannot_be_used_is_found_at_start() {
    let refused = |token: &str| {
        let driver = Fixture::without_approvals().driver;
        let metrics = Some(MetricsAccess::Token(SecretString::from(token)));
        Service::new(driver, &Options { metrics, ..options() }).err().unwrap().to_string()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    assert_eq!(
        refused("short"),
        "AUTH_REQUIRED: metrics.token: a token has 32 to 4096 characters; this one has 5"
    );
    assert_eq!(refused(ANN), "INVALID_CONFIG: metrics.token: a token of the host has the same value");
    assert!(!format!("{:?}", own_token()).contains(READER));
}

// The configuration's switch (decision 0017): design 7's `true`, or a token of its own.
#[tokio::test]
async fn the_configuration_switches_it_on() {
    let directory = directory();
    let read = |value| HostConfig::parse(&with("/metrics", value).to_string(), directory.path());
    let config = read(json!(true)).unwrap();
    assert!(matches!(config.options().metrics, Some(MetricsAccess::AnyToken)));
    let config = read(json!({"tokenRef": {"file": "bob"}})).unwrap();
    // `bob` is a file with Bob's token, which this configuration does not name.
    let fixture = with_options(Options { port: 0, ..config.options() });
    assert_eq!(fixture.ask(&metrics(BOB)).await.head.status, 200);
    assert_eq!(fixture.ask(&metrics(ANN)).await.head.status, 404);
    assert!(!format!("{config:?}").contains(BOB));
    for (value, error) in [
        (json!(false), "INVALID_CONFIG: metrics: expected true; leave `metrics` out to switch it off"),
        (json!("yes"), "INVALID_CONFIG: metrics: expected an object"),
        (json!({}), "INVALID_CONFIG: metrics.tokenRef: required"),
        (
            json!({"tokenRef": {"file": "ann"}}),
            "INVALID_CONFIG: metrics.tokenRef: a token of the host has the same value",
        ),
        (
            json!({"tokenRef": {"file": "key"}}),
            "AUTH_REQUIRED: metrics.tokenRef: a token has 32 to 4096 characters; this one has 6",
        ),
        (json!({"tokenRef": {"file": "bob"}, "path": "/m"}), "INVALID_CONFIG: metrics.path: unknown member"),
    ] {
        let refused = read(value.clone()).unwrap_err().to_string();
        assert!(refused.starts_with(error), "{value}: {refused}");
    }
}

// Runs by state, reviews, streams, refusals by code and failures of the sink, as they come and go.
#[tokio::test(start_paused = true)]
async fn it_follows_what_happens() {
    let concurrency = Concurrency {
        total: 1,
        per_subject: 1,
        queue: Some(Queue { total: 2, per_subject: 2 }),
        ..Concurrency::default()
    };
    let fixture = with_options(Options { metrics: own_token(), concurrency, ..options() });
    assert!(told(&fixture, READER).await.is_empty());

    let (mut running, approval) = fixture.waiting(ANN).await;
    let mut queued = fixture.connect();
    queued.start(&run_ask(BOB, plain("quick"))).await;
    let mut buffered = fixture.connect();
    buffered.send(&Ask::post("/v1/runs").token(BOB).json(&plain("quick")).bytes()).await;
    sleep(Duration::from_secs(45)).await;
    assert_eq!(
        told(&fixture, READER).await,
        [r#"runs{state="queued"} 2"#, r#"runs{state="review"} 1"#, "reviews_waiting 1", "streams_open 2"]
    );

    for (token, body, code) in [
        (BOB, decision(&approval, "approve"), "APPROVAL_NOT_FOUND"),
        (ANN, decision(&approval, "perhaps"), "INVALID_APPROVAL"),
    ] {
        assert_eq!(fixture.decide(token, &body).await.outcome().1, code);
    }
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(running.rest().await.last().unwrap(), "run.completed");
    assert_eq!(queued.rest().await.last().unwrap(), "run.completed");
    let head = buffered.head().await;
    assert_eq!((head.status, buffered.body(&head).await.is_empty()), (200, false));

    let (mut running, approval) = fixture.waiting(ANN).await;
    fixture.sink.answer(SinkAnswer::Refuse);
    assert_eq!(fixture.decide(ANN, &decision(&approval, "deny")).await.outcome().1, "APPROVAL_AUDIT_FAILED");
    assert_eq!(running.rest().await, ["run.failed APPROVAL_AUDIT_FAILED"]);
    sleep(Duration::from_millis(1)).await;
    let told = told(&fixture, READER).await;
    let (times, others): (Vec<_>, Vec<_>) =
        told.iter().map(String::as_str).partition(|line| line.starts_with("review_duration_seconds_bucket"));
    assert_eq!(
        others,
        [
            r#"runs_ended_total{state="completed"} 3"#,
            r#"runs_ended_total{state="failed"} 1"#,
            r#"review_duration_seconds_count{outcome="approved"} 1"#,
            "audit_failures_total 1",
            r#"decisions_rejected_total{code="APPROVAL_AUDIT_FAILED"} 1"#,
            r#"decisions_rejected_total{code="APPROVAL_NOT_FOUND"} 1"#,
            r#"decisions_rejected_total{code="INVALID_APPROVAL"} 1"#,
        ]
    );
    assert_eq!(
        times,
        ["60", "300", "900", "3600", "14400", "86400", "+Inf"]
            .map(|bound| format!(r#"review_duration_seconds_bucket{{outcome="approved",le="{bound}"}} 1"#))
    );
}

// Each metric has its help and its type, and each line is one of the format; no subject, run or tool is in a label.
#[tokio::test(start_paused = true)]
async fn its_format_is_that_of_prometheus() {
    let fixture = host(own_token());
    let (_running, _) = fixture.waiting(ANN).await;
    let answer = fixture.ask(&metrics(READER)).await;
    let text = String::from_utf8(answer.body).unwrap();
    let types: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE countersign_")).collect();
    assert_eq!(
        types,
        [
            "runs gauge",
            "runs_ended_total counter",
            "reviews_waiting gauge",
            "review_duration_seconds histogram",
            "audit_failures_total counter",
            "streams_open gauge",
            "decisions_rejected_total counter",
        ]
    );
    assert_eq!(text.matches("# HELP ").count(), types.len());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("countersign_") && value.parse::<f64>().is_ok(), "{line}");
    }
    let labels: std::collections::BTreeSet<_> =
        text.split(['{', ',']).filter_map(|part| Some(part.split_once("=\"")?.0)).collect();
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), ["code", "le", "outcome", "state"]);
    for private in ["ann", "write", "mock", "demo", "call-1"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
}
