//! The run loop of Countersign: it lets a model propose calls, has people review them, and executes exactly what was
//! approved.
//!
//! Start at [`Driver::builder`]. [`Tool`] and [`provider::Provider`] are the traits to implement; [`tool`] makes a
//! tool of a closure. [`Driver::stream`] gives the events of a run, [`Driver::decide_approval`] takes a person's
//! decision.

mod approve;
mod batch;
mod builder;
mod driver;
mod idle;
mod progress;
pub mod provider;
mod reviews;
mod run;
#[cfg(feature = "schema")]
mod schema;
#[cfg(not(feature = "schema"))]
#[path = "schema_off.rs"]
mod schema;
mod scope;
mod stream;
pub mod system;
mod tools;
mod turn;
mod usage;

pub use approve::{Approve, ApproveContext, Permission};
pub use builder::{ApprovalSettings, BuildError, Builder, IdlePause, RunLimits};
pub use driver::{Driver, Prepared};
pub use scope::Scope;
pub use stream::EventStream;
pub use tools::{
    Input, InvalidOutput, InvalidTool, MAX_OUTPUT_BYTES, Output, Review, Tool, ToolContext, ToolSpec, tool,
};
