//! A call that the application executes: reserved, handed over, answered (contract 7.6, 5.4).

use countersign_approval_core::audit::BoxError;
use countersign_approval_core::snapshot::ToolCall;
use countersign_protocol::event::EventBody;

use super::{Run, Stop};
use crate::executions::{Ended, ExecutionOf, Ticket};
use crate::schema::RequestSchema;
use crate::tools::Output;

impl Run {
    /// Takes up capacity for an execution, and waits until the consumer has taken every event and asks for more: what
    /// comes next is the effect, and nothing must come between its record and the hand-over (law 2).
    pub(super) async fn reserve(
        &mut self,
        call: &ToolCall,
        output_schema: Option<RequestSchema>,
    ) -> Result<Ticket, Stop> {
        let ticket = self.parts.executions.reserve(ExecutionOf {
            run_id: self.run_id,
            subject: &self.subject,
            provider: &self.request.provider,
            call,
            output_schema,
            aborted: &self.cancellation,
        })?;
        self.note_next(&requested(&ticket)).await?;
        self.demand().await?;
        Ok(ticket)
    }

    /// Hands the execution over and waits for its end. From the first moment on the application may act, so every other
    /// end of the run is uncertain. Leaving this ends the execution: a later report finds nothing.
    pub(super) async fn ask_application(
        &mut self,
        mut ticket: Ticket,
    ) -> Result<Result<Output, BoxError>, Stop> {
        ticket.hand_over();
        self.place(requested(&ticket));
        let progress = ticket.progress.clone();
        let end = async {
            match ticket.ended().await {
                Some(Ended::Output(output)) => Ok(Output(output)),
                Some(Ended::Failed) => Err("the application reported a failure".into()),
                Some(Ended::Unusable(code)) => {
                    Err(format!("the application's output was refused: {code}").into())
                }
                None => Err("the application's report was lost".into()),
            }
        };
        self.follow(&progress, end).await
    }
}

/// What the application is asked to do.
fn requested(ticket: &Ticket) -> EventBody {
    EventBody::ToolExecutionRequested { execution: ticket.execution.clone() }
}
