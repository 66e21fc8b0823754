//! What the tests share: a clock, records to write, and an independent reading of the format.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, AuditSink};
use countersign_approval_core::clock::{Clock, Now, Timestamp};
use countersign_approval_core::ids::{ApprovalId, CallId, ProviderId, RunId, Subject, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy, Outcome, Resolution};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_store::audit_file::{AuditFile, Recovery};
use countersign_store::{Error, Why};
use sha2::{Digest as _, Sha256};

use crate::memory::Disk;

/// Shows a later millisecond each time, and counts how often it was read.
#[derive(Default)]
pub(crate) struct Ticks(AtomicU64);

impl Ticks {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Clock for Ticks {
    fn now(&self) -> Now {
        let ticks = self.0.fetch_add(1, Ordering::SeqCst);
        let wall = Timestamp::from_millis(1_767_323_045_000).saturating_add(Duration::from_millis(ticks));
        Now { wall, monotonic: Duration::from_millis(ticks) }
    }
}

pub(crate) fn open(disk: &Disk) -> Result<(AuditFile, Recovery), Error> {
    AuditFile::open_with(Box::new(disk.open()), Arc::new(Ticks::default()))
}

pub(crate) fn open_path(path: &Path) -> Result<(AuditFile, Recovery), Error> {
    AuditFile::open(path, Arc::new(Ticks::default()))
}

pub(crate) fn approval_id(number: u64) -> ApprovalId {
    ApprovalId::parse(&format!("0b1d0000-0000-4000-8000-{number:012x}")).unwrap()
}

pub(crate) fn run_id(number: u64) -> RunId {
    RunId::parse(&format!("6f0c0000-0000-4000-8000-{number:012x}")).unwrap()
}

fn question(number: u64, arguments: &str) -> Arc<ApprovalRequest> {
    let call = ToolCall {
        id: CallId::parse(&format!("call-{number}")).unwrap(),
        name: ToolName::parse("transfer").unwrap(),
        arguments: Exact::parse(arguments).unwrap(),
    };
    Arc::new(ApprovalRequest {
        approval_id: approval_id(number),
        run_id: run_id(number),
        call: Snapshot::freeze(call).unwrap(),
        requested_at: Timestamp::from_millis(1_767_323_045_000),
        idle_policy: IdlePolicy::Pause,
        expires_at: None,
    })
}

pub(crate) fn requested_with(number: u64, arguments: &str) -> AuditRecord {
    let approval = question(number, arguments);
    AuditRecord::Requested {
        subject: Subject::parse("ada").unwrap(),
        provider: ProviderId::parse("mock").unwrap(),
        digest: approval.call.digest(),
        approval,
    }
}

pub(crate) fn requested(number: u64) -> AuditRecord {
    requested_with(number, &format!(r#"{{"to":"b","amount":{number}}}"#))
}

pub(crate) fn resolved(number: u64) -> AuditRecord {
    let approval = question(number, &format!(r#"{{"to":"b","amount":{number}}}"#));
    AuditRecord::Resolved {
        subject: Subject::parse("ada").unwrap(),
        provider: ProviderId::parse("mock").unwrap(),
        digest: approval.call.digest(),
        resolution: Resolution {
            approval_id: approval.approval_id,
            run_id: approval.run_id,
            call_id: approval.call.call().id.clone(),
            outcome: Outcome::Approved,
            decided_at: Timestamp::from_millis(1_767_323_046_000),
        },
        approval,
        reason: None,
    }
}

/// A small record that can be told from every other by its tag.
pub(crate) fn tagged(tag: &str) -> AuditRecord {
    AuditRecord::Rejected {
        subject: Subject::parse("eve").unwrap(),
        approval_id: Some(tag.into()),
        run_id: None,
        code: "APPROVAL_NOT_FOUND",
    }
}

/// The bytes of a file with these records.
pub(crate) fn file_of(records: &[AuditRecord]) -> Vec<u8> {
    let disk = Disk::default();
    let (audit, _) = open(&disk).unwrap();
    for record in records {
        audit.record(record).unwrap();
    }
    disk.bytes()
}

/// Six lines: two decided reviews, one open, and a refusal.
pub(crate) fn sample() -> Vec<u8> {
    file_of(&[requested(1), resolved(1), tagged("x"), requested(2), resolved(2), requested(3)])
}

/// The records of a file, read as `docs/audit.md` tells a stranger to read it: independent of the crate's code.
pub(crate) fn oracle(file: &[u8]) -> Result<Vec<serde_json::Value>, String> {
    let mut records = Vec::new();
    let mut hash = "0".repeat(64);
    let text = std::str::from_utf8(file).map_err(|e| e.to_string())?;
    for (index, line) in text.split_terminator('\n').enumerate() {
        let mut entry: serde_json::Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        if entry["n"] != index as u64 + 1 || entry["prev"] != hash.as_str() {
            return Err(format!("line {} does not follow", index + 1));
        }
        hash = hex(&Sha256::digest(line));
        records.push(entry["record"].take());
    }
    if file.last().is_some_and(|b| *b != b'\n') {
        return Err("torn".into());
    }
    Ok(records)
}

/// The file with its chain made anew from line `from` on (counted from 1), as a forger would.
pub(crate) fn rechain(lines: &[String], from: usize) -> Vec<u8> {
    let mut hash = "0".repeat(64);
    let mut file = String::new();
    for (index, line) in lines.iter().enumerate() {
        let mut line = line.clone();
        if index + 1 >= from {
            let (_, rest) = line.split_once(",\"at\"").unwrap();
            let (at, rest) = rest.split_once(",\"prev\":\"").unwrap();
            line = format!("{{\"n\":{},\"at\"{at},\"prev\":\"{hash}{}", index + 1, &rest[64..]);
        }
        hash = hex(&Sha256::digest(&line));
        file.push_str(&line);
        file.push('\n');
    }
    file.into_bytes()
}

pub(crate) fn lines(file: &[u8]) -> Vec<String> {
    std::str::from_utf8(file).unwrap().lines().map(str::to_owned).collect()
}

pub(crate) fn joined(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

/// Line and reason, if that is why it failed.
pub(crate) fn broken<T>(result: Result<T, Error>) -> Option<(u64, Why)> {
    match result {
        Err(Error::Broken(broken)) => Some((broken.line, broken.why)),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// SplitMix64: small, and the same everywhere for a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
