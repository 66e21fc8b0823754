//! Application tools at the client (contract 7.6, 10.1, 10.4): reports, their receipts, and the tool box against a host
//! of the test's own making. Law 1: whatever becomes of an answer, it is sent once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use countersign_approval_core::ids::ToolName;
use countersign_approval_core::json::{Exact, Gate};
use countersign_client::transport::{BodyStream, Transport, TransportError};
use countersign_client::{Client, Error, Misuse, ToolBox, ToolContext, ToolStream};
use countersign_protocol::request::{ApplicationTool, RunRequest};
use countersign_protocol::tool_execution::{ExecutionEnd, ExecutionIdentity, ExecutionResult, ReportStatus};
use futures_util::stream;
use http::{Request, Response};
use serde_json::json;
use tokio::sync::mpsc;

use crate::events::*;
use crate::server::{JSON_HEADERS, Server};

fn identity() -> ExecutionIdentity {
    ExecutionIdentity { execution_id: EXECUTION.into(), run_id: RUN.into(), call_id: "call-1".into() }
}

fn result_of(output: &str) -> ExecutionResult {
    let output = Exact::parse_with(output, Gate::OUTPUT).unwrap();
    ExecutionResult { identity: identity(), end: ExecutionEnd::Output(output) }
}

fn report(status: &str) -> String {
    format!(r#"{{"executionId":"{EXECUTION}","runId":"{RUN}","callId":"call-1","status":"{status}"}}"#)
}

// 10.4, executor-tool-result-* and executor-tool-progress-*.
#[tokio::test]
async fn receipts() {
    for (group, status) in [("result", "accepted"), ("progress", "progress")] {
        let good = report(status);
        for (row, body, expected) in [
            ("valid", good.clone(), "ok"),
            ("additional members", changed(&good, "{", r#"{"future":null,"#), "ok"),
            ("runId", changed(&good, RUN, OTHER_RUN), "INVALID_RESPONSE"),
            ("executionId", changed(&good, EXECUTION, OTHER_RUN), "INVALID_RESPONSE"),
            ("callId", changed(&good, "call-1", "call-2"), "INVALID_RESPONSE"),
            (
                "status",
                report(if status == "accepted" { "progress" } else { "accepted" }),
                "INVALID_RESPONSE",
            ),
            ("an unknown status", report("done"), "INVALID_RESPONSE"),
            ("no status", changed(&good, "status", "other"), "INVALID_RESPONSE"),
            ("a member twice", changed(&good, "{", r#"{"status":"accepted","#), "INVALID_RESPONSE"),
        ] {
            let server = Server::answering("200 OK", JSON_HEADERS, body).await;
            let client = server.client();
            let receipt = match group {
                "result" => client.submit_result(&result_of("1")).await,
                _ => client.report_progress(&identity()).await,
            };
            match receipt {
                Ok(receipt) => assert_eq!((expected, receipt.run_id.as_str()), ("ok", RUN), "{group} {row}"),
                Err(error) => {
                    assert_eq!(code(&error), expected, "{group} {row}");
                    assert!(error.is_uncertain());
                }
            }
        }
    }
}

// 1.1: paths and bodies; law 3: the output as it is spelled.
#[tokio::test]
async fn what_is_sent() {
    let server = Server::answering("404 X", JSON_HEADERS, "").await;
    let client = server.client();
    let _ = client.report_progress(&identity()).await;
    let _ = client.submit_result(&result_of(r#"{ "n": 1.0, "id": 12345678901234567890 }"#)).await;
    let _ = client.submit_result(&ExecutionResult { identity: identity(), end: ExecutionEnd::Failed }).await;
    let ids = format!(r#""executionId":"{EXECUTION}","runId":"{RUN}","callId":"call-1""#);
    let heard = server.heard();
    for (request, (path, body)) in heard.iter().zip([
        ("progress", format!("{{{ids}}}")),
        ("results", format!(r#"{{{ids},"output":{{"n":1.0,"id":12345678901234567890}}}}"#)),
        ("results", format!(r#"{{{ids},"error":"APPLICATION_TOOL_FAILED"}}"#)),
    ]) {
        let (head, sent) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("POST /v1/tool-executions/{path} HTTP/1.1\r\n")), "{head}");
        assert_eq!(sent, body);
    }
    assert_eq!(heard.len(), 3);
}

struct Shared(Arc<Host>);

/// A host that sends what the test puts into its stream, remembers reports, and answers each as it is told.
struct Host {
    events: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    reports: Mutex<Vec<(String, String)>>,
    answer: Answer,
    asked: Mutex<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Receipt,
    Refusal(&'static str),
    Nothing,
}

#[async_trait]
impl Transport for Shared {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<BodyStream>, TransportError> {
        let body = String::from_utf8(request.body().to_vec()).unwrap();
        let path = request.uri().path().to_owned();
        if path == "/v1/runs" {
            *self.0.asked.lock().unwrap() = body;
            let events = self.0.events.lock().unwrap().take().unwrap();
            let chunks = stream::unfold(events, |mut events| async {
                let event = events.recv().await?;
                Some((Ok(Bytes::from(format!("data: {event}\n\n"))), events))
            });
            let answer = Response::builder().header("content-type", "text/event-stream");
            return Ok(answer.body(Box::pin(chunks) as BodyStream).unwrap());
        }
        let kind = path.rsplit('/').next().unwrap().to_owned();
        let status = if kind == "progress" { ReportStatus::Progress } else { ReportStatus::Accepted };
        self.0.reports.lock().unwrap().push((kind, body.clone()));
        let (code, text) = match self.0.answer {
            Answer::Receipt => {
                let mut ids: serde_json::Value = serde_json::from_str(&body).unwrap();
                ids.as_object_mut().unwrap().retain(|name, _| name.ends_with("Id"));
                ids["status"] = serde_json::to_value(status).unwrap();
                (200, ids.to_string())
            }
            Answer::Refusal(code) => {
                (400, json!({"error": {"code": code, "message": "m", "retryable": false}}).to_string())
            }
            Answer::Nothing => return Err(TransportError::Broken("the connection broke".into())),
        };
        let body: BodyStream = Box::pin(stream::iter([Ok(Bytes::from(text))]));
        Ok(Response::builder().status(code).body(body).unwrap())
    }
}

/// A run of a tool box with one tool, `pick`, that does this.
struct Run {
    host: Arc<Host>,
    events: mpsc::UnboundedSender<String>,
    stream: ToolStream,
}

impl Run {
    async fn of(tools: ToolBox, answer: Answer) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let host = Arc::new(Host {
            events: Mutex::new(Some(receiver)),
            reports: Mutex::default(),
            answer,
            asked: Mutex::default(),
        });
        let client =
            Client::builder("http://localhost", "t".into()).transport(Arc::new(Shared(Arc::clone(&host))));
        let stream = tools.stream(&client.build().unwrap(), &hello()).await.unwrap();
        let run = Self { host, events, stream };
        run.send(started());
        run
    }

    fn send(&self, event: String) {
        self.events.send(event).unwrap();
    }

    fn reports(&self) -> Vec<(String, String)> {
        self.host.reports.lock().unwrap().clone()
    }

    /// The next item in short.
    async fn next(&mut self) -> String {
        match self.stream.next().await {
            None => "end".into(),
            Some(Ok(event)) => event.type_name().into(),
            Some(Err(Error::ToolFailed { call_id, source })) => format!("failed {call_id}: {source}"),
            Some(Err(error @ Error::ToolReport { .. })) => {
                assert!(error.is_uncertain());
                format!("report {}", code(&error))
            }
            Some(Err(error)) => format!("error {}", code(&error)),
        }
    }
}

fn pick() -> ApplicationTool {
    ApplicationTool::new("pick", "Picks.", r#"{"type":"object"}"#).unwrap()
}

fn teal() -> ToolBox {
    ToolBox::new().with(pick(), |call, _| async move {
        Ok(json!({"k": call.arguments.decode::<serde_json::Value>()?}))
    })
}

// 7.6: the request defines and selects the tools; each call is executed and answered once.
#[tokio::test(start_paused = true)]
async fn a_function_is_called_and_answers_once() {
    let mut run = Run::of(teal(), Answer::Receipt).await;
    let asked = RunRequest::decode(&run.host.asked.lock().unwrap()).unwrap();
    assert_eq!(asked.tools, [ToolName::parse("pick").unwrap()]);
    assert_eq!(asked.application_tools, [pick()]);
    assert_eq!(run.next().await, "run.started");
    for (sequence, id) in [(2, EXECUTION), (3, OTHER_RUN)] {
        run.send(execution(sequence, id, &format!("call-{sequence}")));
        assert_eq!(run.next().await, "tool.execution.requested");
    }
    run.send(completed(4));
    assert_eq!(run.next().await, "run.completed", "the stream comes first");
    assert_eq!(run.reports(), [], "and ends the work that nobody waits for");
    assert_eq!(run.next().await, "end");

    let mut run = Run::of(teal(), Answer::Receipt).await;
    run.send(execution(2, EXECUTION, "call-1"));
    assert_eq!(
        (run.next().await, run.next().await),
        ("run.started".into(), "tool.execution.requested".into())
    );
    // The function works while the next event is waited for.
    let silence = tokio::time::timeout(std::time::Duration::from_secs(9), run.next()).await;
    assert!(silence.is_err(), "an answer that was taken is no item: {silence:?}");
    run.send(completed(3));
    assert_eq!((run.next().await, run.next().await), ("run.completed".into(), "end".into()));
    let ids = format!(r#""executionId":"{EXECUTION}","runId":"{RUN}","callId":"call-1""#);
    assert_eq!(run.reports(), [("results".into(), format!(r#"{{{ids},"output":{{"k":{{"k":[1,2]}}}}}}"#))]);
}

// 7.6, law 8: a function that fails, panics or gives what cannot be sent answers a failure, without the reason.
#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_is_one_failure() {
    let fails: [(ToolBox, &str); 4] = [
        (
            ToolBox::new().with(pick(), |_, _| async { Err::<(), _>("private: no colour".into()) }),
            "failed call-1: private: no colour",
        ),
        (
            ToolBox::new().with(pick(), |_, _| async {
                panic!("private");
                #[allow(unreachable_code, reason = "it gives the type")]
                Ok(())
            }),
            "failed call-1: the function panicked",
        ),
        (
            ToolBox::new().with(pick(), |_, _| async { Ok("x".repeat(127_999)) }),
            "failed call-1: the output has 128001 bytes; at most 128000 are taken",
        ),
        (
            ToolBox::new().with(pick(), |_, _| async { Ok(json!({"__proto__": 1})) }),
            "failed call-1: the key `__proto__` at /__proto__; choose another key, as JavaScript readers drop this one",
        ),
    ];
    for (tools, expected) in fails {
        let mut run = Run::of(tools, Answer::Receipt).await;
        run.send(execution(2, EXECUTION, "call-1"));
        let _ = (run.next().await, run.next().await);
        assert_eq!(run.next().await, expected);
        // The stream goes on, and tells how the run ends.
        run.send(event(3, "run.failed", r#""error":{"code":"TOOL_OUTCOME_UNCERTAIN","message":"m","retryable":false,"outcome":"uncertain"}"#));
        assert_eq!((run.next().await, run.next().await), ("run.failed".into(), "end".into()));
        let [(kind, body)] = &run.reports()[..] else { panic!("{:?}", run.reports()) };
        assert_eq!(kind, "results");
        assert!(
            body.ends_with(r#","error":"APPLICATION_TOOL_FAILED"}"#) && !body.contains("private"),
            "{body}"
        );
    }
}

// Law 1: an answer whose receipt is lost, or that is refused, is not sent again; the stream goes on to tell the end.
#[tokio::test(start_paused = true)]
async fn a_lost_receipt_is_told_and_not_mended() {
    for (answer, expected) in [
        (Answer::Nothing, "report none"),
        (Answer::Refusal("TOOL_EXECUTION_NOT_FOUND"), "report TOOL_EXECUTION_NOT_FOUND"),
        (Answer::Refusal("INVALID_TOOL_OUTPUT"), "report INVALID_TOOL_OUTPUT"),
    ] {
        let mut run = Run::of(teal(), answer).await;
        run.send(execution(2, EXECUTION, "call-1"));
        let _ = (run.next().await, run.next().await);
        assert_eq!(run.next().await, expected);
        run.send(completed(3));
        assert_eq!((run.next().await, run.next().await), ("run.completed".into(), "end".into()));
        assert_eq!(run.reports().len(), 1);
    }
}

// 10.4, executor-duplicate-*: a host that asks twice is refused, and the function is not called again.
#[tokio::test(start_paused = true)]
async fn a_repeated_execution_calls_nothing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let counting = ToolBox::new().with(pick(), move |_, _| {
        seen.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    let mut run = Run::of(counting, Answer::Receipt).await;
    run.send(execution(2, EXECUTION, "call-1"));
    let _ = (run.next().await, run.next().await);
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), run.next()).await.is_err());
    run.send(execution(3, EXECUTION, "call-1"));
    assert_eq!((run.next().await, run.next().await), ("error INVALID_STREAM".into(), "end".into()));
    assert_eq!((calls.load(Ordering::SeqCst), run.reports().len()), (1, 1));
}

// Law 5: when the stream ends, or is dropped, the function ends where it stands, and nothing is answered.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_ends_the_function() {
    struct Gone(mpsc::UnboundedSender<()>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    for end in ["terminal", "broken", "dropped"] {
        let (sender, mut gone) = mpsc::unbounded_channel();
        let hangs = ToolBox::new().with(pick(), move |_, context: ToolContext| {
            let guard = Gone(sender.clone());
            async move {
                context.report_progress().await?;
                std::future::pending::<()>().await;
                drop(guard);
                Ok(())
            }
        });
        let mut run = Run::of(hangs, Answer::Receipt).await;
        run.send(execution(2, EXECUTION, "call-1"));
        let _ = (run.next().await, run.next().await);
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), run.next()).await.is_err());
        assert!(gone.try_recv().is_err(), "{end}: it is at work");
        let (host, reports) = (Arc::clone(&run.host), run.reports().len());
        assert_eq!(reports, 1, "its progress");
        match end {
            "terminal" => {
                let error = r#""error":{"code":"IDLE_TIMEOUT","message":"m","retryable":false,"outcome":"uncertain"}"#;
                run.send(event(3, "run.cancelled", error));
                assert_eq!(run.next().await, "run.cancelled");
            }
            "broken" => {
                run.send("{".into());
                assert_eq!(run.next().await, "error INVALID_STREAM");
            }
            _ => drop(run),
        }
        gone.try_recv().unwrap();
        assert_eq!(host.reports.lock().unwrap().len(), 1, "{end}: nothing was answered");
    }
}

// 10.1: what cannot be right is not sent.
#[tokio::test]
async fn a_request_with_tools_of_its_own_is_not_for_a_tool_box() {
    let server = Server::answering("200 OK", JSON_HEADERS, "").await;
    let request = RunRequest { application_tools: vec![pick()], ..hello() };
    let error = teal().stream(&server.client(), &request).await.unwrap_err();
    assert!(matches!(error, Error::Misuse(Misuse::ForeignTools)), "{error:?}");
    let error = server.client().run(&request).await.unwrap_err();
    assert_eq!(code(&error), "TOOL_STREAM_REQUIRED");
    assert!(server.heard().is_empty());
}
