//! The run loop of Countersign: it lets a model propose calls, has people review them, and executes exactly what was
//! approved.
//!
//! Start at [`Driver::builder`]. [`Tool`] and [`provider::Provider`] are the traits to implement; [`tool`] makes a
//! tool of a closure. Both traits are made with [`async_trait`](https://docs.rs/async-trait), so an implementation
//! needs `#[async_trait]` and that crate. [`Driver::stream`] gives the events of a run, [`Driver::decide_approval`]
//! takes a person's decision.
//!
//! A tool whose call runs only after an approval, with a scripted model in place of a real one:
//!
//! ```
//! use std::sync::Arc;
//!
//! use countersign_approval_core::{decision::DecisionRequest, grants::Principal, review::Decision};
//! use countersign_driver::{ApprovalSettings, Driver, Output, ToolSpec, tool};
//! use countersign_protocol::{event::EventBody, request::RunRequest};
//! use countersign_providers::{Scripted, Step};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let spec = ToolSpec::new("pay", "Pays somebody.", r#"{"type":"object"}"#)?.requires_approval();
//!     let pay = tool(spec, |input, _| async move { Ok(Output::json(&format!("paid {}", input.text()))?) });
//!     let script = [Step::call("call-1", "pay", r#"{"to":"ann","amount":100}"#), Step::text("Ann was paid.")];
//!     let model = Scripted::builder("mock").models(["demo"]).default_script(script).build()?;
//!     let driver = Driver::builder().provider(Arc::new(model)).tool(pay).approvals(ApprovalSettings::default()).build()?;
//!
//!     let me = Principal::local(); // Who this is, as your application knows it; never from a request.
//!     let request = RunRequest::decode(
//!         r#"{"provider":"mock","model":"demo","input":"Pay Ann.","tools":["pay"],
//!             "approvals":{"mode":"interactive","idlePolicy":"pause"}}"#,
//!     )?;
//!     let mut events = driver.stream(request, me.clone())?;
//!     while let Some(event) = events.next().await {
//!         match event.body {
//!             EventBody::ApprovalRequested { approval, .. } => {
//!                 let answer = Decision::Approve; // Show `approval.call` to a person, and ask.
//!                 driver.decide_approval(&DecisionRequest::of(&approval, answer), &me).await?;
//!             }
//!             EventBody::ToolCompleted { output, .. } => println!("{}", output.text()),
//!             EventBody::RunCompleted { result } => assert_eq!(result.text, "Ann was paid."),
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! An embedder that has a rule in place of a person implements [`Approve`]. Reviews are recorded if
//! [`ApprovalSettings::sink`] is set.

mod application;
mod approve;
mod batch;
mod builder;
mod driver;
mod executions;
mod figures;
mod idle;
pub mod operation;
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
mod trace;
mod turn;
mod usage;

pub use application::ApplicationToolSettings;
pub use approve::{Approve, ApproveContext, Permission};
pub use builder::{ApprovalFeature, ApprovalSettings, BuildError, Builder, IdlePause, RunLimits};
pub use driver::{Driver, Prepared};
pub use figures::{DecisionTimes, Figures};
#[cfg(feature = "schema")]
pub use schema::{InputSchema, InvalidSchema, Misfit};
pub use scope::Scope;
pub use stream::EventStream;
pub use tools::{
    Input, InvalidOutput, InvalidTool, MAX_OUTPUT_BYTES, Output, Review, Tool, ToolContext, ToolSpec, tool,
};
pub use trace::LogArguments;
