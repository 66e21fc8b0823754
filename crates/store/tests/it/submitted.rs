//! Records that are taken without waiting: the same promise, told by a callback (law 2, design 4).

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError, Done, Submitted};
use countersign_store::Error;
use countersign_store::audit_file::AuditFile;

use crate::memory::{Disk, Fault};
use crate::support::{Ticks, open, oracle, tagged};

type Told = Receiver<Result<(), BoxError>>;

fn done() -> (Done, Told) {
    let (sender, told) = channel();
    (Box::new(move |accepted| sender.send(accepted).unwrap()), told)
}

/// A file whose sync is under way until the second barrier; and the thread that waits for it.
fn busy(disk: &Disk) -> (Arc<AuditFile>, Arc<Barrier>, thread::JoinHandle<bool>) {
    let audit = Arc::new(AuditFile::open_with(Box::new(disk.open()), Arc::new(Ticks::default())).unwrap().0);
    let barrier = Arc::new(Barrier::new(2));
    let (at_sync, first) = (barrier.clone(), std::sync::Once::new());
    disk.on_sync(move || {
        first.call_once(|| {
            at_sync.wait();
            at_sync.wait();
        });
    });
    let writer = audit.clone();
    let thread = thread::spawn(move || writer.record(&tagged("first")).is_ok());
    barrier.wait();
    (audit, barrier, thread)
}

fn submit(audit: &AuditFile, record: &AuditRecord) -> Told {
    let (done, told) = done();
    assert_eq!(audit.submit(record, done), Submitted::Taken);
    told
}

fn tags(disk: &Disk) -> Vec<String> {
    let records = oracle(&disk.bytes()).unwrap();
    records.iter().filter_map(|record| Some(record["approvalId"].as_str()?.to_owned())).collect()
}

#[test]
fn an_idle_file_takes_nothing() {
    let disk = Disk::default();
    let (audit, _) = open(&disk).unwrap();
    let before = disk.operations();
    for _ in 0..2 {
        let (done, told) = done();
        assert_eq!(audit.submit(&tagged("1"), done), Submitted::Idle);
        assert!(told.recv().is_err(), "nobody is told of a record that was not taken");
    }
    assert_eq!((disk.operations(), audit.head().n), (before, 0));
    audit.record(&tagged("1")).unwrap();
    assert_eq!(tags(&disk), ["1"]);
}

#[test]
fn records_that_come_during_a_sync_are_told_after_theirs() {
    let disk = Disk::default();
    let (audit, barrier, first) = busy(&disk);
    let syncs = disk.syncs();
    let told = ["a", "b", "c"].map(|tag| submit(&audit, &tagged(tag)));
    thread::sleep(Duration::from_millis(5));
    assert!(told.iter().all(|told| told.try_recv().is_err()), "not before the sync");
    barrier.wait();
    assert!(first.join().unwrap());
    for told in told {
        told.recv().unwrap().unwrap();
    }
    assert_eq!(disk.syncs() - syncs, 2, "the first alone, the others together");
    assert_eq!((tags(&disk), audit.head().n), (["first", "a", "b", "c"].map(String::from).to_vec(), 4));
}

/// Law 2: neither who shares the failed batch nor who waits behind it is accepted.
#[test]
fn a_failure_is_told_to_all_who_wait() {
    // The sync of the first batch, the write of the second, and its sync.
    for operation in [0, 1, 2] {
        for fault in [Fault::Refuse, Fault::RefuseHalf, Fault::RefuseLate, Fault::Panic] {
            let disk = Disk::default();
            let (audit, barrier, first) = busy(&disk);
            disk.fail(operation, fault);
            let told = ["a", "b"].map(|tag| submit(&audit, &tagged(tag)));
            barrier.wait();
            assert_eq!(first.join().unwrap(), operation > 0, "operation {operation}, {fault:?}");
            for told in told {
                let error: Error = *told.recv().unwrap().unwrap_err().downcast().unwrap();
                assert!(matches!(error, Error::Stopped { .. }), "operation {operation}, {fault:?}: {error}");
            }
            let late = submit(&audit, &tagged("late"));
            assert!(late.recv().unwrap().is_err(), "and all who come later");
            drop(audit);
            disk.heal();
            drop(open(&disk).unwrap());
        }
    }
}

#[test]
fn a_record_that_no_reader_accepts_is_refused_alone() {
    let disk = Disk::default();
    let (audit, barrier, first) = busy(&disk);
    let long = AuditRecord::Recovered { torn_bytes: 1, moved_to: "x".repeat(4 << 20).into() };
    let told = [tagged("a"), long, tagged("b")].map(|record| submit(&audit, &record));
    barrier.wait();
    assert!(first.join().unwrap());
    let [a, long, b] = told.map(|told| told.recv().unwrap());
    assert!(a.is_ok() && b.is_ok());
    let error: Error = *long.unwrap_err().downcast().unwrap();
    assert!(matches!(error, Error::LineTooLong { .. }), "{error}");
    assert_eq!(tags(&disk), ["first", "a", "b"]);
}

#[test]
fn a_panic_of_one_who_is_told_is_his_own() {
    let disk = Disk::default();
    let (audit, barrier, first) = busy(&disk);
    let panics: Done = Box::new(|_| std::panic::resume_unwind(Box::new("as the test wants")));
    assert_eq!(audit.submit(&tagged("a"), panics), Submitted::Taken);
    let told = submit(&audit, &tagged("b"));
    barrier.wait();
    assert!(first.join().unwrap());
    told.recv().unwrap().unwrap();
    audit.record(&tagged("c")).unwrap();
    assert_eq!(tags(&disk), ["first", "a", "b", "c"]);
}

/// What was taken is written and told before the file is closed.
#[test]
fn closing_the_file_loses_nothing() {
    let disk = Disk::default();
    let (audit, barrier, first) = busy(&disk);
    let told = ["a", "b"].map(|tag| submit(&audit, &tagged(tag)));
    barrier.wait();
    assert!(first.join().unwrap());
    drop(audit);
    for told in told {
        told.try_recv().unwrap().unwrap();
    }
    let (audit, recovery) = open(&disk).unwrap();
    assert_eq!((audit.head().n, recovery.torn_bytes), (3, None));
}

/// The last owner may be one of those who are told, on the file's own thread.
#[test]
fn the_last_owner_may_be_told() {
    let disk = Disk::default();
    let (audit, barrier, first) = busy(&disk);
    let (sender, told) = channel();
    let owner = audit.clone();
    let done: Done = Box::new(move |accepted| {
        drop(owner);
        sender.send(accepted.is_ok()).unwrap();
    });
    assert_eq!(audit.submit(&tagged("a"), done), Submitted::Taken);
    drop(audit);
    barrier.wait();
    assert!(first.join().unwrap());
    assert!(told.recv_timeout(Duration::from_secs(60)).unwrap());
    assert_eq!(tags(&disk), ["first", "a"]);
}
