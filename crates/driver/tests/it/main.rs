//! The driver's public API, under paused time.

mod behaviours;
mod gate;
mod idle;
mod requests;
mod sequences;
mod support;
mod tools;
