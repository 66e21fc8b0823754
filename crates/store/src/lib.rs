//! The embedded durable parts of Countersign (design 2). It decides nothing: it keeps what others decided.
//!
//! Start at [`audit_file::AuditFile`]: an append-only file of audit records, each line chained to the one before
//! by its hash, and durable before [`record`](countersign_approval_core::audit::AuditSink::record) returns.
//! [`audit_file::verify`] checks such a file, and [`audit_file::Reader`] reads it. With the feature `sqlite`,
//! `sqlite::Operations` keeps what runs with an idempotency key did.

pub mod audit_file;
mod error;
mod identity;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use error::{Broken, Error, Why};
