//! [`DecisionRequest::parse`]: contract 4.2 and 4.4 row 1; design 3, "Where it refuses".

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it does not expect")]

use countersign_approval_core::decision::{DecisionRequest, EchoedCall, InvalidDecision};
use countersign_approval_core::json::Exact;
use countersign_approval_core::review::Decision;
use proptest::prelude::*;

const GOOD: &str = r#"{"approvalId":"a","runId":"r","call":{"id":"c","name":"pay","arguments":{"n":1}},"decision":"approve"}"#;

#[derive(Debug, PartialEq, Eq)]
enum Read {
    Good,
    NotJson,
    /// With what is told of the ids in the audit.
    Shape(Option<String>, Option<String>),
}

fn read(body: &str) -> Read {
    match DecisionRequest::parse(body) {
        Ok(_) => Read::Good,
        Err(InvalidDecision::NotJson(_)) => Read::NotJson,
        Err(InvalidDecision::Shape { approval_id, run_id, .. }) => Read::Shape(approval_id, run_id),
    }
}

fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replacen(from, to, 1)
}

#[test]
fn what_is_a_decision() {
    // Law 3; scenarios B9, B13: any order, any white space, any spelling; the arguments keep their tokens.
    let longest = "\u{1f600}".repeat(128);
    let cases = [
        GOOD.to_owned(),
        format!(" \r\n\t{GOOD} "),
        r#"{"decision":"approve","call":{"arguments":{"n":1.0e0},"name":"pay","id":"c"},"runId":"r","approvalId":"a"}"#
            .to_owned(),
        with(r#""approve""#, r#""\u0061pprove""#),
        with(r#""decision""#, r#""d\u0065cision""#),
        with(r#""a""#, &format!("\"{longest}\"")),
        with(r#""r""#, &format!("\"{}\"", "r".repeat(256))),
        with(r#""c""#, &format!("\"{}\"", "\\u00e9".repeat(256))),
        with(r#""pay""#, &format!("\"{}\"", "p".repeat(64))),
        with(r#"{"n":1}"#, "{}"),
        with(r#"{"n":1}"#, r#"{"constructor":1,"toString":2,"":3}"#),
        with("1", &format!("{}{}", "[".repeat(63), "]".repeat(63))),
    ];
    for body in cases {
        assert_eq!(read(&body), Read::Good, "{body}");
    }
    for (word, decision) in
        [("approve", Decision::Approve), ("deny", Decision::Deny), ("cancel", Decision::Cancel)]
    {
        assert_eq!(DecisionRequest::parse(&with("approve", word)).unwrap().decision, decision);
    }
    let kept = DecisionRequest::parse(&with(r#"{"n":1}"#, r#"{ "n" : 1.0e0, "m":"\u0061" }"#)).unwrap();
    assert_eq!(kept.call.arguments.text(), r#"{"n":1.0e0,"m":"\u0061"}"#);
}

#[test]
fn what_is_not_json_is_not_audited() {
    for body in
        ["", " ", "{", "nul", "'a'", "{\"a\":1,}", "{} {}", "[1", "\u{feff}{}", "{\"a\":\"\n\"}", "+1", "01"]
    {
        assert_eq!(read(body), Read::NotJson, "{body:?}");
    }
}

#[test]
fn what_is_json_but_no_decision() {
    // Contract 4.2: strict inside and outside; law 4: no subject, no grants. Ids are told as the caller sent them.
    let both = || Read::Shape(Some("a".into()), Some("r".into()));
    let cases = [
        (with(r#""approve""#, r#""Approve""#), both()),
        (with(r#""approve""#, r#""approved""#), both()),
        (with(r#""approve""#, r#""reject""#), both()),
        (with(r#""approve""#, r#""approve ""#), both()),
        (with(r#""approve""#, "true"), both()),
        (with(r#""approve""#, "null"), both()),
        (with(r#""approve""#, r#"["approve"]"#), both()),
        (with(r#","decision":"approve""#, ""), both()),
        (with(r#""decision""#, r#""Decision""#), both()),
        (with("{", r#"{"subject":"root","#), both()),
        (with("{", r#"{"decidedBy":"root","#), both()),
        (with("{", r#"{"approveTools":["pay"],"#), both()),
        (with("{", r#"{"":0,"#), both()),
        (with("{", r#"{"reason":null,"#), both()),
        (with("{", r#"{"reason":["x"],"#), both()),
        (with(r#"{"id""#, r#"{"reason":"x","id""#), both()),
        (with(r#"{"id""#, r#"{"grants":[],"id""#), both()),
        (with(r#"{"id":"c","#, "{"), both()),
        (with(r#""c""#, r#""""#), both()),
        (with(r#""c""#, "1"), both()),
        (with(r#""c""#, &format!("\"{}\"", "c".repeat(257))), both()),
        (with(r#""pay""#, r#""p-y""#), both()),
        (with(r#""pay""#, r#""""#), both()),
        (with(r#""pay""#, &format!("\"{}\"", "p".repeat(65))), both()),
        (with(r#"{"n":1}"#, "null"), both()),
        (with(r#"{"n":1}"#, "[]"), both()),
        (with(r#"{"n":1}"#, r#""{}""#), both()),
        (with("1", "9007199254740993"), both()),
        (with("1", "1e400"), both()),
        (with("1", "0.10000000000000000001"), both()),
        (with("1", r#"{"__proto__":1}"#), both()),
        (with("1", &format!("{}{}", "[".repeat(64), "]".repeat(64))), both()),
        (with(r#""a""#, "1"), Read::Shape(None, Some("r".into()))),
        (with(r#""a""#, "null"), Read::Shape(None, Some("r".into()))),
        (with(r#""a""#, r#""""#), Read::Shape(Some("".into()), Some("r".into()))),
        (with(r#""r""#, "[]"), Read::Shape(Some("a".into()), None)),
        (with(r#""approvalId":"a","#, ""), Read::Shape(None, Some("r".into()))),
        ("{}".into(), Read::Shape(None, None)),
        ("null".into(), Read::Shape(None, None)),
        ("[]".into(), Read::Shape(None, None)),
        (format!("[{GOOD}]"), Read::Shape(None, None)),
        ("1e999".into(), Read::Shape(None, None)),
    ];
    for (body, expected) in cases {
        assert_eq!(read(&body), expected, "{body}");
    }
    // Where even the text cannot be carried exactly nothing is known of its members.
    let unreadable = [
        with("{", r#"{"approvalId":"b","#),
        with(r#""n":1"#, r#""n":1,"\u006e":2"#),
        with(r#"{"n":1}"#, r#"{"n":"\ud800"}"#),
        "[".repeat(100_000) + &"]".repeat(100_000),
    ];
    for body in unreadable {
        assert!(matches!(read(&body), Read::Shape(..)), "{}", &body[..100]);
    }
}

#[test]
fn a_refusal_says_where() {
    // Scenario L11: one retry must be enough.
    for (body, what) in [
        (with(r#""approve""#, r#""yes""#), "decision"),
        (with(r#""pay""#, r#""p-y""#), "call.name"),
        (with(r#""c""#, r#""""#), "call.id"),
        (with(r#""a""#, r#""""#), "approvalId"),
        (with(r#""runId":"r","#, ""), "runId"),
        (with(r#"{"n":1}"#, "[]"), "call.arguments"),
        (with("1", "9007199254740993"), "n"),
    ] {
        let message = DecisionRequest::parse(&body).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = DecisionRequest::parse(&text);
    }

    #[test]
    fn no_damaged_decision_panics(cut in 0usize..110, put in "[\\PC\u{0}-\u{1f}]{0,3}", skip in 0usize..4) {
        let (cut, end) = (cut.min(GOOD.len()), (cut + skip).min(GOOD.len()));
        let _ = DecisionRequest::parse(&format!("{}{put}{}", &GOOD[..cut], &GOOD[end..]));
    }

    #[test]
    fn what_is_written_is_read_back(
        approval_id in "\\PC{1,40}",
        run_id in "\\PC{1,40}",
        id in "[\\PC\u{0}-\u{1f}]{1,40}",
        name in "[a-zA-Z_][a-zA-Z0-9_]{0,63}",
        text in "[\\PC\u{0}-\u{1f}]{0,40}",
        number in any::<f64>().prop_filter("finite", |x| x.is_finite()),
        decision in prop::sample::select(vec![Decision::Approve, Decision::Deny, Decision::Cancel]),
        reason in prop::option::of("[\\PC\u{0}-\u{1f}]{0,40}"),
    ) {
        let arguments = serde_json::json!({ "t": text, "n": [number] }).to_string();
        let call = EchoedCall { id, name, arguments: Exact::parse(&arguments).unwrap() };
        let request = DecisionRequest { approval_id, run_id, call, decision, reason };
        let read = DecisionRequest::parse(&serde_json::to_string(&request).unwrap());
        prop_assert_eq!(read, Ok(request));
    }
}
