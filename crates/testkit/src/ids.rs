//! Ids that are the same in every run of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use countersign_approval_core::ids::Ids;
use uuid::Uuid;

/// Counts: the first id ends in `0001`. They have the shape of UUID v4.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl Ids for CountingIds {
    fn uuid(&self) -> Uuid {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        uuid::Builder::from_random_bytes(u128::from(n).to_be_bytes()).into_uuid()
    }
}
