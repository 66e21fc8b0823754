//! The host over real bytes: raw HTTP on in-memory pipes and on loopback sockets.

#![allow(clippy::type_complexity, reason = "tables of cases")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and what they share fail by panicking"
)]

mod additions;
mod bodies;
mod catalog;
#[cfg(unix)]
mod config;
mod connections;
mod decisions;
mod discovery;
mod executions;
mod headers;
mod hostile;
mod limits;
#[cfg(all(unix, feature = "metrics"))]
mod metrics;
mod noise;
mod operations;
mod order;
mod queue;
mod runs;
mod shutdown;
mod streams;
mod support;
#[cfg(feature = "tls")]
mod tls;
