//! `countersign demo`: host, scripted agent and client in one process over real HTTP on loopback (design 7).

use std::fs::{self, OpenOptions};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anstream::AutoStream;
use anstyle::Style;
use countersign_approval_core::audit::AuditSink;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::IdlePolicy;
use countersign_client::Client;
use countersign_driver::system::SystemClock;
use countersign_driver::{ApprovalSettings, Driver, Output, Tool, ToolSpec, tool};
use countersign_host::{Options, Token, serve};
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_providers::{Scripted, Step};
use countersign_store::audit_file::AuditFile;
use secrecy::SecretString;
use tempfile::TempDir;

use crate::error::{Error, Status};
use crate::follow::{Decide, Ended, Reviewer, follow};
use crate::init::secret;
use crate::signals::Interrupts;
use crate::view::{Format, View};
use crate::{audit, review};

const PROVIDER: &str = "scripted";
const MODEL: &str = "demo";
const TOOL: &str = "save_proposal";
const INPUT: &str = "Propose a brand direction for a studio that makes bowls from old glass.";
const ARGUMENTS: &str = r##"{
  "title": "Second Light",
  "summary": "Glass that had a life before. Warm, plain words; the maker's hand stays visible.\nNo green leaves, no globes: the material tells it.",
  "palette": ["#1F3A3D", "#D9C7A3", "#F4F1EA"],
  "revision": 1
}"##;
const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "title": {"type": "string"},
    "summary": {"type": "string"},
    "palette": {"type": "array", "items": {"type": "string"}},
    "revision": {"type": "integer"}
  },
  "required": ["title", "summary"],
  "additionalProperties": false
}"#;
const HEADING: Style = Style::new().bold();

/// See it work: an agent proposes, you answer, and exactly that happens
///
/// A host, a scripted agent and a client in one process, over real HTTP on this machine; no network, no key.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Answer so, without asking a person
    #[arg(long, value_name = "ANSWER")]
    decide: Option<Decide>,
}

pub(crate) fn demo(args: &Args) -> Result<Status, Error> {
    let reviewer = Reviewer::choose(args.decide, Format::Human)?;
    let folder = tempfile::Builder::new()
        .prefix("countersign-demo-")
        .tempdir()
        .map_err(Error::io("cannot use a temporary folder"))?;
    let stage = Stage {
        effect: folder.path().join("proposals.jsonl"),
        audit: folder.path().join("audit.jsonl"),
        folder,
    };
    crate::block_on(stage.play(reviewer))
}

/// The folder of one demo. It is removed at the end, whatever that is but a KILL.
struct Stage {
    effect: PathBuf,
    audit: PathBuf,
    folder: TempDir,
}

impl Stage {
    async fn play(self, reviewer: Reviewer) -> Result<Status, Error> {
        let mut interrupts = Interrupts::with_hangup()?;
        let (audit, _) = AuditFile::open(&self.audit, Arc::new(SystemClock::new()))?;
        let audit = Arc::new(audit);
        let token = secret()?;
        let driver = self.driver(Arc::<AuditFile>::clone(&audit))?;
        let host = serve(driver, options(&token)).await?;
        let mut out = AutoStream::auto(stdout());
        say(&mut out, HEADING, &format!("A host listens on {}. A person asks the agent:", host.url()))?;
        say(&mut out, Style::new(), &format!("  {INPUT}"))?;
        writeln!(out).map_err(show_failed())?;

        let client = Client::builder(host.url(), SecretString::from(token.as_str())).build()?;
        let mut view = View::new(Format::Human);
        let request = request()?;
        let ended = tokio::select! {
            biased;
            () = interrupts.next() => None,
            ended = follow(&client, &request, reviewer, &mut view) => Some(ended?),
        };
        if ended.is_none() {
            view.interrupted().map_err(show_failed())?;
        }
        // What the run still has to record is recorded when the host has ended.
        host.close().await;
        self.show(&mut out, &audit)?;
        Ok(ended.as_ref().map_or(Status::Cancelled, Ended::status))
    }

