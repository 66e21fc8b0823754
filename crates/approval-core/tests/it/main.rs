//! The public API of the crate.

mod audit;
mod histories;
mod json;
mod json_laws;
mod json_vectors;
mod registry;
mod registry_bench;
mod registry_states;
mod types;
mod types_decision;
mod types_echo;
mod types_time;
