//! Structured output and the design's additions from end to end, through our client (contract 7.2, 7.5, 10.2; design 4).

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::{ApprovalFeature, ApprovalSettings};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{Approvals, OnDeny, RunRequest};
use countersign_providers::{Scripted, Step};

use crate::support::{ANN, ARGUMENTS, ROOMY, World, answer, model, plain, question, rest, reviewed};

fn world() -> World {
    World::with(model(ARGUMENTS), ROOMY, |builder, settings| {
        let features = vec![ApprovalFeature::Digest, ApprovalFeature::DenialFeedback];
        builder.approvals(ApprovalSettings { features, ..settings })
    })
}

// Law 3: the value that the client gets is the model's text, number by number; a buffered and a streamed run alike.
#[tokio::test(start_paused = true)]
async fn structured_output() {
    let scripted = || {
        Scripted::builder("mock")
            .models(["demo"])
            .script("good", [Step::text(r#" { "n": 1.50, "big": 1e21 } "#)])
            .script("bad", [Step::text("none")])
            .build()
            .unwrap()
    };
    let world = World::with(scripted(), ROOMY, |builder, settings| builder.approvals(settings));
    let schema =
        r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","required":["n"],"type":"object"}"#;
    let schema = Some(Exact::parse_with(schema, Gate::OUTPUT).unwrap());
    let asks = |input: &str| RunRequest { output_schema: schema.clone(), ..plain(input) };
    let client = world.client(ANN);
    let result = client.run(&asks("good")).await.unwrap();
    assert_eq!(result.output.unwrap().text(), r#"{"n":1.50,"big":1e21}"#);
    let mut events = client.stream(&asks("good")).await.unwrap();
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event.unwrap().body);
    }
    let Some(EventBody::RunCompleted { result }) = last else { panic!("{last:?}") };
    assert_eq!(result.output.unwrap().text(), r#"{"n":1.50,"big":1e21}"#);

    let error = client.run(&asks("bad")).await.unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "INVALID_OUTPUT");
    let strange = Some(Exact::parse(r#"{"$schema":"x"}"#).unwrap());
    let error = client.run(&RunRequest { output_schema: strange, ..plain("good") }).await.unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "INVALID_SCHEMA");
}

// The client has compared the digest with the call that it hands over.
#[tokio::test(start_paused = true)]
async fn the_digest_is_checked() {
    let world = world();
    let asked = Approvals { digest: Some(true), ..Approvals::new(IdlePolicy::Pause) };
    let request = RunRequest { approvals: Some(asked), ..plain("write") };
    let mut events = world.client(ANN).stream(&request).await.unwrap();
    let (seen, approval) = question(&mut events).await;
    let Some(EventBody::ApprovalRequested { digest, .. }) = seen.last().map(|event| &event.body) else {
        panic!()
    };
    assert_eq!(*digest, Some(approval.call.digest()));
    // A host that sends none to whoever asked is refused by the client: `protocol/conformance::digests`.
    let off = World::new();
    let error = off.client(ANN).stream(&request).await.unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "APPROVAL_POLICY");
}

// Laws 1 and 2, end to end.
#[tokio::test(start_paused = true)]
async fn a_denied_run_goes_on() {
    let world = world();
    let asked = Approvals { on_deny: Some(OnDeny::Continue), ..Approvals::new(IdlePolicy::Pause) };
    let request = RunRequest { approvals: Some(asked), ..plain("write") };
    let client = world.client(ANN);
    let mut events = client.stream(&request).await.unwrap();
    let (_, approval) = question(&mut events).await;
    let denial = DecisionRequest::of(&approval, Decision::Deny).with_reason("\u{1f6d1} no");
    assert_eq!(answer(client.decide_approval(&denial).await), "denied");
    assert_eq!(
        rest(&mut events).await,
        ["approval.resolved denied", "step.started 2", "usage.reported 2", "text.delta", "run.completed"]
    );
    assert_eq!(world.effects.len(), 0);
    assert_eq!(world.sink.kinds(), ["approval.requested", "approval.resolved denied"]);
    assert!(world.sink.lines()[1].contains("\u{1f6d1} no"));

    // On a host without it, the same decision is none, and the review stays.
    let off = World::new();
    let client = off.client(ANN);
    let mut events = client.stream(&reviewed("write")).await.unwrap();
    let (_, approval) = question(&mut events).await;
    let denial = DecisionRequest::of(&approval, Decision::Deny).with_reason("no");
    assert_eq!(answer(client.decide_approval(&denial).await), "INVALID_APPROVAL");
    assert_eq!(off.decide(ANN, &approval, Decision::Deny).await, "denied");
}
