//! Tests of the providers through their public API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy.toml allows them in test functions; the helpers beside them are tests as well"
)]

mod heard;
mod scripted;
mod scripted_config;

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "openai-chat")]
mod chat;
#[cfg(feature = "http")]
mod conformance;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(feature = "openai-responses")]
mod responses;
#[cfg(feature = "http")]
mod server;

#[cfg(all(feature = "openai-chat", feature = "openai-responses", feature = "anthropic", feature = "gemini"))]
mod discover;
#[cfg(all(feature = "openai-chat", feature = "openai-responses", feature = "anthropic", feature = "gemini"))]
mod probe;
