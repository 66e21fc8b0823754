//! `serve` and `run` together: what `init` wrote works, and what must not happen does not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Host, Place, run, signal, until, wait};

const TEXT: &str = "Propose a brand direction";

// Laws 1 and 2, over loopback with the files that `init` wrote.
#[test]
fn each_answer_has_its_status_and_its_effect() {
    let place = Place::new();
    let host = Host::start(&place);
    for (answer, status, effects, last) in
        [("deny", 3, 0, "run.failed"), ("cancel", 4, 0, "run.cancelled"), ("approve", 0, 1, "run.completed")]
    {
        let ended = host.run(&["--json", "--decide", answer, TEXT]);
        assert_eq!((ended.status, ended.err.as_str()), (Some(status), ""), "{answer}: {}", ended.out);
        assert_eq!(place.effects().len(), effects, "{answer}");
        assert_eq!(ended.types().last().unwrap(), last);
        let lines = ended.lines();
        let events = lines.iter().filter(|line| line.get("type").is_some());
        assert!(events.zip(1..).all(|(event, n)| event["sequence"] == n), "{}", ended.out);
        // A failure is the last line, and only then (design 7).
        let error = lines.last().unwrap().get("error");
        match answer {
            "approve" => assert_eq!(error, None),
            "deny" => assert_eq!(error.unwrap()["code"], "APPROVAL_DENIED"),
            _ => assert_eq!(error.unwrap()["code"], "CANCELLED"),
        }
    }
    let saved = &place.effects()[0];
    assert_eq!(saved["title"], "Second Light");
    let asked = place.audit().into_iter().find(|record| record["type"] == "approval.requested").unwrap();
    assert_eq!(asked["approval"]["call"]["arguments"], *saved);
    assert_eq!(
        place.audited(),
        [
            "approval.requested",
            "approval.resolved",
            "approval.requested",
            "approval.resolved",
            "approval.requested",
            "approval.resolved",
            "execution.started",
            "execution.finished"
        ]
    );
    assert_eq!(host.stop().code(), Some(0));
    assert_eq!(place.verify().status, Some(0));
    // Arguments may be private: they are in the audit file, not in the log.
    assert!(!place.log().contains("Second Light"), "{}", place.log());
}

// Design 4, denial-feedback: the run goes on; nothing ran (law 1), and the trail has the reason (law 2).
#[test]
fn a_denial_with_a_reason_goes_on() {
    let place = Place::new();
    place.edit(|config| config["approvals"]["features"] = json!(["denial-feedback"]));
    let host = Host::start(&place);
    let reason = "Not\u{202e} today";
    let ended = host.run(&["--json", "--decide", "deny", "--reason", reason, "--on-deny", "continue", TEXT]);
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    assert!(!ended.types().contains(&"tool.completed".to_owned()), "{}", ended.out);
    assert_eq!(ended.types().last().unwrap(), "run.completed");
    assert_eq!(place.audited(), ["approval.requested", "approval.resolved"]);
    assert_eq!(place.audit()[1]["reason"], reason);
    assert!(place.effects().is_empty());
    assert_eq!(host.stop().code(), Some(0));
    let shown = run(&["audit", "show", &place.arg("audit.jsonl")]);
    assert!(shown.out.contains("reason given: Not") && !shown.out.contains('\u{202e}'), "{}", shown.out);
}

// Design 4: off means off, and it shows before anything begins (law 7).
#[test]
fn a_host_without_the_addition_is_asked_nothing() {
    let place = Place::new();
    let host = Host::start(&place);
    let refused = host.run(&["--json", "--decide", "deny", "--reason", "no", TEXT]);
    assert_eq!(refused.status, Some(2), "{}", refused.out);
    assert!(refused.err.contains("denial-feedback"), "{}", refused.err);
    let refused = host.run(&["--json", "--decide", "deny", "--on-deny", "continue", TEXT]);
    assert_eq!(refused.lines().last().unwrap()["error"]["code"], "APPROVAL_POLICY", "{}", refused.out);
    assert!(place.audited().is_empty());
    let long = "x".repeat(2_001);
    assert_eq!(host.run(&["--decide", "deny", "--reason", &long, TEXT]).status, Some(2));
    assert_eq!(host.run(&["--reason", "no", TEXT]).status, Some(2), "without --decide it is nobody's");
}

