//! TLS of the host (contract 1.3, 6.1, 6.3), over the bytes themselves. Our client against it is in the workspace tests.
//!
//! The certificates are the client's, see `crates/client/tests/it/tls.rs`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use countersign_host::{Options, Service, Tls, serve};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{ANN, Ask, Fixture, ORIGIN, Peer, decision, options, plain, reviewed, run_ask};

const CA: &str = include_str!("../../../client/tests/it/tls/ca.pem");
const CERTIFICATE: &str = include_str!("../../../client/tests/it/tls/trusted.pem");
const KEY: &str = include_str!("../../../client/tests/it/tls/server.key.pem");

fn pair() -> Tls {
    Tls::from_pem(CERTIFICATE.as_bytes(), &SecretString::from(KEY)).unwrap()
}

fn secured() -> Fixture {
    let mut fixture = Fixture::new();
    let options = Options { tls: Some(pair()), ..options() };
    fixture.service = Service::new(fixture.driver.clone(), &options).unwrap();
    fixture
}

fn connector(versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CA.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn handshake(fixture: &Fixture, connector: &TlsConnector) -> io::Result<TlsStream<DuplexStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, fixture.connect().io).await
}

async fn connect(fixture: &Fixture) -> Peer<TlsStream<DuplexStream>> {
    let connector = connector(rustls::ALL_VERSIONS, &[]);
    Peer::new(handshake(fixture, &connector).await.unwrap())
}

// Contract 1.3: on every response, errors included, also Strict-Transport-Security.
#[tokio::test]
async fn every_answer_says_that_tls_is_the_only_way() {
    let fixture = secured();
    let cases = [
        ("health", Ask::get("/health"), 200),
        ("unauthorized", Ask::get("/v1/protocol"), 401),
        ("not found", Ask::get("/nowhere").token(ANN), 404),
        ("origin denied", Ask::get("/health").header("Origin", "https://evil.example"), 403),
        ("preflight", Ask::new("OPTIONS", "/v1/runs").header("Origin", ORIGIN), 204),
        ("bad body", Ask::post("/v1/runs").token(ANN).text("{"), 400),
        ("run", Ask::post("/v1/runs").token(ANN).json(&plain("quick")), 200),
    ];
    for (name, ask, status) in cases {
        let head = connect(&fixture).await.start(&ask).await;
        assert_eq!(head.status, status, "{name}");
        assert_eq!(head.all("strict-transport-security"), ["max-age=31536000"], "{name}");
        assert_eq!(head.all("agenticdriver-version"), ["1.0"], "{name}");
    }
    let mut stream = connect(&fixture).await;
    let head = stream.start(&run_ask(ANN, plain("quick"))).await;
    assert_eq!(head.all("strict-transport-security"), ["max-age=31536000"]);
    assert_eq!(stream.rest().await.last().unwrap(), "run.completed");
}

// Law 1, contract 4.7: a review over TLS, decided over TLS, and revoked by hanging up as without it.
#[tokio::test(start_paused = true)]
async fn reviews_over_tls() {
    let fixture = secured();
    let mut peer = connect(&fixture).await;
    assert_eq!(peer.start(&run_ask(ANN, reviewed("write"))).await.status, 200);
    let approval = peer.event_of("approval.requested").await["approval"].take();
    let decide = Ask::post("/v1/approvals/decisions").token(ANN).json(&decision(&approval, "approve"));
    // As long as one thinks.
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(connect(&fixture).await.ask(&decide).await.head.status, 200);
    assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written().len(), 1);
    let mut peer = connect(&fixture).await;
    peer.start(&run_ask(ANN, reviewed("write"))).await;
    peer.event_of("approval.requested").await;
    assert_eq!(fixture.driver.pending_approvals(), 1);
    drop(peer);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.driver.pending_approvals(), 0);
}

// Design 4, "the loop is pulled": TLS buffers do not count as written. A peer who does not read does not let his approved
// call run.
#[tokio::test(start_paused = true)]
async fn an_approved_call_waits_for_its_event_over_tls() {
    let fixture = secured();
    let name = ServerName::try_from("localhost").unwrap();
    let narrow = fixture.connect_with_buffer(64).io;
    // 1.3 ends its handshake with tickets, for which so narrow a pipe has no room while nobody reads.
    let stream = connector(&[&rustls::version::TLS12], &[]).connect(name, narrow).await.unwrap();
    let mut peer = Peer::new(stream);
    peer.start(&run_ask(ANN, reviewed("write"))).await;
    let approval = peer.event_of("approval.requested").await["approval"].take();
    let decide = Ask::post("/v1/approvals/decisions").token(ANN).json(&decision(&approval, "approve"));
    assert_eq!(connect(&fixture).await.ask(&decide).await.head.status, 200);
    sleep(Duration::from_secs(600)).await;
    assert!(fixture.written().is_empty(), "approval.resolved is not read yet");
    assert_eq!(peer.rest().await.last().unwrap(), "run.completed");
    assert_eq!(fixture.written().len(), 1);
}

// Contract 6.1: TLS 1.2 and later.
#[tokio::test]
async fn versions_from_1_2_on() {
    let fixture = secured();
    let rows = [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ];
    for (version, expected) in rows {
        let connector = connector(&[version], &["h2", "http/1.1"]);
        let stream = handshake(&fixture, &connector).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]), "HTTP/1.1 only");
        assert_eq!(Peer::new(stream).ask(&Ask::get("/health")).await.head.status, 200);
    }
    assert!(
        handshake(&fixture, &connector(rustls::ALL_VERSIONS, &["h2"])).await.is_err(),
        "there is no HTTP/2"
    );
    // A greeting of TLS 1.1, with two of its cipher suites and nothing more.
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x13, 0x00, 0x2f, 1, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 0x03, 0x01, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    let answer = exchange(&fixture, &record).await;
    assert!(answer.len() == 7 && answer[0] == 0x15, "an alert and nothing else: {answer:?}");
}

