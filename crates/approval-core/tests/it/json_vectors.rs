//! The published vectors of `docs/vectors`, which `check.py` and `check.mjs` there run in other languages.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes helpers of tests for other code"
)]

use std::path::Path;

use countersign_approval_core::json::{Exact, Gate, Refused, RefusedKind, number_text};
use serde::Deserialize;

#[derive(Deserialize)]
struct File<C> {
    cases: Vec<C>,
}

/// A text, or parts with counts.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
enum Text {
    Whole(String),
    Parts(Vec<(String, usize)>),
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum GateName {
    #[default]
    Arguments,
    Output,
}

#[derive(Deserialize)]
struct Accepted {
    name: String,
    #[serde(default)]
    gate: GateName,
    text: Text,
    compact: Text,
    canonical: Text,
    digest: String,
}

#[derive(Deserialize)]
struct Rejected {
    name: String,
    #[serde(default)]
    gate: GateName,
    text: Option<Text>,
    hex: Option<String>,
    kind: String,
    path: Option<String>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    #[serde(default)]
    gate: GateName,
    a: Text,
    b: Text,
}

#[derive(Deserialize)]
struct Double {
    name: String,
    bits: String,
    text: Option<String>,
}

fn cases<C: for<'de> Deserialize<'de>>(file: &str) -> Vec<C> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let cases = serde_json::from_str::<File<C>>(&text).unwrap().cases;
    assert!(!cases.is_empty(), "{file} has no cases");
    cases
}

impl Text {
    fn expand(&self) -> String {
        match self {
            Self::Whole(text) => text.clone(),
            Self::Parts(parts) => parts.iter().map(|(part, count)| part.repeat(*count)).collect(),
        }
    }
}

fn parse(text: &Text, gate: GateName) -> Result<Exact, Refused> {
    let gate = match gate {
        GateName::Arguments => Gate::ARGUMENTS,
        GateName::Output => Gate::OUTPUT,
    };
    Exact::parse_with(&text.expand(), gate)
}

fn kind_name(kind: RefusedKind) -> &'static str {
    match kind {
        RefusedKind::Syntax => "syntax",
        RefusedKind::Utf8 => "utf8",
        RefusedKind::DuplicateKey => "duplicate-key",
        RefusedKind::LoneSurrogate => "lone-surrogate",
        RefusedKind::ProtoKey => "proto-key",
        RefusedKind::TooDeep => "too-deep",
        RefusedKind::Number => "number",
        _ => "another",
    }
}

// Design 3: what passes, and its three derived texts.
#[test]
fn accepted() {
    for case in cases::<Accepted>("accepted.json") {
        let exact = parse(&case.text, case.gate).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert_eq!(exact.text(), case.compact.expand(), "{}", case.name);
        assert_eq!(exact.canonical(), case.canonical.expand(), "{}", case.name);
        assert_eq!(exact.canonical_len(), exact.canonical().len(), "{}", case.name);
        assert_eq!(exact.digest().to_string(), case.digest, "{}", case.name);
    }
}

// Law 3: what is refused, by which rule, and where.
#[test]
fn refused() {
    for case in cases::<Rejected>("refused.json") {
        let result = match (&case.text, &case.hex) {
            (Some(text), None) => parse(text, case.gate),
            (None, Some(hex)) => Exact::parse_bytes(&bytes(hex)),
            _ => panic!("{}: text or hex", case.name),
        };
        let refused = result.expect_err(&case.name);
        assert_eq!(kind_name(refused.kind()), case.kind, "{}", case.name);
        if let Some(path) = case.path {
            assert_eq!(refused.path(), path, "{}", case.name);
        }
    }
}

// Law 1: the pairs that a reviewer's echo may and may not replace.
#[test]
fn pairs() {
    for case in cases::<Pair>("equal.json") {
        let (a, b) = (parse(&case.a, case.gate).unwrap(), parse(&case.b, case.gate).unwrap());
        assert!(a == b, "{}", case.name);
        assert!(b == a, "{}", case.name);
        assert_eq!(a.canonical(), b.canonical(), "{}", case.name);
        assert_eq!(a.digest(), b.digest(), "{}", case.name);
    }
    for case in cases::<Pair>("different.json") {
        let (a, b) = (parse(&case.a, case.gate).unwrap(), parse(&case.b, case.gate).unwrap());
        assert!(a != b, "{}", case.name);
        assert!(b != a, "{}", case.name);
        assert_ne!(a.canonical(), b.canonical(), "{}", case.name);
        assert_ne!(a.digest(), b.digest(), "{}", case.name);
    }
}

// RFC 8785, appendix B.
#[test]
fn doubles() {
    for case in cases::<Double>("numbers.json") {
        let value = f64::from_bits(u64::from_str_radix(&case.bits, 16).unwrap());
        assert_eq!(number_text(value), case.text, "{}", case.name);
        if let Some(text) = &case.text {
            assert_eq!(&Exact::parse(text).unwrap().canonical(), text, "{}", case.name);
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}
