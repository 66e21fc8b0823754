//! What becomes of keys when somebody or something was at the files of operations (laws 1 and 8): a key that was
//! claimed is told as it was, or refused, but never new.
#![allow(clippy::panic, reason = "helpers of tests are tests as well")]

use std::fs;
use std::path::Path;

use countersign_driver::operation::{Claimed, Ended, OperationStore, StoreError};
use countersign_store::Error;
use countersign_store::sqlite::Operations;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::operations::{claim, new, open, place, replay, sql, write};

const DB: &str = "operations.db";
const JOURNAL: &str = "operations.db-journal";
const LOCK: &str = "operations.db.lock";
const FILES: [&str; 3] = [DB, JOURNAL, LOCK];

/// The keys that were finished, all with [`events`]: enough that they stand on several pages. `running` had called a tool.
fn finished() -> impl Iterator<Item = String> {
    (0..40).map(|n| format!("finished-{n}"))
}

fn events() -> [String; 3] {
    ["x".repeat(300), "two".into(), "y".repeat(30)]
}

/// The bytes of each file, where there is one.
type Files = [Option<Vec<u8>>; 3];

fn read(folder: &Path) -> Files {
    FILES.map(|name| fs::read(folder.join(name)).ok())
}

fn put(files: &Files) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in FILES.iter().zip(files) {
        if let Some(bytes) = bytes {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
    }
    folder
}

/// What a process leaves that is killed between two commits.
async fn killed() -> Files {
    let (folder, path) = place();
    let store = open(&path);
    for key in finished() {
        let mut operation = new(&store, &key).await;
        let [one, two, three] = events();
        operation.append(vec![one]).await.unwrap();
        operation.finish(Ended::Completed, vec![two, three]).await.unwrap();
    }
    let mut running = new(&store, "running").await;
    running.append(vec!["tool.called".into()]).await.unwrap();
    read(folder.path())
}

/// What a process leaves that is killed while it commits sixty more keys: some pages of the file are those after the
/// commit, split between old keys, and the journal holds those before.
async fn killed_in_a_commit() -> Files {
    let before = killed().await;
    let folder = put(&before);
    let other = Connection::open(folder.path().join(DB)).unwrap();
    let statements = [
        "PRAGMA journal_mode = TRUNCATE",
        "PRAGMA synchronous = FULL",
        "PRAGMA cache_size = 1",
        "BEGIN",
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 60)
            INSERT INTO operation SELECT 1000 + n, randomblob(32), fingerprint, run_id, provider, model, claimed_at,
                'running', 0, chain FROM operation, n WHERE id = 1",
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 60)
            INSERT INTO operation_event SELECT 1000 + n, 1, zeroblob(1500) FROM n",
    ];
    for statement in statements {
        let mut statement = other.prepare(statement).unwrap();
        let mut rows = statement.query([]).unwrap();
        while rows.next().unwrap().is_some() {}
    }
    let after = read(folder.path());
    let old_pages = before[0].as_ref().unwrap();
    assert!(!after[0].as_ref().unwrap().starts_with(old_pages), "some pages were written");
    after
}

/// A name for people, and the files after it.
fn attacks(files: &Files) -> Vec<(String, Files)> {
    let mut attacks = Vec::new();
    for (which, name) in FILES.iter().enumerate() {
        let Some(bytes) = &files[which] else { continue };
        let mut with = |what: String, bytes: Option<Vec<u8>>| {
            let mut files = files.clone();
            files[which] = bytes;
            attacks.push((format!("{name} {what}"), files));
        };
        with("deleted".into(), None);
        let len = bytes.len();
        for to in
            [0, 1, 16, 99, 100, 512, 4_096, 4_097, len / 2, len.saturating_sub(4_096), len.saturating_sub(1)]
        {
            if to < len {
                with(format!("cut to {to}"), Some(bytes[..to].to_vec()));
            }
        }
        // Of a header nearly every byte; of the rest at most 60 places.
        let places = (0..len.min(112)).step_by(3).chain((112..len).step_by((len / 60).max(1)));
        for at in places {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            with(format!("bit {} of byte {at} flipped", at % 8), Some(bytes));
        }
    }
    attacks
}

