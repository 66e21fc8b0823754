//! Headers of every answer, CORS, and version negotiation (contract 1.3 to 1.5).

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANN, Ask, Fixture, Head, ORIGIN, plain, run_ask};

fn check_common(name: &str, head: &Head) {
    assert_eq!(head.all("cache-control"), ["no-store"], "{name}");
    assert_eq!(head.all("x-content-type-options"), ["nosniff"], "{name}");
    assert_eq!(head.all("agenticdriver-version"), ["1.0"], "{name}");
    assert!(head.all("www-authenticate").is_empty(), "{name}");
    assert!(head.all("strict-transport-security").is_empty(), "{name}: there is no TLS");
}

// Contract 1.3: on every response, errors included, exactly one version header.
#[tokio::test]
async fn every_answer_has_the_common_headers_once() {
    let fixture = Fixture::new();
    let cases = [
        ("health", Ask::get("/health"), 200),
        ("unauthorized", Ask::get("/v1/protocol"), 401),
        ("protocol", Ask::get("/v1/protocol").token(ANN), 200),
        ("not found", Ask::get("/nowhere").token(ANN), 404),
        ("origin denied", Ask::get("/health").header("Origin", "https://evil.example"), 403),
        ("bad version", Ask::get("/v1/protocol").token(ANN).header("AgenticDriver-Version", "2"), 400),
        ("bad body", Ask::post("/v1/runs").token(ANN).text("{"), 400),
        ("run", Ask::post("/v1/runs").token(ANN).json(&plain("quick")), 200),
        ("failed run", Ask::post("/v1/runs").token(ANN).json(&plain("broken")), 502),
    ];
    for (name, ask, status) in cases {
        let answer = fixture.ask(&ask).await;
        assert_eq!(answer.head.status, status, "{name}");
        check_common(name, &answer.head);
        assert_eq!(answer.head.one("content-type"), "application/json; charset=utf-8", "{name}");
        assert!(answer.head.all("access-control-allow-origin").is_empty(), "{name}");
        answer.json();
    }
    let preflight = fixture.ask(&Ask::new("OPTIONS", "/v1/runs").header("Origin", ORIGIN)).await;
    check_common("preflight", &preflight.head);
    assert!(preflight.body.is_empty());
}

#[tokio::test]
async fn a_stream_is_not_buffered_or_cached_on_its_way() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect();
    let head = peer.start(&run_ask(ANN, plain("quick"))).await;
    assert_eq!(head.status, 200);
    check_common("stream", &head);
    assert_eq!(head.one("content-type"), "text/event-stream; charset=utf-8");
    assert_eq!(head.one("x-accel-buffering"), "no");
    assert_eq!(head.one("transfer-encoding"), "chunked");
    assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
}

// Contract 1.4: CORS only for an allowed origin, without credentials or wildcard.
#[tokio::test]
async fn an_allowed_page_gets_exactly_the_cors_headers() {
    let fixture = Fixture::new();
    let preflight = fixture.ask(&Ask::new("OPTIONS", "/v1/runs").header("Origin", ORIGIN)).await.head;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.one("access-control-allow-origin"), ORIGIN);
    assert_eq!(preflight.one("vary"), "Origin");
    assert_eq!(preflight.one("access-control-expose-headers"), "AgenticDriver-Version");
    assert_eq!(preflight.one("access-control-allow-methods"), "GET, POST, OPTIONS");
    assert_eq!(
        preflight.one("access-control-allow-headers"),
        "Authorization, Content-Type, Accept, AgenticDriver-Version, AgenticDriver-Accept-Optional-Events"
    );
    for absent in ["access-control-allow-credentials", "access-control-max-age"] {
        assert!(preflight.all(absent).is_empty(), "{absent}");
    }
    // Errors carry them too, or the page could not read the code.
    for ask in [
        Ask::get("/v1/protocol").token(ANN),
        Ask::get("/v1/protocol"),
        Ask::post("/v1/runs").token(ANN).text("{"),
    ] {
        let head = fixture.ask(&ask.header("Origin", ORIGIN)).await.head;
        assert_eq!(head.one("access-control-allow-origin"), ORIGIN);
        assert_eq!(head.one("access-control-expose-headers"), "AgenticDriver-Version");
        assert!(head.all("access-control-allow-methods").is_empty());
    }
}

// Contract 1.5.
#[tokio::test]
async fn only_version_1_0_or_none_passes() {
    let fixture = Fixture::new();
    let ask = |versions: &[&str]| {
        let ask = Ask::post("/v1/runs").token(ANN).json(&plain("quick"));
        versions.iter().fold(ask, |ask, version| ask.header("AgenticDriver-Version", version))
    };
    for good in [&[][..], &["1.0"]] {
        assert_eq!(fixture.ask(&ask(good)).await.head.status, 200, "{good:?}");
    }
    for bad in [&["1.1"][..], &["2.0"], &["invalid"], &[""], &["1.0, 2.0"], &["1.0, 1.0"], &["1.0", "1.0"]] {
        let expected = (400, "UNSUPPORTED_PROTOCOL_VERSION".to_owned());
        assert_eq!(fixture.ask(&ask(bad)).await.outcome(), expected, "{bad:?}");
    }
    for optional in ["true", "false", "anything"] {
        let ask = ask(&["1.0"]).header("AgenticDriver-Accept-Optional-Events", optional);
        assert_eq!(fixture.ask(&ask).await.head.status, 200, "{optional}");
    }
}

/// Law 9; docs/decisions/0016: what is not HTTP is answered by hyper, in an empty answer without our headers, and ends the
/// connection. Nothing of it was taken for a request.
#[tokio::test]
async fn what_is_not_http_gets_an_empty_answer() {
    let fixture = Fixture::new();
    let run = String::from_utf8(run_ask(ANN, plain("quick")).bytes()).unwrap();
    let long = format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let rows = [
        ("\x16\x03\x01\x00\x05hello\r\n\r\n".to_owned(), "400"),
        ("GET /health\r\n\r\n".to_owned(), "400"),
        (run.replace("HTTP/1.1", "HTTP/3.1"), "400"),
        (run.replace("Host", "Ho st"), "400"),
        (run.replace("Accept:", "Accept"), "400"),
        (run.replace("Content-Length: ", "Content-Length: x"), "400"),
        (run.replace("Content-Length: ", "Content-Length: 1\r\nContent-Length: "), "400"),
        (long, "431"),
    ];
    for (bytes, status) in rows {
        let mut io = fixture.connect().io;
        io.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{bytes:?}: {answer:?}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes:?}: {head}");
        assert!(head.to_lowercase().contains("connection: close"), "{head}");
        assert_eq!(body, "", "{bytes:?}");
    }
    assert!(fixture.sink.records().is_empty());
}
