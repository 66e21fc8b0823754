//! Noise: no bytes that a peer sends end anything but its own connection (law 9).

use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANN, Ask, Fixture, decision, plain, reviewed, run_ask};

/// Good requests, to be spoiled.
fn requests() -> Vec<Vec<u8>> {
    let made_up = serde_json::json!({
        "approvalId": "0b1d4d4e-0000-4000-8000-000000000000", "runId": "r",
        "call": {"id": "c", "name": "write", "arguments": {"k": [1, 2.5, "x"]}},
    });
    [
        Ask::post("/v1/runs").token(ANN).json(&plain("quick")),
        run_ask(ANN, reviewed("write")),
        Ask::post("/v1/approvals/decisions").token(ANN).json(&decision(&made_up, "approve")),
        Ask::get("/v1/providers").token(ANN),
    ]
    .iter()
    .map(Ask::bytes)
    .collect()
}

/// What is done to a request: bytes replaced, a piece taken out, a piece doubled.
#[derive(Debug, Clone)]
enum Damage {
    Replace(usize, u8),
    Remove(usize, usize),
    Double(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = 0..600_usize;
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (at.clone(), 1..20_usize).prop_map(|(at, length)| Damage::Remove(at, length)),
        (at, 1..20_usize).prop_map(|(at, length)| Damage::Double(at, length)),
    ]
}

fn spoil(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let length = bytes.len();
        let piece = |at: usize, many: usize| (at % length, (at % length + many).min(length));
        match *damage {
            Damage::Replace(at, byte) => bytes[at % length] = byte,
            Damage::Remove(at, many) if many < length => {
                let (from, to) = piece(at, many);
                bytes.drain(from..to);
            }
            Damage::Remove(..) => {}
            Damage::Double(at, many) => {
                let (from, to) = piece(at, many);
                let double = bytes[from..to].to_vec();
                bytes.splice(from..from, double);
            }
        }
    }
    bytes
}

/// Sends the bytes, hangs up, and checks that the host is as before.
fn survives(bytes: &[u8]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let fixture = Fixture::with_concurrency(1, 1);
        let mut peer = fixture.connect();
        let _ = peer.io.write_all(bytes).await;
        let _ = peer.io.shutdown().await;
        let mut answer = Vec::new();
        let _ = peer.io.read_to_end(&mut answer).await;
        drop(peer);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(fixture.driver.pending_approvals(), 0);
        assert!(fixture.written().is_empty());
        let next = fixture.ask(&Ask::post("/v1/runs").token(ANN).json(&plain("quick"))).await;
        assert_eq!(next.head.status, 200);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoiled_requests_hurt_nobody(
        which in 0..4_usize,
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        survives(&spoil(requests().swap_remove(which), &damages));
    }

    #[test]
    fn random_bytes_hurt_nobody(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
    }
}
