//! Many decisions at once, and many runs at once (reliability R4 and R13 in small; laws 1 and 5).

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_approval_core::audit::AuditRecord;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::json::Exact;
use countersign_approval_core::registry::Limits;
use countersign_approval_core::review::{Decision, Outcome};
use countersign_driver::ApprovalSettings;
use tokio::time::Instant;

use crate::support::{ANN, ANN_RUNNER, ARGUMENTS, BOB, ROOMY, World, answer, model, rest};

/// Who sends the `n`th of the decisions, and what is wrong with it; the first of each crowd is an honest one.
fn nth(n: usize, honest: &DecisionRequest) -> (&'static str, DecisionRequest) {
    let mut decision = honest.clone();
    let token = match n % 8 {
        1 => {
            decision.call.arguments = Exact::parse(r#"{"k":[1,2],"s":"é","n":2}"#).unwrap();
            ANN
        }
        2 => {
            decision.call.name = "delete_file".into();
            ANN
        }
        3 => BOB,
        5 => {
            decision.run_id = "6f0c2d1e-0000-4000-8000-000000000000".into();
            ANN
        }
        6 => ANN_RUNNER,
        7 => {
            // Another spelling of the honest one.
            decision.call.arguments = Exact::parse("{\"n\":1,\"s\":\"\\u00e9\",\"k\":[1.0,2]}").unwrap();
            ANN
        }
        _ => ANN,
    };
    (token, decision)
}

// R4 in small; scenarios C3, C5; I1, I5: duplicates and changed ones, 2 to 64 at once, one execution each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_decisions_make_one_effect_a_run() {
    let limits = Limits { max_rejected_per_minute: u32::MAX, ..Limits::default() };
    let world = World::with(model(ARGUMENTS), ROOMY, |builder, settings| {
        builder.approvals(ApprovalSettings { limits, ..settings })
    });
    let clients: BTreeMap<_, _> =
        [ANN, ANN_RUNNER, BOB].into_iter().map(|token| (token, world.client(token))).collect();
    let (mut sent, mut runs) = (0, 0);
    while sent < 2_000 {
        for crowd in [2, 4, 8, 16, 32, 64] {
            let (mut events, approval) = world.waiting(ANN).await;
            let honest = DecisionRequest::of(&approval, Decision::Approve);
            let deciding: Vec<_> = (0..crowd)
                .map(|n| {
                    let (token, decision) = nth(n, &honest);
                    let client = clients[token].clone();
                    tokio::spawn(async move { (n, answer(client.decide_approval(&decision).await)) })
                })
                .collect();
            // The run goes on while the rest of the crowd is still coming.
            let told = rest(&mut events).await;
            assert_eq!(told.first().unwrap(), "approval.resolved approved");
            assert_eq!(told.last().unwrap(), "run.completed");
            let mut taken = 0;
            for deciding in deciding {
                let (n, said) = deciding.await.unwrap();
                let may_win = matches!(n % 8, 0 | 4 | 7);
                let before: &[&str] = match n % 8 {
                    0 | 4 | 7 => &["approved"],
                    1 | 2 | 5 => &["APPROVAL_MISMATCH"],
                    6 => &["FORBIDDEN"],
                    _ => &[],
                };
                assert!(said == "APPROVAL_NOT_FOUND" || before.contains(&&*said), "{n}: {said}");
                taken += usize::from(may_win && said == "approved");
            }
            assert_eq!(taken, 1, "one receipt, whoever of the honest ones it is");
            sent += crowd;
            runs += 1;
            assert_eq!(world.effects.len(), runs, "one effect a run");
        }
    }
    let effects = world.effects.all();
    assert!(effects.iter().all(|effect| effect.text == ARGUMENTS), "never with other arguments");
    let distinct: std::collections::BTreeSet<_> = effects.iter().map(|effect| effect.run).collect();
    assert_eq!(distinct.len(), runs);
    assert_eq!(world.driver.pending_approvals(), 0);
}

// R13 in small; design 4, Shutdown; law 5: everybody is told and recorded, within the two seconds.
#[tokio::test(start_paused = true)]
async fn closing_tells_two_hundred_who_wait() {
    let world = World::new();
    let mut waiting = Vec::new();
    for _ in 0..200 {
        waiting.push(world.waiting(ANN).await);
    }
    assert_eq!(world.driver.pending_approvals(), 200);
    let before = Instant::now();
    let readers: Vec<_> = waiting
        .into_iter()
        .map(|(mut events, approval)| tokio::spawn(async move { (rest(&mut events).await, approval) }))
        .collect();
    world.service.close().await;
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    assert_eq!(world.driver.pending_approvals(), 0);
    let records = world.sink.records();
    for reader in readers {
        let (told, approval) = reader.await.unwrap();
        assert_eq!(told, ["approval.resolved cancelled", "run.cancelled CANCELLED"]);
        let ends: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                AuditRecord::Resolved { resolution, .. }
                    if resolution.approval_id == approval.approval_id =>
                {
                    Some(resolution.outcome)
                }
                _ => None,
            })
            .collect();
        assert_eq!(ends, [Outcome::Cancelled]);
    }
    assert_eq!(world.effects.len(), 0);
}
