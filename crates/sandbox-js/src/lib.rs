//! The JavaScript sandbox of Countersign: an agent's program calls functions, and marked ones never run by themselves.
//!
//! Start at [`Sandbox::run`]. A program is the body of an async function, in JavaScript or TypeScript; its functions are
//! globals; what happens when it calls a marked one depends on the run's [`Approval`]: `deny` throws `ApprovalRejected`
//! into the program, `pause` asks a person for each call while the run waits without a thread and without using its
//! budgets. [`RunOutcome`] says how it ended, with a typed [`Ending`] and its place in the source, the console, and one
//! [`Row`] a call.
//!
//! Invariants: nothing marked runs without an answer for that very call (law 1); what a person is shown and what the
//! function gets are one text (law 3); a person's time is nobody else's (law 6); the program can neither catch nor
//! outlive the end of its run.
//!
//! Programs run in this process or in workers ([`Backend`]), with the same results. `collect` is not built yet.
//! `docs/sandbox.md` says what a program gets and what it does not.

mod approval;
mod backend;
mod clock;
mod console;
mod declarations;
mod engine;
mod error;
mod function;
mod ids;
mod journal;
mod limits;
mod names;
mod outcome;
mod pool;
mod run;
mod sandbox;
mod source;
mod value;
pub mod worker;

pub use approval::{Answer, Approval, ApprovalRequest, HookError, OnApproval, Pause};
pub use console::{Console, ConsoleLine, Level};
pub use declarations::declarations;
pub use error::Error;
pub use function::{BadInput, BoxFuture, CallContext, Function, FunctionError, Handler, Marking};
pub use ids::{CallId, RunId};
pub use limits::{Bound, Limits};
pub use outcome::{Completed, Ending, Failed, MadeCall, Rejection, Row, RowState, RunOutcome};
pub use sandbox::{Backend, Config, Origin, RunOptions, Sandbox};
pub use source::Position;
pub use value::{Json, NotExact, Output};
pub use worker::WorkerCommand;

/// What [`RunOptions::cancellation`] is made of.
pub use tokio_util::sync::CancellationToken;
