//! Puts marked calls before the person at the terminal, one at a time (sandbox spec 9), with the card and the prompt of
//! `run`.

use std::future::pending;
use std::io;

use countersign_sandbox_js::{Answer, ApprovalRequest, BoxFuture, CancellationToken, HookError, OnApproval};
use tokio::sync::{mpsc, oneshot};

use crate::review::{Choices, Extent, Prompt, Proposal, Remark, Reply};
use crate::view::{BAD, GOOD, View};

const WHY: &str = "Why? The program is told; Enter for no reason";
/// UTF-16 units of a reason (design 8).
const MAX_REASON: usize = 2_000;

/// A question of the sandbox, and where its answer goes.
pub(crate) struct Asked {
    request: ApprovalRequest,
    answer: oneshot::Sender<Answer>,
}

/// What the sandbox asks, and where its questions come out.
pub(crate) fn channel() -> (Hook, mpsc::UnboundedReceiver<Asked>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Hook(sender), receiver)
}

pub(crate) struct Hook(mpsc::UnboundedSender<Asked>);

impl OnApproval for Hook {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<Result<Answer, HookError>> {
        let (answer, answered) = oneshot::channel();
        // It fails only if the command is ending, and then no answer comes either.
        let _ = self.0.send(Asked { request, answer });
        Box::pin(async move { answered.await.map_err(|_| HookError("nobody is asked any more".into())) })
    }
}

/// A question that stands on the screen.
pub(crate) struct Review {
    asked: Asked,
    facts: Vec<String>,
    /// Lines that the card shown last does not show.
    left_out: usize,
    step: Step,
}

enum Step {
    Asking(Prompt),
    /// He said no, and may say why.
    Reasoning(Prompt),
}

/// What a person typed.
pub(crate) enum Progress {
    Reply(Reply),
    Reason(Remark),
}

impl Review {
    pub(crate) fn begin(asked: Asked, file: &str, view: &mut View) -> io::Result<Self> {
        let request = &asked.request;
        let place = match request.position {
            Some(at) => format!(", made at line {}, column {} of {file}", at.line, at.column),
            None => String::new(),
        };
        let facts = vec![
            format!("run {}", request.run_id),
            format!("call {}{}", request.seq, crate::review::inline(&place)),
            "does not expire; the program waits for you".to_owned(),
        ];
        let left_out = view.card(&proposal(request, &facts), Extent::Window)?;
        let step = Step::Asking(view.ask(choices(left_out))?);
        Ok(Self { asked, facts, left_out, step })
    }

    pub(crate) async fn progress(review: Option<&mut Self>) -> Progress {
        match review.map(|review| &mut review.step) {
            Some(Step::Asking(prompt)) => Progress::Reply(prompt.reply().await),
            Some(Step::Reasoning(prompt)) => Progress::Reason(prompt.text().await),
            None => pending().await,
        }
    }

    /// Goes on with what was typed; `None` when the question is answered.
    pub(crate) fn advance(
        mut self,
        progress: Progress,
        cancellation: &CancellationToken,
        view: &mut View,
    ) -> io::Result<Option<Self>> {
        self.step = match progress {
            Progress::Reply(Reply::End) | Progress::Reason(Remark::End) => {
                view.end_question()?;
                view.note("The input has ended, and that cancels the run.")?;
                cancellation.cancel();
                return Ok(None);
            }
            Progress::Reply(Reply::Cancel) => {
                cancellation.cancel();
                return Ok(None);
            }
            Progress::Reply(Reply::Approve) if self.left_out == 0 => {
                return self.answer(Answer::Approve, view);
            }
            Progress::Reply(Reply::Approve) => {
                view.note("Nothing was approved: you have not seen all of it yet.")?;
                self.ask(view)?
            }
            Progress::Reply(Reply::View) if self.left_out > 0 => {
                self.left_out = view.card(&proposal(&self.asked.request, &self.facts), Extent::Whole)?;
                self.ask(view)?
            }
            Progress::Reply(Reply::Deny) => Step::Reasoning(view.ask_for_text(WHY)?),
            Progress::Reply(Reply::View | Reply::Unclear) => {
                view.note(choices(self.left_out).help())?;
                self.ask(view)?
            }
            Progress::Reason(Remark::Said(reason)) if reason.encode_utf16().count() <= MAX_REASON => {
                let reason = (!reason.is_empty()).then_some(reason);
                return self.answer(Answer::Reject { reason }, view);
            }
            Progress::Reason(_) => {
                view.note(&format!("Please say it in one line of at most {MAX_REASON} characters."))?;
                Step::Reasoning(view.ask_for_text(WHY)?)
            }
        };
        Ok(Some(self))
    }

    fn ask(&self, view: &mut View) -> io::Result<Step> {
        Ok(Step::Asking(view.ask(choices(self.left_out))?))
    }

    fn answer(self, answer: Answer, view: &mut View) -> io::Result<Option<Self>> {
        let (style, what) = match &answer {
            Answer::Approve => (GOOD, "Approved"),
            Answer::Reject { .. } => (BAD, "Denied"),
        };
        view.told(style, what, crate::review::DIM, &format!("call {}", self.asked.request.seq))?;
        // Nobody waits for it if the run ended meanwhile.
        let _ = self.asked.answer.send(answer);
        Ok(None)
    }
}

/// What is not shown cannot be approved.
const fn choices(left_out: usize) -> Choices {
    match left_out {
        0 => Choices::All,
        lines => Choices::Unseen(lines),
    }
}

fn proposal<'a>(request: &'a ApprovalRequest, facts: &[String]) -> Proposal<'a> {
    Proposal {
        heading: format!("The program asks to call {}. This call has not run.", request.function),
        call_id: None,
        arguments: request.input.text(),
        facts: facts.to_vec(),
    }
}
