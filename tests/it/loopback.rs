//! The whole, as it is used: a host on a socket, the client, a scripted model, and the audit file on disk.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use countersign_approval_core::audit::AuditSink;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::RunId;
use countersign_approval_core::json::{Digest, Exact};
use countersign_approval_core::review::Decision;
use countersign_client::Client;
use countersign_driver::system::SystemClock;
use countersign_driver::{ApprovalSettings, Driver};
use countersign_host::{Host, serve};
use countersign_protocol::event::EventBody;
use countersign_store::audit_file::{AuditFile, Entry, Reader, verify};
use tempfile::TempDir;

use crate::support::{
    ANN, ARGUMENTS, BOB, Effects, ROOMY, answer, expiring, model, options, question, rest, reviewed, word,
    write_tool,
};

/// A host on a socket of its own.
struct Loopback {
    host: Host,
    driver: Driver,
    audit: Arc<AuditFile>,
    effects: Effects,
    dir: TempDir,
}

impl Loopback {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (audit, _) =
            AuditFile::open(&dir.path().join("audit.jsonl"), Arc::new(SystemClock::new())).unwrap();
        let audit = Arc::new(audit);
        let effects = Effects::default();
        let sink: Arc<dyn AuditSink> = audit.clone();
        let driver = Driver::builder()
            .provider(Arc::new(model(ARGUMENTS)))
            .tool(write_tool(&effects))
            .approvals(ApprovalSettings { sink: Some(sink), ..ApprovalSettings::default() })
            .build()
            .unwrap();
        let host = serve(driver.clone(), options(ROOMY)).await.unwrap();
        Self { host, driver, audit, effects, dir }
    }

    fn client(&self, token: &str) -> Client {
        Client::builder(self.host.url(), token.into()).build().unwrap()
    }

    /// Verifies the file against the head that its writer knows, and reads it.
    fn entries(&self) -> Vec<Entry> {
        let path = self.dir.path().join("audit.jsonl");
        let head = self.audit.head();
        let verified = verify(&path, Some(head.into())).unwrap();
        assert_eq!((verified.head, verified.anchored), (head, Some(head.n)));
        assert!(verified.open.is_empty(), "law 5: nothing outlives its run: {:?}", verified.open);
        read(&path)
    }
}

fn read(path: &Path) -> Vec<Entry> {
    Reader::new(BufReader::new(std::fs::File::open(path).unwrap())).map(Result::unwrap).collect()
}

/// The digest that anybody can compute who was shown the call (design 3): from the event's text, by other code than
/// the host's own snapshot.
fn digest_of(shown: &str) -> Digest {
    let event: serde_json::Value = serde_json::from_str(shown).unwrap();
    let call = &event["approval"]["call"];
    let text = serde_json::json!({"arguments": call["arguments"], "id": call["id"], "name": call["name"]});
    Exact::parse(&text.to_string()).unwrap().digest()
}

// Contract 3.4 (approve, deny, cancel, expire) and 4.11, rows 6 and 23: the full sequence, a second decision, the
// effect, and what the audit file proves of it (laws 1, 2).
#[tokio::test]
async fn each_outcome_from_end_to_end() {
    let cases = [
        (
            Some(Decision::Approve),
            "approved",
            &[
                "approval.resolved approved",
                "tool.completed call-1",
                "step.started 2",
                "usage.reported 2",
                "text.delta",
                "run.completed",
            ][..],
        ),
        (Some(Decision::Deny), "denied", &["approval.resolved denied", "run.failed APPROVAL_DENIED"]),
        (Some(Decision::Cancel), "cancelled", &["approval.resolved cancelled", "run.cancelled CANCELLED"]),
        (None, "expired", &["approval.resolved expired", "run.failed APPROVAL_EXPIRED"]),
    ];
    for (decision, outcome, tail) in cases {
        let world = Loopback::start().await;
        let client = world.client(ANN);
        assert!(client.protocol().await.unwrap().features.contains(&"interactive-approvals".to_owned()));
        let request = if decision.is_some() { reviewed("write") } else { expiring(20) };
        let mut events = client.stream(&request).await.unwrap();
        let (until, approval) = question(&mut events).await;
        let told: Vec<String> = until.iter().map(word).collect();
        assert_eq!(
            told,
            [
                "run.started",
                "step.started 1",
                "usage.reported 1",
                "text.delta",
                "tool.called call-1",
                "approval.requested"
            ]
        );
        assert_eq!(world.effects.len(), 0, "law 1: nothing runs before the decision");
        let given = DecisionRequest::of(&approval, decision.unwrap_or(Decision::Approve));
        if decision.is_some() {
            assert_eq!(answer(client.decide_approval(&given).await), outcome);
        }
        assert_eq!(rest(&mut events).await, tail, "{outcome}");
        assert_eq!(answer(client.decide_approval(&given).await), "APPROVAL_NOT_FOUND", "{outcome}");

        let ran = outcome == "approved";
        assert_eq!(world.effects.texts(), if ran { vec![ARGUMENTS.to_owned()] } else { vec![] });
        let digest = digest_of(&until.last().unwrap().to_json()).to_string();
        check_trail(&world.entries(), approval.run_id, outcome, &digest);
        world.host.close().await;
    }
}

