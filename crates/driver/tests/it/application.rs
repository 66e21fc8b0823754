//! Contract 7.6: tools that the application executes, through the driver; law 8.

use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::{Subject, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::operation::{DEFAULT_MAX_RECORD_BYTES, MemoryOperationStore, OperationSettings};
use countersign_driver::{ApplicationToolSettings, Builder, Driver, EventStream, Review, Scope};
use countersign_protocol::code::ErrorInfo;
use countersign_protocol::event::{EventBody, ToolExecution};
use countersign_protocol::request::{ApplicationTool, Approvals, RunRequest};
use countersign_protocol::tool_execution::{ExecutionIdentity, ExecutionResult, ReportStatus};
use countersign_testkit::{Answer, RecordingSink};

use crate::support::{Bench, Step, calls, question, request, rest, says, words};

const AUTOMATIC: ApplicationToolSettings =
    ApplicationToolSettings { review: Review::NotRequired, max_pending: 1_000 };

fn picks() -> Step {
    calls(&[("call-1", "pick", r#"{"k":[1,2],"n":1.0}"#)])
}

fn bench(settings: ApplicationToolSettings, script: impl IntoIterator<Item = Step>) -> Bench {
    adapted(script, |builder| builder.application_tools(settings))
}

fn adapted(script: impl IntoIterator<Item = Step>, adapt: impl FnOnce(Builder) -> Builder) -> Bench {
    Bench::with(script, RecordingSink::new(), |builder, settings| adapt(builder.approvals(settings)))
}

fn definition() -> ApplicationTool {
    ApplicationTool::new("pick", "Picks.", r#"{"type":"object"}"#).unwrap()
}

/// A run with `pick` and without reviews.
fn asks() -> RunRequest {
    let mut asked = RunRequest { application_tools: vec![definition()], ..request() };
    asked.tools.push(ToolName::parse("pick").unwrap());
    asked
}

fn with_reviews(asked: RunRequest) -> RunRequest {
    RunRequest { approvals: Some(Approvals::new(IdlePolicy::Pause)), ..asked }
}

/// Reads until the application is asked, and approves whatever a person is asked meanwhile.
async fn execution(bench: &Bench, stream: &mut EventStream) -> ToolExecution {
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        match &event.body {
            EventBody::ApprovalRequested { approval, .. } => {
                bench.decide(approval, Decision::Approve).await.unwrap();
            }
            EventBody::ToolExecutionRequested { execution } => return execution.clone(),
            _ => {}
        }
        told.push(event);
    }
    panic!("the application was not asked: {:?}", words(&told));
}

fn output(text: &str) -> Exact {
    Exact::parse_with(text, Gate::OUTPUT).unwrap()
}

/// A report in short: its status, or its code with what it says of the outcome.
async fn submit(driver: &Driver, result: &ExecutionResult) -> String {
    match driver.submit_result(result, &Principal::local()).await {
        Ok(receipt) => {
            assert_eq!(receipt, result.identity.receipt(ReportStatus::Accepted));
            "accepted".into()
        }
        Err(error) => short(&error),
    }
}

fn short(error: &ErrorInfo) -> String {
    format!("{}{}", error.code, if error.outcome.is_some() { " uncertain" } else { "" })
}

// Contract 3.2, 7.6: no review is needed if nobody asks for one; the call is the proposed one, to the token.
#[tokio::test(start_paused = true)]
async fn an_application_executes_and_the_run_goes_on() {
    let bench = bench(AUTOMATIC, [picks(), says("done")]);
    let mut stream = bench.stream(asks());
    let execution = execution(&bench, &mut stream).await;
    assert_eq!((execution.call.id.as_str(), execution.call.name.as_str()), ("call-1", "pick"));
    assert_eq!(execution.call.arguments.text(), r#"{"k":[1,2],"n":1.0}"#);
    assert_eq!(bench.driver.pending_executions(), 1);
    // Not exact as a number of arguments, and an output all the same.
    let result = ExecutionResult::output(&execution, output(r#"{"id":12345678901234567890,"x":1.0}"#));
    assert_eq!(submit(&bench.driver, &result).await, "accepted");
    assert_eq!(bench.driver.pending_executions(), 0);
    assert_eq!(
        words(&rest(&mut stream).await),
        [
            r#"tool.completed {"id":12345678901234567890,"x":1.0}"#,
            "step.started 2",
            "usage.reported 2",
            "text.delta done",
            "run.completed done"
        ]
    );
    assert_eq!(*bench.model.told.lock().unwrap(), [r#"{"id":12345678901234567890,"x":1.0}"#]);
    assert_eq!(bench.sink.kinds(), [""; 0], "nobody reviewed it, so there is nothing to prove");
    // Single use; law 1.
    assert_eq!(submit(&bench.driver, &result).await, "TOOL_EXECUTION_NOT_FOUND");
}

// Contract 3.4, "approve, application tool"; design 4, the records around an effect.
#[tokio::test(start_paused = true)]
async fn approve_then_execute() {
    let bench = bench(ApplicationToolSettings::default(), [picks(), says("done")]);
    let mut stream = bench.stream(with_reviews(asks()));
    let approval = question(&mut stream).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    let mut told = vec![stream.next().await.unwrap()];
    assert_eq!(bench.driver.pending_executions(), 0, "nothing is asked before the outcome was taken");
    told.push(stream.next().await.unwrap());
    let EventBody::ToolExecutionRequested { execution } = &told[1].body else { panic!("{told:?}") };
    assert_eq!(execution.call, *approval.call.call());
    assert_eq!(bench.sink.kinds(), ["approval.requested", "approval.resolved approved", "execution.started"]);
    submit(&bench.driver, &ExecutionResult::output(execution, output("null"))).await;
    told.extend(rest(&mut stream).await);
    assert_eq!(
        words(&told),
        [
            "approval.resolved approved",
            "tool.execution.requested",
            "tool.completed null",
            "step.started 2",
            "usage.reported 2",
            "text.delta done",
            "run.completed done"
        ]
    );
    assert_eq!(bench.sink.kinds().last().unwrap(), "execution.finished completed");
}

// Contract 3.4: what a person refuses is not handed over.
#[tokio::test(start_paused = true)]
async fn deny_and_nothing_is_asked() {
    let bench = bench(ApplicationToolSettings::default(), [picks()]);
    let events = bench.play(with_reviews(asks()), Decision::Deny).await;
    let told = words(&events);
    assert_eq!(told[told.len() - 2..], ["approval.resolved denied", "run.failed APPROVAL_DENIED"]);
    assert!(!told.iter().any(|word| word == "tool.execution.requested"));
    assert_eq!(bench.driver.pending_executions(), 0);
}

// Contract 7.6: reviewed if the host, the definition or the token's grant asks for it; nobody else can opt out for them.
#[tokio::test(start_paused = true)]
async fn who_asks_for_a_review() {
    for host in [Review::Required, Review::NotRequired] {
        for definition in [None, Some(true), Some(false)] {
            for unreviewed in [Allow::All, Allow::none(), Allow::only(["pick"]), Allow::only(["other"])] {
                let expected =
                    host == Review::Required || definition == Some(true) || !unreviewed.allows("pick");
                let bench = bench(ApplicationToolSettings { review: host, ..AUTOMATIC }, [picks()]);
                let mut asked = with_reviews(asks());
                asked.application_tools[0].requires_approval = definition;
                let grants = Grants { unreviewed_application_tools: unreviewed.clone(), ..Grants::all() };
                let principal = Principal { subject: Subject::local(), grants };
                let mut stream = bench.driver.stream(asked, principal).unwrap();
                let reviewed = loop {
                    match stream.next().await.unwrap().body {
                        EventBody::ApprovalRequested { .. } => break true,
                        EventBody::ToolExecutionRequested { .. } => break false,
                        _ => {}
                    }
                };
                assert_eq!(reviewed, expected, "{host:?} {definition:?} {unreviewed:?}");
            }
        }
    }
    // Without a way to approve there is no execution (contract 4.3).
    let bench = bench(ApplicationToolSettings::default(), [picks()]);
    let told = words(&rest(&mut bench.stream(asks())).await);
    assert_eq!(told.last().unwrap(), "run.failed APPROVAL_REQUIRED");
    assert!(!told.iter().any(|word| word == "tool.execution.requested"));
}

// Contract 2.1, rows 11 to 13: each check comes before all that stand behind it.
#[tokio::test(start_paused = true)]
async fn the_order_of_checks_on_definitions() {
    let bench = bench(AUTOMATIC, []);
    fn tool(name: &str, schema: &str) -> ApplicationTool {
        ApplicationTool::new(name, "d", schema).unwrap()
    }
    let changes: Vec<(&str, fn(&mut RunRequest))> = vec![
        ("INVALID_REQUEST", |r| r.tools.push(ToolName::parse("write").unwrap())),
        ("TOOL_DEFINITION_CONFLICT", |r| r.application_tools.push(tool("pick", "{}"))),
        ("TOOL_DEFINITION_CONFLICT", |r| r.application_tools.push(tool("write", "{}"))),
        ("INVALID_REQUEST", |r| r.application_tools.push(tool("unlisted", "{}"))),
        ("TOOL_DEFINITION_LIMIT", |r| {
            r.application_tools[0].input_schema =
                output(&format!(r#"{{"title":"{}"}}"#, "x".repeat(128_000)));
        }),
        ("INVALID_SCHEMA", |r| {
            r.application_tools[0].output_schema = Some(output(r#"{"type":"thing"}"#));
        }),
        ("UNKNOWN_TOOL", |r| r.tools.push(ToolName::parse("nobody").unwrap())),
        ("APPROVAL_POLICY", |r| {
            let mut approvals = Approvals::new(IdlePolicy::Pause);
            approvals.batch = Some(true);
            r.approvals = Some(approvals);
        }),
    ];
    for first in 0..changes.len() {
        let mut asked = asks();
        for (_, change) in &changes[first..] {
            change(&mut asked);
        }
        let error = bench.driver.prepare(asked).unwrap_err();
        assert_eq!(error.code.as_str(), changes[first].0, "check {first}: {}", error.message);
    }
    let _ = bench.driver.prepare(asks()).unwrap();
    // Off: before every other check of the row.
    let mut asked = asks();
    asked.application_tools.push(tool("pick", "{}"));
    let error = Bench::new([]).driver.prepare(asked).unwrap_err();
    assert_eq!(error.code.as_str(), "APPLICATION_TOOLS_UNAVAILABLE");
    assert!(!Bench::new([]).driver.features().contains(&"application-tools"));
    assert_eq!(bench.driver.features(), ["application-tools", "interactive-approvals"]);
}

// Contract 2.1, row 12: 128,000 bytes of one definition pass, one more does not. The bound is for each.
#[tokio::test(start_paused = true)]
async fn the_bound_on_a_definition_at_its_edge() {
    let bench = bench(AUTOMATIC, []);
    let of_size = |name: &str, bytes: usize| {
        let mut tool = ApplicationTool::new(name, "d", "{}").unwrap();
        let rest = tool.compact_len() + r#""$comment":"""#.len();
        tool.input_schema = output(&format!(r#"{{"$comment":"{}"}}"#, "x".repeat(bytes - rest)));
        assert_eq!(tool.compact_len(), bytes);
        tool
    };
    let check = |sizes: &[usize]| {
        let names: Vec<_> = (0..sizes.len()).map(|at| format!("t{at}")).collect();
        let mut asked = asks();
        asked.tools = names.iter().map(|name| ToolName::parse(name).unwrap()).collect();
        asked.application_tools = names.iter().zip(sizes).map(|(name, size)| of_size(name, *size)).collect();
        bench.driver.prepare(asked).map_or_else(|error| error.code.to_string(), |_| "ok".to_owned())
    };
    assert_eq!(check(&[128_000]), "ok");
    assert_eq!(check(&[128_001]), "TOOL_DEFINITION_LIMIT");
    assert_eq!(check(&[128_000, 128_000]), "ok");
    assert_eq!(check(&[9_000, 128_001]), "TOOL_DEFINITION_LIMIT");
}

// Contract 2.1, row 16: application tools have a list of their own.
#[tokio::test(start_paused = true)]
async fn grants() {
    let bench = bench(AUTOMATIC, []);
    let code = |tools: &[&str], application_tools: &[&str]| {
        let grants = Grants {
            tools: Allow::only(tools.iter().copied()),
            application_tools: Allow::only(application_tools.iter().copied()),
            ..Grants::all()
        };
        let prepared = bench.driver.prepare(asks()).unwrap();
        prepared.authorize(&grants).map_or_else(|error| error.code.to_string(), |()| "ok".to_owned())
    };
    assert_eq!(code(&["write", "lookup"], &["pick"]), "ok");
    assert_eq!(code(&["write", "lookup", "pick"], &[]), "FORBIDDEN");
    assert_eq!(code(&["write"], &["pick", "lookup"]), "FORBIDDEN");
}

// Contract 2.1, row 18: application tools first.
#[tokio::test(start_paused = true)]
async fn a_buffered_run_cannot_ask() {
    let bench = bench(AUTOMATIC, []);
    for asked in [asks(), with_reviews(asks())] {
        let error = bench.driver.run(asked, Principal::local()).await.unwrap_err();
        assert_eq!(error.code.as_str(), "TOOL_STREAM_REQUIRED");
    }
    assert_eq!(bench.model.turns.load(std::sync::atomic::Ordering::SeqCst), 0);
}

// Contract 7.3: the arguments are judged by the definition's schema, before anything is shown.
#[tokio::test(start_paused = true)]
async fn arguments_are_checked_before_anything_is_shown() {
    let bench = bench(AUTOMATIC, [picks()]);
    let mut asked = asks();
    asked.application_tools[0].input_schema = output(r#"{"required":["colour"]}"#);
    let told = words(&rest(&mut bench.stream(asked)).await);
    assert_eq!(told.last().unwrap(), "run.failed INVALID_TOOL_ARGUMENTS");
    assert!(!told.iter().any(|word| word.starts_with("tool.called")));
}

// Contract 7.6, the order of the checks on a report, by one who may report nothing, then less and less wrong.
#[tokio::test(start_paused = true)]
async fn a_refused_report_changes_nothing() {
    let bench = bench(AUTOMATIC, [picks(), says("done")]);
    let mut stream = bench.stream(asks());
    let execution = execution(&bench, &mut stream).await;
    let good = ExecutionIdentity::of(&execution);
    let wrong_call = ExecutionIdentity { call_id: "call-2".into(), ..good.clone() };
    let wrong_run = ExecutionIdentity { run_id: execution.execution_id.to_string(), ..good.clone() };
    let unknown = ExecutionIdentity { execution_id: execution.run_id.to_string(), ..wrong_call.clone() };
    let who = |subject: &str, providers: &[&str], tools: &[&str]| Principal {
        subject: Subject::parse(subject).unwrap(),
        grants: Grants {
            providers: Allow::only(providers.iter().copied()),
            application_tools: Allow::only(tools.iter().copied()),
            ..Grants::all()
        },
    };
    let mut other_subject = None;
    for (identity, caller, expected) in [
        (&unknown, Principal::local(), "TOOL_EXECUTION_NOT_FOUND"),
        (&good, who("bob", &["mock"], &["pick"]), "TOOL_EXECUTION_NOT_FOUND"),
        (&wrong_call, who("bob", &[], &[]), "TOOL_EXECUTION_NOT_FOUND"),
        (&wrong_call, who("local", &[], &["pick"]), "FORBIDDEN"),
        (&wrong_call, who("local", &["mock"], &[]), "FORBIDDEN"),
        (&wrong_call, who("local", &["mock"], &["pick"]), "TOOL_EXECUTION_MISMATCH"),
        (&wrong_run, Principal::local(), "TOOL_EXECUTION_MISMATCH"),
    ] {
        // What else is wrong with the result does not show.
        let mut result = ExecutionResult::output(&execution, output(&format!("\"{}\"", "x".repeat(128_000))));
        result.identity = identity.clone();
        let refused = bench.driver.submit_result(&result, &caller).await.unwrap_err();
        assert_eq!(short(&refused), expected);
        assert_eq!(bench.driver.report_progress(identity, &caller).unwrap_err(), refused);
        // Law 4: another's execution and an unknown one are the same answer, word for word.
        if expected == "TOOL_EXECUTION_NOT_FOUND" {
            assert_eq!(*other_subject.get_or_insert_with(|| refused.clone()), refused);
        }
    }
    assert_eq!(bench.driver.pending_executions(), 1);
    assert_eq!(submit(&bench.driver, &ExecutionResult::output(&execution, output("1"))).await, "accepted");
    assert_eq!(words(&rest(&mut stream).await).last().unwrap(), "run.completed done");
}

// Contract 7.6 and 5.4: the execution is over, and nobody can tell what it did.
#[tokio::test(start_paused = true)]
async fn failures_and_unusable_outputs_are_uncertain() {
    let large = |bytes: usize| output(&format!("\"{}\"", "x".repeat(bytes - 2)));
    let cases: [(Option<Exact>, &str); 6] = [
        (None, "accepted"),
        (Some(large(128_001)), "TOOL_OUTPUT_LIMIT uncertain"),
        (Some(output(r#"{"colour":7}"#)), "INVALID_TOOL_OUTPUT uncertain"),
        (Some(output("{}")), "INVALID_TOOL_OUTPUT uncertain"),
        // Size comes first.
        (
            Some(output(&format!(r#"{{"colour":7,"x":"{}"}}"#, "x".repeat(128_000)))),
            "TOOL_OUTPUT_LIMIT uncertain",
        ),
        (Some(output("null")), "INVALID_TOOL_OUTPUT uncertain"),
    ];
    for (given, expected) in cases {
        let bench = bench(ApplicationToolSettings::default(), [picks(), says("done")]);
        let mut asked = with_reviews(asks());
        let schema = r#"{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}"#;
        asked.application_tools[0].output_schema = Some(output(schema));
        let mut stream = bench.stream(asked);
        let execution = execution(&bench, &mut stream).await;
        let result = match given {
            Some(output) => ExecutionResult::output(&execution, output),
            None => ExecutionResult::failed(&execution),
        };
        assert_eq!(submit(&bench.driver, &result).await, expected);
        // Both consume the ticket: a better output comes too late.
        let better = ExecutionResult::output(&execution, output(r#"{"colour":"teal"}"#));
        assert_eq!(submit(&bench.driver, &better).await, "TOOL_EXECUTION_NOT_FOUND");
        let events = rest(&mut stream).await;
        assert_eq!(words(&events), ["run.failed TOOL_OUTCOME_UNCERTAIN uncertain"]);
        assert_eq!(bench.sink.kinds().last().unwrap(), "execution.finished uncertain");
        assert_eq!(bench.driver.pending_executions(), 0);
    }
    // At the edge of the bound, and with a good shape.
    let bench = bench(AUTOMATIC, [picks(), says("done")]);
    let mut stream = bench.stream(asks());
    let execution = execution(&bench, &mut stream).await;
    assert_eq!(submit(&bench.driver, &ExecutionResult::output(&execution, large(128_000))).await, "accepted");
    assert_eq!(words(&rest(&mut stream).await).last().unwrap(), "run.completed done");
}

// Contract 5.4: the window starts when `tool.execution.requested` is handed over, and not before; 8: the idle clock runs.
#[tokio::test(start_paused = true)]
async fn the_uncertain_window() {
    let idle = || RunRequest { idle_timeout_ms: Some(50), ..asks() };
    let bench = || bench(AUTOMATIC, [picks(), says("done")]);
    // The consumer stops reading behind `tool.called`: nothing was handed over.
    let before = bench();
    let mut stream = before.stream(idle());
    while !matches!(stream.next().await.unwrap().body, EventBody::ToolCalled { .. }) {}
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(words(&rest(&mut stream).await), ["run.cancelled IDLE_TIMEOUT retryable"]);
    assert_eq!(before.driver.pending_executions(), 0);
    // It was taken, and nobody answers.
    let after = bench();
    let mut stream = after.stream(idle());
    let asked = execution(&after, &mut stream).await;
    let tail = words(&rest(&mut stream).await);
    assert_eq!(tail, ["run.cancelled IDLE_TIMEOUT uncertain"]);
    assert_eq!(after.driver.pending_executions(), 0);
    let late = ExecutionResult::output(&asked, output("1"));
    assert_eq!(submit(&after.driver, &late).await, "TOOL_EXECUTION_NOT_FOUND");
    // An answer that was taken and never told is as uncertain (decision 0005).
    let untold = bench();
    let mut stream = untold.stream(asks());
    let asked = execution(&untold, &mut stream).await;
    assert_eq!(submit(&untold.driver, &ExecutionResult::output(&asked, output("1"))).await, "accepted");
    stream.cancel();
    assert_eq!(words(&rest(&mut stream).await), ["run.cancelled CANCELLED uncertain"]);
}

// Law 5: every end of a run ends its execution and frees its capacity at once.
#[tokio::test(start_paused = true)]
async fn nothing_pending_outlives_its_run() {
    let scope = Scope::default();
    let token = tokio_util::sync::CancellationToken::new();
    let closing = Scope::new(token.clone());
    for end in ["cancel", "drop", "shutdown"] {
        let bench = bench(ApplicationToolSettings { max_pending: 1, ..AUTOMATIC }, [picks(), picks()]);
        let prepared = bench.driver.prepare(asks()).unwrap();
        let mut stream =
            prepared.stream(&Principal::local(), if end == "shutdown" { &closing } else { &scope });
        let asked = execution(&bench, &mut stream).await;
        // Another run finds no room (contract 7.6, `maxPending`).
        let told = words(&rest(&mut bench.stream(asks())).await);
        assert_eq!(told.last().unwrap(), "run.failed TOOL_EXECUTOR_CAPACITY retryable", "{end}");
        assert!(!told.iter().any(|word| word == "tool.execution.requested"));
        match end {
            "cancel" => stream.cancel(),
            "shutdown" => token.cancel(),
            _ => {}
        }
        let identity = ExecutionIdentity::of(&asked);
        if end == "drop" {
            drop(stream);
        } else {
            // The run has yet to notice, and the execution is gone already for whoever reports.
            let refused = bench.driver.report_progress(&identity, &Principal::local()).unwrap_err();
            assert_eq!(short(&refused), "TOOL_EXECUTION_NOT_FOUND", "{end}");
            assert_eq!(words(&rest(&mut stream).await), ["run.cancelled CANCELLED uncertain"], "{end}");
        }
        scope.finished().await;
        closing.finished().await;
        assert_eq!(bench.driver.pending_executions(), 0, "{end}");
        let late = ExecutionResult::output(&asked, output("1"));
        assert_eq!(submit(&bench.driver, &late).await, "TOOL_EXECUTION_NOT_FOUND", "{end}");
    }
}

// Contract 7.6 and 4.6: reviewed or not, a call of an application tool is bounded; capacity is checked before size.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_too_large_is_not_handed_over() {
    let size = |bytes: usize| {
        let empty = r#"{"arguments":{"x":""},"id":"call-1","name":"pick"}"#.len();
        format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - empty))
    };
    for (bytes, asked, expected) in [
        (128_000, asks(), "tool.execution.requested"),
        (128_001, asks(), "run.failed INVALID_TOOL_CALL"),
        (128_001, with_reviews(asks()), "run.failed INVALID_TOOL_CALL"),
    ] {
        let reviewed = asked.approvals.is_some();
        let settings = if reviewed { ApplicationToolSettings::default() } else { AUTOMATIC };
        let bench = bench(settings, [calls(&[("call-1", "pick", &size(bytes))])]);
        let mut stream = bench.stream(asked);
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            told.push(event);
            if words(&told).last().unwrap() == expected {
                break;
            }
        }
        let told = words(&told);
        assert_eq!(told.last().unwrap(), expected);
        assert_eq!(told[told.len() - 2], "tool.called call-1");
    }
}

// Contract 7.6, 8: progress restarts the idle clock each time, and is shown once a second.
#[tokio::test(start_paused = true)]
async fn progress_keeps_a_run_alive() {
    let bench = bench(AUTOMATIC, [picks(), says("done")]);
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(500), ..asks() });
    let execution = execution(&bench, &mut stream).await;
    let identity = ExecutionIdentity::of(&execution);
    let driver = bench.driver.clone();
    let application = tokio::spawn(async move {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(400)).await;
            let receipt = driver.report_progress(&identity, &Principal::local()).unwrap();
            assert_eq!(receipt, identity.receipt(ReportStatus::Progress));
        }
        submit(&driver, &ExecutionResult::output(&execution, output("7"))).await
    });
    let told = words(&rest(&mut stream).await);
    assert_eq!(application.await.unwrap(), "accepted");
    let shown = told.iter().take_while(|word| *word == "run.progress").count();
    assert!((1..=5).contains(&shown), "4 s of work, one at once and one a second: {told:?}");
    assert_eq!(told[shown..][..2], ["tool.completed 7", "step.started 2"]);
    assert_eq!(told.last().unwrap(), "run.completed done");
}

// Law 2: without the record nothing is handed over; without the second one the run says that it does not know.
#[tokio::test(start_paused = true)]
async fn a_failing_sink() {
    for (kind, expected) in [
        ("execution.started", "run.failed APPROVAL_AUDIT_FAILED"),
        ("execution.finished", "run.failed APPROVAL_AUDIT_FAILED uncertain"),
    ] {
        let bench = bench(ApplicationToolSettings::default(), [picks(), says("done")]);
        bench.sink.answer_to(kind, Answer::Refuse);
        let mut stream = bench.stream(with_reviews(asks()));
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            match &event.body {
                EventBody::ApprovalRequested { approval, .. } => {
                    bench.decide(approval, Decision::Approve).await.unwrap();
                }
                EventBody::ToolExecutionRequested { execution } => {
                    submit(&bench.driver, &ExecutionResult::output(execution, output("1"))).await;
                }
                _ => {}
            }
            told.push(event);
        }
        let told = words(&told);
        assert_eq!(told.last().unwrap(), expected);
        let asked = told.iter().any(|word| word == "tool.execution.requested");
        assert_eq!(asked, kind == "execution.finished");
        assert_eq!(bench.driver.pending_executions(), 0, "its capacity is free");
    }
}

// Design 4, "The loop is pulled": a consumer that reads ahead is not handed an execution ahead.
#[tokio::test(start_paused = true)]
async fn an_execution_is_never_anticipated() {
    let bench = bench(AUTOMATIC, [picks(), says("done")]);
    let mut stream = bench.stream(asks());
    stream.read_ahead(8);
    let mut told = Vec::new();
    loop {
        let event = stream.next().await.unwrap();
        let called = matches!(event.body, EventBody::ToolCalled { .. });
        told.push(event);
        if called {
            break;
        }
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(stream.next_ready().is_none());
    let execution = execution(&bench, &mut stream).await;
    submit(&bench.driver, &ExecutionResult::failed(&execution)).await;
    assert_eq!(words(&rest(&mut stream).await), ["run.failed TOOL_OUTCOME_UNCERTAIN uncertain"]);
}

// Contract 3.2, 7.2: calls are served one after the other, whoever executes them.
#[tokio::test(start_paused = true)]
async fn host_and_application_tools_take_turns() {
    let step = calls(&[("c1", "pick", "{}"), ("c2", "lookup", "{}"), ("c3", "pick", "{}")]);
    let bench = bench(AUTOMATIC, [step, says("done")]);
    let mut stream = bench.stream(asks());
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let EventBody::ToolExecutionRequested { execution } = &event.body {
            assert_eq!(bench.driver.pending_executions(), 1);
            let name = format!("\"{}\"", execution.call.id);
            submit(&bench.driver, &ExecutionResult::output(execution, output(&name))).await;
        }
        told.push(event);
    }
    let told = words(&told);
    let tools: Vec<_> = told.iter().filter(|word| word.starts_with("tool.")).collect();
    assert_eq!(
        tools,
        [
            "tool.called c1",
            "tool.execution.requested",
            "tool.completed \"c1\"",
            "tool.called c2",
            "tool.completed [1,2]",
            "tool.called c3",
            "tool.execution.requested",
            "tool.completed \"c3\"",
        ]
    );
    assert_eq!(told.last().unwrap(), "run.completed done");
}

// Law 9: a bound of nothing is a mistake, told when the driver is built.
#[tokio::test(start_paused = true)]
async fn settings_are_checked() {
    let provider = Bench::new([]).model;
    let none = ApplicationToolSettings { max_pending: 0, ..AUTOMATIC };
    let error = Driver::builder().provider(provider).application_tools(none).build().unwrap_err();
    assert!(error.to_string().contains("application_tools.max_pending"), "{error}");
}

// Contract 4.10, 7.6, 9: a repeated request hands no execution over, and asks nobody; one that was cut off while the
// application worked is uncertain, whatever the application reports later.
#[tokio::test(start_paused = true)]
async fn a_key_hands_an_execution_over_once() {
    let store = Arc::new(MemoryOperationStore::default());
    let keyed = |key: &str| RunRequest { idempotency_key: Some(key.into()), ..with_reviews(asks()) };
    let bench = adapted([picks(), says("done"), picks()], |builder| {
        let operations = OperationSettings { store, max_record_bytes: DEFAULT_MAX_RECORD_BYTES };
        builder.application_tools(ApplicationToolSettings::default()).operations(operations)
    });
    let mut stream = bench.stream(keyed("one"));
    let first = execution(&bench, &mut stream).await;
    let report = ExecutionResult::output(&first, output(r#"{"n":1.0}"#));
    assert_eq!(submit(&bench.driver, &report).await, "accepted");
    rest(&mut stream).await;
    assert_eq!(
        words(&rest(&mut bench.stream(keyed("one"))).await),
        [
            "run.started",
            "step.started 1",
            "usage.reported 1",
            "text.delta I propose",
            "tool.called call-1",
            r#"tool.completed {"n":1.0}"#,
            "step.started 2",
            "usage.reported 2",
            "text.delta done",
            "run.completed done"
        ]
    );
    assert_eq!(bench.driver.pending_executions(), 0);

    let mut stream = bench.stream(keyed("two"));
    let second = execution(&bench, &mut stream).await;
    drop(stream);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        submit(&bench.driver, &ExecutionResult::output(&second, output("1"))).await,
        "TOOL_EXECUTION_NOT_FOUND"
    );
    let told = words(&rest(&mut bench.stream(keyed("two"))).await);
    assert!(told.last().unwrap().contains("OPERATION_UNCERTAIN"), "{told:?}");
    assert!(!told.iter().any(|event| event.contains("requested")), "{told:?}");
    assert_eq!(bench.driver.pending_executions(), 0);
}
