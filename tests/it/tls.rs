//! Our client and our host over TLS (contract 6.1, 6.3, 10.1, 10.5).
//!
//! The certificates are the client's, see `crates/client/tests/it/tls.rs`.

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::review::Decision;
use countersign_client::transport::TransportError;
use countersign_client::{Client, Error};
use countersign_host::{Host, Options, Tls, serve};
use countersign_protocol::event::EventBody;
use secrecy::SecretString;

use crate::support::{ANN, ROOMY, World, options, plain, reviewed};

const CA: &str = include_str!("../../crates/client/tests/it/tls/ca.pem");
const KEY: &str = include_str!("../../crates/client/tests/it/tls/server.key.pem");
const TRUSTED: &str = include_str!("../../crates/client/tests/it/tls/trusted.pem");
const ELSEWHERE: &str = include_str!("../../crates/client/tests/it/tls/elsewhere.pem");
const STRANGER: &str = include_str!("../../crates/client/tests/it/tls/stranger.pem");

async fn start(world: &World, certificate: &str) -> Host {
    let tls = Tls::from_pem(certificate.as_bytes(), &SecretString::from(KEY)).unwrap();
    serve(world.driver.clone(), Options { tls: Some(tls), ..options(ROOMY) }).await.unwrap()
}

fn client(host: &Host) -> Client {
    Client::builder(host.url(), ANN.into()).root_certificate(CA).build().unwrap()
}

// Law 1 over TLS: asked, approved, done once.
#[tokio::test]
async fn a_reviewed_call() {
    let world = World::new();
    let host = start(&world, TRUSTED).await;
    assert!(host.url().starts_with("https://127.0.0.1:"), "{}", host.url());
    let client = client(&host);
    assert_eq!(client.protocol().await.unwrap().version, "1.0");
    assert_eq!(client.providers().await.unwrap().len(), 1);
    let mut events = client.stream(&reviewed("write")).await.unwrap();
    let mut last = None;
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        if let EventBody::ApprovalRequested { approval, .. } = &event.body {
            let decision = DecisionRequest::of(approval, Decision::Approve);
            client.decide_approval(&decision).await.unwrap();
            let error = client.decide_approval(&decision).await.unwrap_err();
            assert!(matches!(error, Error::Remote { .. }), "{error:?}");
        }
        last = Some(event);
    }
    assert!(matches!(last.unwrap().body, EventBody::RunCompleted { .. }));
    assert_eq!(world.effects.len(), 1);
    host.close().await;
}

// 10.5: another name, and an authority that nobody trusts: the client says nothing, the host hears no request.
#[tokio::test]
async fn a_wrong_name_and_a_wrong_authority() {
    for certificate in [ELSEWHERE, STRANGER] {
        let world = World::new();
        let host = start(&world, certificate).await;
        let error = client(&host).stream(&plain("write")).await.unwrap_err();
        assert!(matches!(error, Error::Transport(TransportError::Connect(_))), "{error:?}");
        // Without any authority of the system's there is not even a client.
        if let Ok(untrusting) = Client::builder(host.url(), ANN.into()).build() {
            assert!(untrusting.protocol().await.is_err(), "the system does not know the authority");
        }
        assert!(world.effects.all().is_empty());
        assert!(world.sink.records().is_empty());
        host.close().await;
    }
}
