//! Model providers for the Countersign driver: one module a vendor, and a scripted one that needs no network.
//!
//! - [`Scripted`] plays turns that its configuration or code wrote down: the embedded default, and what tests and demos
//!   use.
//! - [`OpenAiChat`] speaks Chat Completions over HTTP with any compatible server (feature `openai-chat`, contract 11).
//!
//! Both implement [`Provider`](countersign_driver::provider::Provider).
//!
//! Invariant: no module here parses a call's argument text and prints it again. What a model wrote reaches the driver
//! byte for byte, and only the driver's gate judges it (laws 1 and 3).
//!
//! ```
//! use countersign_providers::{Scripted, Step};
//!
//! let provider = Scripted::builder("mock")
//!     .models(["demo"])
//!     .script("Save it", [Step::call("call-1", "save_proposal", r#"{"title":"Clay"}"#), Step::text("Saved.")])
//!     .build()?;
//! # let _ = provider;
//! # Ok::<(), countersign_providers::Error>(())
//! ```

mod common;
mod error;
mod fields;
#[cfg(feature = "openai-chat")]
mod http;
#[cfg(feature = "openai-chat")]
mod openai_chat;
mod scripted;

pub use error::Error;
#[cfg(feature = "openai-chat")]
pub use openai_chat::{Delivery, OpenAiChat, OpenAiChatConfig};
pub use scripted::{Scripted, ScriptedBuilder, ScriptedConfig, Step};
