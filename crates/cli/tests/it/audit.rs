//! `audit verify` and `audit show` (design 7; scenarios J).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Host, Place, countersign, run, wait};

/// A trail of one denied and one approved review.
fn place() -> Place {
    let place = Place::new();
    place.edit(|config| {
        config["providers"][0]["default"][0]["calls"][0]["arguments"]["body"] =
            json!("\u{1b}[2Jclean\u{202e}");
    });
    let host = Host::start(&place);
    assert_eq!(host.run(&["--decide", "deny", "x"]).status, Some(3));
    assert_eq!(host.run(&["--decide", "approve", "x"]).status, Some(0));
    assert_eq!(host.stop().code(), Some(0));
    place
}

#[test]
fn a_chain_is_good_until_somebody_touches_it() {
    let place = place();
    let file = place.arg("audit.jsonl");
    let good = run(&["audit", "verify", &file]);
    assert_eq!((good.status, good.err.as_str()), (Some(0), ""));
    assert!(
        good.out.starts_with("good: ")
            && good.out.contains("lines: 6\n")
            && good.out.contains("without --head"),
        "{}",
        good.out
    );
    let head = good.out.lines().find_map(|line| line.strip_prefix("head ")).unwrap().to_owned();
    let anchored = run(&["audit", "verify", &file, "--head", &head]);
    assert!(anchored.status == Some(0) && anchored.out.contains("is the last line"), "{}", anchored.out);
    let hash = head.split(':').nth(1).unwrap();
    assert_eq!(run(&["audit", "verify", &file, "--head", hash]).status, Some(0));

    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let check = |lines: &[&str], args: &[&str], status: i32, said: &str| {
        fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let ended = run(&[&["audit", "verify", &file][..], args].concat());
        assert_eq!(ended.status, Some(status), "{said}: {}{}", ended.out, ended.err);
        assert!(ended.out.contains(said) || ended.err.contains(said), "{said}: {}{}", ended.out, ended.err);
    };
    let denied = lines[1].replace("denied", "approved");
    let mut changed = lines.clone();
    changed[1] = &denied;
    check(&changed, &[], 1, "line 3: ");
    check(&[&lines[..2], &lines[3..]].concat(), &[], 1, "line 3: its n is 4");
    // A cut tail is seen only with the head that was noted (J13).
    check(&lines[..5], &[], 0, "without --head");
    check(&lines[..5], &["--head", &head], 1, "line 6: it is missing");
    check(&[], &["--head", &head], 1, "missing");
}

#[test]
fn what_cannot_be_read_is_2() {
    let place = Place::new();
    for command in ["verify", "show"] {
        let ended = run(&["audit", command, &place.arg("absent")]);
        assert_eq!(ended.status, Some(2), "{}", ended.err);
        assert!(ended.err.contains("absent"), "{}", ended.err);
        assert_eq!(run(&["audit", command, place.folder.path().to_str().unwrap()]).status, Some(2));
    }
}

// Law 9: a pipe that nobody writes to is not waited for.
#[test]
fn only_a_regular_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for command in ["verify", "show"] {
        for file in [pipe.to_str().unwrap(), "/dev/null"] {
            let mut child = countersign(&["audit", command, file])
                .stderr(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            assert_eq!(wait(&mut child).code(), Some(2), "{command} {file}");
            let err = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
            assert!(err.contains("not a regular file"), "{err}");
        }
    }
}

// Arguments may be private: a file of ours is its owner's only, and of another it is said.
#[test]
fn an_audit_file_that_others_may_read_is_named() {
    let place = Place::new();
    assert_eq!(Host::start(&place).stop().code(), Some(0));
    assert!(!place.log().contains("rights"), "{}", place.log());
    let file = place.path("audit.jsonl");
    for mode in [0o640, 0o602] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Host::start(&place).stop().code(), Some(0));
        let log = place.log();
        assert!(log.contains("WARN") && log.contains(&format!("audit.jsonl (mode {mode:o})")), "{log}");
    }
}

// J5: reviewed, started and ended are told apart; K1: nothing in the account obeys the agent.
#[test]
fn the_account_says_who_allowed_what_and_what_ran() {
    let place = place();
    let file = place.arg("audit.jsonl");
    let account = run(&["audit", "show", &file]);
    assert_eq!(account.status, Some(0), "{}", account.err);
    let reviews: Vec<&str> = account.out.trim_end().split("\n\n").collect();
    assert_eq!(reviews.len(), 2, "{}", account.out);
    assert!(reviews[0].contains("denied by person") && reviews[0].contains("nothing ran"), "{}", reviews[0]);
    assert!(!reviews[0].contains("started"));
    let order = ["save_proposal, in a run of person", "approved by person", " started", " completed"];
    let places: Vec<_> = order.iter().map(|part| reviews[1].find(part).unwrap()).collect();
    assert!(places.is_sorted(), "{}", reviews[1]);
    assert!(account.out.contains(r#""body": "\u{1b}[2Jclean\u{202e}""#), "{}", account.out);
    assert!(!account.out.contains('\u{1b}'));

    let run_id = place.audit()[0]["approval"]["runId"].as_str().unwrap().to_owned();
    let one = run(&["audit", "show", &file, "--run", &run_id]);
    assert!(one.out.contains("denied by person") && !one.out.contains("approved"), "{}", one.out);
    let other = run(&["audit", "show", &file, "--run", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!((other.status, other.out.as_str()), (Some(0), "no record of this run\n"));
}

#[test]
fn a_broken_file_is_told_up_to_the_break() {
    let place = place();
    let file = place.path("audit.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let cut: String = text.lines().take(5).map(|line| format!("{line}\n")).collect();
    fs::write(&file, &cut).unwrap();
    let uncertain = run(&["audit", "show", &place.arg("audit.jsonl")]);
    assert_eq!(uncertain.status, Some(0));
    assert!(uncertain.out.contains("UNCERTAIN: no record of its end"), "{}", uncertain.out);

    fs::write(&file, cut + "not a line\n{}\n").unwrap();
    let ended = run(&["audit", "show", &place.arg("audit.jsonl")]);
    assert_eq!(ended.status, Some(1));
    assert!(ended.out.contains("denied by person"), "{}", ended.out);
    let named = format!("countersign: {}: line 6: ", place.arg("audit.jsonl"));
    assert!(ended.err.starts_with(&named), "{}", ended.err);
    // It says so before anything that may not be true.
    assert!(ended.out.starts_with("WARNING: this file is broken. Line 6 is the first"), "{}", ended.out);
    let ends = "UNKNOWN: the file is broken from line 6 on, so what followed is unknown\n\n";
    assert!(ended.out.ends_with(ends) && !ended.out.contains("UNCERTAIN"), "{}", ended.out);

    // Law 8: a call that ran, as the lines behind the break say, is not told as one that did not.
    let lines: Vec<&str> = text.lines().collect();
    for broken in 3..6 {
        let mut lines = lines.clone();
        lines[broken] = "{}";
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        let ended = run(&["audit", "show", &place.arg("audit.jsonl")]);
        let last = ended.out.rsplit("\n\n").nth(1).unwrap();
        assert_eq!(ended.status, Some(1));
        assert!(last.contains("is unknown") && !last.contains("nothing ran"), "{broken}: {}", ended.out);
    }
    let other = ["audit", "show", &place.arg("audit.jsonl"), "--run", "00000000-0000-4000-8000-000000000000"];
    assert!(run(&other).out.ends_with("no record of this run before line 6\n"));
}
