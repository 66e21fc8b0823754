//! The client of Countersign: it starts runs at a host, follows their events and sends a person's decisions.
//!
//! Start at [`Client::builder`]. [`Client::stream`] gives the events of a run as an [`EventStream`]; dropping it hangs
//! up, and the host cancels the run. [`Client::decide_approval`] answers one `approval.requested`. A [`ToolBox`] runs functions of this program as
//! tools of the model. The client is as
//! strict as every client of the protocol (contract 10): what it hands out has been checked, and a host that breaks
//! the protocol gives an [`Error`].
//!
//! Invariant: no request is ever sent twice, by this crate or by anything below it, and no redirect is followed. A
//! decision whose receipt was lost is not repeated; the run's stream tells what happened ([`Error::is_uncertain`]).
//!
//! It needs a Tokio runtime with time and I/O enabled.
//!
//! ```no_run
//! use countersign_approval_core::decision::DecisionRequest;
//! use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
//! use countersign_approval_core::review::{Decision, IdlePolicy};
//! use countersign_client::Client;
//! use countersign_protocol::event::EventBody;
//! use countersign_protocol::request::{Approvals, RunRequest};
//!
//! # async fn review(_: &countersign_approval_core::snapshot::ToolCall) -> Decision { Decision::Deny }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("https://agents.example.org", "the token".into()).build()?;
//! let mut request = RunRequest::new(
//!     ProviderId::parse("YOUR_INSTANCE")?,
//!     ModelId::parse("YOUR_MODEL")?,
//!     "Propose the requested change",
//! );
//! request.tools = vec![ToolName::parse("save_proposal")?];
//! request.approvals = Some(Approvals::new(IdlePolicy::Pause));
//!
//! let mut events = client.stream(&request).await?;
//! while let Some(event) = events.next().await {
//!     match event?.body {
//!         EventBody::ApprovalRequested { approval, .. } => {
//!             // A person looks at exactly this call, and exactly this call is sent back.
//!             let decision = review(approval.call.call()).await;
//!             client.decide_approval(&DecisionRequest::of(&approval, decision)).await?;
//!         }
//!         EventBody::RunCompleted { result } => println!("{}", result.text),
//!         EventBody::RunFailed { error } | EventBody::RunCancelled { error } => eprintln!("{error}"),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```

mod answer;
mod base_url;
mod builder;
mod catalog;
mod client;
mod error;
mod stream;
mod tool_box;
pub mod transport;

pub use builder::ClientBuilder;
pub use client::Client;
pub use error::{Error, Misuse};
pub use stream::EventStream;
pub use tool_box::{ToolBox, ToolContext, ToolStream};