/// What the host answers to these bytes until it closes.
async fn exchange(fixture: &Fixture, bytes: &[u8]) -> Vec<u8> {
    let mut io = fixture.connect().io;
    io.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = io.read_to_end(&mut answer).await;
    answer
}

// Law 9: plain HTTP, and other noise, on a port for TLS: at most an alert, and nothing is done.
#[tokio::test]
async fn plain_http_gets_no_answer_and_does_nothing() {
    let fixture = secured();
    let run = Ask::post("/v1/runs").token(ANN).json(&plain("quick")).bytes();
    let noise = [b"\x16\x03\x01\xff\xff".to_vec(), vec![0; 64], b"SSH-2.0-x\r\n".to_vec()];
    for bytes in [Ask::get("/health").bytes(), run].into_iter().chain(noise) {
        let answer = exchange(&fixture, &bytes).await;
        let alert = answer.len() == 7 && answer[0] == 0x15;
        assert!(answer.is_empty() || alert, "{:?}", String::from_utf8_lossy(&answer));
    }
    assert!(fixture.sink.records().is_empty());
}

// Law 9: a handshake is bounded in time, however slowly it comes, and costs a place that others can take.
#[tokio::test(start_paused = true)]
async fn a_handshake_takes_ten_seconds_at_most() {
    let fixture = secured();
    let begun = Instant::now();
    let mut silent = fixture.connect();
    let mut slow = fixture.connect();
    let drip = tokio::spawn(async move {
        // The beginning of a greeting, a byte a second.
        for byte in [0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3].into_iter().chain([7; 30]) {
            if slow.io.write_all(&[byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        begun.elapsed()
    });
    assert!(silent.is_closed().await);
    assert_eq!(begun.elapsed().as_secs(), 10);
    let dripped = drip.await.unwrap();
    assert!((10..13).contains(&dripped.as_secs()), "{dripped:?}");
    let mut peer = connect(&fixture).await;
    assert_eq!(peer.ask(&Ask::get("/health")).await.head.status, 200);
}

#[tokio::test(start_paused = true)]
async fn handshakes_are_bounded_in_number() {
    let mut fixture = Fixture::new();
    let options = Options { tls: Some(pair()), max_connections: 10, ..options() };
    fixture.service = Service::new(fixture.driver.clone(), &options).unwrap();
    let mut running = connect(&fixture).await;
    assert_eq!(running.start(&run_ask(ANN, reviewed("write"))).await.status, 200);
    let mut shaking: Vec<_> = (0..50).map(|_| fixture.connect()).collect();
    sleep(Duration::from_millis(1)).await;
    let mut closed = 0;
    for peer in &mut shaking {
        let ended = tokio::select! {
            biased;
            closed = peer.is_closed() => closed,
            () = std::future::ready(()) => false,
        };
        closed += u32::from(ended);
    }
    assert_eq!(closed, 41, "the oldest of them made room");
    assert_eq!(connect(&fixture).await.ask(&Ask::get("/health")).await.head.status, 200);
    running.event_of("approval.requested").await;
}

// Contract 6.3: with TLS any address can be listened on; the URL says https.
#[tokio::test]
async fn a_socket_with_tls() {
    let secured = |host: &str| Options { host: host.into(), tls: Some(pair()), ..options() };
    let host = serve(Fixture::new().driver, secured("0.0.0.0")).await.unwrap();
    assert_eq!(host.url(), format!("https://0.0.0.0:{}", host.local_addr().port()));
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", host.local_addr().port())).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = connector(rustls::ALL_VERSIONS, &[]).connect(name, socket).await.unwrap();
    assert_eq!(Peer::new(stream).ask(&Ask::get("/health")).await.head.status, 200);
    host.close().await;
    let error =
        serve(Fixture::new().driver, Options { host: "0.0.0.0".into(), ..options() }).await.unwrap_err();
    assert!(error.to_string().starts_with("TLS_REQUIRED: listen.host: "), "{error}");
}

// Contract 6.1: an unusable pair is INVALID_TLS, and no error shows the key.
#[test]
fn pairs_that_cannot_be_used() {
    let other = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    let cut = KEY.trim_end().trim_end_matches("-----END PRIVATE KEY-----");
    let rows = [
        ("", KEY, "INVALID_TLS: tls.certFile: there is no certificate in it"),
        (KEY, KEY, "INVALID_TLS: tls.certFile: there is no certificate in it"),
        (
            "-----BEGIN CERTIFICATE-----\n%%\n-----END CERTIFICATE-----\n",
            KEY,
            "INVALID_TLS: tls.certFile: it is not PEM",
        ),
        ("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", KEY, "INVALID_TLS: tls: "),
        (CERTIFICATE, "", "INVALID_TLS: tls.keyRef: there is no private key in it"),
        (CERTIFICATE, CERTIFICATE, "INVALID_TLS: tls.keyRef: there is no private key in it"),
        (CERTIFICATE, cut, "INVALID_TLS: tls.keyRef: it is not PEM: a section has no end"),
        (CERTIFICATE, other, "INVALID_TLS: tls: the certificate and the key cannot be used"),
    ];
    let secret = KEY.lines().nth(1).unwrap();
    for (certificate, key, expected) in rows {
        let error = Tls::from_pem(certificate.as_bytes(), &SecretString::from(key)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
        assert!(!error.contains(secret) && !error.contains('\n'), "{error}");
    }
    assert_eq!(format!("{:?}", pair()), "Tls { .. }");
}
