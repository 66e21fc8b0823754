//! Contract 2.1: what is refused before the first event, in which order; grants; embedded requests.

use std::collections::BTreeMap;

use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::{ModelId, ProviderId, Subject, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::IdlePolicy;
use countersign_driver::{Driver, ToolSpec, tool};
use countersign_protocol::request::{ApplicationTool, Approvals, OnDeny, Retry, RunRequest, Unavailable};

use crate::support::{Bench, request, reviewed};

#[tokio::test(start_paused = true)]
async fn the_first_failing_check_answers() {
    let bench = Bench::new([]);
    // Each change fails one check; all later changes are made as well, so that the order shows.
    let changes: Vec<(&str, fn(&mut RunRequest))> = vec![
        ("SESSIONS_UNAVAILABLE", |r| r.unavailable.push(Unavailable::Session)),
        ("RETRIEVAL_UNAVAILABLE", |r| r.unavailable.push(Unavailable::Retrieval)),
        ("INVALID_REQUEST", |r| r.unavailable.push(Unavailable::Attachments)),
        ("IDEMPOTENCY_UNAVAILABLE", |r| r.idempotency_key = Some("key".into())),
        ("UNKNOWN_PROVIDER", |r| r.provider = ProviderId::parse("other").unwrap()),
    ];
    check_order(&bench, &changes);
    let changes: Vec<(&str, fn(&mut RunRequest))> = vec![
        ("INVALID_REQUEST", |r| r.unavailable.push(Unavailable::OutputArtifact)),
        ("UNSUPPORTED_CAPABILITY", |r| {
            r.retry = Some(Retry { max_attempts: 2, base_delay_ms: None, max_delay_ms: None });
        }),
        ("UNSUPPORTED_MODEL", |r| r.model = ModelId::parse("other").unwrap()),
        ("UNSUPPORTED_CAPABILITY", |r| r.required_capabilities = vec!["images".into()]),
        ("INVALID_REQUEST", |r| r.tools = vec![ToolName::parse("write").unwrap(); 2]),
        ("APPLICATION_TOOLS_UNAVAILABLE", |r| {
            r.application_tools.push(ApplicationTool::new("pick", "Picks.", "{}").unwrap());
        }),
    ];
    check_order(&bench, &changes);
    let changes: Vec<(&str, fn(&mut RunRequest))> = vec![
        ("UNKNOWN_TOOL", |r| r.tools.push(ToolName::parse("nobody").unwrap())),
        ("APPROVAL_POLICY", |r| {
            let mut approvals = Approvals::new(IdlePolicy::Pause);
            approvals.on_deny = Some(OnDeny::Continue);
            r.approvals = Some(approvals);
        }),
        ("INVALID_SCHEMA", |r| {
            r.output_schema = Some(Exact::parse(r#"{"type":"strange"}"#).unwrap());
        }),
    ];
    check_order(&bench, &changes);
}

fn check_order(bench: &Bench, changes: &[(&str, fn(&mut RunRequest))]) {
    for first in 0..changes.len() {
        let mut asked = request();
        for (_, change) in &changes[first..] {
            change(&mut asked);
        }
        let error = bench.driver.prepare(asked).unwrap_err();
        assert_eq!(error.code.as_str(), changes[first].0, "check {first}: {}", error.message);
    }
}

#[tokio::test(start_paused = true)]
async fn additions_that_are_off_are_refused() {
    // Design 4: 400 APPROVAL_POLICY; asking for what is the default anyway is fine.
    let bench = Bench::new([]);
    let ask = |change: fn(&mut Approvals)| {
        let mut approvals = Approvals::new(IdlePolicy::Pause);
        change(&mut approvals);
        let asked = RunRequest { approvals: Some(approvals), ..request() };
        bench.driver.prepare(asked).map(|_| "ok".to_owned()).unwrap_or_else(|e| e.code.as_str().to_owned())
    };
    assert_eq!(ask(|a| a.digest = Some(true)), "APPROVAL_POLICY");
    assert_eq!(ask(|a| a.batch = Some(true)), "APPROVAL_POLICY");
    assert_eq!(ask(|a| a.on_deny = Some(OnDeny::Continue)), "APPROVAL_POLICY");
    assert_eq!(ask(|a| a.digest = Some(false)), "ok");
    assert_eq!(ask(|a| a.on_deny = Some(OnDeny::Fail)), "ok");
}

#[tokio::test(start_paused = true)]
async fn grants() {
    // Contract 2.1, row 16: `approveTools` is not needed to start a run.
    let bench = Bench::new([]);
    let principal = |providers: &[&str], tools: &[&str]| Principal {
        subject: Subject::local(),
        grants: Grants {
            providers: Allow::only(providers.iter().copied()),
            tools: Allow::only(tools.iter().copied()),
            approve_tools: Allow::none(),
            ..Grants::all()
        },
    };
    let code = |principal| {
        bench
            .driver
            .stream(reviewed(IdlePolicy::Pause), principal)
            .map(|_| "ok".to_owned())
            .unwrap_or_else(|e| e.code.as_str().to_owned())
    };
    assert_eq!(code(principal(&["mock"], &["write", "lookup"])), "ok");
    assert_eq!(code(principal(&["mock"], &["write"])), "FORBIDDEN");
    assert_eq!(code(principal(&["other"], &["write", "lookup"])), "FORBIDDEN");
    assert_eq!(code(principal(&[], &[])), "FORBIDDEN");
}

#[tokio::test(start_paused = true)]
async fn an_embedded_request_is_read_as_strictly_as_a_remote_one() {
    let bench = Bench::new([]);
    let changes: [fn(&mut RunRequest); 5] = [
        |r| r.input.clear(),
        |r| r.input = "x".repeat(100_001),
        |r| r.max_steps = Some(0),
        |r| r.metadata = BTreeMap::from([("k".repeat(81), "v".into())]),
        |r| {
            let mut approvals = Approvals::new(IdlePolicy::Pause);
            approvals.expires_after_ms = Some(0);
            r.approvals = Some(approvals);
        },
    ];
    for change in changes {
        let mut asked = request();
        change(&mut asked);
        let error = bench.driver.stream(asked, Principal::local()).unwrap_err();
        assert_eq!(error.code.as_str(), "INVALID_REQUEST");
    }
}

#[test]
fn tools_are_checked_when_they_are_registered() {
    // Scenarios K9, L7.
    for name in ["", " ", "a\nb", "1a", "a-b", "s\u{0430}ve", &"n".repeat(65)] {
        assert!(ToolSpec::new(name, "", r#"{"type":"object"}"#).is_err(), "{name:?}");
    }
    for schema in ["", "null", "[]", "true", "{", r#"{"type":"object","type":"object"}"#] {
        assert!(ToolSpec::new("t", "", schema).is_err(), "{schema}");
    }
    let refused = [
        r#"{"type":"thing"}"#,
        r#"{"properties":{"a":{"pattern":"("}}}"#,
        r#"{"properties":{"a":{"pattern":"(?=a)b"}}}"#,
        r#"{"properties":{"a":{"pattern":"(a)\\1"}}}"#,
        r##"{"properties":{"a":{"$ref":"#/nowhere"}}}"##,
        r#"{"properties":{"a":{"$ref":"http://127.0.0.1:1/schema"}}}"#,
        r#"{"properties":{"a":{"$ref":"file:///etc/hostname"}}}"#,
        r#"{"$schema":"https://json-schema.org/draft/2020-12/schema"}"#,
        r#"{"$schema":7}"#,
        r#"{"$async":true}"#,
    ];
    for schema in refused {
        let spec = ToolSpec::new("t", "", schema).unwrap();
        let tool = tool(spec, |_, _| async { Err("never".into()) });
        let error = Driver::builder().provider(provider()).tool(tool).build().unwrap_err();
        assert!(error.to_string().contains("input schema"), "{schema}: {error}");
    }
    let accepted = [
        "{}",
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#,
        r##"{"definitions":{"n":{"type":"number"}},"properties":{"a":{"$ref":"#/definitions/n"}}}"##,
        r#"{"properties":{"a":{"format":"email","default":"x","unknown":1}}}"#,
        r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#,
    ];
    for schema in accepted {
        let tool = tool(ToolSpec::new("t", "", schema).unwrap(), |_, _| async { Err("never".into()) });
        assert!(Driver::builder().provider(provider()).tool(tool).build().is_ok(), "{schema}");
    }
}

#[test]
fn a_driver_names_what_is_wrong_with_it() {
    let spec = || ToolSpec::new("t", "", "{}").unwrap();
    let twice = Driver::builder()
        .provider(provider())
        .tool(tool(spec(), |_, _| async { Err("never".into()) }))
        .tool(tool(spec(), |_, _| async { Err("never".into()) }));
    assert!(twice.build().unwrap_err().to_string().contains("twice"));
    assert!(Driver::builder().build().unwrap_err().to_string().contains("provider"));
    let twice = Driver::builder().provider(provider()).provider(provider());
    assert!(twice.build().unwrap_err().to_string().contains("twice"));
}

fn provider() -> std::sync::Arc<dyn countersign_driver::provider::Provider> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    Bench::new([]).model
}
