//! The rows of the contract's 10.3 and 10.4 that are in scope here, as streams of bytes and of events.

use countersign_approval_core::review::IdlePolicy;
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_protocol::sse::Decoder;
use countersign_protocol::stream::{Expectation, StreamCheck};

use crate::support::*;

fn base() -> Vec<String> {
    vec![started(), delta(2), completed(3)]
}

/// A client that reads bytes, cut into chunks of these sizes in turn.
fn read(bytes: &[u8], sizes: &[usize]) -> String {
    let mut check = StreamCheck::new(Expectation::of(&hello()));
    let mut decoder = Decoder::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (chunk, later) = rest.split_at((*size).min(rest.len()));
        decoder.push(chunk);
        rest = later;
        while let Some(frame) = decoder.next_frame() {
            match frame {
                Ok(frame) => {
                    if let Err(error) = check.accept(&frame.data) {
                        return error.code().to_string();
                    }
                }
                Err(error) => return error.code().to_string(),
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    check.finish().map_or_else(|error| error.code().to_string(), |()| "ok".to_owned())
}

fn framed(events: &[String], end: &str) -> String {
    events.iter().map(|data| format!("id: 1{end}event: x{end}data: {data}{end}{end}")).collect()
}

#[test]
fn framing() {
    let plain = framed(&base(), "\n");
    // One event over two `data:` lines, cut where JSON allows a line feed.
    let multiline = framed(&base(), "\r\n").replace(r#","sequence""#, ",\r\ndata: \"sequence\"");
    let large = |count: usize| {
        let text = line(2, "text.delta", &format!(r#""text":"{}""#, "🌍".repeat(count)));
        framed(&[started(), text, completed(3)], "\n")
    };
    for (row, bytes, sizes, expected) in [
        ("fragmented-unicode", plain.clone().into_bytes(), &[1, 2, 3, 7][..], "ok"),
        ("crlf-and-multiline", multiline.into_bytes(), &[3, 1, 11], "ok"),
        ("carriage-return-lines", framed(&base(), "\r").into_bytes(), &[2, 5, 1], "ok"),
        ("utf8-bom", format!("\u{feff}{plain}").into_bytes(), &[1, 2, 7], "ok"),
        ("large-unicode-frame", large(70_000).into_bytes(), &[65_536], "ok"),
        ("oversize-unicode-frame", large(500_001).into_bytes(), &[65_536], "RESPONSE_TOO_LARGE"),
        ("empty-stream", Vec::new(), &[1], "INCOMPLETE_STREAM"),
        ("missing-terminal", framed(&base()[..2], "\n").into_bytes(), &[9], "INCOMPLETE_STREAM"),
        ("unterminated-frame", br#"data: {"type":"run.started"}"#.to_vec(), &[9], "INCOMPLETE_STREAM"),
        ("invalid-json", b"data: {broken}\n\n".to_vec(), &[9], "INVALID_STREAM"),
        ("invalid-utf8", b"data: \xff\n\n".to_vec(), &[9], "INVALID_STREAM"),
        ("event-is-null", b"data: null\n\n".to_vec(), &[9], "INVALID_STREAM"),
    ] {
        assert_eq!(read(&bytes, sizes), expected, "{row}");
    }
}

#[test]
fn versioning() {
    assert_eq!(
        play(&hello(), &base()),
        (vec!["run.started", "text.delta", "run.completed"], "ok".to_owned())
    );
    let advisory = |members: &str| {
        let unknown = line(2, "provider.advisory", members);
        play(&hello(), &[started(), unknown, delta(3), completed(4)])
    };
    assert_eq!(
        advisory(r#""optional":true,"detail":{"future":true}"#),
        (vec!["run.started", "text.delta", "run.completed"], "ok".to_owned()),
        "future-optional-event"
    );
    for optional in
        ["", r#""optional":false"#, r#""optional":"true""#, r#""optional":1"#, r#""optional":null"#]
    {
        assert_eq!(
            advisory(optional).1,
            "UNSUPPORTED_EVENT",
            "future-required-event, optional-is-not-truthy"
        );
    }
    // An event that may be skipped must still be a good one, in its place.
    assert_eq!(advisory(r#""optional":true,"text":7"#).1, "INVALID_STREAM");
    let first = line(1, "provider.advisory", r#""optional":true"#);
    assert_eq!(play(&hello(), &[first]).1, "INVALID_STREAM");
    let gap = line(3, "provider.advisory", r#""optional":true"#);
    assert_eq!(play(&hello(), &[started(), gap]).1, "INVALID_STREAM");
}

#[test]
fn envelope() {
    for (row, events) in [
        ("missing-start", vec![completed(1)]),
        ("duplicate-start", vec![started(), started().replace(r#""sequence":1"#, r#""sequence":2"#)]),
        ("sequence-gap", vec![started(), delta(3)]),
        ("sequence repeated", vec![started(), delta(1)]),
        ("sequence does not start at 1", vec![started().replace(r#""sequence":1"#, r#""sequence":0"#)]),
        ("sequence with a decimal point", vec![started().replace(r#""sequence":1"#, r#""sequence":1.0"#)]),
        (
            "sequence beyond 64 bits",
            vec![started().replace(r#""sequence":1"#, r#""sequence":18446744073709551617"#)],
        ),
        ("changed-run", vec![started(), delta(2).replace(RUN, OTHER_RUN)]),
        ("bad-timestamp", vec![started().replace("2026-09-20T12:00:00.000Z", "yesterday")]),
        ("missing type", vec![started().replace(r#""type":"run.started","#, "")]),
        ("empty type", vec![started().replace("run.started", "")]),
        ("empty run", vec![started().replace(RUN, "")]),
        ("another provider", vec![started().replace("mock", "other")]),
        ("another model", vec![started().replace("demo", "other")]),
        (
            "the same member twice",
            vec![started().replace(r#""model":"demo""#, r#""model":"demo","model":"demo""#)],
        ),
        ("a lone surrogate", vec![started(), line(2, "text.delta", r#""text":"\ud800""#)]),
    ] {
        assert_eq!(play(&hello(), &events).1, "INVALID_STREAM", "{row}");
    }
}

#[test]
fn payload() {
    let ends = |end: String| play(&hello(), &[started(), end]).1;
    let result = |from: &str, to: &str| {
        let good = completed(2);
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not there");
        ends(bad)
    };
    let usage = |usage: &str| result(r#""usage":{}"#, &format!(r#""usage":{{{usage}}}"#));
    let failure = |error: &str| ends(line(2, "run.failed", &format!(r#""error":{error}"#)));
    let invalid = [
        ("missing-completed-result", ends(line(2, "run.completed", ""))),
        (
            "wrong-result-run",
            result(
                &format!(r#""result":{{"runId":"{RUN}""#),
                &format!(r#""result":{{"runId":"{OTHER_RUN}""#),
            ),
        ),
        ("wrong-result-model", result("demo", "other")),
        ("wrong provider", result("mock", "other")),
        ("negative-usage", usage(r#""inputTokens":-1"#)),
        ("null-usage-count", usage(r#""inputTokens":null"#)),
        ("usage with a fraction", usage(r#""inputTokens":1.5"#)),
        ("usage above 2^53-1", usage(r#""inputTokens":9007199254740992"#)),
        ("null usage", result(r#""usage":{}"#, r#""usage":null"#)),
        ("invalid-text-delta", ends(line(2, "text.delta", r#""text":12"#))),
        ("failure-without-details", ends(line(2, "run.failed", r#""text":"Hello""#))),
        ("invalid-finish-reason-type", result(r#""stop""#, "{}")),
        ("unknown finish reason", result(r#""stop""#, r#""tired""#)),
        ("no steps", result(r#""steps":1"#, r#""steps":0"#)),
        ("invalid-progress-phase-type", ends(line(2, "run.progress", r#""phase":{}"#))),
        ("unknown phase", ends(line(2, "run.progress", r#""phase":"sleep""#))),
        (
            "invalid-error-outcome",
            failure(r#"{"code":"IDLE_TIMEOUT","message":"m","retryable":false,"outcome":{}}"#),
        ),
        (
            "null-error-outcome",
            failure(r#"{"code":"IDLE_TIMEOUT","message":"m","retryable":false,"outcome":null}"#),
        ),
        ("empty error code", failure(r#"{"code":"","message":"m","retryable":false}"#)),
        ("api-equivalent-cost-negative", usage(r#""apiEquivalentCostUsd":-1"#)),
        ("api-equivalent-cost-null", usage(r#""apiEquivalentCostUsd":null"#)),
        ("api-equivalent-cost-boolean", usage(r#""apiEquivalentCostUsd":true"#)),
        ("cost that overflows", usage(r#""costUsd":1e400"#)),
        ("session-stream-unrequested", result(r#""steps":1"#, r#""steps":1,"session":{"id":"x"}"#)),
        ("retrieval that was not asked for", result(r#""steps":1"#, r#""steps":1,"retrieval":{}"#)),
        ("context-null-sources", result(r#""steps":1"#, r#""steps":1,"sources":null"#)),
        ("context-null-artifacts", result(r#""steps":1"#, r#""steps":1,"artifacts":null"#)),
        ("step 0", ends(line(2, "step.started", r#""step":0"#))),
        ("usage without a step", ends(line(2, "usage.reported", r#""usage":{}"#))),
    ];
    for (row, code) in invalid {
        assert_eq!(code, "INVALID_STREAM", "{row}");
    }
    for (row, code) in [
        (
            "every usage field",
            usage(
                r#""inputTokens":1,"outputTokens":0,"cachedInputTokens":0,"reasoningTokens":9007199254740991,"costUsd":0,"apiEquivalentCostUsd":0.5,"future":null"#,
            ),
        ),
        (
            "context-valid, as far as kinds go",
            result(r#""steps":1"#, r#""steps":1,"sources":[{}],"artifacts":[{}]"#),
        ),
    ] {
        assert_eq!(code, "ok", "{row}");
    }
}

/// `future-terminal-error` and the `admission` rows: the run's own error passes through with its code.
#[test]
fn terminal_errors_pass_through() {
    for code in [
        "FUTURE_PROVIDER_CONDITION",
        "QUEUE_FULL",
        "ADMISSION_IDENTITY_REQUIRED",
        "RESOURCE_LIMIT",
        "RESOURCE_USAGE_UNKNOWN",
        "RESOURCE_ADMISSION_DENIED",
        "RESOURCE_POLICY_UNAVAILABLE",
    ] {
        let mut check = StreamCheck::new(Expectation::of(&hello()));
        check.accept(&started()).unwrap();
        let failed = line(
            2,
            "run.failed",
            &format!(r#""text":"Hello","error":{{"code":"{code}","message":"m","retryable":true}}"#),
        );
        let event = check.accept(&failed).unwrap().unwrap();
        let countersign_protocol::event::EventBody::RunFailed { error } = event.body else { panic!() };
        assert_eq!((error.code.as_str(), error.retryable), (code, true));
        check.finish().unwrap();
    }
}

fn approval_line(extra: &str) -> String {
    format!(
        r#""approval":{{"approvalId":"{APPROVAL}","runId":"{RUN}","call":{{"id":"c1","name":"write","arguments":{{"k":[1,2]}},"future":1}},"requestedAt":"2026-09-20T12:00:00.000Z","idlePolicy":"pause"{extra}}}"#
    )
}

fn resolution_line() -> String {
    format!(
        r#""resolution":{{"approvalId":"{APPROVAL}","runId":"{RUN}","callId":"c1","outcome":"approved","decidedAt":"2026-09-20T12:00:01Z","future":1}}"#
    )
}

fn reviewed() -> Vec<String> {
    vec![
        started(),
        line(2, "approval.requested", &approval_line("")),
        line(3, "approval.resolved", &resolution_line()),
        delta(4),
        completed(5),
    ]
}

#[test]
fn approvals() {
    let (types, end) = play(&paused(), &reviewed());
    assert_eq!(end, "ok", "approval-valid");
    assert_eq!(
        types,
        ["run.started", "approval.requested", "approval.resolved", "text.delta", "run.completed"]
    );
    let long = format!(r#""id":"{}""#, "x".repeat(257));
    let long_name = format!(r#""name":"{}""#, "x".repeat(65));
    for (row, at, from, to) in [
        (
            "approval-request-run-mismatch",
            1,
            format!(r#""approvalId":"{APPROVAL}","runId":"{RUN}""#),
            format!(r#""approvalId":"{APPROVAL}","runId":"{OTHER_RUN}""#),
        ),
        (
            "approval-resolution-run-mismatch",
            2,
            format!(r#""approvalId":"{APPROVAL}","runId":"{RUN}""#),
            format!(r#""approvalId":"{APPROVAL}","runId":"{OTHER_RUN}""#),
        ),
        ("approval-invalid-idle-policy", 1, r#""pause""#.into(), r#""continue""#.into()),
        ("unknown idle policy", 1, r#""pause""#.into(), r#""wait""#.into()),
        ("approval-invalid-call-arguments", 1, r#"{"k":[1,2]}"#.into(), "[]".into()),
        ("arguments that cannot be carried exactly", 1, "[1,2]".into(), "[9007199254740993]".into()),
        ("approval-invalid-tool-name", 1, r#""write""#.into(), r#""wri te""#.into()),
        ("long tool name", 1, r#""name":"write""#.into(), long_name),
        ("empty call id", 1, r#""id":"c1""#.into(), r#""id":"""#.into()),
        ("long call id", 1, r#""id":"c1""#.into(), long),
        ("approval-null-expiry", 1, r#""idlePolicy""#.into(), r#""expiresAt":null,"idlePolicy""#.into()),
        ("approval-invalid-expiry", 1, r#""idlePolicy""#.into(), r#""expiresAt":"soon","idlePolicy""#.into()),
        ("approval-invalid-outcome", 2, r#""approved""#.into(), r#""maybe""#.into()),
        ("approval-invalid-decided-at", 2, "2026-09-20T12:00:01Z".into(), "2026-02-30T12:00:01Z".into()),
        ("approval-empty-approval-id", 1, APPROVAL.into(), String::new()),
        ("empty approval id in the resolution", 2, APPROVAL.into(), String::new()),
    ] {
        let mut events = reviewed();
        let changed = events[at].replacen(&from, &to, 1);
        assert_ne!(changed, events[at], "{row} changes nothing");
        events[at] = changed;
        assert_eq!(play(&paused(), &events).1, "INVALID_STREAM", "{row}");
    }
}

/// `approval-unnegotiated`, scenario F13: what was not asked for is refused loudly, whatever it says of itself.
#[test]
fn what_was_not_negotiated_is_refused() {
    for (row, type_name, members, request) in [
        ("approval-unnegotiated", "approval.requested", approval_line(""), hello()),
        ("resolution", "approval.resolved", resolution_line(), hello()),
        ("executor-unnegotiated", "tool.execution.requested", String::from(r#""execution":{}"#), paused()),
        (
            "a batch that was not asked for",
            "approval.batch.requested",
            String::from(r#""batch":{}"#),
            paused(),
        ),
    ] {
        for optional in ["", r#","optional":true"#] {
            let events = [started(), line(2, type_name, &format!("{members}{optional}"))];
            assert_eq!(play(&request, &events).1, "UNSUPPORTED_EVENT", "{row}");
        }
    }
}

/// Design 4, `approval-digest`: whoever asked for a digest gets that of the very call (law 3); whoever did not ignores
/// the member.
#[test]
fn digests() {
    let digest = approval(r#"{"k":[1,2]}"#).call.digest();
    // The digest binds the call id too, and the example above has another.
    let own = approval_line("").replace(r#""c1""#, r#""call-1""#);
    let with = |digest: &str| own.replace(r#""idlePolicy""#, &format!(r#""digest":{digest},"idlePolicy""#));
    let asked = with_approvals(Approvals { digest: Some(true), ..Approvals::new(IdlePolicy::Pause) });
    let ends = |request, approval: &str| {
        let mut events = reviewed();
        events[1] = line(2, "approval.requested", approval);
        play(request, &events).1
    };
    assert_eq!(ends(&asked, &with(&format!("\"{digest}\""))), "ok");
    assert_eq!(ends(&asked, &own), "INVALID_STREAM", "asked for, but absent");
    let other = approval(r#"{"k":[2,1]}"#).call.digest();
    assert_eq!(ends(&asked, &with(&format!("\"{other}\""))), "INVALID_STREAM", "of another call");
    assert_eq!(ends(&asked, &with("null")), "INVALID_STREAM");
    assert_eq!(ends(&paused(), &with("null")), "ok", "an additional member");
}

/// Contract 3.1: nothing comes after the terminal event, and after a refusal nothing is accepted.
#[test]
fn after_the_end() {
    let mut check = StreamCheck::new(Expectation::of(&hello()));
    for data in base() {
        check.accept(&data).unwrap();
    }
    assert!(check.is_finished());
    assert_eq!(check.accept(&delta(4)).unwrap_err().code().as_str(), "INVALID_STREAM");
    let mut check = StreamCheck::new(Expectation::of(&hello()));
    check.accept("null").unwrap_err();
    assert_eq!(check.accept(&started()).unwrap_err().code().as_str(), "INVALID_STREAM");
    assert_eq!(check.finish().unwrap_err().code().as_str(), "INCOMPLETE_STREAM");
}

/// Contract 2.2, 7.2: whoever gave a schema gets `output`, null included; whoever did not bears one.
#[test]
fn outputs() {
    let asked = RunRequest { output_schema: Some(output("{}")), ..hello() };
    let ends = |request: &RunRequest, extra: &str| {
        play(request, &[started(), line(2, "run.completed", &result(extra))]).1
    };
    assert_eq!(ends(&asked, ""), "INVALID_STREAM");
    for extra in [r#","output":null"#, r#","output":{"n":9007199254740993}"#] {
        assert_eq!(ends(&asked, extra), "ok");
        assert_eq!(ends(&hello(), extra), "ok");
    }
    assert_eq!(ends(&asked, r#","output":{"a":1,"a":2}"#), "INVALID_STREAM");
}

fn execution(sequence: u64, execution_id: &str, call_id: &str) -> String {
    line(
        sequence,
        "tool.execution.requested",
        &format!(
            r#""execution":{{"executionId":"{execution_id}","runId":"{RUN}","call":{{"id":"{call_id}","name":"pick","arguments":{{"k":[1,2]}}}}}}"#
        ),
    )
}

fn executed() -> Vec<String> {
    vec![started(), execution(2, EXECUTION, "c1"), completed(3)]
}

/// 10.4, executor; contract 7.6: no execution is asked for twice, and at most 2,048 are.
#[test]
fn executions() {
    assert_eq!(
        play(&with_tools(), &executed()),
        (vec!["run.started", "tool.execution.requested", "run.completed"], "ok".to_owned()),
        "executor-valid"
    );
    for (row, from, to) in [
        (
            "executor-run-mismatch",
            format!(r#"","runId":"{RUN}","call""#),
            format!(r#"","runId":"{OTHER_RUN}","call""#),
        ),
        ("executor-empty-id", EXECUTION.into(), String::new()),
        ("executor-long-id", EXECUTION.into(), "e".repeat(257)),
        ("not an id that a host makes", EXECUTION.into(), EXECUTION.to_uppercase()),
        ("executor-invalid-name", r#""pick""#.into(), r#""pi ck""#.into()),
        ("executor-unknown-tool", r#""pick""#.into(), r#""other""#.into()),
        ("executor-invalid-arguments", r#"{"k":[1,2]}"#.into(), "[]".into()),
        ("executor-empty-call-id", r#""c1""#.into(), r#""""#.into()),
        ("a tool of the host", r#""pick""#.into(), r#""write""#.into()),
        // Law 3: what cannot be carried exactly is not executed.
        ("arguments that cannot be carried exactly", "[1,2]".into(), "[9007199254740993]".into()),
        ("no execution", r#""execution""#.into(), r#""other""#.into()),
    ] {
        let mut events = executed();
        let changed = events[1].replacen(&from, &to, 1);
        assert_ne!(changed, events[1], "{row} changes nothing");
        events[1] = changed;
        assert_eq!(play(&with_tools(), &events).1, "INVALID_STREAM", "{row}");
    }
    for (row, second) in [
        ("executor-duplicate-id", execution(3, EXECUTION, "c2")),
        ("executor-duplicate-call", execution(3, OTHER_RUN, "c1")),
        ("executor-duplicate-exact", execution(3, EXECUTION, "c1")),
    ] {
        let events = [started(), execution(2, EXECUTION, "c1"), second, completed(4)];
        assert_eq!(play(&with_tools(), &events).1, "INVALID_STREAM", "{row}");
    }
    let mut unselected = with_tools();
    unselected.tools.retain(|tool| tool.as_str() != "pick");
    assert_eq!(play(&unselected, &executed()).1, "INVALID_STREAM", "executor-unselected");
    // `executor-unnegotiated` stands beside the approvals' row, above.
    let many = |count: u64| {
        let one =
            |at: u64| execution(at + 1, &format!("0b1d2c3e-5a4b-4c3d-8e2f-{at:012x}"), &format!("c{at}"));
        let mut events = vec![started()];
        events.extend((1..=count).map(one));
        events.push(completed(count + 2));
        play(&with_tools(), &events).1
    };
    assert_eq!(many(2_048), "ok");
    assert_eq!(many(2_049), "INVALID_STREAM");
}
