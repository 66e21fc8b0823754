//! The audit file: append-only JSON lines, each with the hash of the one before, durable before it is reported
//! (design 7, law 2). `docs/audit.md` describes the format and what it proves.

mod commit;
mod entry;
mod head;
mod hole;
mod io;
mod line;
mod reader;
mod reviews;
mod verify;

use std::fmt;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::clock::Clock;

pub use entry::Entry;
pub use head::{Anchor, Head, InvalidHead, LineHash};
pub use io::AuditIo;
pub use line::MAX_LINE_BYTES;
pub use reader::Reader;
pub use reviews::{MAX_OPEN_REVIEWS, OpenReview};
pub use verify::{Verified, verify, verify_reader};

use crate::error::{Broken, Error, Why};
use commit::Commit;
use reviews::OpenReviews;

/// An audit file that is open for writing: an [`AuditSink`] whose records are on the disk when it says so.
///
/// After a failed write or sync it refuses every record, until the file is opened again.
///
/// ```
/// # use countersign_approval_core::clock::{Clock, Now, Timestamp};
/// # struct Still;
/// # impl Clock for Still {
/// #     fn now(&self) -> Now {
/// #         Now { wall: Timestamp::from_millis(0), monotonic: std::time::Duration::ZERO }
/// #     }
/// # }
/// # let clock = std::sync::Arc::new(Still);
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("audit.jsonl");
/// use countersign_approval_core::audit::{AuditRecord, AuditSink};
/// use countersign_approval_core::ids::Subject;
/// use countersign_store::audit_file::{AuditFile, verify};
///
/// let (audit, recovery) = AuditFile::open(&path, clock)?;
/// assert_eq!(recovery.torn_bytes, None);
/// audit.record(&AuditRecord::Rejected {
///     subject: Subject::local(),
///     approval_id: None,
///     run_id: None,
///     code: "INVALID_APPROVAL",
/// })?;
///
/// // Noted elsewhere, the head lets anyone see later whether lines were changed or cut.
/// let anchor = audit.head();
/// assert_eq!(verify(&path, Some(anchor.into()))?.anchored, Some(1));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct AuditFile {
    commit: Commit,
    clock: Arc<dyn Clock>,
}

/// What [`AuditFile::open`] found and wrote down.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Recovery {
    /// How many bytes of a torn last write were moved to `FILE.torn`, if there were any.
    pub torn_bytes: Option<u64>,
    /// The reviews that were open when the last writer ended; each has an `approval.abandoned` record now.
    pub abandoned: Vec<OpenReview>,
}

impl AuditFile {
    /// Opens the file at `path`, or creates it with mode 0600, and takes its lock.
    ///
    /// The whole chain is verified first, so this reads the file once. A torn last line is moved to `FILE.torn`
    /// and a `recovered` record appended; each review that was asked and never ended gets an
    /// `approval.abandoned` record. All of this is durable when it returns.
    ///
    /// # Errors
    /// [`Error::Locked`] if somebody else writes the file; [`Error::Broken`] if its chain is broken, and then
    /// nothing is changed; [`Error::TooManyOpen`]; [`Error::Io`].
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<(Self, Recovery), Error> {
        Self::open_with(Box::new(io::LockedFile::open(path)?), clock)
    }

    /// Opens an audit file over other file operations, as [`AuditFile::open`] does.
    ///
    /// # Errors
    /// As [`AuditFile::open`].
    pub fn open_with(mut io: Box<dyn AuditIo>, clock: Arc<dyn Clock>) -> Result<(Self, Recovery), Error> {
        let found = scan(&mut *io)?;
        let mut records = Vec::new();
        let failed = |source| Error::Io { action: "move the torn last line away".into(), source };
        if let Some(torn) = &found.torn {
            io.set_aside(torn).map_err(failed)?;
        }
        if found.spare_bytes > 0 {
            io.cut(found.intact_bytes).map_err(failed)?;
        }
        if let Some(torn) = &found.torn {
            let moved_to = io.aside_name().into();
            records.push(AuditRecord::Recovered { torn_bytes: torn.len() as u64, moved_to });
        }
        records.extend(
            found.open.iter().map(|review| AuditRecord::Abandoned {
                approval_id: review.approval_id,
                run_id: review.run_id,
            }),
        );
        let (mut head, mut lines, at) = (found.head, Vec::new(), clock.now().wall);
        for record in &records {
            let record = encode(record)?;
            line::check_length(head.n + 1, record.len())?;
            line::push(&mut lines, &mut head, at, &record);
        }
        // Synced even if there is nothing to add: what was read may still be on its way to the disk.
        commit::write_durably(&mut *io, &lines)
            .map_err(|source| Error::Io { action: "write down what was found".into(), source })?;
        let recovery =
            Recovery { torn_bytes: found.torn.map(|torn| torn.len() as u64), abandoned: found.open };
        if recovery.torn_bytes.is_some() || !recovery.abandoned.is_empty() {
            tracing::warn!(
                torn_bytes = recovery.torn_bytes,
                abandoned = recovery.abandoned.len(),
                "the last writer of the audit file did not end well"
            );
        }
        Ok((Self { commit: Commit::new(io, head), clock }, recovery))
    }

    /// The last line that is durable. Note it elsewhere from time to time: it is what `audit verify --head` takes.
    pub fn head(&self) -> Head {
        self.commit.durable()
    }
}

impl AuditSink for AuditFile {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        Ok(self.commit.record(&*self.clock, &encode(record)?)?)
    }

    fn blocking(&self) -> bool {
        true
    }
}

impl fmt::Debug for AuditFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditFile").field("head", &self.head()).finish_non_exhaustive()
    }
}

fn encode(record: &AuditRecord) -> Result<Vec<u8>, Error> {
    // Most records fit.
    let mut text = Vec::with_capacity(1024);
    serde_json::to_writer(&mut text, record).map_err(Error::Encode)?;
    Ok(text)
}

/// What stands in a file.
struct Found {
    head: Head,
    intact_bytes: u64,
    /// How many bytes follow those.
    spare_bytes: u64,
    torn: Option<Vec<u8>>,
    open: Vec<OpenReview>,
}

/// Reads the whole chain and changes nothing.
fn scan(io: &mut dyn AuditIo) -> Result<Found, Error> {
    let mut reader = Reader::new(BufReader::with_capacity(1 << 16, From { io, offset: 0 }));
    let mut reviews = OpenReviews::default();
    let mut torn_bytes = None;
    for entry in reader.by_ref() {
        match entry {
            Ok(entry) => reviews.note(&entry)?,
            Err(Error::Broken(Broken { why: Why::Torn { bytes }, .. })) => torn_bytes = Some(bytes),
            Err(error) => return Err(error),
        }
    }
    let (head, intact_bytes, spare_bytes) = (reader.head(), reader.intact_bytes(), reader.spare_bytes());
    let torn = match torn_bytes {
        Some(bytes) => {
            let mut torn = Vec::new();
            From { io, offset: intact_bytes }
                .take(bytes)
                .read_to_end(&mut torn)
                .map_err(|source| Error::Io { action: "read the torn last line".into(), source })?;
            Some(torn)
        }
        None => None,
    };
    Ok(Found { head, intact_bytes, spare_bytes, torn, open: reviews.into_list() })
}

/// Reads from an offset on.
struct From<'a> {
    io: &'a mut dyn AuditIo,
    offset: u64,
}

impl Read for From<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.io.read_at(self.offset, buffer)?;
        self.offset += read as u64;
        Ok(read)
    }
}