#[test]
fn a_person_reads_plain_lines() {
    let place = Place::new();
    let host = Host::start(&place);
    let ended = host.run(&["--decide", "approve", TEXT]);
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""));
    for part in [
        "│ I have a direction in mind. May I save it?",
        "  │   \"title\": \"Second Light\"",
        "│ It is saved.",
        "Completed",
    ] {
        assert!(ended.out.contains(part), "{part}: {}", ended.out);
    }
    assert!(!ended.out.contains('\u{1b}'));
    for (answer, last) in [
        ("deny", "Failed: a person refused the call (APPROVAL_DENIED)"),
        ("cancel", "Cancelled: the run was cancelled (CANCELLED)"),
    ] {
        let ended = host.run(&["--decide", answer, TEXT]);
        assert_eq!(ended.out.lines().last(), Some(last), "{}", ended.out);
    }
}

// K1, K3: a line of JSON may reach a terminal; a program reads the same values (law 3).
#[test]
fn lines_of_json_hold_nothing_that_a_terminal_obeys() {
    let place = Place::new();
    let evil = "a\u{9b}2J\u{7f}\u{202e}\u{200b}\u{fe0f}\u{e0041}é😀";
    place.edit(|config| {
        let steps = &mut config["providers"][0]["default"];
        steps[0]["deltas"] = json!([evil]);
        steps[0]["calls"][0]["arguments"] = json!({"title": "t", "body": evil});
        steps[1] = json!({"error": {"code": "PROVIDER_ERROR", "message": evil}});
        let command = json!(["/bin/sh", "-c", "cat > given; cat given"]);
        config["tools"][0]["command"] = command;
    });
    let host = Host::start(&place);
    let ended = host.run(&["--json", "--decide", "approve", TEXT]);
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    assert!(ended.out.chars().all(|c| matches!(c, '\n' | ' '..='~' | 'é' | '😀')), "{:?}", ended.out);
    let escaped = r"a\u009b2J\u007f\u202e\u200b\ufe0f\udb40\udc41é😀";
    let lines = ended.lines();
    let of = |kind: &str| lines.iter().find(|line| line["type"] == kind).unwrap();
    // The text, the proposal, the question, the output, the failure, and the last line, which repeats it.
    assert_eq!(ended.out.matches(escaped).count(), 6, "{}", ended.out);
    assert_eq!(of("text.delta")["text"], evil);
    assert_eq!(of("approval.requested")["approval"]["call"]["arguments"]["body"], evil);
    assert_eq!(of("tool.completed")["output"]["body"], evil);
    assert_eq!(lines.last().unwrap()["error"]["message"], evil);
}

// A decision that the host refuses is not sent again, and the run that waits for it is given up.
#[test]
fn a_refused_decision_ends_the_command() {
    let place = Place::new();
    // A token that may run but not decide: nobody answers.
    place.edit(|config| config["tokens"][0]["approveTools"] = json!([]));
    let host = Host::start(&place);
    let refused = host.run(&["--json", "--decide", "approve", TEXT]);
    assert_eq!(refused.status, Some(1));
    assert_eq!(refused.lines().last().unwrap()["error"]["code"], "FORBIDDEN");
    assert!(refused.err.contains("FORBIDDEN"), "{}", refused.err);
    // Law 5: what was hung up on is settled.
    until("the review of the run that was given up", || {
        let settled = place.audited().contains(&"approval.resolved".to_owned());
        settled.then_some(())
    });
    assert_eq!(place.effects().len(), 0);
}

