//! Decisions: the receipt must be that of the decision, and nothing sends one twice (law 1; scenario C5).

use countersign_client::Error;
use countersign_client::transport::TransportError;
use tokio::net::TcpListener;

use crate::events::*;
use crate::server::{JSON_HEADERS, Script, Server, Then, answer};

/// 10.4, approval-receipt rows.
#[tokio::test]
async fn receipts() {
    let good = receipt("approved");
    for (row, body, expected) in [
        ("approval-receipt-valid", good.clone(), "ok"),
        ("additional members", changed(&good, "{", r#"{"future":null,"#), "ok"),
        ("approval-receipt-runId", changed(&good, RUN, OTHER_RUN), "INVALID_RESPONSE"),
        ("approval-receipt-approvalId", changed(&good, APPROVAL, OTHER_RUN), "INVALID_RESPONSE"),
        ("approval-receipt-callId", changed(&good, "call-1", "call-2"), "INVALID_RESPONSE"),
        ("approval-receipt-outcome", changed(&good, "approved", "denied"), "INVALID_RESPONSE"),
        ("an outcome nobody decides", changed(&good, "approved", "expired"), "INVALID_RESPONSE"),
        ("an unknown outcome", changed(&good, "approved", "granted"), "INVALID_RESPONSE"),
        ("approval-receipt-decidedAt", changed(&good, TIME, "2026-02-30T00:00:00Z"), "INVALID_RESPONSE"),
        ("no decidedAt", changed(&good, "decidedAt", "other"), "INVALID_RESPONSE"),
        ("a member twice", changed(&good, "{", r#"{"outcome":"denied","#), "INVALID_RESPONSE"),
    ] {
        let server = Server::answering("200 OK", JSON_HEADERS, body).await;
        match server.client().decide_approval(&decision("approve")).await {
            Ok(receipt) => {
                assert_eq!((expected, receipt.approval_id.to_string().as_str()), ("ok", APPROVAL), "{row}")
            }
            Err(error) => {
                assert_eq!(code(&error), expected, "{row}");
                // Law 8: something was answered, and it does not say what was decided.
                assert!(error.is_uncertain());
            }
        }
    }
    for (word, outcome) in [("approve", "approved"), ("deny", "denied"), ("cancel", "cancelled")] {
        let server = Server::answering("200 OK", JSON_HEADERS, receipt(outcome)).await;
        server.client().decide_approval(&decision(word)).await.unwrap();
    }
}

/// C5: whatever becomes of the answer, the decision and the run are sent once. The server would hear a second try: it
/// listens until the end of the test, and the client has given up by then.
#[tokio::test]
async fn nothing_is_sent_twice() {
    let cut = answer("200 OK", JSON_HEADERS, receipt("approved").as_bytes());
    for (row, bytes) in [
        ("closed without an answer", Vec::new()),
        ("cut inside the head", b"HTTP/1.1 200 OK\r\nContent".to_vec()),
        ("cut inside the body", cut[..cut.len() - 9].to_vec()),
        ("not HTTP", b"SSH-2.0-x\r\n".to_vec()),
        ("502", answer("502 Bad Gateway", "", b"")),
        ("503 and when to retry", answer("503 Service Unavailable", "Retry-After: 0\r\n", b"")),
        ("408", answer("408 Request Timeout", "Connection: close\r\n", b"")),
        ("425", answer("425 Too Early", "", b"")),
        ("429", answer("429 Too Many Requests", "Retry-After: 0\r\n", b"")),
        ("retryable", answer("429 X", "", br#"{"error":{"code":"BUSY","message":"m","retryable":true}}"#)),
    ] {
        let server = Server::start(Script { bytes, then: Then::Close }).await;
        let client = server.client();
        let error = client.decide_approval(&decision("approve")).await.unwrap_err();
        assert_eq!(server.heard().len(), 1, "{row}: {error:?}");
        assert_eq!(error.is_uncertain(), row != "retryable", "{row}: {error:?}");
        client.run(&hello()).await.unwrap_err();
        client.stream(&hello()).await.unwrap_err();
        assert_eq!(server.heard().len(), 3, "{row}");
    }
}

/// C5: a connection that was kept, and that its host has closed meanwhile, is how libraries come to send a request
/// again. Here no connection is kept: the host sees each closed by the client, and the next decision on a new one.
#[tokio::test]
async fn no_connection_is_used_twice() {
    let bytes = answer("200 OK", JSON_HEADERS, receipt("approved").as_bytes());
    let mut server = Server::start(Script { bytes, then: Then::Hold }).await;
    let client = server.client();
    for count in 1..=3 {
        client.decide_approval(&decision("approve")).await.unwrap();
        // A second request on a held connection would not be heard, nor answered.
        assert_eq!(server.heard().len(), count);
        server.hang_up().await;
    }
}

/// 10.4, `redirect-denied`: the target is never contacted, by any endpoint, with any kind of redirect.
#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Server::answering("200 OK", JSON_HEADERS, receipt("approved")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: {}/v1/approvals/decisions\r\n", target.url());
        let server = Server::answering(&format!("{status} X"), &location, "").await;
        let client = server.client();
        for error in [
            client.decide_approval(&decision("approve")).await.unwrap_err(),
            client.stream(&hello()).await.unwrap_err(),
            client.run(&hello()).await.unwrap_err(),
            client.protocol().await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::Http { status: number } if number == status), "{error:?}");
        }
        assert_eq!(server.heard().len(), 4);
    }
    assert!(target.heard().is_empty());
}

/// Law 8: where nothing was sent, nothing is uncertain.
#[tokio::test]
async fn a_host_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let client =
        countersign_client::Client::builder(format!("http://127.0.0.1:{port}"), "t".into()).build().unwrap();
    let error = client.decide_approval(&decision("approve")).await.unwrap_err();
    assert!(matches!(error, Error::Transport(TransportError::Connect(_))), "{error:?}");
    assert!(!error.is_uncertain());
    assert_eq!(error.code(), None);
}
