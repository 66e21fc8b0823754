//! Operations in SQLite (contract 9; laws 1, 8 and 9).
#![allow(clippy::panic, reason = "helpers of tests are tests as well")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, fs};

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{ModelId, ProviderId, RunId, Subject};
use countersign_approval_core::json::Digest;
use countersign_driver::operation::{
    Claim, Claimed, Ended, Log, Operation, OperationKey, OperationStore, Origin, StoreError, conformance,
};
use countersign_store::Error;
use countersign_store::sqlite::Operations;
use rusqlite::Connection;
use tempfile::TempDir;

pub(super) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("operations.db");
    (folder, path)
}

pub(super) fn open(path: &Path) -> Operations {
    Operations::open(path).unwrap().0
}

pub(super) fn claim(key: &str) -> Claim {
    Claim {
        key: OperationKey::of(&Subject::local(), key),
        fingerprint: Digest::of("a request"),
        origin: Origin {
            run_id: RunId::parse("7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11").unwrap(),
            provider: ProviderId::parse("mock").unwrap(),
            model: ModelId::parse("demo").unwrap(),
            claimed_at: Timestamp::from_millis(1_767_323_045_678),
        },
    }
}

pub(super) async fn new(store: &Operations, key: &str) -> Box<dyn Operation> {
    match store.claim(claim(key)).await.unwrap() {
        Claimed::New(operation) => operation,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn replay(store: &Operations, key: &str) -> Log {
    match store.claim(claim(key)).await.unwrap() {
        Claimed::Replay(log) => log,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn write(path: &Path, key: &str, events: &[&str]) {
    let store = open(path);
    let operation = new(&store, key).await;
    operation.finish(Ended::Completed, events.iter().map(ToString::to_string).collect()).await.unwrap();
}

/// Another program at the file, while no store has it.
pub(super) fn sql(path: &Path, text: &str) {
    Connection::open(path).unwrap().execute_batch(text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms() {
    let (_folder, path) = place();
    conformance::check(Arc::new(open(&path))).await;
    let (_folder, path) = place();
    conformance::check_durable(async || Arc::new(open(&path)) as Arc<dyn OperationStore>).await;
}

// The whole of a runtime may be one thread.
#[tokio::test]
async fn it_conforms_on_one_thread() {
    let (_folder, path) = place();
    conformance::check(Arc::new(open(&path))).await;
}

// Contract 9: files 0600. Events hold arguments and answers.
#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_any_of_its_files() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = place();
    let store = open(&path);
    drop(new(&store, "k").await);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?} has mode {mode:o}", entry.file_name());
    }
    names.sort();
    assert_eq!(names, ["operations.db", "operations.db-journal", "operations.db.lock"]);
}

// Neither a second store of this process nor another program gets in, so that a running row means a process that ended.
#[tokio::test]
async fn a_file_has_one_writer() {
    let (_folder, path) = place();
    let store = open(&path);
    let operation = new(&store, "k").await;
    for _ in 0..2 {
        assert!(matches!(Operations::open(&path), Err(Error::Locked { .. })));
    }
    let other = Connection::open(&path).unwrap();
    assert!(other.query_row("SELECT count(*) FROM operation", [], |row| row.get::<_, i64>(0)).is_err());
    drop(other);
    assert!(matches!(Operations::open(&path), Err(Error::Locked { .. })));
    operation.finish(Ended::Completed, vec!["end".into()]).await.unwrap();
    drop(store);
    assert_eq!(replay(&open(&path), "k").await.events, ["end"]);
}

#[tokio::test]
async fn what_ran_when_the_process_ended_is_counted_once() {
    let (_folder, path) = place();
    let store = open(&path);
    let held = [new(&store, "a").await, new(&store, "b").await];
    drop(store);
    drop(held);
    let (store, recovery) = Operations::open(&path).unwrap();
    assert_eq!(recovery.interrupted, 2);
    drop(store);
    assert_eq!(Operations::open(&path).unwrap().1.interrupted, 0);
}

// A handle that outlives its store cannot write any more, and says so.
#[tokio::test]
async fn a_closed_store_refuses() {
    let (_folder, path) = place();
    let store = open(&path);
    let mut operation = new(&store, "k").await;
    drop(store);
    assert!(matches!(operation.append(vec!["late".into()]).await, Err(StoreError::Failed(_))));
    drop(operation);
    let store = open(&path);
    assert!(
        matches!(store.claim(claim("k")).await.unwrap(), Claimed::Uncertain(log) if log.events.is_empty())
    );
}

#[tokio::test]
async fn files_of_others_are_left_alone() {
    let (_folder, path) = place();
    sql(&path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
    let before = fs::read(&path).unwrap();
    assert!(matches!(Operations::open(&path), Err(Error::NotOurs { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);

    fs::write(&path, "not a database, but long enough to have a header of one hundred bytes: ".repeat(9))
        .unwrap();
    let error = Operations::open(&path).unwrap_err();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    assert_eq!(error.to_string(), format!("{} is not a database of operations", path.display()));
}

#[tokio::test]
async fn a_later_version_is_refused() {
    let (_folder, path) = place();
    write(&path, "k", &["end"]).await;
    sql(&path, "PRAGMA user_version = 2");
    let error = Operations::open(&path).unwrap_err();
    assert!(matches!(error, Error::SchemaVersion { found: 2, known: 1, .. }), "{error}");
    sql(&path, "PRAGMA user_version = 1");
    assert_eq!(replay(&open(&path), "k").await.events, ["end"]);
}

// Law 8: what was changed behind our back is not told as what happened.
#[tokio::test]
async fn a_changed_log_is_not_replayed() {
    let changes = [
        "UPDATE operation_event SET event = x'7b7d' WHERE n = 2",
        "DELETE FROM operation_event WHERE n = 3",
        "DELETE FROM operation_event",
        "INSERT INTO operation_event VALUES (1, 4, x'7b7d')",
        "UPDATE operation_event SET n = n + 10 WHERE n = 1",
        "UPDATE operation SET events = 2",
        "UPDATE operation SET run_id = '00000000-4b0c-4a64-9d0c-0f5c5d0b6a11'",
        "UPDATE operation SET run_id = 'x'",
        "UPDATE operation SET model = 'other'",
        "UPDATE operation SET claimed_at = 5",
        // Not the conflict that it looks like.
        "UPDATE operation SET fingerprint = zeroblob(32) WHERE id = 1",
        "PRAGMA foreign_keys = 0; DELETE FROM operation WHERE id = 1",
        "PRAGMA ignore_check_constraints = 1; UPDATE operation SET state = 'done'",
    ];
    for change in changes {
        let (_folder, path) = place();
        write(&path, "k", &["one", "two", "three"]).await;
        write(&path, "other", &["end"]).await;
        sql(&path, change);
        let store = match Operations::open(&path) {
            Ok((store, _)) => store,
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }), "{change}: {error}");
                continue;
            }
        };
        let told = store.claim(claim("k")).await;
        assert!(matches!(told, Err(StoreError::Failed(_))), "{change}: {told:?}");
        // The damage of one operation is not that of another.
        drop(new(&store, "fresh").await);
    }
}

// Laws 1 and 8: a damaged file is refused when it is opened or when it is read. No key in it is new again.
#[tokio::test]
async fn damaged_bytes_are_never_told() {
    let (_folder, path) = place();
    let long = "x".repeat(3_000);
    for key in ["a", "b", "c"] {
        write(&path, key, &[&long, "two", &long]).await;
    }
    let good = fs::read(&path).unwrap();
    let step = 211;
    for at in (0..good.len()).step_by(step) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, &bytes).unwrap();
        let Ok((store, _)) = Operations::open(&path) else { continue };
        for key in ["a", "b", "c"] {
            match store.claim(claim(key)).await {
                Ok(Claimed::Replay(log)) => {
                    assert_eq!(
                        log.events,
                        [long.as_str(), "two", &long],
                        "byte {at}: {key} is told as it was"
                    );
                    assert_eq!(log.origin, claim(key).origin, "byte {at}");
                }
                Err(StoreError::Failed(_)) => {}
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }
}

/// Names the file, in the process that is killed.
const FILE: &str = "COUNTERSIGN_KILLED_OPERATIONS";

/// Not a test, but the process that is killed: four runs at once claim, append and finish until then, and say what was
/// accepted, a line each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_until_it_is_killed() {
    let Some(path) = env::var_os(FILE) else { return };
    let store = Arc::new(open(Path::new(&path)));
    let round = env::var("ROUND").unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for run in 0..4 {
        let (store, round) = (Arc::clone(&store), round.clone());
        tasks.spawn(async move {
            for n in 0.. {
                let key = format!("{round}-{run}-{n}");
                let mut operation = new(&store, &key).await;
                say(&format!("{key} 0"));
                for event in 0..3 {
                    operation.append(vec![format!("{key}-{event}")]).await.unwrap();
                    say(&format!("{key} {}", event + 1));
                }
                operation.finish(Ended::Completed, vec![format!("{key}-3")]).await.unwrap();
                say(&format!("{key} end"));
            }
        });
    }
    tasks.join_all().await;
}

fn say(what: &str) {
    // One write, so that a line is said whole or not at all; the test harness prints as well.
    stdout().write_all(format!("\naccepted {what}\n").as_bytes()).unwrap();
}

// Laws 1 and 8: what a process that was killed had been told is there, and what it had claimed never is new again.
#[tokio::test]
async fn a_killed_process_has_lost_nothing_that_it_was_told() {
    let (_folder, path) = place();
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..3 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["operations::works_until_it_is_killed", "--exact", "--nocapture"])
            .env(FILE, &path)
            .env("ROUND", round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| line.strip_prefix("accepted ").map(str::to_owned));
        let mut take = |line: String| {
            let (key, what) = line.split_once(' ').unwrap();
            told.insert(key.to_owned(), what.to_owned());
        };
        said.by_ref().take(40 + 7 * round).for_each(&mut take);
        child.kill().unwrap();
        child.wait().unwrap();
        said.for_each(&mut take);
    }
    assert!(told.len() >= 24, "{} keys", told.len());
    let store = open(&path);
    let mut ends = BTreeSet::new();
    for (key, what) in &told {
        let (end, log) = match store.claim(claim(key)).await.unwrap() {
            Claimed::Replay(log) => ("end", log),
            Claimed::Uncertain(log) => ("uncertain", log),
            other => panic!("{key}, which had been told {what}: {other:?}"),
        };
        let whole: Vec<String> = (0..4).map(|event| format!("{key}-{event}")).collect();
        match what.as_str() {
            "end" => assert_eq!((end, &log.events), ("end", &whole)),
            count => {
                let count: usize = count.parse().unwrap();
                assert!(
                    log.events.len() >= count && whole.starts_with(&log.events),
                    "{key}: {count} were accepted"
                );
                assert_eq!(end == "end", log.events.len() == 4, "{key}");
            }
        }
        ends.insert(end);
    }
    assert_eq!(ends.len(), 2, "some had ended and some had not: {ends:?}");
}
