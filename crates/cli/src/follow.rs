//! Follows one run and gives its reviews to whoever answers them.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::review::{ApprovalRequest, Decision, Resolution};
use countersign_client::{Client, Error as ClientError};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::RunRequest;
use tokio::time::sleep;

use crate::error::{Error, Status};
use crate::review::{Extent, Prompt, Reply};
use crate::view::{Format, View};

/// How long a decision whose receipt was lost may take to show in the run, where no person can look after it.
const LOST_RECEIPT: Duration = Duration::from_secs(5);

/// `--decide`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Decide {
    /// Run exactly the proposed call, once
    Approve,
    /// Do not run it; the run fails
    Deny,
    /// Do not run it; the run is cancelled
    Cancel,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reviewer {
    /// The person at the terminal.
    Person,
    /// The command line, the same for every review.
    Fixed(Decision),
}

impl Reviewer {
    /// Who answers, if somebody can.
    ///
    /// # Errors
    /// Without a terminal and without `--decide` nobody could, so nothing is begun.
    pub(crate) fn choose(decide: Option<Decide>, format: Format) -> Result<Self, Error> {
        match decide {
            Some(Decide::Approve) => Ok(Self::Fixed(Decision::Approve)),
            Some(Decide::Deny) => Ok(Self::Fixed(Decision::Deny)),
            Some(Decide::Cancel) => Ok(Self::Fixed(Decision::Cancel)),
            None if format.can_ask() => Ok(Self::Person),
            None => Err(Error::Usage(
                "there is no terminal to ask a person at: run it in one, or say the answer with --decide approve, \
                 --decide deny or --decide cancel"
                    .into(),
            )),
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Completed,
    Failed(ErrorInfo),
    Cancelled(ErrorInfo),
}

impl Ended {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Completed => Status::Good,
            Self::Failed(error) if error.code == Code::APPROVAL_DENIED => Status::Denied,
            Self::Failed(error) if error.code == Code::APPROVAL_EXPIRED => Status::Cancelled,
            Self::Failed(_) => Status::Failed,
            Self::Cancelled(_) => Status::Cancelled,
        }
    }

    /// Why it did not complete.
    pub(crate) const fn error(&self) -> Option<&ErrorInfo> {
        match self {
            Self::Completed => None,
            Self::Failed(error) | Self::Cancelled(error) => Some(error),
        }
    }
}

/// Starts the run and follows it to its end. Dropping the future hangs up, and the host cancels the run.
///
/// # Errors
/// [`Error`], where the run's own end is not known. It can be said on a line of its own.
pub(crate) async fn follow(
    client: &Client,
    request: &RunRequest,
    reviewer: Reviewer,
    view: &mut View,
) -> Result<Ended, Error> {
    let ended = to_the_end(client, request, reviewer, view).await;
    if ended.is_err() {
        // The error that is there already says more than a second one.
        let _ = view.end_text();
    }
    ended
}

async fn to_the_end(
    client: &Client,
    request: &RunRequest,
    reviewer: Reviewer,
    view: &mut View,
) -> Result<Ended, Error> {
    let mut events = client.stream(request).await?;
    let mut review: Option<Review> = None;
    loop {
        let happened = tokio::select! {
            biased;
            event = events.next() => Happened::Event(event),
            progress = progress(review.as_mut()) => Happened::Progress(progress),
        };
        match (happened, &mut review) {
            (Happened::Event(Some(event)), _) => {
                let asking = matches!(&review, Some(Review { step: Step::Asking(_), .. }));
                if event.is_err() && asking {
                    view.end_question().map_err(shown)?;
                }
                let event = event?;
                let ends = event.is_terminal() || matches!(event.body, EventBody::ApprovalResolved { .. });
                if ends && asking {
                    view.end_question().map_err(shown)?;
                    view.note("The review ended before you answered.").map_err(shown)?;
                }
                if ends {
                    review = None;
                }
                view.event(&event).map_err(shown)?;
                match event.body {
                    EventBody::ApprovalRequested { approval, .. } => {
                        review = Some(Review::begin(approval, client, reviewer, view)?);
                    }
                    EventBody::RunCompleted { .. } => return Ok(Ended::Completed),
                    EventBody::RunFailed { error } => return Ok(Ended::Failed(error)),
                    EventBody::RunCancelled { error } => return Ok(Ended::Cancelled(error)),
                    _ => {}
                }
            }
            // The stream gives an error before it ends early; this is only the type's possibility.
            (Happened::Event(None), _) | (Happened::Progress(_), None) => {
                return Err(ClientError::Event(countersign_protocol::error::EventError::Incomplete).into());
            }
            (Happened::Progress(progress), Some(review)) => {
                review.advance(progress, client, reviewer, view)?
            }
        }
    }
}

