//! The host over real bytes: raw HTTP on in-memory pipes and on loopback sockets.

#![allow(clippy::type_complexity, reason = "tables of cases")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and what they share fail by panicking"
)]

mod bodies;
mod catalog;
#[cfg(unix)]
mod config;
mod decisions;
mod headers;
mod noise;
mod operations;
mod order;
mod runs;
mod shutdown;
mod streams;
mod support;
