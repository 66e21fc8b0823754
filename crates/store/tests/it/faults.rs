//! Faults of the disk: fails closed, stays failed, and the file can be opened again (laws 2 and 8, R7, J1, J3).

use std::error::Error as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::sync::Arc;

use countersign_approval_core::audit::{AuditRecord, AuditSink};
use countersign_store::Error;
use countersign_store::audit_file::{AuditFile, AuditIo};

use crate::memory::{Disk, Fault};
use crate::support::{Rng, Ticks, open, oracle, tagged};

fn refused(audit: &AuditFile, tag: &str) -> Error {
    let error = audit.record(&tagged(tag)).unwrap_err();
    *error.downcast().unwrap()
}

#[test]
fn any_failure_stops_the_file_until_it_is_opened_again() {
    // Each record is a write and a sync: the third record's, after two good ones.
    for operation in [4, 5] {
        for fault in Fault::ALL {
            let disk = Disk::default();
            let (audit, _) = open(&disk).unwrap();
            disk.fail(operation, fault);
            audit.record(&tagged("1")).unwrap();
            audit.record(&tagged("2")).unwrap();
            let head = audit.head();
            if fault == Fault::Short {
                // A write that took a part goes on with the rest.
                audit.record(&tagged("3")).unwrap();
                assert_eq!(oracle(&disk.bytes()).unwrap().len(), 3);
                continue;
            }
            let what = format!("operation {operation}, {fault:?}");
            let error = refused(&audit, "3");
            assert!(matches!(error, Error::Stopped { .. }), "{what}: {error}");
            assert!(error.source().is_some(), "{what}: the log gets the cause");
            disk.heal();
            let done = disk.operations();
            for tag in ["4", "5"] {
                assert!(matches!(refused(&audit, tag), Error::Stopped { .. }), "{what}");
            }
            assert_eq!(disk.operations(), done, "{what}: nothing is tried again, neither write nor sync");
            assert_eq!(audit.head(), head, "{what}");

            // The failed file was closed, so the same process may open it again.
            let (again, recovery) = open(&disk).unwrap();
            again.record(&tagged("6")).unwrap();
            let records = oracle(&disk.bytes()).unwrap();
            let tags: Vec<_> = records.iter().filter_map(|r| r["approvalId"].as_str()).collect();
            // The third may stand there: that its step was refused cannot be undone on a disk that failed.
            assert!(matches!(tags[..], ["1", "2", "6"] | ["1", "2", "3", "6"]), "{what}: {tags:?}");
            let torn = records.iter().any(|r| r["type"] == "recovered");
            assert_eq!(torn, recovery.torn_bytes.is_some(), "{what}");
        }
    }
}

/// A record that cannot be read back is not written; it does not stop the file.
#[test]
fn a_line_that_no_reader_accepts_is_refused() {
    let disk = Disk::default();
    let (audit, _) = open(&disk).unwrap();
    let before = disk.operations();
    let long = |bytes: usize| AuditRecord::Recovered { torn_bytes: 1, moved_to: "x".repeat(bytes).into() };
    let error: Error = *audit.record(&long(4 << 20)).unwrap_err().downcast().unwrap();
    assert!(matches!(error, Error::LineTooLong { bytes } if bytes > 4 << 20), "{error}");
    assert_eq!(disk.operations(), before);
    // Law 9: at the edge. What the envelope and the record take besides the text is measured once.
    audit.record(&long(1)).unwrap();
    let fixed = disk.bytes().len() - 1 - 1;
    audit.record(&long((4 << 20) - fixed)).unwrap();
    let error: Error = *audit.record(&long((4 << 20) - fixed + 1)).unwrap_err().downcast().unwrap();
    assert!(matches!(error, Error::LineTooLong { bytes } if bytes == (4 << 20) + 1), "{error}");
    drop(audit);
    let (audit, recovery) = open(&disk).unwrap();
    assert_eq!((recovery.torn_bytes, recovery.abandoned.len(), audit.head().n), (None, 0, 2));
}

/// What was never synced may be lost with the power, but nothing that was accepted.
#[test]
fn a_power_failure_after_a_failed_sync_keeps_what_was_accepted() {
    for seed in 0..50 {
        let disk = Disk::default();
        let (audit, _) = open(&disk).unwrap();
        audit.record(&tagged("1")).unwrap();
        disk.fail(1, Fault::Refuse);
        assert!(audit.record(&tagged("2")).is_err());
        drop(audit);
        disk.power_failure(&mut Rng(seed));
        disk.heal();
        drop(open(&disk).unwrap());
        assert_eq!(oracle(&disk.bytes()).unwrap()[0]["approvalId"], "1", "seed {seed}");
    }
}

/// A disk that is really full: the system's own error comes through as the cause.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_fails_closed() {
    struct Full(std::fs::File);
    impl AuditIo for Full {
        fn read_at(&mut self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
        fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn set_aside(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn aside_name(&self) -> String {
            String::new()
        }
        fn cut(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (audit, _) = AuditFile::open_with(Box::new(Full(full)), Arc::new(Ticks::default())).unwrap();
    for _ in 0..2 {
        let Error::Stopped { cause } = refused(&audit, "1") else { panic!("not stopped") };
        assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
    }
}
