//! Group commit: concurrent records share a sync and keep their order (law 2, design 4).

use std::sync::Arc;
use std::thread;

use countersign_approval_core::audit::AuditSink;
use countersign_store::audit_file::{AuditFile, verify_reader};

use crate::memory::{Disk, Fault};
use crate::support::{Ticks, oracle, tagged};

const THREADS: u64 = 16;

/// Opens a file whose syncs wait until all [`THREADS`] have queued a record: the clock is read at that moment.
fn open_gated(disk: &Disk) -> Arc<AuditFile> {
    let clock = Arc::new(Ticks::default());
    let (audit, _) = AuditFile::open_with(Box::new(disk.open()), clock.clone()).unwrap();
    let read = clock.count();
    disk.on_sync(move || {
        while clock.count() < read + THREADS {
            thread::yield_now();
        }
    });
    Arc::new(audit)
}

/// Records one in each thread; says how many were accepted.
fn record_at_once(audit: &Arc<AuditFile>) -> usize {
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let audit = audit.clone();
            thread::spawn(move || audit.record(&tagged(&i.to_string())).is_ok())
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).filter(|accepted| *accepted).count()
}

#[test]
fn those_who_come_during_a_sync_share_the_next() {
    let disk = Disk::default();
    let audit = open_gated(&disk);
    let (syncs, operations) = (disk.syncs(), disk.operations());
    assert_eq!(record_at_once(&audit), 16);
    assert_eq!(disk.syncs() - syncs, 2, "the first alone, the others together");
    assert_eq!(disk.operations() - operations, 4, "one write for each sync");
    assert_eq!(oracle(&disk.bytes()).unwrap().len(), 16);
    assert_eq!(audit.head(), verify_reader(&disk.bytes()[..], None).unwrap().head);
}

/// Law 2: a batch that fails is accepted for none of those who share it, and the one before it stays accepted.
#[test]
fn a_failed_batch_is_accepted_for_nobody() {
    // The second batch's write, and its sync.
    for operation in [2, 3] {
        for fault in [Fault::Refuse, Fault::RefuseHalf, Fault::RefuseLate, Fault::Panic] {
            let disk = Disk::default();
            let audit = open_gated(&disk);
            disk.fail(operation, fault);
            assert_eq!(record_at_once(&audit), 1, "operation {operation}, {fault:?}");
            assert_eq!(audit.head().n, 1);
            assert!(audit.record(&tagged("late")).is_err());
        }
    }
}

#[test]
fn many_threads_keep_one_gapless_order() {
    const RECORDS: usize = 50;
    let disk = Disk::default();
    let (audit, _) = AuditFile::open_with(Box::new(disk.open()), Arc::new(Ticks::default())).unwrap();
    thread::scope(|scope| {
        for i in 0..THREADS {
            let audit = &audit;
            scope.spawn(move || {
                for j in 0..RECORDS {
                    audit.record(&tagged(&format!("{i} {j}"))).unwrap();
                }
            });
        }
    });
    let records = oracle(&disk.bytes()).unwrap();
    assert_eq!(records.len(), 16 * RECORDS);
    for i in 0..THREADS {
        let mine: Vec<_> = records
            .iter()
            .filter_map(|r| r["approvalId"].as_str()?.strip_prefix(&format!("{i} ")))
            .map(|j| j.parse::<usize>().unwrap())
            .collect();
        assert_eq!(mine, (0..RECORDS).collect::<Vec<_>>(), "records of thread {i}");
    }
    assert_eq!(audit.head().n as usize, records.len());
    assert!(audit.blocking(), "design 4: it runs on the blocking pool");
}
