//! [`DecisionRequest::parse_echo`]: knowing the reviewed call changes no verdict (law 3; contract 4.2, 4.5).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use countersign_approval_core::clock::{Now, Timestamp};
use countersign_approval_core::decision::{DecisionRequest, InvalidDecision};
use countersign_approval_core::ids::{ApprovalId, CallId, ProviderId, RunId, Subject, ToolName};
use countersign_approval_core::json::{Exact, Gate, Numbers};
use countersign_approval_core::registry::{Limits, NewReview, Registry, Waiter};
use countersign_approval_core::review::IdlePolicy;
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use uuid::Uuid;

const ID: &str = "0b1d0000-0000-4000-8000-000000000001";

fn frozen(arguments: Exact) -> Snapshot {
    let id = CallId::parse("c").unwrap();
    Snapshot::freeze(ToolCall { id, name: ToolName::parse("pay").unwrap(), arguments }).unwrap()
}

/// Arguments of more than 2,048 bytes, with `more` as their last members.
fn large(more: &str) -> String {
    format!(r#"{{"body":"{}"{more}}}"#, "text ".repeat(500))
}

fn body(arguments: &str) -> String {
    format!(
        r#"{{"approvalId":"{ID}","runId":"r","call":{{"arguments":{arguments},"id":"c","name":"pay"}},"decision":"approve"}}"#
    )
}

/// What both ways say of the body, which must be the same, and whether the stored text was taken.
fn both(body: &str, snapshot: &Snapshot) -> (Result<DecisionRequest, InvalidDecision>, bool) {
    let plain = DecisionRequest::parse(body);
    let known = DecisionRequest::parse_echo(body, |_| Some(snapshot.clone()));
    assert_eq!(known, plain, "{body}");
    let text = |read: &Result<DecisionRequest, _>| {
        read.as_ref().ok().map(|decision: &DecisionRequest| decision.call.arguments.text().to_owned())
    };
    assert_eq!(text(&known), text(&plain));
    let stored = snapshot.call().arguments.text().as_ptr();
    let shared = known.as_ref().is_ok_and(|decision| decision.call.arguments.text().as_ptr() == stored);
    (known, shared)
}

#[test]
fn an_echo_shares_the_stored_text() {
    let text = large(r#","n":1.0,"arguments":{"approvalId":"x"}"#);
    let snapshot = frozen(Exact::parse(&text).unwrap());
    let spaced = body(&text).replacen(r#""call":{"arguments":"#, "\"call\" :\n{ \"arguments\"\t: ", 1);
    for body in [body(&text), spaced] {
        let (read, shared) = both(&body, &snapshot);
        assert!(shared, "{body}");
        let call = read.unwrap().call;
        assert!(snapshot.binds(&call.id, &call.name, &call.arguments));
    }
    // Another spelling of the same value, and another value, are read the long way.
    for (other, binds) in [(text.replace("1.0", "1"), true), (text.replace("1.0", "2"), false)] {
        let (read, shared) = both(&body(&other), &snapshot);
        let call = read.unwrap().call;
        assert_eq!((shared, snapshot.binds(&call.id, &call.name, &call.arguments)), (false, binds));
    }
}

// Each is what the fast way could be made to accept.
#[test]
fn what_stands_around_an_echo_is_read_as_strictly() {
    let text = large("");
    let snapshot = frozen(Exact::parse(&text).unwrap());
    let good = body(&text);
    let escaped = text.replace('"', "\\\"");
    let cases = [
        // Trailing text, and text after the arguments.
        format!("{good}x"),
        format!("{good}{good}"),
        good.replace(&text, &format!("{text}1")),
        good.replace(&text, &format!("{text}{{}}")),
        good.replace(&text, &format!("{text}:1")),
        good.replace(&text, &format!("[{text}]")),
        good.replace(&text, &format!("[],{text}")),
        // Not where the arguments are: in a string, in another member, twice.
        good.replace(r#""r""#, &format!(r#""\"arguments\":{escaped}""#)),
        good.replace(r#""r""#, &format!(r#"{{"arguments":{text}}}"#)),
        good.replace(r#""id":"c""#, &format!(r#""id":"c","arguments":{text}"#)),
        good.replace(r#""id":"c""#, r#""id":"c","arguments":{}"#),
        good.replace(r#""call":{"#, &format!(r#""arguments":{text},"call":{{"#)),
        good.replace(r#""call":{"#, r#""call":{"call":{"#).replace(r#""pay"}"#, r#""pay"}}"#),
        // The envelope.
        good.replace(r#""runId""#, r#""approvalId":"x","runId""#),
        good.replace(r#""runId""#, r#""__proto__":{},"runId""#),
        good.replace(r#""id":"c""#, r#""id":"c","__proto__":1"#),
        good.replace(r#""id":"c""#, r#""id":"c","\u0069d":"c""#),
        good.replace(r#""id":"c""#, r#""id":"\ud800""#),
        good.replace(r#""id":"c""#, r#""id":"""#),
        good.replace(r#""pay""#, r#""p y""#),
        good.replace(r#""approve""#, r#""approved""#),
        good.replace(r#""approve""#, "\"approve\",\"subject\":\"eve\""),
        good.replace(r#""r""#, &format!("{}{}", "[".repeat(80), "]".repeat(80))),
        format!("\u{feff}{good}"),
    ];
    for body in cases {
        let (read, _) = both(&body, &snapshot);
        assert!(read.is_err(), "{body}");
    }
}

// A snapshot may hold what a decision may not: it was made through a weaker gate, or is no object.
#[test]
fn a_text_that_no_decision_may_carry_is_not_shared() {
    let deep = format!(",\"deep\":{}{}", "[".repeat(100), "]".repeat(100));
    let weak = Gate { max_depth: 128, numbers: Numbers::AsWritten };
    for text in [large(",\"n\":9007199254740993"), large(&deep), format!("[{}]", large(""))] {
        let snapshot = frozen(Exact::parse_with(&text, weak).unwrap());
        let (read, _) = both(&body(&text), &snapshot);
        assert!(read.is_err());
    }
}

struct Nobody;

impl Waiter for Nobody {
    fn is_aborted(&self) -> bool {
        false
    }
}

// Contract 4.4, row 2: what others' reviews hold is not even looked at.
#[test]
fn only_a_waiting_review_of_the_caller_is_looked_at() {
    let now = Now { wall: Timestamp::from_millis(0), monotonic: Duration::ZERO };
    let mut registry = Registry::new(Limits::default());
    let id = ApprovalId::parse(ID).unwrap();
    let call = frozen(Exact::parse("{}").unwrap());
    let (ada, eve) = (Subject::parse("ada").unwrap(), Subject::parse("eve").unwrap());
    let review = NewReview {
        run_id: RunId::new(Uuid::from_u128(2)),
        subject: ada.clone(),
        provider: ProviderId::parse("mock").unwrap(),
        call: call.clone(),
        idle_policy: IdlePolicy::Pause,
        expires_after: None,
    };
    let opening = registry.open(now, id, review, Nobody).unwrap();
    assert_eq!(registry.reviewed(&ada, id), None, "nobody was asked yet");
    registry.opened(opening);
    assert_eq!(registry.reviewed(&ada, id), Some(call));
    assert_eq!(registry.reviewed(&eve, id), None);
    assert_eq!(registry.reviewed(&ada, ApprovalId::new(Uuid::from_u128(9))), None);
    let proposal = registry.cancel(now, id).unwrap();
    assert_eq!(registry.reviewed(&ada, id), None, "it is being settled");
    let _ = registry.commit(proposal);
}

/// One change of a text, at a place that is mostly near the envelope.
#[derive(Debug, Clone)]
enum Edit {
    Insert(Index, &'static str),
    Remove(Index, usize),
    Swap(Index, Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let pieces = select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "\n",
        "1",
        "{}",
        "\"arguments\":",
        "\"approvalId\":",
        "\"call\":{",
        "\"__proto__\":1,",
        "\\ud800",
        "\u{1}",
        "é",
        "null",
    ]);
    let edit = prop_oneof![
        (any::<Index>(), pieces).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (any::<Index>(), 1..8_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Edit::Swap(a, b)),
    ];
    proptest::collection::vec(edit, 0..4)
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for edit in edits {
        let place = |at: &Index, length: usize| {
            // A third at each end, where the envelope is.
            let at = at.index(3 * length.max(1));
            match at % 3 {
                0 => (at / 3) % 160.min(length.max(1)),
                1 => length.saturating_sub(1 + (at / 3) % 160),
                _ => at / 3,
            }
        };
        match edit {
            Edit::Insert(at, piece) => {
                let at = place(at, chars.len());
                chars.splice(at..at, piece.chars());
            }
            Edit::Remove(at, length) => {
                let at = place(at, chars.len());
                chars.drain(at..(at + length).min(chars.len()));
            }
            Edit::Swap(a, b) if !chars.is_empty() => {
                let (a, b) = (place(a, chars.len()), place(b, chars.len()));
                chars.swap(a, b);
            }
            Edit::Swap(..) => {}
        }
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // Law 3: whatever is sent, both ways read the same decision or refuse it with the same words.
    #[test]
    fn both_ways_agree(
        order in Just(["approvalId", "runId", "call", "decision"]).prop_shuffle(),
        inner in Just(["id", "name", "arguments"]).prop_shuffle(),
        space in select(vec!["", " ", "\r\n\t"]),
        more in select(vec!["", r#","n":1.0"#, r#","arguments":{}"#, r#","s":"\"arguments\":{}""#]),
        edits in edits(),
    ) {
        let text = large(more);
        let snapshot = frozen(Exact::parse(&text).unwrap());
        let object = |members: Vec<String>| format!("{space}{{{}{space}}}", members.join(&format!("{space},")));
        let member = |key: &str, value: &str| format!("{space}\"{key}\"{space}:{space}{value}");
        let call = object(inner.iter().map(|key| member(key, match *key {
            "id" => "\"c\"",
            "name" => "\"pay\"",
            _ => &text,
        })).collect());
        let whole = object(order.iter().map(|key| member(key, match *key {
            "approvalId" => "\"0b1d0000-0000-4000-8000-000000000001\"",
            "runId" => "\"r\"",
            "call" => &call,
            _ => "\"deny\"",
        })).collect());
        let (read, shared) = both(&edited(&whole, &edits), &snapshot);
        if edits.is_empty() {
            prop_assert!(read.is_ok());
            let first = |key: &str| order.iter().position(|k| *k == key);
            prop_assert_eq!(shared, first("approvalId") < first("call"));
        }
    }
}
