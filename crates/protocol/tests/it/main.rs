//! The public behaviour of `countersign-protocol`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod catalog;
mod codes;
mod conformance;
mod measured;
mod properties;
mod request;
mod shapes;
mod sse;
mod support;
