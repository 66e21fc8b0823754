//! How a run ends: open questions are void, calls that are being executed get their time, and everything is reported.

use std::time::Duration;

use tokio::time::Instant;

use super::calls::{Event, State};
use super::{End, Run};
use crate::clock;
use crate::engine::{NotJson, Step, Thrown, ThrownKind};
use crate::limits::Bound;
use crate::names;
use crate::outcome::{Completed, Ending, Failed, Row, RowState, RunOutcome};
use crate::source::Position;
use crate::value::Json;

/// A little more than the time that a task gets after it was told, so that its last word is heard.
const LAST_WORD: Duration = Duration::from_millis(5_100);

struct Verdict {
    ending: Ending,
    message: String,
    position: Option<Position>,
}

impl Run {
    pub(super) async fn end(mut self: Box<Self>, end: End) -> RunOutcome {
        self.asked = None;
        self.asks.clear();
        self.waits = None;
        let is_done = matches!(&end, End::Program(_));
        self.wind_down(is_done).await;
        let verdict = match end {
            End::Now(ending, message) => Err(Box::new(Verdict { ending, message, position: None })),
            End::Syntax { message, position } => {
                Err(Box::new(Verdict { ending: Ending::Syntax, message, position }))
            }
            End::Program(step) => self.verdict(*step),
        };
        let run_id = self.options.origin.run_id;
        let console = std::mem::take(&mut self.console);
        match verdict {
            Ok(value) => RunOutcome::Completed(Completed { run_id, value, console, report: self.rows() }),
            Err(verdict) => {
                let Verdict { ending, mut message, position } = *verdict;
                let position = position.or_else(|| self.position_of_call(&ending));
                let report = self.rows();
                let discarded = report.iter().filter(|row| row.state == RowState::Discarded).count();
                if discarded > 0 {
                    message.push_str(&format!("; {discarded} calls were waiting and were not executed"));
                }
                RunOutcome::Failed(Failed { run_id, ending, message, position, console, report })
            }
        }
    }

    /// Waits for calls that are being executed. After a program's own end they may use what is left of the budget;
    /// otherwise they are told at once, and have five seconds.
    async fn wind_down(&mut self, is_done: bool) {
        if !is_done {
            self.tasks.cancel();
        }
        let mut told = !is_done;
        let mut last = if is_done { None } else { clock::after(LAST_WORD) };
        while self.tasks.executing() > 0 {
            let budget = if told { None } else { self.budget.deadline() };
            tokio::select! {
                biased;
                event = self.tasks.next() => if let Event::Finished { index, result } = event {
                    self.note_finished(index, &result);
                },
                () = until(last) => return,
                () = self.options.cancellation.cancelled(), if !told => {
                    told = true;
                }
                () = until(budget) => told = true,
            }
            if told && last.is_none() {
                self.tasks.cancel();
                last = clock::after(LAST_WORD);
            }
        }
    }

    fn rows(&mut self) -> Vec<Row> {
        let calls = std::mem::take(&mut self.calls);
        let row = |call: super::Call| {
            let position = self.lines().and_then(|lines| lines.position_of(call.at?));
            let name = self.options.functions.get(call.function).map_or("", |function| function.name());
            call.row(self.options.origin.run_id, name, position)
        };
        calls.into_iter().map(row).collect()
    }

    fn position_of_call(&self, ending: &Ending) -> Option<Position> {
        let (Ending::ResultRefused { call_id: Some(id) } | Ending::ApprovalHookFailed { call_id: id }) =
            ending
        else {
            return None;
        };
        let call = self.calls.iter().find(|call| call.call_id(self.options.origin.run_id) == *id)?;
        self.lines()?.position_of(call.at?)
    }

    fn verdict(&self, step: Step) -> Result<Json, Box<Verdict>> {
        let verdict = |ending, message| Err(Box::new(Verdict { ending, message, position: None }));
        let refused = |message| verdict(Ending::ResultRefused { call_id: None }, message);
        match step {
            Step::Done(Ok(value)) => Ok(Json::of_exact(value)),
            Step::Done(Err(NotJson::TooLong)) => {
                refused(format!("the program's result has more than {} bytes", self.options.limits.result))
            }
            Step::Done(Err(NotJson::Refused { path, why })) => {
                let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
                refused(format!("the program's result{place} is {why}"))
            }
            Step::Thrown(thrown) => Err(Box::new(self.thrown(*thrown))),
            Step::Stopped(_) | Step::Idle | Step::Stalled => verdict(
                Ending::Stalled,
                "the program waits for a promise that nothing will settle".to_owned(),
            ),
        }
    }

    fn thrown(&self, thrown: Thrown) -> Verdict {
        let Thrown { name, message, at, call, causes, kind } = thrown;
        let lines = self.lines();
        let position = at.and_then(|at| lines?.position_of(at));
        let text = if message.is_empty() { name.clone() } else { format!("{name}: {message}") };
        match kind {
            ThrownKind::Stack => {
                let bound = Bound::Stack;
                let message = bound.describe(&self.options.limits, self.sandbox.config.max_waiting);
                return Verdict {
                    ending: Ending::LimitExceeded(bound),
                    message: format!("the run used {message}"),
                    position,
                };
            }
            ThrownKind::Undefined(root) => {
                let callee = at.and_then(|at| self.program()?.callees.get(&at));
                if let Some(meant) = callee {
                    return self.unknown(&root, meant, position);
                }
            }
            ThrownKind::Other => {}
        }
        let call = call.and_then(|seq| self.calls.iter().find(|call| call.seq == seq));
        if let Some(call) = call
            && let State::Ended(RowState::Rejected(reason)) = call.state
        {
            let function = self.options.functions.get(call.function).map_or("", |function| function.name());
            let ending = Ending::ApprovalRejected {
                call_id: call.call_id(self.options.origin.run_id),
                seq: call.seq,
                function: function.to_owned(),
                reason,
            };
            return Verdict { ending, message, position };
        }
        let call_id = call.map(|call| call.call_id(self.options.origin.run_id));
        Verdict { ending: Ending::Thrown { name, call_id, causes }, message: text, position }
    }

    fn unknown(&self, root: &str, meant: &str, position: Option<Position>) -> Verdict {
        let nearest = names::nearest(meant, self.options.functions.iter().map(|function| function.name()));
        let called = if root == meant { root.to_owned() } else { format!("{root}.{meant}") };
        let advice = match nearest.as_slice() {
            [] => "no function has a similar name".to_owned(),
            names => format!("did you mean {}?", names.join(", ")),
        };
        Verdict {
            message: format!("there is no function {called}; {advice}"),
            ending: Ending::UnknownFunction { name: meant.to_owned(), nearest },
            position,
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
