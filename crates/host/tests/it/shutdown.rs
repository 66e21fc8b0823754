//! Starting and ending a host (contract 6.3, design 4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_driver::{Driver, ToolSpec, tool};
use countersign_host::{Options, Service, StartError, Token, serve};
use countersign_providers::{Scripted, ScriptedConfig};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{ANN, Ask, Fixture, Peer, decision, options, plain, reviewed, run_ask};

// Contract 6.3: the URL has the bound port; closing gives the address back and can be repeated.
#[tokio::test]
async fn a_host_says_where_it_is_and_can_be_closed_twice() {
    let host = serve(Fixture::new().driver, options()).await.unwrap();
    let address = host.local_addr();
    assert_eq!(host.url(), format!("http://127.0.0.1:{}", address.port()));
    let mut peer = Peer::new(TcpStream::connect(address).await.unwrap());
    assert_eq!(peer.ask(&Ask::get("/health")).await.head.status, 200);
    let start = Instant::now();
    tokio::join!(host.close(), host.close());
    host.close().await;
    // The kept connection is idle, so nobody has to wait for it.
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(peer.is_closed().await);
    assert!(TcpStream::connect(address).await.is_err());
    TcpListener::bind(address).await.unwrap();
}

#[tokio::test]
async fn names_of_loopback_are_served_and_others_need_tls() {
    let serve_on = |host: &str| serve(Fixture::new().driver, Options { host: host.into(), ..options() });
    for name in ["localhost", "LOCALHOST", "127.0.0.1"] {
        let host = serve_on(name).await.unwrap();
        assert!(host.url().starts_with(&format!("http://{name}:")), "{}", host.url());
    }
    for name in ["::1", "[::1]"] {
        // A machine may have no IPv6; if it has, the URL brackets the address.
        match serve_on(name).await {
            Ok(host) => assert_eq!(host.url(), format!("http://[::1]:{}", host.local_addr().port())),
            Err(error) => assert!(matches!(error, StartError::Listen { .. }), "{error}"),
        }
    }
    for name in ["0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.2", "localhost.", ""] {
        let error = serve_on(name).await.err().map(|error| error.code().to_string());
        assert_eq!(error.as_deref(), Some("TLS_REQUIRED"), "{name:?}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = serve(Fixture::new().driver, Options { port, ..options() }).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("LISTEN_FAILED: listen: 127.0.0.1:{port}: ")), "{error}");
    assert!(!error.contains('\n'));
}

// Contract 6.3: start-up errors name the option.
#[tokio::test]
async fn unusable_options_are_refused() {
    let many = (0..101).map(|index| format!("https://a{index}.example")).collect();
    let cases: Vec<(Options, &str)> = vec![
        (Options { tokens: Vec::new(), ..options() }, "INVALID_CONFIG: tokens: at least one token is needed"),
        (
            Options { allowed_origins: vec!["*".into()], ..options() },
            "INVALID_CONFIG: allowedOrigins[0]: expected an origin such as https://app.example, without a path",
        ),
        (
            Options { allowed_origins: many, ..options() },
            "INVALID_CONFIG: allowedOrigins: at most 100 origins",
        ),
        (
            Options {
                concurrency: countersign_host::Concurrency { total: 0, ..Default::default() },
                ..options()
            },
            "INVALID_CONFIG: concurrency.total: expected an integer from 1 to 100,000",
        ),
    ];
    for (options, expected) in cases {
        assert_eq!(serve(Fixture::new().driver, options).await.unwrap_err().to_string(), expected);
    }
}

// Contract 4.11, row 16; design 4: closing revokes the reviews and the stream says so before it ends.
#[tokio::test]
async fn closing_cancels_waiting_runs_and_lets_them_say_so() {
    let fixture = Fixture::new();
    let (mut first, approval) = fixture.waiting(ANN).await;
    let (mut second, _) = fixture.waiting(ANN).await;
    let start = Instant::now();
    fixture.service.close().await;
    assert!(start.elapsed() < Duration::from_secs(2), "nobody had to be cut");
    for run in [&mut first, &mut second] {
        assert_eq!(run.rest().await, ["approval.resolved", "run.cancelled CANCELLED"]);
        assert!(run.is_closed().await);
    }
    assert_eq!(fixture.driver.pending_approvals(), 0);
    let kinds = fixture.sink.kinds();
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval.resolved cancelled").count(), 2, "{kinds:?}");
    assert!(fixture.written().is_empty());
    // A host that has closed serves nobody.
    let mut late = fixture.connect();
    let body = Ask::post("/v1/approvals/decisions").token(ANN).json(&decision(&approval, "approve"));
    late.send_quietly(&body).await;
    assert!(late.is_closed().await);
}

// Contract 1.2, step 2, and 6.3: while it closes the host tells everybody, and after two seconds it is over.
#[tokio::test(start_paused = true)]
async fn a_closing_host_refuses_everything_and_waits_two_seconds_at_most() {
    let fixture = Fixture::new();
    // This one never reads, so it cannot be told and holds the host up.
    let mut stuck = fixture.connect_with_buffer(64);
    stuck.send(&run_ask(ANN, plain("chatty")).bytes()).await;
    let mut half = fixture.connect();
    half.send(&Ask::post("/v1/runs").token(ANN).json(&plain("quick")).bytes()[..40]).await;
    sleep(Duration::from_secs(1)).await;
    let service = fixture.service.clone();
    let start = Instant::now();
    let closing = tokio::spawn(async move { service.close().await });
    sleep(Duration::from_millis(100)).await;
    for ask in [
        Ask::get("/health"),
        Ask::get("/v1/protocol"),
        Ask::get("/health").header("Origin", "https://evil.example"),
        Ask::post("/v1/runs").token(ANN).json(&plain("quick")),
        Ask::post("/v1/approvals/decisions").token(ANN).json(&json!({})),
    ] {
        let mut peer = fixture.connect();
        let answer = peer.ask(&ask).await;
        assert_eq!(answer.outcome(), (503, "HOST_SHUTTING_DOWN".into()));
        assert_eq!(answer.json()["error"]["retryable"], true);
        assert_eq!(answer.head.one("connection"), "close");
        assert_eq!(answer.head.one("agenticdriver-version"), "1.0");
        assert!(peer.is_closed().await);
    }
    closing.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 2);
    assert!(half.is_closed().await);
}

// Law 5: when `close` returns, the end of every review is in the audit, however slow its sink. Real time, because the
// sink blocks a thread: two seconds for the connection, and a little more.
#[tokio::test]
async fn closing_waits_for_the_audit() {
    let (fixture, mut entering, go) = Fixture::with_slow_sink();
    let (mut run, _) = fixture.waiting(ANN).await;
    let service = fixture.service.clone();
    let closing = tokio::spawn(async move { service.close().await });
    entering.recv().await.unwrap();
    assert!(run.is_closed().await, "after two seconds the connection is dropped");
    sleep(Duration::from_millis(100)).await;
    assert!(!closing.is_finished(), "but the record is not written yet");
    go.send(()).unwrap();
    closing.await.unwrap();
    assert_eq!(fixture.driver.pending_approvals(), 0);
}

// A buffered run that the host aborts is answered, with the code of its cancellation (contract 5.2).
#[tokio::test(start_paused = true)]
async fn closing_aborts_a_buffered_run() {
    let fixture = Fixture::new();
    let mut peer = fixture.connect();
    peer.send(&Ask::post("/v1/runs").token(ANN).json(&plain("slow")).bytes()).await;
    sleep(Duration::from_millis(10)).await;
    fixture.service.close().await;
    let head = peer.head().await;
    let body = peer.body(&head).await;
    assert_eq!(head.status, 502);
    assert!(String::from_utf8(body).unwrap().contains("CANCELLED"));
}

// Dropping the host ends it without grace; law 5 holds all the same.
#[tokio::test]
async fn dropping_the_host_revokes_what_waits() {
    let fixture = Fixture::new();
    let host = serve(fixture.driver.clone(), options()).await.unwrap();
    let mut run = Peer::new(TcpStream::connect(host.local_addr()).await.unwrap());
    run.start(&run_ask(ANN, reviewed("write"))).await;
    run.event_of("approval.requested").await;
    drop(host);
    let revoked = async {
        while fixture.driver.pending_approvals() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), revoked).await.unwrap();
}

