//! The driver's public API, under paused time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at what it does not expect"
)]
#![allow(clippy::type_complexity, reason = "tables of cases")]

mod additions;
mod ahead;
mod application;
mod behaviours;
mod gate;
mod histories;
mod idle;
mod load;
mod observed;
mod operations;
mod output;
mod requests;
mod runtimes;
mod sequences;
mod support;
mod tools;
