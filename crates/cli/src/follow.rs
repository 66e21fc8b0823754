//! Follows one run and gives its reviews to whoever answers them.

use std::future::{Future, pending};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use countersign_approval_core::decision::{DecisionRequest, MAX_REASON_CHARS};
use countersign_approval_core::review::{ApprovalRequest, Decision, Resolution};
use countersign_client::{Client, Error as ClientError};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::EventBody;
use countersign_protocol::request::{OnDeny, RunRequest};
use tokio::time::sleep;

use crate::error::{Error, Status, reason};
use crate::review::{Choices, Extent, Prompt, Proposal, Remark, Reply};
use crate::view::{Effects, Format, View};

/// How long a decision whose receipt was lost may take to show in the run, where no person can look after it.
const LOST_RECEIPT: Duration = Duration::from_secs(5);
const WHY: &str = "Why? The agent is told; Enter for no reason";

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reviewer {
    /// The person at the terminal.
    Person,
    /// The command line, the same for every review, with a reason or without.
    Fixed(Decision, Option<String>),
}

impl Reviewer {
    /// Who answers, if somebody can.
    ///
    /// # Errors
    /// Without a terminal and without `--decide` nobody could, so nothing is begun.
    pub(crate) fn choose(decide: Option<Decide>, format: Format) -> Result<Self, Error> {
        match decide {
            Some(Decide::Approve) => Ok(Self::Fixed(Decision::Approve, None)),
            Some(Decide::Deny) => Ok(Self::Fixed(Decision::Deny, None)),
            Some(Decide::Cancel) => Ok(Self::Fixed(Decision::Cancel, None)),
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
    let after = request.approvals.as_ref().and_then(|approvals| approvals.on_deny).unwrap_or(OnDeny::Fail);
    loop {
        let happened = tokio::select! {
            biased;
            event = events.next() => Happened::Event(event),
            progress = progress(review.as_mut()) => Happened::Progress(progress),
        };
        match (happened, &mut review) {
            (Happened::Event(Some(event)), _) => {
                let asking =
                    matches!(&review, Some(Review { step: Step::Asking(_) | Step::Reasoning(_), .. }));
                if event.is_err() && asking {
                    view.end_question().map_err(shown)?;
                }
                let event =
                    event.map_err(|error| if asking { gone(error, view.effects) } else { error.into() })?;
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
                        review = Some(Review::begin(approval, after, client, &reviewer, view)?);
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
                if review.advance(progress, client, &reviewer, view)?.is_break() {
                    view.hung_up().map_err(shown)?;
                    let error =
                        ErrorInfo::new(Code::CANCELLED).with_message("Hung up; the run is cancelled.");
                    return Ok(Ended::Cancelled(error));
                }
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
    Reason(Remark),
    Receipt(Result<Resolution, ClientError>),
    GaveUp(Box<ClientError>),
}

struct Review {
    approval: Arc<ApprovalRequest>,
    /// What the run does after a denial: if it goes on, the reason is told.
    after_denial: OnDeny,
    /// Lines that the card shown last does not show.
    left_out: usize,
    /// Whether the host takes decisions of this token, as far as is known.
    right: Right,
    /// The last decision, and what was known of effects before it.
    sent: Option<(Decision, Effects)>,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Presumed,
    Missing,
}

enum Step {
    Asking(Prompt),
    /// He said no, and may say why.
    Reasoning(Prompt),
    Deciding(Pin<Box<dyn Future<Output = Result<Resolution, ClientError>> + Send>>),
    /// The decision is out of our hands; the run's events tell the rest.
    Watching,
    /// As `Watching`, but if nothing shows soon, this error ends the command.
    WatchingFor(Option<Box<ClientError>>),
}

async fn progress(review: Option<&mut Review>) -> Progress {
    match review.map(|review| &mut review.step) {
        Some(Step::Asking(prompt)) => Progress::Reply(prompt.reply().await),
        Some(Step::Reasoning(prompt)) => Progress::Reason(prompt.text().await),
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
        after_denial: OnDeny,
        client: &Client,
        reviewer: &Reviewer,
        view: &mut View,
    ) -> Result<Self, Error> {
        let mut review = Self {
            approval,
            after_denial,
            left_out: 0,
            right: Right::Presumed,
            sent: None,
            step: Step::Watching,
        };
        review.step = match reviewer {
            Reviewer::Person => {
                review.left_out =
                    view.card(&Proposal::from(&*review.approval), Extent::Window).map_err(shown)?;
                review.ask(view)?
            }
            Reviewer::Fixed(decision, reason) => {
                view.fixed(&Proposal::from(&*review.approval), *decision).map_err(shown)?;
                review.decide(client, *decision, reason.clone(), view)
            }
        };
        Ok(review)
    }

    /// What is not shown cannot be approved, and a host that takes no decision of this token is not asked again.
    const fn choices(&self) -> Choices {
        match (self.right, self.left_out) {
            (Right::Missing, _) => Choices::CancelOnly,
            (Right::Presumed, 0) => Choices::All,
            (Right::Presumed, lines) => Choices::Unseen(lines),
        }
    }

    fn ask(&self, view: &mut View) -> Result<Step, Error> {
        Ok(Step::Asking(view.ask(self.choices()).map_err(shown)?))
    }

    fn advance(
        &mut self,
        progress: Progress,
        client: &Client,
        reviewer: &Reviewer,
        view: &mut View,
    ) -> Result<ControlFlow<()>, Error> {
        self.step = match progress {
            Progress::Reply(reply) => match self.replied(reply, client, view)? {
                Some(step) => step,
                None => return Ok(ControlFlow::Break(())),
            },
            Progress::Reason(remark) => self.reasoned(remark, client, view)?,
            Progress::Receipt(Ok(_)) => Step::Watching,
            Progress::Receipt(Err(error)) => match self.refused(error, reviewer, view)? {
                Some(step) => step,
                None => return Ok(ControlFlow::Break(())),
            },
            Progress::GaveUp(error) => return Err((*error).into()),
        };
        Ok(ControlFlow::Continue(()))
    }

    /// What a person typed. `None`: he gives the run up, and the host cannot be told but by hanging up.
    fn replied(&mut self, reply: Reply, client: &Client, view: &mut View) -> Result<Option<Step>, Error> {
        if reply == Reply::End {
            input_ended(view)?;
        }
        let step = match (reply, self.choices()) {
            (Reply::Cancel | Reply::End, Choices::CancelOnly) => return Ok(None),
            (Reply::Cancel | Reply::End, _) => self.decide(client, Decision::Cancel, None, view),
            (Reply::Approve, Choices::All) => self.decide(client, Decision::Approve, None, view),
            (Reply::Deny, Choices::All | Choices::Unseen(_)) => match self.after_denial {
                OnDeny::Continue => Step::Reasoning(view.ask_for_text(WHY).map_err(shown)?),
                OnDeny::Fail => self.decide(client, Decision::Deny, None, view),
            },
            (Reply::View, Choices::All | Choices::Unseen(_)) => {
                self.left_out = view.card(&Proposal::from(&*self.approval), Extent::Whole).map_err(shown)?;
                self.ask(view)?
            }
            (Reply::Approve, Choices::Unseen(_)) => {
                view.note("Nothing was approved: you have not seen all of it yet.").map_err(shown)?;
                self.ask(view)?
            }
            (_, choices) => {
                view.note(choices.help()).map_err(shown)?;
                self.ask(view)?
            }
        };
        Ok(Some(step))
    }

    /// What a person said after a no.
    fn reasoned(&mut self, remark: Remark, client: &Client, view: &mut View) -> Result<Step, Error> {
        Ok(match remark {
            Remark::Said(reason) if is_short(&reason) => {
                let reason = (!reason.is_empty()).then_some(reason);
                self.decide(client, Decision::Deny, reason, view)
            }
            Remark::Said(_) | Remark::Unclear => {
                let told = format!("Please say it in one line of at most {MAX_REASON_CHARS} characters.");
                view.note(&told).map_err(shown)?;
                Step::Reasoning(view.ask_for_text(WHY).map_err(shown)?)
            }
            Remark::End => {
                input_ended(view)?;
                self.decide(client, Decision::Cancel, None, view)
            }
        })
    }

    fn decide(
        &mut self,
        client: &Client,
        decision: Decision,
        reason: Option<String>,
        view: &mut View,
    ) -> Step {
        self.sent = Some((decision, view.effects));
        if decision == Decision::Approve {
            view.effects = Effects::Possible;
        }
        let decision = DecisionRequest { reason, ..DecisionRequest::of(&self.approval, decision) };
        let client = client.clone();
        Step::Deciding(Box::pin(async move { client.decide_approval(&decision).await }))
    }

    /// The decision was not acknowledged. Nothing is sent again unless a person says so. `None` as in
    /// [`replied`](Self::replied).
    fn refused(
        &mut self,
        error: ClientError,
        reviewer: &Reviewer,
        view: &mut View,
    ) -> Result<Option<Step>, Error> {
        let is = |code: Code| matches!(&error, ClientError::Remote(info) if info.code == code);
        if is(Code::APPROVAL_NOT_FOUND) {
            // It expired, or somebody else decided it: the stream is about to say so.
            return Ok(Some(Step::Watching));
        }
        let uncertain = error.is_uncertain();
        let sent = self.sent.take();
        if let (false, Some((_, before))) = (uncertain, sent) {
            view.effects = before;
        }
        match reviewer {
            Reviewer::Fixed(..) if uncertain => Ok(Some(Step::WatchingFor(Some(Box::new(error))))),
            Reviewer::Fixed(..) => Err(error.into()),
            Reviewer::Person if is(Code::FORBIDDEN) => {
                self.right = Right::Missing;
                if matches!(sent, Some((Decision::Cancel, _))) {
                    view.note("This token may not decide (FORBIDDEN).").map_err(shown)?;
                    return Ok(None);
                }
                view.note("This token may not decide (FORBIDDEN); c or Ctrl-C cancels the run.")
                    .map_err(shown)?;
                self.ask(view).map(Some)
            }
            Reviewer::Person => {
                let told = if uncertain {
                    "It cannot be known whether your decision arrived. If the question stays, it did not"
                } else {
                    "Your decision was refused"
                };
                view.note(&format!("{told}: {}", Error::from(error))).map_err(shown)?;
                self.ask(view).map(Some)
            }
        }
    }
}

/// Whether a decision can carry it.
pub(crate) fn is_short(reason: &str) -> bool {
    reason.encode_utf16().count() <= MAX_REASON_CHARS
}

fn input_ended(view: &mut View) -> Result<(), Error> {
    view.end_question().map_err(shown)?;
    view.note("The input has ended, and that cancels the run.").map_err(shown)
}

/// The stream ended at an open question: what a person wants to know of it; the chain of causes goes to the log.
fn gone(error: ClientError, effects: Effects) -> Error {
    let ended = matches!(
        &error,
        ClientError::BrokenStream(_)
            | ClientError::Event(countersign_protocol::error::EventError::Incomplete)
    );
    if !ended {
        return error.into();
    }
    let told = match effects {
        Effects::None => "Nothing was approved by you; look in the audit file",
        Effects::Proposed | Effects::Possible => {
            "A call that had begun may have had its effect; look in the audit file"
        }
    };
    tracing::warn!("the stream ended: {}", reason(&error));
    Error::HostGone { told, source: error }
}

fn shown(source: std::io::Error) -> Error {
    Error::io("cannot write what is to be shown")(source)
}
