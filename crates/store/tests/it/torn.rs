//! What a crash leaves, and what opening the file makes of it (design 7, R6).

use countersign_approval_core::audit::AuditSink;
use countersign_store::Why;
use countersign_store::audit_file::{OpenReview, verify_reader};

use crate::memory::{Disk, Fault};
use crate::support::{
    approval_id, broken, file_of, joined, lines, open, oracle, requested, resolved, run_id, sample, tagged,
};

#[test]
fn a_last_line_torn_at_any_byte_is_set_aside() {
    let file = file_of(&[tagged("x"), tagged("y"), tagged("z")]);
    let whole = joined(&lines(&file)[..2]);
    for end in whole.len()..=file.len() {
        let disk = Disk::with(&file[..end]);
        let torn = &file[whole.len()..end];
        let is_torn = !torn.is_empty() && end < file.len();
        assert_eq!(broken(verify_reader(&file[..end], None)).is_some(), is_torn, "cut at {end}");
        let (audit, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.torn_bytes, is_torn.then_some(torn.len() as u64), "cut at {end}");
        assert_eq!(disk.aside(), if is_torn { torn } else { b"" });
        audit.record(&tagged("after")).unwrap();

        let records = oracle(&disk.bytes()).unwrap();
        let expected = if torn.is_empty() { 3 } else { 4 };
        assert_eq!(records.len(), expected, "cut at {end}");
        if is_torn {
            assert_eq!(records[2]["type"], "recovered");
            assert_eq!(records[2]["tornBytes"], torn.len());
            assert_eq!(records[2]["movedTo"], "audit.jsonl.torn");
        }
        drop(audit);
        let (_, again) = open(&disk).unwrap();
        assert_eq!((again.torn_bytes, again.abandoned.len()), (None, 0), "nothing is left to mend");
    }
}

#[test]
fn a_first_line_torn_at_any_byte_is_set_aside() {
    let file = file_of(&[tagged("x")]);
    for end in 1..file.len() {
        let disk = Disk::with(&file[..end]);
        let (_, recovery) = open(&disk).unwrap();
        assert_eq!(recovery.torn_bytes, Some(end as u64));
        assert_eq!(oracle(&disk.bytes()).unwrap().len(), 1);
        assert_eq!(disk.aside(), &file[..end]);
    }
}

/// A crash may leave empty sectors where a line was to be, and even the newline after them. Empty ones at the end of the
/// file are no part of it.
#[test]
fn empty_sectors_and_an_unreadable_last_line_are_torn() {
    let whole = sample();
    let next = (512 - whole.len() % 512) % 512;
    let line = |length: usize| [&b"{\"n\":7,\"at\":\""[..], &vec![b'x'; length]].concat()[..length].to_vec();
    for torn in [
        // The sector that the last line ends in was written again, the one after it was not.
        [&line(next)[..], &[0; 512], b"\"}\n"].concat(),
        [&line(next)[..], &[0; 1024], b"\n{}\n{\"n\":9"].concat(),
        // It was not, and was before.
        [&vec![0; next][..], b"}\n"].concat(),
        b"\n".to_vec(),
        b"\xff\n".to_vec(),
        b"{\"n\":7".to_vec(),
    ] {
        for room in [0, 1, 5, 70_000] {
            let disk = Disk::with(&[&whole[..], &torn, &vec![0; room]].concat());
            let (line, why) = broken(verify_reader(&disk.bytes()[..], None)).unwrap();
            assert_eq!((line, why), (7, Why::Torn { bytes: torn.len() as u64 }), "{torn:?}");
            let (audit, recovery) = open(&disk).unwrap();
            assert_eq!(recovery.torn_bytes, Some(torn.len() as u64), "{torn:?}");
            assert_eq!(disk.aside(), torn);
            drop(audit);
            assert!(oracle(&disk.bytes()).is_ok());
        }
    }
    // In the place of the first line there is nothing before it that says what the file is.
    for end in 0..whole.iter().position(|b| *b == b'\n').unwrap() {
        let disk = Disk::with(&[&whole[..end], &[0; 5]].concat());
        let torn = if end == 0 { 5 } else { end as u64 };
        assert_eq!(open(&disk).unwrap().1.torn_bytes, Some(torn), "cut at {end}");
    }
}

/// The room after the last line is given back, and nothing is said of it.
#[test]
fn room_at_the_end_is_no_damage() {
    for whole in [file_of(&[tagged("x")]), file_of(&[tagged("x"), tagged("y")])] {
        for room in [1, 100, 70_000] {
            let disk = Disk::with(&[&whole[..], &vec![0; room]].concat());
            let lines = lines(&whole).len() as u64;
            assert_eq!(verify_reader(&disk.bytes()[..], None).unwrap().head.n, lines);
            let (audit, recovery) = open(&disk).unwrap();
            assert_eq!((recovery.torn_bytes, audit.head().n), (None, lines));
            assert_eq!((disk.bytes(), disk.aside()), (whole.clone(), Vec::new()));
        }
    }
}

