//! What a person sees and answers, in a real terminal (scenarios K and G).

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Host, Place, Terminal, countersign, run, signal, until};

const PROMPT: &str = "[c] cancel the run > ";

#[test]
fn a_person_is_asked_and_the_answer_counts() {
    for (keys, status, effect) in
        [("a\n", 0, "holds 1 proposal:"), ("d\n", 3, "nothing was saved."), ("c\n", 4, "nothing was saved.")]
    {
        let mut demo = Terminal::start(countersign(&["demo"]), 80, 24);
        let card = demo.wait_for(PROMPT);
        assert!(card.contains("save_proposal") && card.contains('\u{1b}'), "{card}");
        demo.press(keys);
        let (rest, ended) = demo.end();
        assert_eq!(ended, Some(status), "{keys:?}: {rest}");
        assert!(rest.contains(effect), "{rest}");
    }
}

// There is no default, and what was typed before the card stood there answers nothing.
#[test]
fn only_an_answer_to_this_card_decides() {
    let place = Place::new();
    place.edit(|config| config["providers"][0]["default"][0]["delayMs"] = json!(700));
    let host = Host::start(&place);
    let mut run = Terminal::start(host.client(&["x"]), 80, 24);
    run.wait_for("with mock, demo");
    run.press("a\na\n");
    run.wait_for(PROMPT);
    for keys in ["\n", "y\n", "A\n"] {
        run.press(keys);
        run.wait_for("Please type a, d or c, and Enter.");
        run.wait_for(PROMPT);
    }
    assert_eq!(place.effects().len(), 0);
    run.press("d\n");
    assert_eq!(run.end().1, Some(3));
    assert_eq!(place.effects().len(), 0);
}

// K1, K3, K5, in the bytes that reach the terminal.
#[test]
fn the_terminal_gets_no_byte_of_the_agent_that_it_would_obey() {
    let place = Place::new();
    let evil =
        "ls\r\u{1b}[2K\u{1b}[1A\u{202e}\u{200b}\u{9b}2J".to_owned() + &" ".repeat(1500) + "&& rm -rf ~";
    place.edit(|config| {
        let turn = &mut config["providers"][0]["default"][0];
        turn["deltas"] = json!([evil]);
        turn["calls"][0]["arguments"]["body"] = json!(evil);
    });
    let host = Host::start(&place);
    let mut run = Terminal::start(host.client(&["x"]), 80, 40);
    let seen = run.wait_for(PROMPT);
    for part in [r"\r", r"\u{1b}", r"\u{202e}", r"\u{200b}", r"\u{9b}", "·×1500", "&& rm -rf ~"] {
        assert!(seen.matches(part).count() >= 2, "{part}: {seen}");
    }
    let plain = anstream::adapter::strip_str(&seen).to_string().replace("\r\n", "\n");
    assert!(plain.chars().all(|c| c == '\n' || !c.is_control()), "{plain:?}");
    assert!(
        !seen.contains("\u{1b}[2K") && !seen.contains("\u{1b}[1A") && !plain.contains('\u{202e}'),
        "{seen:?}"
    );
    run.press("c\n");
    assert_eq!(run.end().1, Some(4));
}

#[test]
fn what_does_not_fit_is_said_and_shown_on_demand() {
    let place = Place::new();
    let lines: String = (1..=60).map(|n| format!("line {n} of it\n")).collect();
    place.edit(|config| config["providers"][0]["default"][0]["calls"][0]["arguments"]["body"] = json!(lines));
    let host = Host::start(&place);
    let mut run = Terminal::start(host.client(&["x"]), 80, 24);
    let card = run.wait_for(PROMPT);
    assert!(card.contains("characters hidden]") && card.contains("lines are not shown"), "{card}");
    assert!(!card.contains("line 30 of it") && card.contains("line 60 of it"), "{card}");
    assert!(card.contains("[v] view whole") && !card.contains("[a] approve"), "{card}");
    let plain = anstream::adapter::strip_str(&card).to_string();
    let marker = plain.lines().find(|line| line.contains("characters hidden]")).unwrap();
    // Whatever stands behind the bar may be the agent's.
    assert!(marker.starts_with("  ["), "{marker:?}");
    // What nobody has seen is not approved (law 1).
    for _ in 0..2 {
        run.press("a\n");
        run.wait_for("Nothing was approved: you have not seen all of it yet.");
        run.wait_for(PROMPT);
    }
    assert_eq!((place.effects().len(), place.audited().len()), (0, 1));
    run.press("v\n");
    let whole = run.wait_for(PROMPT);
    assert!(whole.contains("line 30 of it") && !whole.contains("hidden]"), "{whole}");
    assert!(whole.contains("[a] approve") && !whole.contains("[v]"), "{whole}");
    run.press("a\n");
    assert_eq!(run.end().1, Some(0));
    assert_eq!(place.effects()[0]["body"], json!(lines));
}

