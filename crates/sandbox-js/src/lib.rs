//! The JavaScript sandbox of Countersign will live here: an agent's program calls functions, and marked ones wait for
//! a person (`deny`, `pause`, `collect`).
//!
//! Nothing is built yet, and nothing pretends to be: this crate has no public items. It stands in the workspace so
//! that the arrows between the crates are checked from the beginning.
