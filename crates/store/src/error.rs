//! The errors of this crate. None of them is for a client's eyes: a host answers `APPROVAL_AUDIT_FAILED` and logs
//! the rest (contract 4.8).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use countersign_approval_core::audit::BoxError;

use crate::audit_file::{Head, LineHash, MAX_LINE_BYTES, MAX_OPEN_REVIEWS};

/// Why a file of this crate could not be opened, written or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another part of this one, writes this file.
    #[error("{} is in use: one writer a file", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not an unbroken chain. Nothing was changed.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The operating system refused an operation outside of [`record`].
    ///
    /// [`record`]: countersign_approval_core::audit::AuditSink::record
    #[error("cannot {action}")]
    Io {
        /// What was tried, such as `open audit.jsonl`.
        action: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file has more undecided reviews than this crate keeps track of. Nothing was changed.
    #[error("more than {MAX_OPEN_REVIEWS} reviews were asked and never ended in this file; start a new file")]
    TooManyOpen,
    /// The record could not be written as JSON. Nothing was written; the file stays usable.
    #[error("the record cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
    /// The line would be longer than readers accept. Nothing was written; the file stays usable.
    #[error("the audit line would have {bytes} bytes; at most {MAX_LINE_BYTES} are written")]
    LineTooLong {
        /// Its length without the newline.
        bytes: usize,
    },
    /// A write or a sync failed, in this call or before it. Nothing is accepted until the file is opened again,
    /// for nobody knows what the disk holds.
    #[error("the audit file failed and accepts nothing until it is opened again")]
    Stopped {
        /// The first failure.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The file is a database of another program, or no database. Nothing was changed.
    #[error("{} is not a database of {what}", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was looked for, such as `operations`.
        what: &'static str,
    },
    /// The database was written by a later version. Nothing was changed.
    #[error("{} has schema version {found}; this program knows {known}", path.display())]
    SchemaVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version of this program.
        known: i64,
    },
    /// What a database holds is not what was written. Restore it from a copy, or put it away and start without it.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// SQLite refused an operation.
    #[error("cannot {action}")]
    Sqlite {
        /// What was tried, such as `open operations.db`.
        action: String,
        /// What it said.
        #[source]
        source: BoxError,
    },
}

/// Where the chain ends that a reader can vouch for, and why it ends there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
#[non_exhaustive]
pub struct Broken {
    /// The first bad line, counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: Why,
    /// The last good line before it.
    pub intact: Head,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The line is not JSON, and other lines follow it.
    #[error("it is not JSON")]
    NotJson,
    /// JSON, but not `{"n","at","prev","record"}` in the form in which it is written.
    #[error("it does not have the form of an audit line")]
    Shape,
    /// Longer than any line that is written.
    #[error("it has more than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// A line was removed, added or moved.
    #[error("its n is {found}")]
    Number {
        /// What stands there.
        found: u64,
    },
    /// The line before it is not the one that it was written after.
    #[error("its prev is not the hash of the line before: that line, or the order, was changed")]
    Prev,
    /// The file ends inside a line: a write was cut off, or the last line was damaged. Its record was not
    /// accepted, unless it was damaged afterwards.
    #[error("it is torn: the last {bytes} bytes of the file are not a whole line")]
    Torn {
        /// How many bytes there are, a newline included, and zero bytes at the end of the file not.
        bytes: u64,
    },
    /// Bytes that nobody wrote, and after them what no write leaves that was cut off: a part of the file was lost.
    #[error(
        "zero bytes stand in its place, and {bytes} bytes from its start on are used: a part of the file was lost"
    )]
    Unwritten {
        /// How many bytes there are from the start of the line to the last one that is not zero.
        bytes: u64,
    },
    /// The line has another hash than the one that was noted elsewhere.
    #[error("its hash is {found}, not that of the given head: this line or one before it was rewritten")]
    HeadDiffers {
        /// The hash of the line in the file.
        found: LineHash,
    },
    /// The file ends before the line that was noted elsewhere.
    #[error("it is missing: the given head is line {expected}, and the file was cut before it")]
    HeadMissing {
        /// The number of the given head.
        expected: u64,
    },
    /// No line has the hash that was noted elsewhere.
    #[error("it is the last, and no line has the hash of the given head: lines were rewritten or cut")]
    HeadNotFound,
}
