//! What happens to each call: started, refused, asked about, and told to the program.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::calls::{Call, Event, State};
use super::{End, Run, Waits, relay};
use crate::approval::{Answer, Approval, HookError, MAX_REASON, Pause};
use crate::clock;
use crate::engine::{Failure, NewCall, Outcome, Refusal, Settlement, Step};
use crate::function::{FunctionError, Marking, Panicked};
use crate::limits::Bound;
use crate::outcome::{Ending, Rejection, RowState};
use crate::value::Output;

impl Run {
    /// Takes in a call that the program made, and does what its mode says.
    pub(super) fn made(&mut self, new: NewCall, step: &Step) -> Option<End> {
        self.journal.call(&new);
        let function = self.options.functions.get(new.function)?;
        let marking = function.marking();
        match function.check_input(&new.input) {
            Ok(Ok(())) => {}
            Ok(Err(bad)) => {
                let message = format!("the input of {} does not fit: {bad}", function.name());
                let outcome = Outcome::BadInput(message.into());
                let clock = self.began.millis();
                self.ready.insert(new.number, Settlement { number: new.number, outcome, clock, at: new.at });
                return None;
            }
            Err(Panicked) => {
                let message = format!("the input check of {} panicked", function.name());
                return Some(End::Now(Ending::WorkerLost, message));
            }
        }
        let index = self.calls.len();
        self.calls.push(Call::new(index, new));
        if !matches!(step, Step::Idle) {
            // A program that ended in the same breath starts nothing more.
            return None;
        }
        match (marking, &self.options.approval) {
            (Marking::Free, _) => self.execute(index),
            (Marking::RequiresApproval, Approval::Deny) => self.reject(index, Rejection::Denied, None),
            (Marking::RequiresApproval, Approval::Pause(_)) => self.asks.push_back(index),
        }
        None
    }

    /// Starts a call. Everything that could forbid it has been asked.
    fn execute(&mut self, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let Some(function) = self.options.functions.get(call.function) else { return };
        call.state = State::Executing;
        self.budget.run();
        let context = call.context(self.options.origin.run_id, self.tasks.cancellation());
        self.tasks.execute(index, function, call.input.clone(), context);
    }

