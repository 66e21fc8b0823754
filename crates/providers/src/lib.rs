//! Model providers for the Countersign driver: one module a vendor, and a scripted one that needs no network.
//!
//! - [`Scripted`] plays turns that its configuration or code wrote down: the embedded default, and what tests and demos
//!   use.
//! - [`OpenAiChat`] speaks Chat Completions over HTTP with any compatible server (feature `openai-chat`, contract 11).
//! - [`OpenAiResponses`] speaks OpenAI's and xAI's Responses API (feature `openai-responses`).
//! - [`Anthropic`] speaks Anthropic's Messages API (feature `anthropic`).
//! - [`Gemini`] speaks Google's generateContent (feature `gemini`).
//!
//! All implement [`Provider`](countersign_driver::provider::Provider).
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

#[cfg(feature = "anthropic")]
mod anthropic;
mod common;
#[cfg(feature = "http")]
#[cfg_attr(
    not(any(
        feature = "openai-chat",
        feature = "openai-responses",
        feature = "anthropic",
        feature = "gemini"
    )),
    allow(dead_code, unused_imports, reason = "no adapter is built")
)]
mod discover;
mod error;
#[cfg(feature = "http")]
#[cfg_attr(
    not(any(
        feature = "openai-chat",
        feature = "openai-responses",
        feature = "anthropic",
        feature = "gemini"
    )),
    allow(dead_code, reason = "no adapter is built")
)]
mod events;
mod fields;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "openai-chat", feature = "gemini")),
    allow(dead_code, reason = "each vendor needs a part of it")
)]
mod http;
#[cfg(feature = "openai-chat")]
mod openai_chat;
#[cfg(feature = "openai-responses")]
mod openai_responses;
#[cfg(feature = "http")]
#[cfg_attr(
    not(any(
        feature = "openai-chat",
        feature = "openai-responses",
        feature = "anthropic",
        feature = "gemini"
    )),
    allow(dead_code, reason = "no adapter is built")
)]
mod probe;
mod scripted;

#[cfg(feature = "anthropic")]
pub use anthropic::{Anthropic, AnthropicConfig};
#[cfg(feature = "http")]
pub use common::Delivery;
pub use error::Error;
#[cfg(feature = "gemini")]
pub use gemini::{Gemini, GeminiConfig};
#[cfg(feature = "openai-chat")]
pub use openai_chat::{OpenAiChat, OpenAiChatConfig};
#[cfg(feature = "openai-responses")]
pub use openai_responses::{OpenAiResponses, OpenAiResponsesConfig, ResponsesVendor};
#[cfg(feature = "http")]
pub use probe::{Probe, Unreachable, Verdict};
pub use scripted::{Scripted, ScriptedBuilder, ScriptedConfig, Step};