/// Says whether the store was opened.
async fn check(what: &str, files: &Files) -> bool {
    let folder = put(files);
    let store = match Operations::open(&folder.path().join(DB)) {
        Ok((store, _)) => store,
        Err(error) => {
            let is_told = matches!(
                error,
                Error::Damaged { .. }
                    | Error::NotOurs { .. }
                    | Error::SchemaVersion { .. }
                    | Error::Sqlite { .. }
            );
            assert!(is_told, "{what}: {error}");
            return false;
        }
    };
    for key in finished() {
        match store.claim(claim(&key)).await {
            Ok(Claimed::Replay(log)) => {
                assert_eq!(log.events, events(), "{what}: {key}");
                assert_eq!(log.origin, claim(&key).origin, "{what}: {key}");
            }
            Err(StoreError::Failed(_)) => {}
            other => panic!("{what}: {key}: {other:?}"),
        }
    }
    match store.claim(claim("running")).await {
        Ok(Claimed::Uncertain(log)) => assert_eq!(log.events, ["tool.called"], "{what}"),
        Err(StoreError::Failed(_)) => {}
        other => panic!("{what}: running: {other:?}"),
    }
    true
}

async fn check_attacks(files: &Files) {
    assert!(check("untouched", files).await, "what a crash leaves can be opened");
    let attacks = attacks(files);
    let mut opened = 0;
    for (what, files) in &attacks {
        opened += usize::from(check(what, files).await);
    }
    assert!(0 < opened && opened < attacks.len(), "{opened} of {}", attacks.len());
}

#[tokio::test]
async fn no_key_is_new_again_after_damage() {
    let files = killed().await;
    assert_eq!(files[1].as_deref(), Some([].as_slice()), "between commits nothing is in the journal");
    check_attacks(&files).await;
}

#[tokio::test]
async fn no_key_is_new_again_after_damage_to_a_commit() {
    let files = killed_in_a_commit().await;
    assert!(files[1].as_ref().unwrap().len() > 4_096, "a page is in the journal");
    check_attacks(&files).await;
}

// An empty file is not a new store if there was one, whether its process was killed or closed it.
#[tokio::test]
async fn an_emptied_file_is_not_a_new_one() {
    let (folder, path) = place();
    write(&path, "k", &["end"]).await;
    let [_, journal, lock] = read(folder.path());
    for (what, database) in [("gone", None), ("empty", Some(Vec::new()))] {
        let folder = put(&[database.clone(), journal.clone(), lock.clone()]);
        for _ in 0..2 {
            let error = Operations::open(&folder.path().join(DB)).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}");
            assert_eq!(read(folder.path())[0], database, "{what}: nothing is changed");
        }
        // Documented: nothing remembers it without both files.
        let folder = put(&[database, None, None]);
        drop(new(&open(&folder.path().join(DB)), "k").await);
    }
    // A crash before the schema was made leaves an empty file beside an unmarked lock.
    let folder = put(&[Some(Vec::new()), None, Some(Vec::new())]);
    drop(new(&open(&folder.path().join(DB)), "k").await);
}

// What is accepted under another name is lost for the next process, so it is not accepted.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_not_under_its_name_takes_nothing() {
    type Move = fn(&Path, &Path);
    let moves: [(&str, Move); 4] = [
        ("its folder was moved", |folder, away| fs::rename(folder, away).unwrap()),
        ("another folder is in its place", |folder, away| {
            fs::rename(folder, away).unwrap();
            fs::create_dir(folder).unwrap();
        }),
        ("it was moved", |folder, away| {
            fs::create_dir(away).unwrap();
            fs::rename(folder.join(DB), away.join(DB)).unwrap();
        }),
        ("a copy is in its place", |folder, away| {
            fs::rename(folder, away).unwrap();
            fs::create_dir(folder).unwrap();
            fs::copy(away.join(DB), folder.join(DB)).unwrap();
        }),
    ];
    for (what, displace) in moves {
        let outer = tempfile::tempdir().unwrap();
        let (folder, away) = (outer.path().join("operations"), outer.path().join("away"));
        fs::create_dir(&folder).unwrap();
        let store = open(&folder.join(DB));
        let old = new(&store, "old").await;
        old.finish(Ended::Completed, vec!["end".into()]).await.unwrap();
        let mut running = new(&store, "running").await;
        displace(&folder, &away);
        let told = running.append(vec!["late".into()]).await;
        assert!(matches!(told, Err(StoreError::Failed(_))), "{what}: {told:?}");
        for key in ["new", "old"] {
            let told = store.claim(claim(key)).await;
            assert!(matches!(told, Err(StoreError::Failed(_))), "{what}: {key}: {told:?}");
        }
        drop((store, running));
        assert_eq!(replay(&open(&away.join(DB)), "old").await.events, ["end"], "{what}");
    }
}

// Another program may have left the file in another mode.
#[tokio::test]
async fn a_write_ahead_log_is_taken_in() {
    let (folder, path) = place();
    write(&path, "k", &["end"]).await;
    sql(&path, "PRAGMA journal_mode = WAL");
    assert_eq!(replay(&open(&path), "k").await.events, ["end"]);
    assert!(!folder.path().join("operations.db-wal").exists());
}
