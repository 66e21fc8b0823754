//! A host over real HTTP on this machine. One credential starts a run; another one, of the same person, decides.
//! On the way: what somebody else's token, a token without the grant, and an altered call get.
//!
//! ```sh
//! cargo run -p remote-review
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::sync::{Arc, Mutex, PoisonError};

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::{ApprovalRequest, Decision, IdlePolicy, Outcome};
use countersign_client::Client;
use countersign_driver::{ApprovalSettings, Driver, Output, ToolSpec, tool};
use countersign_host::{Options, Token, serve};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_providers::{Scripted, Step};
use tokio::sync::mpsc;

type Error = Box<dyn std::error::Error + Send + Sync>;

// Real tokens are random and come from a file or the environment; `countersign init` makes such files.
const RUNNER: &str = "runner-runner-runner-runner-runner-0";
const REVIEWER: &str = "reviewer-reviewer-reviewer-reviewer";
const STRANGER: &str = "stranger-stranger-stranger-stranger";
const ARGUMENTS: &str = r#"{"to":"ann","amount":100}"#;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let paid = Arc::new(Mutex::new(Vec::new()));
    let host = serve(
        driver(Arc::clone(&paid))?,
        Options {
            port: 0, // The system chooses; `host.url()` says which.
            tokens: vec![
                // May propose payments, and may decide none.
                token(RUNNER, "user-42", &["pay"], &[]),
                // May decide payments of user-42, and may start none. A person's browser or phone would hold it.
                token(REVIEWER, "user-42", &[], &["pay"]),
                // May do everything, but is somebody else.
                token(STRANGER, "user-7", &["pay"], &["pay"]),
            ],
            ..Options::default()
        },
    )
    .await?;
    println!("listening on {}", host.url());

    // The reviewer is a task of its own: in your product it is another program, which learns of the question from the
    // one that reads the stream. Decisions go to the host that runs the stream.
    let (questions, inbox) = mpsc::channel(1);
    let reviewer = tokio::spawn(review(host.url().to_owned(), inbox));

    let mut request = RunRequest::new(ProviderId::parse("mock")?, ModelId::parse("demo")?, "Pay Ann.");
    request.tools = vec![ToolName::parse("pay")?];
    // Nobody waits for ever: a question that nobody answered for a minute fails the run.
    request.approvals =
        Some(Approvals { expires_after_ms: Some(60_000), ..Approvals::new(IdlePolicy::Pause) });
    let mut events = client(host.url(), RUNNER)?.stream(&request).await?;
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let event = event?;
        println!("  {}", event.type_name());
        seen.push(event.type_name());
        if let EventBody::ApprovalRequested { approval, .. } = event.body {
            questions.send(approval).await?;
        }
    }
    drop(questions);
    reviewer.await??;
    host.close().await;

    let paid = paid.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("paid: {paid:?}");
    // One payment, of exactly what was reviewed.
    assert_eq!(paid, [ARGUMENTS]);
    assert_eq!(seen.last(), Some(&"run.completed"));
    Ok(())
}

/// Decides each call that comes. A person would look at `approval.call` first.
async fn review(url: String, mut inbox: mpsc::Receiver<Arc<ApprovalRequest>>) -> Result<(), Error> {
    let reviewer = client(&url, REVIEWER)?;
    while let Some(approval) = inbox.recv().await {
        // The decision carries the reviewed call back, so that the host can see that both mean the same one.
        let decision = DecisionRequest::of(&approval, Decision::Approve);

        // Somebody else gets the answer of an approval that does not exist.
        refused(&client(&url, STRANGER)?, &decision, "APPROVAL_NOT_FOUND").await?;
        // The right person with a credential that may not decide.
        refused(&client(&url, RUNNER)?, &decision, "FORBIDDEN").await?;
        // One changed argument. Nothing of it is ever executed, and the question stays open.
        let mut altered = decision.clone();
        altered.call.arguments = Exact::parse(r#"{"to":"ann","amount":1000}"#)?;
        refused(&reviewer, &altered, "APPROVAL_MISMATCH").await?;

        let receipt = reviewer.decide_approval(&decision).await?;
        println!("    {:?} at {}", receipt.outcome, receipt.decided_at);
        assert_eq!(receipt.outcome, Outcome::Approved);

        // An approval is used up by one decision.
        refused(&reviewer, &decision, "APPROVAL_NOT_FOUND").await?;
    }
    Ok(())
}

async fn refused(client: &Client, decision: &DecisionRequest, code: &str) -> Result<(), Error> {
    let error = client.decide_approval(decision).await.err().ok_or("the decision was taken")?;
    println!("    refused: {error}");
    assert_eq!(error.code().ok_or("no code")?.as_str(), code);
    Ok(())
}

fn client(url: &str, token: &str) -> Result<Client, Error> {
    Ok(Client::builder(url, token.into()).build()?)
}

fn token(secret: &str, subject: &str, tools: &[&str], approve_tools: &[&str]) -> Token {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    Token {
        token: secret.into(),
        subject: subject.into(),
        providers: names(&["mock"]),
        tools: names(tools),
        approve_tools: names(approve_tools),
        application_tools: Vec::new(),
    }
}

fn driver(paid: Arc<Mutex<Vec<String>>>) -> Result<Driver, Error> {
    let spec = ToolSpec::new("pay", "Pays somebody.", r#"{"type":"object"}"#)?.requires_approval();
    let pay = tool(spec, move |input, _context| {
        let paid = Arc::clone(&paid);
        async move {
            paid.lock().unwrap_or_else(PoisonError::into_inner).push(input.text().to_owned());
            Ok(Output::from_text("null")?)
        }
    });
    let steps = [Step::call("call-1", "pay", ARGUMENTS), Step::text("Ann was paid.")];
    let model = Scripted::builder("mock").models(["demo"]).default_script(steps).build()?;
    Ok(Driver::builder()
        .provider(Arc::new(model))
        .tool(pay)
        .approvals(ApprovalSettings::default())
        .build()?)
}
