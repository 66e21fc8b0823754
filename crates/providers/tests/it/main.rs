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

#[cfg(feature = "openai-chat")]
mod chat;