// Law 5: a client that hangs up right before the host closes leaves its review's end in the audit as well.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_run_whose_client_has_just_left() {
    let fixture = Fixture::new();
    let (run, _) = fixture.waiting(ANN).await;
    drop(run);
    fixture.service.close().await;
    assert_eq!(fixture.sink.kinds().last().unwrap(), "approval.resolved cancelled");
    assert_eq!(fixture.driver.pending_approvals(), 0);
}

// Design 7: a tool that needs a moment to stop gets it before `close` returns, and not longer than five seconds.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_tools_to_stop() {
    for (needs, cleaned_up) in [(700, true), (60_000, false)] {
        let cleaned = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&cleaned);
        let spec = ToolSpec::new("lingers", "Lingers.", r#"{"type":"object"}"#).unwrap();
        let lingers = tool(spec, move |_, context| {
            let seen = Arc::clone(&seen);
            async move {
                context.cancellation.cancelled().await;
                sleep(Duration::from_millis(needs)).await;
                seen.store(true, Ordering::SeqCst);
                Err("stopped".into())
            }
        });
        let script = r#"{"id":"mock","kind":"scripted","models":["demo"],
            "default":[{"calls":[{"id":"c","name":"lingers","arguments":{}}]}]}"#;
        let script = Scripted::from_config(ScriptedConfig::parse(script).unwrap());
        let driver = Driver::builder().provider(Arc::new(script)).tool(lingers).build().unwrap();
        let token = Token { tools: vec!["lingers".into()], ..options().tokens.remove(0) };
        let service = Service::new(driver, &Options { tokens: vec![token], ..options() }).unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn({
            let service = service.clone();
            async move { service.serve_connection(far).await }
        });
        let mut run = Peer::new(near);
        let mut body = plain("any");
        body["tools"] = json!(["lingers"]);
        run.start(&run_ask(ANN, body)).await;
        run.event_of("tool.called").await;
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        service.close().await;
        assert_eq!(cleaned.load(Ordering::SeqCst), cleaned_up);
        assert!(start.elapsed() <= Duration::from_millis(7_010), "{:?}", start.elapsed());
    }
}