fn check_trail(entries: &[Entry], run: RunId, outcome: &str, digest: &str) {
    let told: Vec<String> = entries
        .iter()
        .map(|entry| {
            [Some(entry.kind.as_str()), entry.outcome.as_deref(), entry.code.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let resolved = format!("approval.resolved {outcome}");
    let mut expected = vec!["approval.requested", &resolved];
    if outcome == "approved" {
        expected.extend(["execution.started", "execution.finished completed"]);
    }
    expected.push("approval.rejected APPROVAL_NOT_FOUND");
    // The late decision and the effect go on side by side only in the approved case, where both are awaited in turn.
    assert_eq!(told, expected);
    for entry in entries.iter().filter(|entry| entry.kind != "approval.rejected") {
        assert_eq!(entry.digest.as_deref(), Some(digest), "{}", entry.kind);
        assert_eq!(entry.run_id.as_deref(), Some(&*run.to_string()));
        assert_eq!((entry.subject.as_deref(), entry.provider.as_deref()), (Some("ann"), Some("mock")));
        if entry.kind.starts_with("approval.") {
            assert_eq!(entry.arguments.as_deref(), Some(ARGUMENTS), "audited as shown (I2)");
        }
    }
}

// Contract 4.11, rows 1 to 5: six refusals, one resolution, one effect with the proposed arguments (scenario A1).
#[tokio::test]
async fn altered_decisions_and_one_effect() {
    let world = Loopback::start().await;
    let client = world.client(ANN);
    let mut events = client.stream(&reviewed("write")).await.unwrap();
    let (_, approval) = question(&mut events).await;
    let good = DecisionRequest::of(&approval, Decision::Approve);
    assert_eq!(answer(world.client(BOB).decide_approval(&good).await), "APPROVAL_NOT_FOUND");
    let changes: [fn(&mut DecisionRequest); 4] = [
        |decision| decision.run_id = "6f0c2d1e-0000-4000-8000-000000000000".into(),
        |decision| decision.call.id = "call-2".into(),
        |decision| decision.call.name = "lookup".into(),
        |decision| decision.call.arguments = Exact::parse(r#"{"k":[1,3],"s":"é","n":1.0}"#).unwrap(),
    ];
    for change in changes {
        let mut altered = good.clone();
        change(&mut altered);
        assert_eq!(answer(client.decide_approval(&altered).await), "APPROVAL_MISMATCH");
    }
    assert_eq!(world.effects.len(), 0);
    assert_eq!(answer(client.decide_approval(&good).await), "approved");
    assert_eq!(answer(client.decide_approval(&good).await), "APPROVAL_NOT_FOUND");
    let told = rest(&mut events).await;
    assert_eq!(told.first().unwrap(), "approval.resolved approved");
    assert_eq!(told.last().unwrap(), "run.completed");
    assert_eq!(world.effects.texts(), [ARGUMENTS]);
    let entries = world.entries();
    let count = |kind: &str| entries.iter().filter(|entry| entry.kind == kind).count();
    assert_eq!((count("approval.rejected"), count("approval.resolved")), (6, 1));
    world.host.close().await;
}

// Contract 4.11, rows 16 and 17; scenario F1; law 5: over a socket, where only the system says who has gone.
#[tokio::test]
async fn hanging_up_and_closing_revoke() {
    let world = Loopback::start().await;
    let client = world.client(ANN);
    let mut events = client.stream(&reviewed("write")).await.unwrap();
    let (_, gone) = question(&mut events).await;
    drop(events);
    while world.driver.pending_approvals() > 0 {
        tokio::task::yield_now().await;
    }
    let late = DecisionRequest::of(&gone, Decision::Approve);
    assert_eq!(answer(client.decide_approval(&late).await), "APPROVAL_NOT_FOUND");

    let mut events = client.stream(&reviewed("write")).await.unwrap();
    question(&mut events).await;
    // The read is pending when the host closes, and ends with it.
    let (told, ()) = tokio::join!(rest(&mut events), world.host.close());
    assert_eq!(told, ["approval.resolved cancelled", "run.cancelled CANCELLED"]);
    assert!(client.stream(&reviewed("write")).await.is_err(), "nobody listens any more");
    let kinds: Vec<_> =
        world.entries().into_iter().map(|entry| (entry.kind, entry.outcome.unwrap_or_default())).collect();
    let cancelled =
        kinds.iter().filter(|(kind, outcome)| kind == "approval.resolved" && outcome == "cancelled");
    assert_eq!(cancelled.count(), 2);
    assert_eq!(world.effects.len(), 0);
}

// Law 1, law 2: many runs share one file and one socket; each decision finds its own run (scenarios D1, D5, D9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_share_the_trail() {
    let world = Loopback::start().await;
    let client = world.client(ANN);
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut events = client.stream(&reviewed("write")).await.unwrap();
        let (_, approval) = question(&mut events).await;
        waiting.push((events, approval));
    }
    let runs: Vec<_> = waiting
        .into_iter()
        .rev()
        .enumerate()
        .map(|(index, (mut events, approval))| {
            let client = client.clone();
            tokio::spawn(async move {
                let decision = if index % 4 == 3 { Decision::Deny } else { Decision::Approve };
                let given = DecisionRequest::of(&approval, decision);
                assert_eq!(client.decide_approval(&given).await.unwrap().outcome, decision.outcome());
                while let Some(event) = events.next().await {
                    if let EventBody::ApprovalResolved { resolution } = event.unwrap().body {
                        assert_eq!(resolution.approval_id, approval.approval_id);
                        assert_eq!(resolution.outcome, decision.outcome());
                    }
                }
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
    assert_eq!(world.effects.len(), 15);
    let entries = world.entries();
    let resolved = |outcome: &str| {
        let of =
            |entry: &&Entry| entry.kind == "approval.resolved" && entry.outcome.as_deref() == Some(outcome);
        entries.iter().filter(of).count()
    };
    assert_eq!((resolved("approved"), resolved("denied"), resolved("cancelled")), (15, 5, 0));
    world.host.close().await;
}