// Design 4, denial-feedback: a no is asked for its reason where the agent is told, and nowhere else.
#[test]
fn a_no_may_say_why() {
    let place = Place::new();
    place.edit(|config| config["approvals"]["features"] = json!(["denial-feedback"]));
    let host = Host::start(&place);
    for (said, reason) in [("too old \n", json!("too old")), ("\n", json!(null))] {
        let before = place.audit().len();
        let mut run = Terminal::start(host.client(&["--on-deny", "continue", "x"]), 80, 24);
        run.wait_for(PROMPT);
        run.press("d\n");
        run.wait_for("Enter for no reason");
        run.press(said);
        let (rest, status) = run.end();
        assert_eq!(status, Some(0), "{rest}");
        assert!(rest.contains("Denied") && rest.contains("Completed"), "{rest}");
        assert_eq!(place.audit()[before + 1].get("reason").unwrap_or(&json!(null)), &reason);
    }
    // The end of the input is no answer: it cancels.
    let mut run = Terminal::start(host.client(&["--on-deny", "continue", "x"]), 80, 24);
    run.wait_for(PROMPT);
    run.press("d\n");
    run.wait_for("Enter for no reason");
    run.press("\u{4}");
    assert_eq!(run.end().1, Some(4));
    // Where the run fails anyway nobody asks.
    let mut run = Terminal::start(host.client(&["x"]), 80, 24);
    run.wait_for(PROMPT);
    run.press("d\n");
    let (rest, status) = run.end();
    assert!(status == Some(3) && !rest.contains("Why?"), "{rest}");
    assert!(place.effects().is_empty());
}

// G1, G9: the question ends with the review, and says how.
#[test]
fn an_expired_question_ends() {
    let place = Place::new();
    let host = Host::start(&place);
    let mut run = Terminal::start(host.client(&["--expires-after-ms", "300", "x"]), 80, 24);
    run.wait_for(PROMPT);
    let (rest, status) = run.end();
    assert_eq!(status, Some(4), "{rest}");
    assert!(rest.contains("ended before you answered") && rest.contains("Expired"), "{rest}");
    assert_eq!(place.audit()[1]["resolution"]["outcome"], "expired");
    assert_eq!(place.effects().len(), 0);
}

#[test]
fn an_interrupt_or_the_end_of_the_input_at_the_question_cancels() {
    let place = Place::new();
    let host = Host::start(&place);
    let mut run = Terminal::start(host.client(&["x"]), 80, 24);
    run.wait_for(PROMPT);
    signal(&run.child, Signal::INT);
    let (rest, status) = run.end();
    assert_eq!(status, Some(4));
    assert!(
        rest.contains(
            "Interrupted: the run is cancelled. Nothing was approved by you, and no call is\r\nknown to"
        ),
        "{rest}"
    );

    let mut run = Terminal::start(host.client(&["x"]), 80, 24);
    run.wait_for(PROMPT);
    run.press("\u{4}");
    let (rest, status) = run.end();
    assert_eq!(status, Some(4), "{rest}");
    assert!(rest.starts_with("\r\nThe input has ended, and that cancels the run.\r\n"), "{rest}");
    assert!(rest.contains("the run was cancelled (CANCELLED)"), "{rest}");
    assert_eq!(place.effects().len(), 0);
    assert_eq!(host.stop().code(), Some(0));
    assert_eq!(place.verify().status, Some(0));
}

