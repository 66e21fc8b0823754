//! `countersign demo`: what a newcomer runs first.

use std::path::Path;

use crate::support::run;

// Laws 1 and 2: the effect exactly once and only after approval; the record says so and verifies.
#[test]
fn each_answer_has_its_end() {
    for (answer, status, effect, told) in [
        ("approve", 0, "holds 1 proposal:", "approved by you"),
        ("deny", 3, "None: nothing was saved.", "denied by you"),
        ("cancel", 4, "None: nothing was saved.", "cancelled"),
    ] {
        let ended = run(&["demo", "--decide", answer]);
        assert_eq!(ended.status, Some(status), "{answer}: {}{}", ended.out, ended.err);
        assert!(ended.out.contains(effect) && ended.out.contains(told), "{answer}: {}", ended.out);
        let saved = ended.out.matches(r#"{"title":"Second Light","summary""#).count();
        assert_eq!(saved, usize::from(answer == "approve"), "{}", ended.out);
        let records = if answer == "approve" { 4 } else { 2 };
        assert!(ended.out.contains(&format!("lines: {records}\n")), "{}", ended.out);
        assert!(ended.out.contains("the given head is the last line"), "{}", ended.out);
        // Nothing but text where there is no terminal.
        assert!(!ended.out.contains('\u{1b}') && ended.err.is_empty(), "{}", ended.err);
        // It says where things were, and they are gone.
        let folder = ended.out.split("Both files were in ").nth(1).unwrap().split(',').next().unwrap();
        assert!(folder.contains("countersign-demo-") && !Path::new(folder).exists(), "{folder}");
    }
}

#[test]
fn without_a_terminal_and_an_answer_nothing_begins() {
    let ended = run(&["demo"]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("--decide approve"), "{}", ended.err);
}
