//! Durable parts in SQLite (design 2, feature `sqlite`). A file belongs to one process: it is locked while it is open, so
//! what stands in it as running was left behind by a process that ended.
//!
//! Everything is committed to the file itself and synced (`synchronous=FULL`, a rollback journal) before a call
//! returns. The database works on a thread of its own; no call blocks an async thread.

mod file;
mod operations;
mod table;
mod worker;

pub use operations::{Operations, Recovery};
