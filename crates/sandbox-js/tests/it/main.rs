//! The sandbox through its public API. Each test names the law, the scenario or the rule that it serves.

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