#[test]
fn failures_of_the_way_are_the_last_line_too() {
    let place = Place::new();
    let host = Host::start(&place);
    let wrong = place.path("wrong");
    fs::write(&wrong, "0".repeat(64)).unwrap();
    let wrong = wrong.to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--url", "http://127.0.0.1:1"], "CONNECTION_FAILED"),
        (&["--token-file", wrong], "UNAUTHORIZED"),
        (&["--provider", "other"], "UNKNOWN_PROVIDER"),
        (&["--tools", "other"], "UNKNOWN_TOOL"),
    ];
    for (change, code) in cases {
        let token = place.arg("token");
        let mut args =
            vec!["run", "--url", &host.url, "--token-file", &token, "--provider", "mock", "--model", "demo"];
        match args.iter().position(|arg| *arg == change[0]) {
            Some(at) => args[at + 1] = change[1],
            None => args.extend(*change),
        }
        args.extend(["--json", "--decide", "approve", "hi"]);
        let ended = run(&args);
        assert_eq!(ended.status, Some(1), "{args:?} {}", ended.err);
        let lines = ended.lines();
        assert_eq!((lines.len(), &lines[0]["error"]["code"]), (1, &json!(code)), "{}", ended.out);
        assert!(
            ended.err.starts_with("countersign: ") && !ended.err.contains(&"0".repeat(64)),
            "{}",
            ended.err
        );
    }
}

// Law 1: whoever says how reviews are answered expects them; at a host that has none nothing with tools is started.
#[test]
fn a_host_without_reviews_gets_no_run_with_tools() {
    for gated in [true, false] {
        let place = Place::new();
        place.edit(|config| {
            config.as_object_mut().unwrap().remove("approvals");
            config["tools"][0]["requiresApproval"] = json!(gated);
            config["providers"][0]["scripts"] = json!({"hello": [{"text": "Hello."}]});
        });
        let host = Host::start(&place);
        for answer in ["approve", "deny", "cancel"] {
            let ended = host.run(&["--json", "--decide", answer, TEXT]);
            assert_eq!(ended.status, Some(2), "{}{}", ended.out, ended.err);
            let lines = ended.lines();
            assert_eq!((lines.len(), &lines[0]["error"]["code"]), (1, &json!("APPROVAL_UNAVAILABLE")));
            assert!(ended.err.contains("this host does not offer reviews"), "{}", ended.err);
        }
        assert_eq!(place.effects().len(), 0);
        // Without tools there is nothing to review.
        let token = place.arg("token");
        let talk = run(&[
            &["run", "--url", &host.url, "--token-file", &token, "--provider", "mock", "--model", "demo"][..],
            &["--decide", "deny", "hello"],
        ]
        .concat());
        assert!(talk.status == Some(0) && talk.out.contains("Hello."), "{}{}", talk.out, talk.err);
    }
}

// Without tools nothing can be asked, so nobody need be there.
#[test]
fn a_run_without_tools_needs_no_terminal() {
    let place = Place::new();
    place.edit(|config| config["providers"][0]["scripts"] = json!({"hello": [{"text": "Hello."}]}));
    let host = Host::start(&place);
    let token = place.arg("token");
    let args = ["run", "--token-file", &token, "--provider", "mock", "--model", "demo", "hello", "--url"];
    let talk = run(&[&args[..], &[&host.url]].concat());
    assert!(talk.status == Some(0) && talk.out.contains("Hello."), "{}{}", talk.out, talk.err);
    let nobody = run(&[&args[..], &["http://127.0.0.1:1"]].concat());
    assert_eq!(nobody.status, Some(1));
    assert!(
        nobody.err.contains("no host at http://127.0.0.1:1: is `countersign serve` running?"),
        "{}",
        nobody.err
    );
}

