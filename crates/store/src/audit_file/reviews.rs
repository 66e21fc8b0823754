//! Which reviews were asked and never ended.

use std::collections::HashMap;

use countersign_approval_core::ids::{ApprovalId, RunId};

use super::entry::Entry;
use crate::Error;

/// The most undecided reviews that are kept track of in one file: far more than a host lets wait at once.
pub const MAX_OPEN_REVIEWS: usize = 200_000;

/// A review that was asked and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReview {
    /// The review.
    pub approval_id: ApprovalId,
    /// Its run.
    pub run_id: RunId,
}

#[derive(Debug, Default)]
pub(crate) struct OpenReviews(HashMap<ApprovalId, (u64, RunId)>);

impl OpenReviews {
    /// Takes note of one entry, in the order of the file.
    pub(crate) fn note(&mut self, entry: &Entry) -> Result<(), Error> {
        // An id in another form is not ours: no version of the host could have asked under it.
        let Some(approval_id) = entry.approval_id.as_deref().and_then(ApprovalId::parse) else {
            return Ok(());
        };
        match entry.kind.as_str() {
            "approval.requested" => {
                let Some(run_id) = entry.run_id.as_deref().and_then(RunId::parse) else { return Ok(()) };
                self.0.insert(approval_id, (entry.n, run_id));
                if self.0.len() > MAX_OPEN_REVIEWS {
                    return Err(Error::TooManyOpen);
                }
            }
            "approval.resolved" | "approval.abandoned" => {
                self.0.remove(&approval_id);
            }
            _ => {}
        }
        Ok(())
    }

    /// What is open, in the order in which it was asked.
    pub(crate) fn into_list(self) -> Vec<OpenReview> {
        let mut open: Vec<_> = self.0.into_iter().collect();
        open.sort_unstable_by_key(|(_, (n, _))| *n);
        open.into_iter().map(|(approval_id, (_, run_id))| OpenReview { approval_id, run_id }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit_file::Reader;

    /// Law 9: the bound at its edge.
    #[test]
    fn as_many_reviews_as_the_bound_says_can_be_open() {
        let line = format!(
            r#"{{"n":1,"at":"2026-01-02T03:04:05.678Z","prev":"{}","record":{{"type":"approval.requested","approvalId":"","runId":"6f0c0000-0000-4000-8000-000000000001"}}}}"#,
            "0".repeat(64)
        ) + "\n";
        let mut entry = Reader::new(line.as_bytes()).next().unwrap().unwrap();
        let mut reviews = OpenReviews::default();
        for n in 0..=MAX_OPEN_REVIEWS {
            entry.approval_id = Some(format!("0b1d0000-0000-4000-8000-{n:012x}"));
            let noted = reviews.note(&entry);
            assert_eq!(noted.is_ok(), n < MAX_OPEN_REVIEWS, "review {n}");
        }
        assert_eq!(
            Error::TooManyOpen.to_string().split(' ').nth(2),
            Some("200000"),
            "the error names its bound"
        );
    }
}
