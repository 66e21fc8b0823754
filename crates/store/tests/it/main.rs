//! The public behaviour of `countersign-store`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "clippy.toml allows them in test functions; the helpers beside them are tests as well"
)]

mod chain;
mod faults;
mod files;
mod group;
mod histories;
mod killed;
mod memory;
#[cfg(feature = "sqlite")]
mod operations;
#[cfg(feature = "sqlite")]
mod operations_damage;
mod reading;
mod support;
mod torn;
