//! A model proposes a brand direction; a person decides; only then is it saved, here in the memory of this program.
//!
//! ```sh
//! cargo run -p embedded-review
//! cargo run -p embedded-review -- --decide deny
//! cargo run -p embedded-review -- --base-url http://127.0.0.1:8080/v1 --model MODEL --key-env MY_KEY
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its reader")]

mod terminal;

use std::env;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::provider::Provider;
use countersign_driver::{ApprovalSettings, Driver, Output, Tool, ToolSpec, tool};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_providers::{Delivery, OpenAiChat, OpenAiChatConfig, Scripted, Step};
use url::Url;

use crate::terminal::{ask, decision, visible};

type Error = Box<dyn std::error::Error + Send + Sync>;
/// What the application knows. A real one has a database here.
type Saved = Arc<Mutex<Vec<String>>>;

const PROPOSAL: &str = r#"{"name":"Clay","direction":"Warm, plain, made by hand."}"#;
const SCHEMA: &str = r#"{"type":"object","required":["name","direction"],"additionalProperties":false,
    "properties":{"name":{"type":"string"},"direction":{"type":"string"}}}"#;

#[derive(Parser)]
struct Args {
    /// Answers every review in place of a person: approve, deny or cancel
    #[arg(long, value_parser = decision)]
    decide: Option<Decision>,
    /// A Chat Completions server; without one the model is a script
    #[arg(long, requires = "model")]
    base_url: Option<Url>,
    /// The server's model
    #[arg(long, requires = "base_url", value_parser = ModelId::parse)]
    model: Option<ModelId>,
    /// The environment variable that holds the server's key
    #[arg(long, requires = "base_url")]
    key_env: Option<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let args = Args::parse();
    let answer = args.decide;
    if answer.is_none() && !io::stdin().is_terminal() {
        // Silence is no approval.
        eprintln!("There is no terminal to ask in: say the answer with --decide approve, deny or cancel.");
        return Ok(ExitCode::from(2));
    }
    let scripted = args.base_url.is_none();
    let model = args.model.clone().map_or_else(|| ModelId::parse("demo"), Ok)?;
    let saved = Saved::default();
    let driver = Driver::builder()
        .provider(provider(args)?)
        .tool(save_proposal(Arc::clone(&saved))?)
        // Reviews are on because this line is here. The example `custom-sink` adds a record of them.
        .approvals(ApprovalSettings::default())
        .build()?;

    let mut request =
        RunRequest::new(ProviderId::parse("brand")?, model, "Propose a brand direction for a pottery.");
    request.instructions =
        Some("Save your proposal with the tool save_proposal, then say one sentence.".into());
    request.tools = vec![ToolName::parse("save_proposal")?];
    request.approvals = Some(Approvals::new(IdlePolicy::Pause));

    // The embedder says who this is; a host takes it from the token. Dropping `events` would cancel the run.
    let person = Principal::local();
    let mut events = driver.stream(request, person.clone())?;
    let (mut approved, mut end) = (Vec::new(), String::new());
    while let Some(event) = events.next().await {
        println!("  {}", event.type_name());
        match event.body {
            EventBody::ApprovalRequested { approval, .. } => {
                let question = Arc::clone(&approval);
                let decision = match answer {
                    Some(decision) => decision,
                    // Waiting for a person blocks this thread and nothing else.
                    None => tokio::task::spawn_blocking(move || ask(&question)).await??,
                };
                driver.decide_approval(&DecisionRequest::of(&approval, decision), &person).await?;
                if decision == Decision::Approve {
                    approved.push(approval.call.call().arguments.text().to_owned());
                }
            }
            EventBody::RunCompleted { result } => end = format!("completed: {}", visible(&result.text)),
            EventBody::RunFailed { error } | EventBody::RunCancelled { error } => end = error.to_string(),
            _ => {}
        }
    }

    let saved = saved.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("The run ended: {end}\nSaved: {}", visible(&format!("{saved:?}")));
    // The point of it all: what was approved was saved, each once, to the letter, and nothing else was.
    assert_eq!(saved, approved);
    assert_eq!(driver.pending_approvals(), 0);
    if scripted {
        let (expected, proposals) = match answer {
            Some(Decision::Deny) => ("APPROVAL_DENIED", 0),
            Some(Decision::Cancel) => ("CANCELLED", 0),
            Some(Decision::Approve) => ("completed", 1),
            None => ("", approved.len()),
        };
        assert!(end.starts_with(expected) && saved.len() == proposals, "{end}");
    }
    Ok(ExitCode::SUCCESS)
}

fn save_proposal(saved: Saved) -> Result<Arc<dyn Tool>, Error> {
    let spec = ToolSpec::new("save_proposal", "Saves a brand direction.", SCHEMA)?.requires_approval();
    Ok(tool(spec, move |input, _context| {
        let saved = Arc::clone(&saved);
        async move {
            // Approval freezes no document: a real tool checks here that the document is still the one that was
            // reviewed, and that `context.subject` may still change it.
            saved.lock().unwrap_or_else(PoisonError::into_inner).push(input.text().to_owned());
            Ok(Output::from_text(r#"{"saved":true}"#)?)
        }
    }))
}

fn provider(args: Args) -> Result<Arc<dyn Provider>, Error> {
    let (Some(base_url), Some(model)) = (args.base_url, args.model) else {
        let steps = [Step::call("call-1", "save_proposal", PROPOSAL), Step::text("Clay it is.")];
        return Ok(Arc::new(Scripted::builder("brand").models(["demo"]).default_script(steps).build()?));
    };
    Ok(Arc::new(OpenAiChat::new(OpenAiChatConfig {
        id: ProviderId::parse("brand")?,
        name: None,
        base_url,
        api_key: args.key_env.map(env::var).transpose()?.map(Into::into),
        models: vec![model],
        delivery: Delivery::Streamed,
    })?))
}
