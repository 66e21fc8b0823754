//! Tests of the public API: against raw sockets, over memory, and with a transport of the tests' own.

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
