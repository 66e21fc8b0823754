//! The real file: its lock, its mode, and what stands beside it.

use std::fs;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;
use std::thread;

use countersign_approval_core::audit::AuditSink;
use countersign_store::Error;
use countersign_store::audit_file::verify;

use crate::support::{broken, joined, lines, open_path, oracle, requested, sample, tagged};

#[test]
fn a_second_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let (audit, _) = open_path(&path).unwrap();
    audit.record(&tagged("1")).unwrap();
    let Err(Error::Locked { path: named }) = open_path(&path) else { panic!("two writers") };
    assert_eq!(named, path);
    audit.record(&tagged("2")).unwrap();
    // Reading needs no lock.
    assert_eq!(verify(&path, Some(audit.head().into())).unwrap().anchored, Some(2));
    drop(audit);
    assert_eq!(open_path(&path).unwrap().0.head().n, 2);
}

/// Zero bytes follow the lines while the file is open, and after a crash until it is opened again.
#[test]
fn room_is_made_in_advance_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let (audit, _) = open_path(&path).unwrap();
    let mut longest = 0;
    for n in 1..=3 {
        audit.record(&tagged(&n.to_string())).unwrap();
        let file = fs::read(&path).unwrap();
        let lines = file.iter().position(|byte| *byte == 0).unwrap_or(file.len());
        assert_eq!(oracle(&file[..lines]).unwrap().len(), n);
        assert!(file[lines..].iter().all(|byte| *byte == 0));
        assert_eq!(verify(&path, Some(audit.head().into())).unwrap().anchored, Some(n as u64));
        longest = longest.max(file.len() - lines);
    }
    drop(audit);
    let whole = fs::read(&path).unwrap();
    assert_eq!(oracle(&whole).unwrap().len(), 3);

    fs::write(&path, [&whole[..], &vec![0; longest]].concat()).unwrap();
    let (audit, recovery) = open_path(&path).unwrap();
    assert_eq!((recovery.torn_bytes, audit.head().n), (None, 3));
    assert_eq!(fs::read(&path).unwrap(), whole);
    // The file system of the test may have no room to give.
    println!("{longest} bytes of room");
}

#[test]
fn only_the_owner_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let (audit, _) = open_path(&path).unwrap();
    audit.record(&requested(1)).unwrap();
    drop(audit);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let (_, recovery) = open_path(&path).unwrap();
    assert_eq!(recovery.torn_bytes, Some(whole.len() as u64 - 3));
    let aside = dir.path().join("audit.jsonl.torn");
    assert_eq!(fs::read(&aside).unwrap(), &whole[..whole.len() - 3]);
    let records = oracle(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((records.len(), &records[0]["movedTo"]), (1, &"audit.jsonl.torn".into()));
    #[cfg(unix)]
    for file in [&path, &aside] {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

// Law 2: a record that stands where nobody looks is not recorded, as after a rotation by rename.
#[cfg(unix)]
#[test]
fn a_file_that_was_moved_away_accepts_nothing() {
    let moves: [fn(&Path); 3] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::rename(path, path.with_extension("1")).unwrap(),
        |path| {
            fs::rename(path, path.with_extension("1")).unwrap();
            fs::write(path, "").unwrap();
        },
    ];
    for replace in moves {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let (audit, _) = open_path(&path).unwrap();
        audit.record(&tagged("1")).unwrap();
        replace(&path);
        assert!(audit.record(&tagged("2")).is_err());
        assert!(audit.record(&tagged("3")).is_err());
        drop(audit);
        open_path(&path).unwrap().0.record(&tagged("4")).unwrap();
    }
}

#[test]
fn a_second_torn_tail_goes_after_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    for tail in ["one", "two"] {
        let mut file = fs::read(&path).unwrap_or(sample());
        file.extend_from_slice(tail.as_bytes());
        fs::write(&path, file).unwrap();
        let _ = open_path(&path).unwrap();
    }
    assert_eq!(fs::read_to_string(dir.path().join("audit.jsonl.torn")).unwrap(), "onetwo");
    verify(&path, None).unwrap();
}

#[test]
fn a_broken_file_is_refused_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut bad = lines(&sample());
    bad.remove(2);
    fs::write(&path, joined(&bad)).unwrap();
    assert_eq!(broken(open_path(&path)).map(|(line, _)| line), Some(3));
    assert_eq!(fs::read(&path).unwrap(), joined(&bad));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("absent/audit.jsonl")] {
        assert!(matches!(open_path(&path), Err(Error::Io { .. })), "{}", path.display());
        assert!(matches!(verify(&path, None), Err(Error::Io { .. })), "{}", path.display());
    }
    #[cfg(target_os = "linux")]
    assert!(matches!(open_path("/dev/full".as_ref()), Err(Error::Io { .. })));
}

#[test]
fn threads_share_a_real_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = Arc::new(open_path(&path).unwrap().0);
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let audit = audit.clone();
            thread::spawn(move || (0..10).for_each(|j| audit.record(&tagged(&format!("{i} {j}"))).unwrap()))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(verify(&path, Some(audit.head().into())).unwrap().head.n, 80);
}
