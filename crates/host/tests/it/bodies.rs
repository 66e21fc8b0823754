//! Hostile and broken requests: each gets the contract's error, and the host goes on (law 9, contract 1.2, 1.8).

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use crate::support::{ANN, Ask, Fixture, Peer, decision, plain, reviewed, run_ask};

const RUNS: &str = "/v1/runs";
const DECISIONS: &str = "/v1/approvals/decisions";

fn padded(body: &str, bytes: usize) -> String {
    format!("{body}{}", " ".repeat(bytes - body.len()))
}

fn nested(depth: usize) -> String {
    format!(r#"{{"provider":"mock","model":"demo","input":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
}

#[tokio::test]
async fn every_kind_of_bad_body_has_its_error() {
    let fixture = Fixture::new();
    let good = plain("quick").to_string();
    let cases: Vec<(&str, Vec<u8>, &str, (u16, &str))> = vec![
        ("1,000,000 bytes", padded(&good, 1_000_000).into(), RUNS, (200, "")),
        ("1,000,001 bytes", padded(&good, 1_000_001).into(), RUNS, (413, "BODY_TOO_LARGE")),
        ("1,000,001 bytes", vec![b'x'; 1_000_001], DECISIONS, (413, "BODY_TOO_LARGE")),
        ("byte order mark", [b"\xef\xbb\xbf", good.as_bytes()].concat(), RUNS, (200, "")),
        (
            "two byte order marks",
            [b"\xef\xbb\xbf\xef\xbb\xbf", good.as_bytes()].concat(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
        ("bad UTF-8", b"{\"provider\":\"\xff\"}".to_vec(), RUNS, (400, "INVALID_REQUEST")),
        ("bad UTF-8", b"{\"approvalId\":\"\xff\"}".to_vec(), DECISIONS, (400, "INVALID_REQUEST")),
        ("depth 10,000", nested(10_000).into(), RUNS, (400, "INVALID_REQUEST")),
        ("depth 10,000", nested(10_000).into(), DECISIONS, (400, "INVALID_APPROVAL")),
        ("400,000 open brackets", vec![b'['; 400_000], RUNS, (400, "INVALID_REQUEST")),
        ("not JSON", b"decide".to_vec(), DECISIONS, (400, "INVALID_REQUEST")),
        ("nothing", Vec::new(), DECISIONS, (400, "INVALID_REQUEST")),
        ("null", b"null".to_vec(), RUNS, (400, "INVALID_REQUEST")),
        ("null", b"null".to_vec(), DECISIONS, (400, "INVALID_APPROVAL")),
        ("array", b"[]".to_vec(), RUNS, (400, "INVALID_REQUEST")),
        (
            "duplicate key",
            br#"{"provider":"mock","provider":"mock","model":"demo","input":"quick"}"#.to_vec(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
        (
            "lone surrogate",
            br#"{"provider":"mock","model":"demo","input":"\ud800"}"#.to_vec(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
        ("lone surrogate", br#"{"approvalId":"\ud800"}"#.to_vec(), DECISIONS, (400, "INVALID_APPROVAL")),
        (
            "unknown member",
            br#"{"provider":"mock","model":"demo","input":"quick","subject":"bob"}"#.to_vec(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
        (
            "wrong type",
            br#"{"provider":"mock","model":"demo","input":7}"#.to_vec(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
        (
            "null option",
            br#"{"provider":"mock","model":"demo","input":"quick","tools":null}"#.to_vec(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
        ("input too long", plain(&"x".repeat(100_001)).to_string().into(), RUNS, (400, "INVALID_REQUEST")),
        (
            "huge number",
            br#"{"provider":"mock","model":"demo","input":"quick","maxSteps":1e400}"#.to_vec(),
            RUNS,
            (400, "INVALID_REQUEST"),
        ),
    ];
    for (name, body, path, (status, code)) in cases {
        let ask = Ask::post(path).token(ANN).header("Content-Type", "application/json").body(body);
        assert_eq!(fixture.ask(&ask).await.outcome(), (status, code.to_owned()), "{name} to {path}");
    }
    assert_eq!(fixture.ask(&Ask::get("/health")).await.head.status, 200);
}

// An error says which member is at fault and repeats nothing that was sent.
#[tokio::test]
async fn an_error_names_the_member_and_not_its_value() {
    let fixture = Fixture::new();
    let mut body = reviewed("quick");
    body["approvals"]["idlePolicy"] = json!("my private text");
    let message = fixture.ask(&run_ask(ANN, body)).await.json()["error"]["message"].take();
    let message = message.as_str().unwrap();
    assert!(message.contains("approvals.idlePolicy") && !message.contains("private"), "{message}");
}

#[tokio::test]
async fn a_chunked_body_is_read_and_bounded_like_any_other() {
    let fixture = Fixture::new();
    let send = |body: Vec<u8>| {
        let mut peer = fixture.connect();
        async move {
            let head = format!(
                "POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ANN}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            peer.send(head.as_bytes()).await;
            for piece in body.chunks(60_000) {
                peer.send(format!("{:x}\r\n", piece.len()).as_bytes()).await;
                peer.send(piece).await;
                peer.send(b"\r\n").await;
            }
            peer.send(b"0\r\n\r\n").await;
            peer.head().await.status
        }
    };
    assert_eq!(send(plain("quick").to_string().into()).await, 200);
    // In-memory pipes of this size take the whole body, so the host cannot just stop reading.
    assert_eq!(send(padded(&plain("quick").to_string(), 1_000_001).into()).await, 413);
}

// Closing a connection with unread bytes on it would break it for a client that is still sending, and destroy the
// refusal on its way; so the rest is read for a while.
#[tokio::test(start_paused = true)]
async fn a_client_that_sends_too_much_can_finish_and_read_the_refusal() {
    let fixture = Fixture::new();
    let large =
        Ask::post(RUNS).token(ANN).header("Content-Type", "application/json").body(vec![b'x'; 3_000_000]);
    for (ask, expected) in [(large, 413), (Ask::post(RUNS).body(vec![b'x'; 1_500_000]), 401)] {
        let mut peer = fixture.connect_with_buffer(64 * 1024);
        let bytes = ask.bytes();
        let (first, rest) = bytes.split_at(100_000);
        peer.send(first).await;
        sleep(Duration::from_secs(1)).await;
        peer.send(rest).await;
        assert_eq!(peer.head().await.status, expected);
    }
    // It does not go on for ever.
    let mut peer = fixture.connect_with_buffer(64 * 1024);
    peer.send(&Ask::post(RUNS).body(vec![b'x'; 100_000_000]).bytes()[..100_000]).await;
    let start = Instant::now();
    while peer.io.write_all(&[b'x'; 1000]).await.is_ok() {
        sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() < Duration::from_secs(3));
}

// Contract 1.8: headers in 10 s, the whole request in 30 s; nobody is told, the connection ends.
#[tokio::test(start_paused = true)]
async fn slow_clients_are_cut() {
    let fixture = Fixture::new();
    let whole = Ask::post(RUNS).token(ANN).json(&plain("quick")).bytes();
    let cases = [
        ("nothing", &whole[..0], 10),
        ("half a head", &whole[..20], 10),
        ("half a body", &whole[..whole.len() - 5], 30),
    ];
    for (name, sent, seconds) in cases {
        let mut peer = fixture.connect();
        peer.send(sent).await;
        let start = Instant::now();
        assert!(peer.is_closed().await, "{name}");
        let waited = start.elapsed();
        let expected = Duration::from_secs(seconds);
        assert!(waited >= expected && waited < expected + Duration::from_secs(1), "{name}: {waited:?}");
    }
    // One byte every two seconds never ends a head in time, and one every second never a body.
    let mut peer = fixture.connect();
    let start = Instant::now();
    let mut sent = whole.iter();
    while start.elapsed() < Duration::from_secs(11) {
        let _ = peer.io.write_all(&[*sent.next().unwrap()]).await;
        sleep(Duration::from_secs(2)).await;
    }
    assert!(peer.is_closed().await);
    let mut peer = fixture.connect();
    let body = whole.len() - plain("quick").to_string().len();
    peer.send(&whole[..body]).await;
    let start = Instant::now();
    for byte in &whole[body..body + 40] {
        let _ = peer.io.write_all(&[*byte]).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert!(peer.is_closed().await);
    assert!(start.elapsed() < Duration::from_secs(42));
    assert!(fixture.ask(&Ask::get("/health")).await.head.status == 200);
}

// A connection that is kept waits ten seconds for its next request (the contract's introduction).
#[tokio::test(start_paused = true)]
async fn a_kept_connection_serves_again_and_is_dropped_when_idle() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect();
    assert_eq!(peer.ask(&Ask::get("/health")).await.head.status, 200);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(peer.ask(&Ask::post(RUNS).token(ANN).json(&plain("quick"))).await.head.status, 200);
    assert_eq!(peer.ask(&run_ask(ANN, plain("quick"))).await.head.status, 200);
    let two = [Ask::get("/health").bytes(), Ask::get("/v1/protocol").bytes()].concat();
    peer.send(&two).await;
    for expected in [200, 401] {
        let head = peer.head().await;
        peer.body(&head).await;
        assert_eq!(head.status, expected);
    }
    let start = Instant::now();
    assert!(peer.is_closed().await);
    assert!(start.elapsed() >= Duration::from_secs(10) && start.elapsed() < Duration::from_secs(11));
}

// Contract 1.8: the 30 s are those of one request. Law 8: a decision on a connection that has served others for longer
// is answered, and not cut as if it had begun with them.
#[tokio::test(start_paused = true)]
async fn each_request_of_a_kept_connection_has_its_own_time_to_arrive() {
    let fixture = Fixture::new();
    let (mut run, approval) = fixture.waiting(ANN).await;
    let mut peer = fixture.connect();
    for _ in 0..6 {
        assert_eq!(peer.ask(&Ask::get("/v1/protocol").token(ANN)).await.head.status, 200);
        sleep(Duration::from_secs(6)).await;
    }
    let bytes = Ask::post(DECISIONS).token(ANN).json(&decision(&approval, "approve")).bytes();
    let (first, last) = bytes.split_at(bytes.len() - 5);
    peer.send(first).await;
    sleep(Duration::from_secs(1)).await;
    peer.send(last).await;
    assert_eq!(peer.head().await.status, 200);
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
}

// hyper answers what is not HTTP itself, without a body; the connection ends and others do not notice.
#[tokio::test]
async fn what_is_not_http_ends_its_connection_only() {
    let fixture = Fixture::new();
    let long_header = format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let many_headers = format!("GET /health HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    let lying = "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab";
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01"[..],
        b"GET\r\n\r\n",
        long_header.as_bytes(),
        many_headers.as_bytes(),
        lying.as_bytes(),
    ] {
        let mut peer = fixture.connect();
        peer.send(bytes).await;
        let head = peer.head().await;
        assert!([400, 431].contains(&head.status), "{head:?}");
        assert!(peer.is_closed().await);
    }
    assert_eq!(fixture.ask(&Ask::get("/health")).await.head.status, 200);
}

// Law 5: half a request holds nothing.
#[tokio::test]
async fn half_a_request_takes_no_slot_and_changes_no_review() {
    let fixture = Fixture::with_concurrency(2, 2);
    let (mut run, approval) = fixture.waiting(ANN).await;
    for ask in [
        Ask::post(DECISIONS).token(ANN).json(&decision(&approval, "approve")),
        Ask::post(RUNS).token(ANN).json(&plain("quick")),
    ] {
        let mut peer = fixture.connect();
        let bytes = ask.bytes();
        peer.send(&bytes[..bytes.len() - 1]).await;
        peer.io.shutdown().await.unwrap();
        assert!(peer.is_closed().await);
    }
    assert_eq!(fixture.driver.pending_approvals(), 1);
    assert_eq!(fixture.ask(&Ask::post(RUNS).token(ANN).json(&plain("quick"))).await.head.status, 200);
    assert_eq!(fixture.decide(ANN, &decision(&approval, "approve")).await.head.status, 200);
    assert_eq!(run.rest().await.last().unwrap(), "run.completed");
    let _: Peer<_> = run;
}

// Law 9: a peer that takes nothing of its answer is dropped after thirty seconds; without a token, too.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_dropped() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect_with_buffer(64);
    let pipelined = [Ask::get("/health").bytes(), Ask::get("/health").bytes()].concat();
    let (sent, start) = (peer.io.write_all(&pipelined).await, Instant::now());
    assert!(sent.is_ok());
    sleep(Duration::from_secs(29)).await;
    assert!(peer.io.write_all(b"G").await.is_ok());
    sleep(Duration::from_secs(2)).await;
    assert!(peer.io.write_all(b"G").await.is_err());
    assert!(start.elapsed() < Duration::from_secs(32));
}