// Seed: each request chooses its idle policy and may bound the review; a host may refuse the pause (G5).
#[test]
fn the_review_is_as_the_command_line_says() {
    let place = Place::new();
    let host = Host::start(&place);
    let asked = |args: &[&str]| {
        let ended = host.run(&[&["--json", "--decide", "deny"], args, &[TEXT]].concat());
        let lines = ended.lines();
        let event = lines.iter().find(|line| line["type"] == "approval.requested").unwrap();
        (event["approval"]["idlePolicy"].clone(), event["approval"].get("expiresAt").is_some())
    };
    assert_eq!(asked(&[]), (json!("pause"), false));
    assert_eq!(
        asked(&["--idle-policy", "continue", "--expires-after-ms", "60000"]),
        (json!("continue"), true)
    );

    let place = Place::new();
    place.edit(|config| config["approvals"]["allowIdlePause"] = json!(false));
    let host = Host::start(&place);
    let refused = host.run(&["--json", "--decide", "approve", TEXT]);
    assert_eq!(refused.status, Some(1));
    assert_eq!(refused.lines()[0]["error"]["code"], "APPROVAL_POLICY");
    assert_eq!(host.run(&["--idle-policy", "continue", "--decide", "approve", TEXT]).status, Some(0));
}

// Law 5, H3: Ctrl-C hangs up, the host cancels, and the trail says so.
#[test]
fn an_interrupt_cancels_the_run() {
    let place = Place::new();
    place.edit(|config| config["providers"][0]["default"] = json!([{"delayMs": 600_000, "text": "late"}]));
    let mut host = Host::start(&place);
    let mut client = host
        .client(&["--json", "--decide", "approve", TEXT])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("run.started"));
    signal(&client, Signal::INT);
    let rest: Vec<_> = lines.collect();
    assert_eq!(wait(&mut client).code(), Some(4));
    assert!(rest.last().unwrap().contains(r#"{"error":{"code":"CANCELLED""#), "{rest:?}");
    let err = std::io::read_to_string(client.stderr.take().unwrap()).unwrap();
    assert!(err.contains("Interrupted: the run is cancelled."), "{err}");
    // The host is well, and ends in order.
    assert!(host.child.try_wait().unwrap().is_none());
    assert_eq!(host.stop().code(), Some(0));
}

// Law 5: an end in order settles what waits, and the client is told.
#[test]
fn the_end_of_the_host_settles_what_waits() {
    let place = Place::new();
    let host = Host::start(&place);
    let waiting = Waiting::start(&host);
    assert_eq!(host.stop().code(), Some(0));
    assert_eq!(waiting.status(), Some(4));
    assert_eq!(place.audited(), ["approval.requested", "approval.resolved"]);
    assert_eq!(place.audit()[1]["resolution"]["outcome"], "cancelled");
    assert_eq!((place.verify().status, place.effects().len()), (Some(0), 0));
}

// Seed: pending permissions are not restored; the trail says what became of them (design 7).
#[test]
fn a_killed_host_leaves_an_abandoned_review() {
    let place = Place::new();
    let host = Host::start(&place);
    let waiting = Waiting::start(&host);
    host.kill();
    assert_eq!(waiting.status(), Some(1));
    let open = place.verify();
    assert!(open.status == Some(0) && open.out.contains("reviews without an end: 1;"), "{}", open.out);

    let host = Host::start(&place);
    assert_eq!(place.audited(), ["approval.requested", "approval.abandoned"]);
    assert_eq!(host.run(&["--decide", "approve", TEXT]).status, Some(0));
    assert_eq!(host.stop().code(), Some(0));
    assert_eq!((place.verify().status, place.effects().len()), (Some(0), 1));
    let account = run(&["audit", "show", &place.arg("audit.jsonl")]);
    assert!(
        account.out.contains("abandoned: its host ended before anybody answered; nothing ran"),
        "{}",
        account.out
    );
}

/// A `run` whose review nobody answers: a person at a terminal who thinks.
struct Waiting(crate::support::Terminal);

impl Waiting {
    fn start(host: &Host<'_>) -> Self {
        let mut terminal = crate::support::Terminal::start(host.client(&[TEXT]), 80, 24);
        terminal.wait_for("[c] cancel the run > ");
        Self(terminal)
    }

    fn status(self) -> Option<i32> {
        self.0.end().1
    }
}
