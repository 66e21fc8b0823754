//! Seeded histories: records, faults, kills and power failures at any operation, then opening again
//! (laws 2 and 8; I3, I7, R6).
//!
//! Each seed is one history. `COUNTERSIGN_SEED=n` repeats one; `COUNTERSIGN_SECONDS=s` says for how long new
//! ones are tried (2 by default). The seed of a failing history is printed. In histories with threads it fixes
//! the plan, but not which thread comes first.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

use countersign_approval_core::audit::{AuditRecord, AuditSink};
use countersign_store::audit_file::{AuditFile, Head, Reader, verify_reader};
use serde_json::Value;

use crate::memory::{Disk, Fault};
use crate::support::{Rng, open, oracle, requested, resolved, tagged};

#[test]
fn accepted_records_survive_every_history() {
    run(|seed| History::new(seed).sequential());
}

#[test]
fn accepted_records_survive_every_history_with_threads() {
    run(|seed| History::new(seed).threaded());
}

fn run(history: impl Fn(u64)) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("COUNTERSIGN_SEED") {
        return history(seed);
    }
    let limit = Duration::from_secs(number("COUNTERSIGN_SECONDS").unwrap_or(2));
    let start = Instant::now();
    let first = u64::from(std::process::id()) << 32;
    let mut tried = 0;
    // At least one, however slow the machine.
    while tried == 0 || start.elapsed() < limit {
        let seed = first + tried;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| history(seed))) {
            eprintln!("repeat with COUNTERSIGN_SEED={seed}");
            resume_unwind(panic);
        }
        tried += 1;
    }
    println!("{tried} histories from seed {first}");
}

struct History {
    disk: Disk,
    rng: Rng,
    /// Makes every record one of its kind.
    next: u64,
    /// What was accepted, as text: for each thread, in its order.
    accepted: Vec<Vec<String>>,
    /// Where the chain stood, durably, whenever that was known.
    heads: Vec<Head>,
}

impl History {
    fn new(seed: u64) -> Self {
        Self { disk: Disk::default(), rng: Rng(seed), next: 0, accepted: Vec::new(), heads: Vec::new() }
    }

    fn sequential(mut self) {
        for _ in 0..1 + self.rng.below(4) {
            self.plan();
            if let Some(audit) = self.open() {
                let mut accepted = Vec::new();
                for record in self.work(12) {
                    let before = audit.head();
                    match audit.record(&record) {
                        Ok(()) => {
                            assert_eq!(audit.head().n, before.n + 1);
                            accepted.push(text(&record));
                        }
                        Err(_) => assert_eq!(audit.head(), before),
                    }
                }
                self.accepted.push(accepted);
                self.heads.push(audit.head());
            }
            self.end();
        }
    }

    fn threaded(mut self) {
        for _ in 0..1 + self.rng.below(3) {
            self.plan();
            if let Some(audit) = self.open() {
                let work: Vec<_> = (0..3).map(|_| self.work(6)).collect();
                let accepted = thread::scope(|scope| {
                    let accept = |record: &&AuditRecord| audit.record(record).is_ok();
                    let threads: Vec<_> = work
                        .iter()
                        .map(|records| scope.spawn(move || records.iter().filter(accept).map(text).collect()))
                        .collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
                });
                self.accepted.extend(accepted);
                self.heads.push(audit.head());
            }
            self.end();
        }
    }

    /// What goes wrong in this process, if anything does.
    fn plan(&mut self) {
        let fault = Fault::ALL[self.rng.below(Fault::ALL.len())];
        self.disk.heal();
        if self.rng.below(5) > 0 {
            self.disk.fail(self.rng.below(16) as u64, fault);
        }
    }

    fn open(&mut self) -> Option<AuditFile> {
        // Only while opening does a panic of the file operations go further.
        let (audit, _) = catch_unwind(AssertUnwindSafe(|| open(&self.disk))).ok()?.ok()?;
        self.heads.push(audit.head());
        Some(audit)
    }

    /// What one thread writes: fewer than `limit` records. Records of one review come in their order.
    fn work(&mut self, limit: usize) -> Vec<AuditRecord> {
        let mut asked = Vec::new();
        let mut records = Vec::new();
        for _ in 0..self.rng.below(limit) {
            self.next += 1;
            records.push(match self.rng.below(3) {
                0 => {
                    asked.push(self.next);
                    requested(self.next)
                }
                1 if !asked.is_empty() => resolved(asked.swap_remove(self.rng.below(asked.len()))),
                _ => tagged(&self.next.to_string()),
            });
        }
        records
    }

    /// The process is gone, perhaps with the power. Opens the file again and looks at it.
    fn end(&mut self) {
        if self.rng.below(2) == 0 {
            self.disk.power_failure(&mut self.rng);
        }
        self.disk.heal();
        let (audit, _) = open(&self.disk).expect("whatever happened, the file can be opened again");
        self.heads.push(audit.head());
        drop(audit);

        let file = self.disk.bytes();
        let values = oracle(&file).unwrap();
        let records: Vec<_> = values.iter().map(ToString::to_string).collect();
        // Every line that was durable once still stands where it stood. One reading serves for all of them.
        let chain: Vec<_> = Reader::new(&file[..]).map(|entry| entry.unwrap().hash).collect();
        for head in &self.heads {
            assert!(head.n == 0 || chain[head.n as usize - 1] == head.hash, "{head}");
        }
        let verified = verify_reader(&file[..], self.heads.last().map(|head| (*head).into())).unwrap();
        assert!(verified.open.is_empty(), "law 5: no review stays open");
        // I3: whatever was accepted is there, once, and in its order.
        for accepted in &self.accepted {
            let places: Vec<_> = accepted
                .iter()
                .map(|accepted| {
                    let found: Vec<_> = (0..records.len()).filter(|i| records[*i] == *accepted).collect();
                    assert_eq!(found.len(), 1, "{accepted}");
                    found[0]
                })
                .collect();
            assert!(places.is_sorted());
        }
        Self::ends_of_reviews(&values);
    }

    /// I7: each review that stands in the file has one end.
    fn ends_of_reviews(records: &[Value]) {
        let ids = |kind: &str| -> Vec<String> {
            let of_kind = records.iter().filter(|r| r["type"] == kind);
            of_kind
                .map(|r| {
                    r["approvalId"].as_str().or(r["approval"]["approvalId"].as_str()).unwrap().to_owned()
                })
                .collect()
        };
        let mut asked = ids("approval.requested");
        let mut ended = [ids("approval.resolved"), ids("approval.abandoned")].concat();
        asked.sort();
        ended.retain(|id| asked.binary_search(id).is_ok());
        ended.sort();
        assert_eq!(ended, asked);
    }
}

/// With its members sorted, as the independent reading gives them.
fn text(record: &AuditRecord) -> String {
    serde_json::from_str::<Value>(&serde_json::to_string(record).unwrap()).unwrap().to_string()
}
