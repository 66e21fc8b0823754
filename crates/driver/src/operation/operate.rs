//! From a claim to a run, a replay or a refusal (contract 9, 2.1 row 19).

use std::sync::Arc;

use countersign_approval_core::clock::Clock;
use countersign_approval_core::ids::RunId;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{Event, EventBody};

use super::journal::Journal;
use super::replay::{End, replay};
use super::{Claim, Claimed, OperationSettings, StoreError};
use crate::run::{self, Run};
use crate::stream::Outlet;

/// A request with a key, before it is known whether it runs.
pub(crate) struct Operating {
    pub(crate) settings: OperationSettings,
    pub(crate) claim: Claim,
}

impl Operating {
    /// Claims the key, then runs or tells. It belongs in a task of its own: whoever asked may go away at any point, and
    /// what was claimed is ended all the same.
    pub(crate) async fn claim(self, clock: Arc<dyn Clock>, outlet: Outlet, run: impl FnOnce(Outlet) -> Run) {
        let run_id = self.claim.origin.run_id;
        let told = match self.settings.store.claim(self.claim).await {
            Ok(Claimed::New(operation)) => {
                let journal = Journal::new(operation, run_id, self.settings.max_record_bytes);
                return run::drive(run(outlet).with_journal(journal)).await;
            }
            Ok(Claimed::Replay(log)) => replay(log, End::Stored, clock.now().wall)
                .map_err(|cause| unavailable(run_id, &StoreError::Failed(cause))),
            Ok(Claimed::Uncertain(log)) => replay(log, End::Unknown, clock.now().wall)
                .map_err(|cause| unavailable(run_id, &StoreError::Failed(cause))),
            Ok(Claimed::Conflict) => Err(ErrorInfo::new(Code::IDEMPOTENCY_CONFLICT)),
            Ok(Claimed::InProgress) => Err(ErrorInfo::new(Code::OPERATION_IN_PROGRESS)),
            Err(error) => Err(unavailable(run_id, &error)),
        };
        let events = told.unwrap_or_else(|error| {
            // No run began: the only event says why.
            let timestamp = clock.now().wall;
            vec![Event { run_id, sequence: 1, timestamp, body: EventBody::RunFailed { error } }]
        });
        // They need nothing but a reader, and, as a run does, a slot once they have begun.
        for event in events {
            let begun = event.sequence > 1;
            if outlet.room().await.is_err() || (begun && outlet.admitted().await.is_err()) {
                return;
            }
            outlet.place(event);
        }
    }
}

/// Without room nothing was claimed, and that is certain (contract 5.4).
fn unavailable(run: RunId, error: &StoreError) -> ErrorInfo {
    tracing::error!(%run, cause = error as &dyn std::error::Error, "a key could not be claimed");
    match error {
        StoreError::Full => ErrorInfo::new(Code::OPERATION_STORE_FULL),
        StoreError::Failed(_) => ErrorInfo::new(Code::OPERATION_STORE_ERROR).uncertain(),
    }
}
