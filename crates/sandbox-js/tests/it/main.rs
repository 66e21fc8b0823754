//! The sandbox through its public API. Each test names the law, the scenario or the rule that it serves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may stop at what it does not expect, and prints for whoever looks"
)]

mod console;
mod deny;
mod determinism;
mod errors;
mod harness;
mod hostile;
mod limits;
mod pause;
mod source;
mod walker;