    fn reject(&mut self, index: usize, reason: Rejection, note: Option<String>) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let Some(function) = self.options.functions.get(call.function) else { return };
        let name = function.name().to_owned();
        call.state = State::Ended(RowState::Rejected(reason));
        let note = note.map_or_else(String::new, |note| format!(": {note}"));
        let refusal = Refusal {
            seq: call.seq,
            message: format!("call #{} to \"{name}\" was not approved{note}", call.seq),
            function: name,
            call_id: call.call_id(self.options.origin.run_id).as_str().to_owned(),
            reason: reason.as_str().to_owned(),
        };
        self.tell(index, Outcome::Rejected(Box::new(refusal)));
    }

    fn tell(&mut self, index: usize, outcome: Outcome) {
        let Some(call) = self.calls.get(index) else { return };
        let clock = self.began.millis();
        let settlement = Settlement { number: call.number, outcome, clock, at: call.at };
        self.ready.insert(call.number, settlement);
    }

    /// Opens the next question, if none is open.
    pub(super) fn ask(&mut self) -> Result<(), End> {
        if self.asked.is_some() {
            return Ok(());
        }
        let Approval::Pause(Pause { on_approval, expires_after }) = &self.options.approval else {
            return Ok(());
        };
        let Some(index) = self.asks.pop_front() else {
            self.waits = None;
            return Ok(());
        };
        if self.waits.is_none() {
            let waiting = self.sandbox.waiting.fetch_add(1, Relaxed);
            self.waits = Some(Waits(Arc::clone(&self.sandbox)));
            if waiting >= self.sandbox.config.max_waiting {
                return Err(self.limit(Bound::Waiting));
            }
        }
        let Some(call) = self.calls.get(index) else { return Ok(()) };
        let Some(function) = self.options.functions.get(call.function) else { return Ok(()) };
        let position = self.lines().and_then(|lines| lines.position_of(call.at?));
        let request = call.request(self.options.origin.run_id, function.name(), position);
        self.asked = Some(self.tasks.ask(index, on_approval, request, *expires_after));
        Ok(())
    }

    pub(super) fn expire(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.reject(asked.index, Rejection::Expired, None);
        }
    }

    /// Takes in what has arrived. Tasks that need not wait get their turn first, so that the order in which outcomes are
    /// told depends on what the functions do and not on how long the engine took.
    pub(super) async fn arrivals(&mut self) -> Option<End> {
        if self.tasks.executing() > 0 || self.asked.is_some() {
            relay::home().await;
            tokio::task::yield_now().await;
        }
        while let Some(event) = self.tasks.arrived() {
            if let Some(end) = self.event(event) {
                return Some(end);
            }
        }
        self.tasks.spawn().await;
        None
    }

    pub(super) fn event(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Finished { index, result } => self.finished(index, result),
            Event::Answered { index, answer } => {
                // A late answer to a question that expired is void.
                let asked = self.asked.take_if(|asked| asked.index == index)?;
                if self.options.cancellation.is_cancelled() {
                    return Some(Self::cancelled());
                }
                // Whoever sees first that the time is over, the clock or the answer, it is over.
                if asked.expires_at.is_some_and(|at| at <= clock::now()) {
                    self.reject(index, Rejection::Expired, None);
                    return None;
                }
                self.answered(index, answer)
            }
        }
    }

    fn answered(&mut self, index: usize, answer: Result<Answer, HookError>) -> Option<End> {
        let failed = |run: &Self, why: String| {
            let call_id = run.calls.get(index)?.call_id(run.options.origin.run_id);
            Some(End::Now(Ending::ApprovalHookFailed { call_id }, why))
        };
        match answer {
            // Looked at again after the person's time (R9.6), as was cancellation.
            Ok(Answer::Approve) if self.budget.is_over() => Some(self.limit(Bound::Run)),
            Ok(Answer::Approve) => {
                self.execute(index);
                None
            }
            Ok(Answer::Reject { reason: Some(reason) }) if reason.encode_utf16().count() > MAX_REASON => {
                failed(self, format!("the reason of a rejection has more than {MAX_REASON} characters"))
            }
            Ok(Answer::Reject { reason }) => {
                self.reject(index, Rejection::Rejected, reason);
                None
            }
            Err(why) => failed(self, format!("nobody decided: {why}")),
        }
    }

    fn finished(&mut self, index: usize, result: Result<Output, FunctionError>) -> Option<End> {
        let max = self.options.limits.result;
        self.note_finished(index, &result);
        match result {
            Ok(output) => match output.judge(max) {
                Ok(value) => {
                    self.tell(index, Outcome::Value(value.into_exact()));
                    None
                }
                Err(why) => {
                    let call_id = self.calls.get(index)?.call_id(self.options.origin.run_id);
                    let name =
                        self.calls.get(index).and_then(|call| self.options.functions.get(call.function));
                    let name = name.map_or("a function", |function| function.name());
                    let message = format!("the result of {name} was refused, its effect is real: {why}");
                    Some(End::Now(Ending::ResultRefused { call_id: Some(call_id) }, message))
                }
            },
            Err(FunctionError { message, name, code }) => {
                let name = name.unwrap_or_else(|| "Error".to_owned());
                let bytes = name.len() + message.len() + code.as_ref().map_or(0, String::len);
                if bytes > max {
                    let call_id = self.calls.get(index)?.call_id(self.options.origin.run_id);
                    let message = format!("the failure of a function has {bytes} bytes, more than {max}");
                    return Some(End::Now(Ending::ResultRefused { call_id: Some(call_id) }, message));
                }
                let seq = self.calls.get(index)?.seq;
                self.tell(index, Outcome::Failed(Box::new(Failure { seq, name, message, code })));
                None
            }
        }
    }

    /// Writes down what became of a call.
    pub(super) fn note_finished(&mut self, index: usize, result: &Result<Output, FunctionError>) {
        if let Some(call) = self.calls.get_mut(index) {
            call.state = State::Ended(match result {
                Ok(_) => RowState::Executed,
                Err(error) => RowState::Failed { message: error.message.clone() },
            });
        }
        if self.tasks.executing() == 0 {
            self.budget.stop();
        }
    }
}
