//! An audit sink of your own: JSON lines in a file, on the disk before it says so. Then the disk is taken away, and
//! nothing runs any more.
//!
//! ```sh
//! cargo run -p custom-sink
//! ```
//!
//! `countersign_store::audit_file` does more: it chains the lines, shares syncs and sets a torn end aside.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::{ApprovalSettings, Driver, Output, ToolSpec, tool};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_providers::{Scripted, Step};

/// One JSON object a line. `None` once something failed: nothing is known about the file's end then.
struct JsonLines(Mutex<Option<File>>);

impl JsonLines {
    fn open(path: &Path) -> Result<Self, BoxError> {
        Ok(Self(Mutex::new(Some(OpenOptions::new().append(true).create(true).open(path)?))))
    }

    /// What a full disk or a lost mount looks like.
    fn fail(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl AuditSink for JsonLines {
    /// `Ok` means: it is on the disk. The step that the record stands for happens right after.
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = slot.take().ok_or("an earlier write failed")?;
        file.write_all(&line)?;
        file.sync_data()?;
        *slot = Some(file);
        Ok(())
    }

    /// A disk may take its time: `record` is then called where waiting is allowed.
    fn blocking(&self) -> bool {
        true
    }
}

/// When the sink is made to fail.
#[derive(Clone, Copy, PartialEq)]
enum Failure {
    Never,
    /// After the person was asked, before the answer can be recorded.
    BeforeTheDecision,
    /// Before the person is asked.
    BeforeTheQuestion,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit.jsonl");

    let healthy = run(&path, Failure::Never).await?;
    let lines = fs::read_to_string(&path)?;
    print!("{lines}");
    assert_eq!((healthy.asked, healthy.effects, healthy.end.as_str()), (1, 1, "run.completed"));
    let kinds = ["approval.requested", "approval.resolved", "execution.started", "execution.finished"];
    assert_eq!(lines.lines().count(), kinds.len());
    assert!(lines.lines().zip(kinds).all(|(line, kind)| line.contains(&format!(r#""type":"{kind}""#))));

    // The person said yes, but that could not be written down: nothing runs, and he is told so.
    let unrecorded = run(&path, Failure::BeforeTheDecision).await?;
    assert_eq!((unrecorded.asked, unrecorded.effects), (1, 0));
    assert_eq!(unrecorded.decision.as_deref(), Some("APPROVAL_AUDIT_FAILED"));
    assert_eq!(unrecorded.end, "APPROVAL_AUDIT_FAILED");

    // A question that cannot be recorded is not asked.
    let unasked = run(&path, Failure::BeforeTheQuestion).await?;
    assert_eq!((unasked.asked, unasked.effects, unasked.decision), (0, 0, None));
    assert_eq!(unasked.end, "APPROVAL_AUDIT_FAILED");
    println!("With a sink that fails nothing ran.");
    Ok(())
}

#[derive(Default)]
struct Story {
    asked: usize,
    effects: usize,
    /// The code that a refused decision got.
    decision: Option<String>,
    /// The last event's type, or the error's code.
    end: String,
}

/// One run in which the person approves whatever he is asked.
async fn run(path: &Path, failure: Failure) -> Result<Story, BoxError> {
    let sink = Arc::new(JsonLines::open(path)?);
    let effects = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&effects);
    let spec = ToolSpec::new("publish", "Publishes the page.", r#"{"type":"object"}"#)?.requires_approval();
    let publish = tool(spec, move |_input, _context| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(Output::from_text("null")?) }
    });
    let steps = [Step::call("call-1", "publish", r#"{"page":"home"}"#), Step::text("Published.")];
    let driver = Driver::builder()
        .provider(Arc::new(Scripted::builder("mock").models(["demo"]).default_script(steps).build()?))
        .tool(publish)
        .approvals(ApprovalSettings { sink: Some(sink.clone()), ..ApprovalSettings::default() })
        .build()?;

    let mut request = RunRequest::new(ProviderId::parse("mock")?, ModelId::parse("demo")?, "Publish.");
    request.tools = vec![ToolName::parse("publish")?];
    request.approvals = Some(Approvals::new(IdlePolicy::Pause));
    let mut events = driver.stream(request, Principal::local())?;
    let mut story = Story::default();
    if failure == Failure::BeforeTheQuestion {
        sink.fail();
    }
    while let Some(event) = events.next().await {
        story.end = event.type_name().to_owned();
        match event.body {
            EventBody::ApprovalRequested { approval, .. } => {
                story.asked += 1;
                if failure == Failure::BeforeTheDecision {
                    sink.fail();
                }
                let decision = DecisionRequest::of(&approval, Decision::Approve);
                let answer = driver.decide_approval(&decision, &Principal::local()).await;
                story.decision = answer.err().map(|error| error.code().to_owned());
            }
            EventBody::RunFailed { error } => story.end = error.code.to_string(),
            _ => {}
        }
    }
    story.effects = effects.load(Ordering::SeqCst);
    Ok(story)
}