enum Happened {
    Event(Option<Result<countersign_protocol::event::Event, ClientError>>),
    Progress(Progress),
}

/// What the open review waits for.
enum Progress {
    Reply(Reply),
    Receipt(Result<Resolution, ClientError>),
    GaveUp(Box<ClientError>),
}

struct Review {
    approval: Arc<ApprovalRequest>,
    /// Lines that the card shown last does not show.
    left_out: usize,
    step: Step,
}

enum Step {
    Asking(Prompt),
    Deciding(Pin<Box<dyn Future<Output = Result<Resolution, ClientError>> + Send>>),
    /// The decision is out of our hands; the run's events tell the rest.
    Watching,
    /// As `Watching`, but if nothing shows soon, this error ends the command.
    WatchingFor(Option<Box<ClientError>>),
}

async fn progress(review: Option<&mut Review>) -> Progress {
    match review.map(|review| &mut review.step) {
        Some(Step::Asking(prompt)) => Progress::Reply(prompt.reply().await),
        Some(Step::Deciding(decision)) => Progress::Receipt(decision.await),
        Some(Step::WatchingFor(error)) => {
            sleep(LOST_RECEIPT).await;
            match error.take() {
                Some(error) => Progress::GaveUp(error),
                None => pending().await,
            }
        }
        Some(Step::Watching) | None => pending().await,
    }
}

impl Review {
    fn begin(
        approval: Arc<ApprovalRequest>,
        client: &Client,
        reviewer: Reviewer,
        view: &mut View,
    ) -> Result<Self, Error> {
        let mut left_out = 0;
        let step = match reviewer {
            Reviewer::Person => {
                left_out = view.card(&approval, Extent::Window).map_err(shown)?;
                Step::Asking(view.ask(left_out).map_err(shown)?)
            }
            Reviewer::Fixed(decision) => {
                view.fixed(&approval, decision).map_err(shown)?;
                decide(client, &approval, decision)
            }
        };
        Ok(Self { approval, left_out, step })
    }

    fn advance(
        &mut self,
        progress: Progress,
        client: &Client,
        reviewer: Reviewer,
        view: &mut View,
    ) -> Result<(), Error> {
        self.step = match progress {
            Progress::Reply(Reply::Approve) => decide(client, &self.approval, Decision::Approve),
            Progress::Reply(Reply::Deny) => decide(client, &self.approval, Decision::Deny),
            Progress::Reply(Reply::Cancel) => decide(client, &self.approval, Decision::Cancel),
            Progress::Reply(Reply::View) => {
                self.left_out = view.card(&self.approval, Extent::Whole).map_err(shown)?;
                Step::Asking(view.ask(self.left_out).map_err(shown)?)
            }
            Progress::Reply(Reply::Unclear) => {
                view.note("Please type a, d, c or v, and Enter.").map_err(shown)?;
                Step::Asking(view.ask(self.left_out).map_err(shown)?)
            }
            Progress::Receipt(Ok(_)) => Step::Watching,
            Progress::Receipt(Err(error)) => self.refused(error, reviewer, view)?,
            Progress::GaveUp(error) => return Err((*error).into()),
        };
        Ok(())
    }

    /// The decision was not acknowledged. Nothing is sent again unless a person says so.
    fn refused(&self, error: ClientError, reviewer: Reviewer, view: &mut View) -> Result<Step, Error> {
        let over = matches!(&error, ClientError::Remote(info) if info.code == Code::APPROVAL_NOT_FOUND);
        if over {
            // It expired, or somebody else decided it: the stream is about to say so.
            return Ok(Step::Watching);
        }
        let uncertain = error.is_uncertain();
        match reviewer {
            Reviewer::Fixed(_) if uncertain => Ok(Step::WatchingFor(Some(Box::new(error)))),
            Reviewer::Fixed(_) => Err(error.into()),
            Reviewer::Person => {
                let told = if uncertain {
                    "It cannot be known whether your decision arrived. If the question stays, it did not"
                } else {
                    "Your decision was refused"
                };
                view.note(&format!("{told}: {}", Error::from(error))).map_err(shown)?;
                Ok(Step::Asking(view.ask(self.left_out).map_err(shown)?))
            }
        }
    }
}

fn decide(client: &Client, approval: &ApprovalRequest, decision: Decision) -> Step {
    let (client, decision) = (client.clone(), DecisionRequest::of(approval, decision));
    Step::Deciding(Box::pin(async move { client.decide_approval(&decision).await }))
}

fn shown(source: std::io::Error) -> Error {
    Error::io("cannot write what is to be shown")(source)
}
