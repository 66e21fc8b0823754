//! The public API of the crate.

mod json;
mod json_laws;
mod json_vectors;
