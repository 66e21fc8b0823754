//! Whether zero bytes between written ones are what a power failure leaves of one write, or a loss.

use std::collections::HashSet;

use super::entry::Entry;
use super::line;

/// No disk writes a part of a sector, so what it left out begins and ends with one.
const SECTOR: u64 = 512;

/// Whether `rest`, which begins at `offset` in the file and ends with a written byte, may be one write that was cut off.
pub(crate) fn is_torn_write(rest: &[u8], offset: u64) -> bool {
    left_out_sectors(rest, offset) && !follows_on_itself(rest)
}

/// Whether each run of zero bytes is made of whole sectors. The first may begin anywhere: where an earlier part of the
/// write, or the line before it, had reached the disk.
fn left_out_sectors(rest: &[u8], offset: u64) -> bool {
    let mut before = rest.first() == Some(&0);
    let mut holes = u64::from(before);
    (offset..).zip(rest).all(|(at, byte)| {
        let empty = *byte == 0;
        if before == empty {
            return true;
        }
        before = empty;
        holes += u64::from(empty);
        at % SECTOR == 0 || (empty && holes == 1)
    })
}

/// Whether one record stands there because another one did: that one was durable before, so this is no single write.
fn follows_on_itself(rest: &[u8]) -> bool {
    let mut seen = HashSet::new();
    rest.split(|byte| *byte == b'\n').filter_map(|text| line::parse(text).ok()).any(|entry| {
        let Entry { kind, run_id, approval_id, call_id, .. } = entry;
        let execution = (run_id, call_id);
        match kind.as_str() {
            "approval.requested" => {
                seen.insert((approval_id, None));
                false
            }
            "approval.resolved" => !seen.insert((approval_id, None)),
            "execution.started" => {
                let decided = approval_id.is_some() && seen.contains(&(approval_id, None));
                seen.insert((None, Some(execution)));
                decided
            }
            "execution.finished" => seen.contains(&(None, Some(execution))),
            _ => false,
        }
    })
}
