//! Tests of the public API: against raw sockets, over memory, and with a transport of the tests' own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod answers;
mod conformance;
mod decisions;
mod events;
mod memory;
mod requests;
mod server;
mod streams;
mod timeouts;
mod tls;
mod tools;