/// What no single write leaves: a part of the file was lost, and nothing is cut away.
#[test]
fn a_hole_in_the_file_is_named() {
    let whole = sample();
    // More than one write.
    let mut file = [&whole[..], &vec![0; 512 - whole.len() % 512][..], &vec![b'x'; 6 << 20]].concat();
    let disk = Disk::with(&file);
    let (line, why) = broken(open(&disk)).unwrap();
    assert_eq!((line, why), (7, Why::Unwritten { bytes: (file.len() - whole.len()) as u64 }));
    assert_eq!((disk.bytes() == file, disk.operations()), (true, 0));
    // So long it may be.
    file.truncate(whole.len() + (5 << 20) + 1);
    assert_eq!(open(&Disk::with(&file)).unwrap().1.torn_bytes, Some((5 << 20) + 1));

    // Any byte, but the last and those that a sector ends with: nothing tells that one from a write that was cut off.
    for at in (0..whole.len() - 1).filter(|at| (at + 1) % 512 != 0) {
        let mut file = whole.clone();
        file[at] = 0;
        let disk = Disk::with(&file);
        assert!(broken(open(&disk)).is_some(), "byte {at}");
        assert_eq!((disk.bytes(), disk.operations()), (file, 0), "byte {at}");
    }
    // A whole sector, with a record after it that cannot be of the same write as another one after it.
    let requested_and_resolved =
        file_of(&[tagged("x"), tagged(&"y".repeat(1_000)), requested(1), resolved(1)]);
    let mut file = requested_and_resolved.clone();
    file[512..1_024].fill(0);
    assert!(matches!(broken(open(&Disk::with(&file))), Some((2, Why::Unwritten { .. }))));
    let alone = file_of(&[tagged("x"), tagged(&"y".repeat(1_000)), requested(1)]);
    let mut file = alone.clone();
    file[512..1_024].fill(0);
    assert!(open(&Disk::with(&file)).unwrap().1.torn_bytes.is_some());
}

/// `audit.file` may name anything by mistake; what is no audit file is left alone.
#[test]
fn another_kind_of_file_is_not_touched() {
    for content in [
        "secret",
        "hello\n",
        "{\"n\":1}",
        "{\"n\":1}\n",
        "\n",
        "{\"n\":2,\"at\":\"",
        "a\nb\n",
        "{}\n{}\n",
        "\0\0a",
        "\0{\"n\":1,",
    ] {
        let disk = Disk::with(content.as_bytes());
        let (line, why) = broken(open(&disk)).unwrap();
        assert_eq!(line, 1, "{content:?}");
        assert!(matches!(why, Why::NotJson | Why::Shape | Why::Unwritten { .. }), "{content:?}: {why}");
        assert_eq!((disk.bytes(), disk.aside(), disk.operations()), (content.into(), Vec::new(), 0));
    }
}

/// Law 5 and I7: a review that was open when its process died gets an end, once.
#[test]
fn open_reviews_are_abandoned_once() {
    let disk = Disk::default();
    let (audit, _) = open(&disk).unwrap();
    for record in [requested(1), requested(2), resolved(1), requested(3)] {
        audit.record(&record).unwrap();
    }
    drop(audit);
    let (audit, recovery) = open(&disk).unwrap();
    let expected = [2, 3].map(|n| OpenReview { approval_id: approval_id(n), run_id: run_id(n) });
    assert_eq!(recovery.abandoned, expected, "in the order in which they were asked");
    assert_eq!(audit.head().n, 6);
    let records = oracle(&disk.bytes()).unwrap();
    assert_eq!(records[4]["type"], "approval.abandoned");
    assert_eq!(records[4]["approvalId"], approval_id(2).to_string());
    assert_eq!(records[5]["runId"], run_id(3).to_string());
    assert!(verify_reader(&disk.bytes()[..], None).unwrap().open.is_empty());
    drop(audit);
    assert!(open(&disk).unwrap().1.abandoned.is_empty());
}

/// Every step of the repair can fail or be cut short; opening once more ends well, and no byte is lost.
#[test]
fn a_repair_that_is_interrupted_is_taken_up_again() {
    let whole = file_of(&[requested(1), requested(2)]);
    let file = [&whole[..], b"{\"n\":3,\"at\":\"20"].concat();
    // Set aside, cut, append, sync.
    for step in 0..4 {
        for fault in Fault::ALL.into_iter().filter(|fault| !matches!(fault, Fault::Panic | Fault::Short)) {
            let disk = Disk::with(&file);
            disk.fail(step, fault);
            assert!(open(&disk).is_err(), "step {step}, {fault:?}");
            disk.heal();
            let _ = open(&disk).unwrap_or_else(|e| panic!("step {step}, {fault:?}: {e}"));
            let bytes = disk.bytes();
            assert!(bytes.starts_with(&whole));
            let records = oracle(&bytes).unwrap();
            let abandoned = records.iter().filter(|r| r["type"] == "approval.abandoned").count();
            assert_eq!(abandoned, 2, "step {step}, {fault:?}");
            assert!(disk.aside().windows(15).any(|w| w == &file[whole.len()..]), "step {step}, {fault:?}");
        }
    }
}
