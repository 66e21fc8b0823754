//! A real process that is killed while it writes (law 2, R6).

use std::env;
use std::io::{BufRead, BufReader, Write as _, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use countersign_approval_core::audit::AuditSink;
use countersign_store::audit_file::verify;

use crate::support::{open_path, oracle, requested, tagged};

/// Names the file, in the process that is killed.
const FILE: &str = "COUNTERSIGN_KILLED_FILE";
/// What stands before each tag that was accepted; the test harness prints as well.
const ACCEPTED: &str = "accepted ";

/// Not a test, but the process that is killed: it writes until then, and says what was accepted.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = env::var_os(FILE) else { return };
    let (audit, _) = open_path(Path::new(&path)).unwrap();
    audit.record(&requested(1)).unwrap();
    let said = Mutex::new(stdout());
    let say = |tag: &str| {
        let mut said = said.lock().unwrap();
        // One write, so that a line is said whole or not at all.
        said.write_all(format!("\n{ACCEPTED}{tag}\n").as_bytes()).unwrap();
        said.flush().unwrap();
    };
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (audit, say) = (&audit, &say);
            scope.spawn(move || {
                for j in 0.. {
                    let tag = format!("{i}-{j}");
                    audit.record(&tagged(&tag)).unwrap();
                    say(&tag);
                }
            });
        }
    });
}

#[test]
fn a_killed_process_has_lost_nothing_that_it_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut accepted: Vec<String> = Vec::new();
    for round in 1..=3 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["killed::writes_until_it_is_killed", "--exact", "--nocapture"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut said = lines.by_ref().filter_map(|line| line.strip_prefix(ACCEPTED).map(str::to_owned));
        accepted.extend(said.by_ref().take(20 * round).map(|tag| format!("{round} {tag}")));
        child.kill().unwrap();
        child.wait().unwrap();
        accepted.extend(said.map(|tag| format!("{round} {tag}")));
        assert!(accepted.len() >= 20 * round);

        let verified = verify(&path, None);
        let (audit, recovery) = open_path(&path).unwrap();
        assert_eq!(verified.is_err(), recovery.torn_bytes.is_some());
        assert_eq!(recovery.abandoned.len(), 1, "law 5: the review that was open");
        // The records of this round follow on the mark of the one before.
        audit.record(&tagged(&format!("end of round {round}"))).unwrap();
    }
    let records = oracle(&std::fs::read(&path).unwrap()).unwrap();
    let mut round = 1;
    let mut found = std::collections::HashSet::new();
    for tag in records.iter().filter_map(|record| record["approvalId"].as_str()) {
        if tag.starts_with("end of round") {
            round += 1;
        } else {
            found.insert(format!("{round} {tag}"));
        }
    }
    for tag in &accepted {
        assert!(found.contains(tag), "{tag} was accepted");
    }
}