// A token that may run but not decide leaves a person a way out, and nobody is asked twice about one refusal.
#[test]
fn a_token_that_may_not_decide_can_give_up() {
    let place = Place::new();
    place.edit(|config| config["tokens"][0]["approveTools"] = json!([]));
    let host = Host::start(&place);
    for (answers, told) in [
        (&["a\n", "c\n"][..], "Hung up: the run is cancelled. Nothing was approved by you"),
        (&["a\n", "\u{4}"], "Hung up: the run is cancelled. Nothing was approved by you"),
        (&["d\n", "a\n", "c\n"], "Hung up"),
        (&["c\n"], "Hung up"),
        (&["\u{4}"], "Hung up"),
    ] {
        let before = place.audited().len();
        let mut run = Terminal::start(host.client(&["x"]), 80, 40);
        for answer in answers {
            run.wait_for(PROMPT);
            run.press(answer);
        }
        let (rest, status) = run.end();
        assert_eq!(status, Some(4), "{answers:?}: {rest}");
        assert!(rest.contains(told), "{answers:?}: {rest}");
        // Law 5: what was hung up on is settled; only the first answer was sent.
        until("the end of the review", || {
            let records = place.audited();
            (records.len() == before + 3).then_some(())
        });
        assert_eq!(
            place.audited()[before..],
            ["approval.requested", "approval.rejected", "approval.resolved"],
            "{answers:?}"
        );
    }
    assert_eq!(place.effects().len(), 0);
    // The account tells the refusal where it happened.
    let account = run(&["audit", "show", &place.arg("audit.jsonl")]).out;
    let first = account.split("\n\n").next().unwrap();
    let order = ["save_proposal, in a run of", "a decision of person was refused: FORBIDDEN", "cancelled"];
    let places: Vec<_> = order.iter().map(|part| first.find(part).unwrap()).collect();
    assert!(places.is_sorted(), "{first}");
}

// No line of ours breaks within a word in a narrow window.
#[test]
fn a_narrow_window_breaks_between_words() {
    let mut demo = Terminal::start(countersign(&["demo"]), 40, 60);
    let mut seen = demo.wait_for(PROMPT);
    demo.press("a\n");
    seen.push_str(&demo.end().0);
    let plain = anstream::adapter::strip_str(&seen).to_string();
    for line in plain.lines().map(str::trim_end) {
        let wide = line.chars().count() > 40;
        // The proposal as it stands in the file, and words that are longer than the window.
        let word = line.trim_start().split(' ').count() == 1
            || line.contains("{\"title\"")
            || line.starts_with("head ");
        assert!(!wide || word || line.starts_with('/'), "{line:?}");
    }
    assert!(plain.contains("[a] approve  [d] deny\r\n[c] cancel the run > "), "{plain}");
    assert!(
        !plain.contains("\n│  ") && !plain.contains(" \r\n│"),
        "no blank at the ends of the agent's lines: {plain}"
    );
}

// The temporary folder goes, also when the person closes the window.
#[test]
fn a_demo_leaves_nothing_behind() {
    for end in [Signal::INT, Signal::TERM, Signal::HUP] {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = countersign(&["demo"]);
        command.env("TMPDIR", temporary.path());
        let mut demo = Terminal::start(command, 80, 24);
        demo.wait_for(PROMPT);
        assert_eq!(temporary.path().read_dir().unwrap().count(), 1);
        signal(&demo.child, end);
        let (rest, status) = demo.end();
        assert_eq!(status, Some(4), "{rest}");
        assert!(rest.contains("Interrupted") && rest.contains("nothing was saved."), "{rest}");
        assert_eq!(temporary.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn no_colour_means_none() {
    let mut command = countersign(&["demo"]);
    command.arg("--decide").arg("deny");
    let coloured = Terminal::start(command, 80, 24).end().0;
    assert!(coloured.contains('\u{1b}'));
    // The terminal of the tests takes NO_COLOR away, so it is set behind it.
    let mut command = std::process::Command::new("env");
    command.args(["NO_COLOR=1", env!("CARGO_BIN_EXE_countersign"), "demo", "--decide", "deny"]);
    let plain = Terminal::start(command, 80, 24).end().0;
    assert!(plain.contains("Denied") && !plain.contains('\u{1b}'), "{plain:?}");
}