    fn driver(&self, sink: Arc<dyn AuditSink>) -> Result<Driver, Error> {
        let agent = Scripted::builder(PROVIDER)
            .models([MODEL])
            .default_script([
                Step::deltas([
                    "I looked at the studio's work. ",
                    "I would call the direction Second Light; ",
                    "may I save it?",
                ])
                .and_call("call-1", TOOL, ARGUMENTS),
                Step::text("It is saved."),
            ])
            .build()
            .map_err(internal)?;
        let settings = ApprovalSettings { sink: Some(sink), ..ApprovalSettings::default() };
        Driver::builder()
            .provider(Arc::new(agent))
            .tool(save_proposal(&self.effect)?)
            .approvals(settings)
            .build()
            .map_err(internal)
    }

    /// What is left of it all: the effect, and the record.
    fn show(&self, out: &mut impl Write, audit: &AuditFile) -> Result<(), Error> {
        writeln!(out, "\n{HEADING}The effect{HEADING:#}").map_err(show_failed())?;
        match fs::read_to_string(&self.effect) {
            Ok(saved) => {
                let (file, count) = (self.effect.display(), saved.lines().count());
                say(out, Style::new(), &format!("{file} holds {count} proposal:"))?;
                for line in saved.lines() {
                    writeln!(out, "  {}", review::inline(line)).map_err(show_failed())?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                writeln!(out, "None: nothing was saved.").map_err(show_failed())?;
            }
            Err(error) => return Err(show_failed()(error)),
        }
        writeln!(out, "\n{HEADING}The record{HEADING:#}").map_err(show_failed())?;
        audit::show(out, &self.audit, None, review::Screen::of(stdout()))?;
        audit::report(out, &self.audit, Some(audit.head().into()))?;
        let folder = self.folder.path().display();
        writeln!(out).map_err(show_failed())?;
        say(out, Style::new(), &format!("Both files were in {folder}, which is removed now."))
    }
}

/// Words of ours, broken between words in a window.
fn say(out: &mut impl Write, style: Style, text: &str) -> Result<(), Error> {
    for line in review::Screen::of(stdout()).wrap(text) {
        writeln!(out, "{style}{line}{style:#}").map_err(show_failed())?;
    }
    Ok(())
}

/// Appends what it gets to a file: an effect that can be counted.
fn save_proposal(effect: &Path) -> Result<Arc<dyn Tool>, Error> {
    let spec = ToolSpec::new(TOOL, "Saves a proposed brand direction.", SCHEMA)
        .map_err(internal)?
        .requires_approval();
    let effect = effect.to_owned();
    Ok(tool(spec, move |input, _| {
        let effect = effect.clone();
        async move {
            let mut file = OpenOptions::new().create(true).append(true).open(effect)?;
            file.write_all(format!("{}\n", input.text()).as_bytes())?;
            file.sync_all()?;
            Ok(Output::from_text(r#"{"saved":true}"#)?)
        }
    }))
}

fn options(token: &str) -> Options {
    Options {
        port: 0,
        tokens: vec![Token {
            token: SecretString::from(token),
            subject: "you".into(),
            providers: vec![PROVIDER.into()],
            tools: vec![TOOL.into()],
            approve_tools: vec![TOOL.into()],
            application_tools: Vec::new(),
        }],
        ..Options::default()
    }
}

fn request() -> Result<RunRequest, Error> {
    let provider = ProviderId::parse(PROVIDER).map_err(internal)?;
    let mut request = RunRequest::new(provider, ModelId::parse(MODEL).map_err(internal)?, INPUT);
    request.tools = vec![ToolName::parse(TOOL).map_err(internal)?];
    request.approvals = Some(Approvals::new(IdlePolicy::Pause));
    Ok(request)
}

/// The demo's own constants are wrong; the tests find that.
fn internal(error: impl std::fmt::Display) -> Error {
    Error::Usage(format!("the demo is broken: {error}"))
}

fn show_failed() -> impl FnOnce(io::Error) -> Error {
    Error::io("cannot show the demo")
}
