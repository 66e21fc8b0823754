//! Verifying a file from outside: `countersign audit verify` (design 7).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::head::{Anchor, Head};
use super::reader::Reader;
use super::reviews::{OpenReview, OpenReviews};
use crate::error::{Broken, Error, Why};

/// What can be said of a file whose chain holds.
///
/// Without an anchor this says only that the lines belong together: a tail that was cut off, a changed last line,
/// and a whole file that was written anew cannot be seen. With one it holds up to [`anchored`](Self::anchored).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The last line; its `n` is the number of lines. Note it elsewhere, as the next anchor.
    pub head: Head,
    /// The number of the line that the given anchor names. Lines after it are chained, but not anchored.
    pub anchored: Option<u64>,
    /// Reviews that were asked and have not ended: waiting now, if the host is running.
    pub open: Vec<OpenReview>,
}

/// Verifies the file at `path`. Reads it once, in bounded memory, and takes no lock.
///
/// # Errors
/// [`Error::Broken`] names the first bad line and says why; [`Error::Io`] if the file cannot be read.
pub fn verify(path: &Path, anchor: Option<Anchor>) -> Result<Verified, Error> {
    let file = File::open(path)
        .map_err(|source| Error::Io { action: format!("open {}", path.display()), source })?;
    verify_reader(BufReader::with_capacity(1 << 16, file), anchor)
}

/// Verifies what `input` gives, as [`verify`] does.
///
/// # Errors
/// As [`verify`].
pub fn verify_reader(input: impl BufRead, anchor: Option<Anchor>) -> Result<Verified, Error> {
    let mut reader = Reader::new(input);
    let mut reviews = OpenReviews::default();
    let mut anchored = check(anchor, Head::GENESIS)?;
    while let Some(entry) = reader.next() {
        reviews.note(&entry?)?;
        anchored = check(anchor, reader.head())?.or(anchored);
    }
    let head = reader.head();
    if let (Some(anchor), None) = (anchor, anchored) {
        let (line, why) = match anchor.n {
            Some(expected) => (head.n + 1, Why::HeadMissing { expected }),
            None => (head.n, Why::HeadNotFound),
        };
        return Err(Broken { line, why, intact: head }.into());
    }
    Ok(Verified { head, anchored, open: reviews.into_list() })
}

/// Whether the anchor names this line; an error if it names it by number and the hash is another.
fn check(anchor: Option<Anchor>, line: Head) -> Result<Option<u64>, Error> {
    match anchor {
        Some(anchor) if anchor.hash == line.hash && anchor.n.is_none_or(|n| n == line.n) => Ok(Some(line.n)),
        Some(anchor) if anchor.n == Some(line.n) => {
            Err(Broken { line: line.n, why: Why::HeadDiffers { found: line.hash }, intact: line }.into())
        }
        _ => Ok(None),
    }
}
