//! `countersign run`: one run at a host, its reviews answered here (design 7).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use countersign_approval_core::decision::MAX_REASON_CHARS;
use countersign_approval_core::ids::{InvalidName, ModelId, ProviderId, ToolName};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_client::transport::TransportError;
use countersign_client::{Client, Error as ClientError};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::request::{Approvals, OnDeny, RunRequest};
use countersign_protocol::version::feature;
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::error::{Error, Status};
use crate::follow::{Decide, Reviewer, follow, is_short};
use crate::signals::Interrupts;
use crate::view::{Format, View};

/// More than any token that a host looks at (contract 1.2).
const MAX_TOKEN_FILE: u64 = 65_536;

/// Start a run at a host, show its reviews and send the decisions
///
/// Ctrl-C cancels the run. RUST_LOG switches a log on standard error on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host, such as http://127.0.0.1:7433
    #[arg(long)]
    url: String,
    /// The file that holds the token
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The provider, as the host names it
    #[arg(long, value_parser = ProviderId::parse)]
    provider: ProviderId,
    /// The model
    #[arg(long, value_parser = ModelId::parse)]
    model: ModelId,
    /// The tools that the agent may propose to call
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = tool_name)]
    tools: Vec<ToolName>,
    /// Answer every review so, without asking a person
    #[arg(long, value_name = "ANSWER")]
    decide: Option<Decide>,
    /// With --decide, why: the audit file has it, and with --on-deny continue the agent is told of a denial
    #[arg(long, value_name = "TEXT", requires = "decide")]
    reason: Option<String>,
    /// What a denied or expired review does to the run
    #[arg(long, value_enum, default_value_t = AfterDenial::Fail)]
    on_deny: AfterDenial,
    /// Print each event as a line of JSON; a failure is the last line, {"error":{...}}
    #[arg(long)]
    json: bool,
    /// What the run's idle limit does while a person decides
    #[arg(long, value_enum, default_value_t = Idle::Pause)]
    idle_policy: Idle,
    /// After how many milliseconds a review expires; without it, never
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_147_483_647))]
    expires_after_ms: Option<u32>,
    /// Instructions for the agent
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// What to say to the agent
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Idle {
    /// It stands still
    Pause,
    /// It goes on
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AfterDenial {
    /// It fails
    Fail,
    /// It goes on, and the agent is told; the host must offer denial-feedback
    Continue,
}

fn tool_name(text: &str) -> Result<ToolName, InvalidName> {
    // People write a blank behind a comma.
    ToolName::parse(text.trim())
}

pub(crate) fn run(args: &Args) -> Result<Status, Error> {
    let format = if args.json { Format::Json } else { Format::Human };
    let request = request(args)?;
    let client = Client::builder(&args.url, token(&args.token_file)?).build()?;
    let reviewer = match args.decide {
        // Without tools nothing can be proposed, so nobody need be there. A host that asks all the same gets a no.
        None if request.tools.is_empty() && !format.can_ask() => Reviewer::Fixed(Decision::Cancel, None),
        decide => match Reviewer::choose(decide, format)? {
            Reviewer::Fixed(decision, _) => Reviewer::Fixed(decision, reason(args)?),
            Reviewer::Person => Reviewer::Person,
        },
    };
    crate::log_if_asked();
    crate::block_on(async {
        let mut view = View::new(format);
        let mut interrupts = Interrupts::new()?;
        let ended = tokio::select! {
            biased;
            // Everything that is open is dropped: the host sees the stream close and cancels the run.
            () = interrupts.next() => None,
            ended = talk(&client, &args.url, request, reviewer, &mut view) => Some(ended),
        };
        conclude(ended, &mut view)
    })
}

/// Follows the run. Without reviews at the host it may have no tools: whoever starts it here expects to be asked, or
/// that `--decide` answers.
async fn talk(
    client: &Client,
    url: &str,
    mut request: RunRequest,
    reviewer: Reviewer,
    view: &mut View,
) -> Result<crate::follow::Ended, Error> {
    let protocol = client.protocol().await.map_err(|source| match source {
        ClientError::Transport(TransportError::Connect(_)) => Error::Unreachable { url: url.into(), source },
        other => other.into(),
    });
    let offered = protocol?.features;
    let explains = matches!(&reviewer, Reviewer::Fixed(_, Some(_)));
    if explains && !offered.iter().any(|offered| offered == feature::DENIAL_FEEDBACK) {
        // It would refuse the decision, when the agent has long begun (law 7).
        let told =
            "--reason: this host takes no reason with a decision (denial-feedback); nothing was started";
        return Err(Error::Usage(told.into()));
    }
    if !offered.iter().any(|offered| offered == feature::INTERACTIVE_APPROVALS) {
        if !request.tools.is_empty() {
            return Err(Error::NoReviews);
        }
        request.approvals = None;
    }
    follow(client, &request, reviewer, view).await
}

/// Says what is left to say.
fn conclude(ended: Option<Result<crate::follow::Ended, Error>>, view: &mut View) -> Result<Status, Error> {
    let unwritable = || Error::io("cannot write the events");
    match ended {
        None => {
            view.interrupted().map_err(unwritable())?;
            let error = ErrorInfo::new(Code::CANCELLED).with_message("Interrupted; the run is cancelled.");
            view.last_line(&error).map_err(unwritable())?;
            Ok(Status::Cancelled)
        }
        Some(Ok(ended)) => {
            if let Some(error) = ended.error() {
                view.last_line(error).map_err(unwritable())?;
            }
            Ok(ended.status())
        }
        Some(Err(error)) => {
            // Where the events cannot be written, this cannot either, and standard error says so.
            let _ = view.last_line(&error.info());
            Err(error)
        }
    }
}

fn request(args: &Args) -> Result<RunRequest, Error> {
    let mut request = RunRequest::new(args.provider.clone(), args.model.clone(), args.text.clone());
    request.instructions.clone_from(&args.instructions);
    request.tools.clone_from(&args.tools);
    let idle = match args.idle_policy {
        Idle::Pause => IdlePolicy::Pause,
        Idle::Continue => IdlePolicy::Continue,
    };
    let mut approvals = Approvals::new(idle);
    approvals.expires_after_ms = args.expires_after_ms;
    approvals.on_deny = match args.on_deny {
        AfterDenial::Fail => None,
        AfterDenial::Continue => Some(OnDeny::Continue),
    };
    request.approvals = Some(approvals);
    // The host's own rules, before anything is sent.
    let text = serde_json::to_string(&request).map_err(|error| Error::Usage(error.to_string()))?;
    RunRequest::decode(&text)
        .map_err(|error| Error::Usage(format!("the run cannot be asked for: {error}")))?;
    Ok(request)
}

fn reason(args: &Args) -> Result<Option<String>, Error> {
    match &args.reason {
        Some(reason) if !is_short(reason) => {
            Err(Error::Usage(format!("--reason: more than {MAX_REASON_CHARS} characters")))
        }
        reason => Ok(reason.clone()),
    }
}

fn token(path: &Path) -> Result<SecretString, Error> {
    let wrong =
        |reason: &dyn std::fmt::Display| Error::Usage(format!("--token-file {}: {reason}", path.display()));
    let mut text = Zeroizing::new(String::new());
    File::open(path)
        .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
        .map_err(|error| wrong(&error))?;
    match text.trim() {
        "" => Err(wrong(&"it is empty")),
        token => Ok(SecretString::from(token)),
    }
}
