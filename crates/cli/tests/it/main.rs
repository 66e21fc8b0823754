//! The real binary, as a person and a script use it (design 7).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in test functions; the helpers beside them are tests as well"
)]
#![allow(clippy::type_complexity, reason = "tables of cases")]

mod audit;
mod command_tools;
mod demo;
mod exposed;
mod hosted;
mod lost;
mod operations;
mod probe;
mod run_code;
mod secrets;
mod support;
mod terminal;
mod usage;
