//! Laws of exact JSON over random values and texts.
//!
//! The model is a plain tree whose numbers are doubles: where every number is interoperable, equality of doubles is
//! equality of decimal values, so the model is an independent judge.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes helpers of tests for other code"
)]

use countersign_approval_core::json::{Document, Exact, Gate, RefusedKind, number_text};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::value::RawValue;

use crate::json::exact;

/// A JSON value. Keys are unique, their order is that of writing.
#[derive(Clone, Debug)]
enum Model {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    Array(Vec<Model>),
    Object(Vec<(String, Model)>),
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(k, v)| b.iter().any(|(l, w)| k == l && v == w))
            }
            _ => false,
        }
    }
}

fn doubles() -> impl Strategy<Value = f64> {
    let any_bits = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite());
    // Odd multiples of small powers of two are where two shortest decimals can be equally near.
    let ties = (1u64 << 50..1 << 53, 1i32..30).prop_map(|(m, f)| (m | 1) as f64 / 2f64.powi(f));
    prop_oneof![
        any_bits,
        ties,
        (-40i32..40).prop_map(f64::from),
        (-1000i32..1000).prop_map(|n| f64::from(n) / 8.0)
    ]
}

fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "a",
        "b",
        "é",
        "e\u{301}",
        "\u{0}",
        "\n",
        "\"",
        "\\",
        "/",
        "\u{7f}",
        "\u{2028}",
        "\u{e000}",
        "\u{ffff}",
        "😀",
        "\u{10ffff}",
        "u0041",
    ];
    vec(select(parts.to_vec()), 0..5).prop_map(|parts| parts.concat())
}

fn models() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::Bool),
        doubles().prop_map(Model::Number),
        texts().prop_map(Model::Text),
    ];
    leaf.prop_recursive(5, 48, 12, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Model::Array),
            btree_map(texts(), inner, 0..12).prop_map(|members| Model::Object(members.into_iter().collect())),
        ]
    })
}

/// Choices made from one seed, so that a case is its seed and its value.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// One of the many texts of `model`: member order, white space, escapes and number spellings are chosen.
fn respell(model: &Model, choices: &mut Choices, out: &mut String) {
    space(choices, out);
    match model {
        Model::Null => out.push_str("null"),
        Model::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Model::Number(value) => respell_number(*value, choices, out),
        Model::Text(text) => respell_text(text, choices, out),
        Model::Array(elements) => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                respell(element, choices, out);
            }
            space(choices, out);
            out.push(']');
        }
        Model::Object(members) => {
            let mut left: Vec<_> = members.iter().collect();
            out.push('{');
            while !left.is_empty() {
                let (key, value) = left.swap_remove(choices.below(left.len()));
                space(choices, out);
                respell_text(key, choices, out);
                space(choices, out);
                out.push(':');
                respell(value, choices, out);
                out.push_str(if left.is_empty() { "" } else { "," });
            }
            space(choices, out);
            out.push('}');
        }
    }
    space(choices, out);
}

fn space(choices: &mut Choices, out: &mut String) {
    out.push_str(["", "", "", " ", "\n\t", "\r"][choices.below(6)]);
}

fn respell_text(text: &str, choices: &mut Choices, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if c >= ' ' && c != '"' && c != '\\' && choices.below(3) > 0 {
            out.push(c);
            continue;
        }
        let short =
            "\u{8}b\u{c}f\nn\rr\tt\"\"\\\\//".as_bytes().chunks(2).find(|pair| char::from(pair[0]) == c);
        match short {
            Some(pair) if choices.below(2) == 0 => out.extend(['\\', char::from(pair[1])]),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let upper = choices.below(2) == 0;
                    out.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
                }
            }
        }
    }
    out.push('"');
}

fn respell_number(value: f64, choices: &mut Choices, out: &mut String) {
    let text = number_text(value).unwrap();
    if choices.below(2) == 0 {
        out.push_str(&text);
        return;
    }
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.parse::<i64>().unwrap() - fraction.len() as i64;
    let all = format!("{whole}{fraction}");
    let digits = match all.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let e = ["e", "E"][choices.below(2)];
    let zeros = "0".repeat(choices.below(4));
    let shift = zeros.len() as i64;
    match choices.below(3) {
        0 if digits != "0" => out.push_str(&format!("{sign}{digits}{zeros}{e}{:+}", exponent - shift)),
        1 => out.push_str(&format!("{sign}{digits}.0{zeros}{e}{exponent}")),
        _ => {
            let exponent = exponent + digits.len() as i64 + shift;
            out.push_str(&format!("{sign}0.{zeros}{digits}{e}0{exponent}").replace("0-", "-00"));
        }
    }
}

fn spelled(model: &Model, seed: u64) -> String {
    let mut out = String::new();
    respell(model, &mut Choices(seed), &mut out);
    out
}

/// `model` with one thing changed, somewhere.
fn changed(model: &Model, choices: &mut Choices) -> Model {
    match model {
        Model::Array(elements) if !elements.is_empty() && choices.below(3) > 0 => {
            let mut elements = elements.clone();
            let at = choices.below(elements.len());
            elements[at] = changed(&elements[at], choices);
            Model::Array(elements)
        }
        Model::Object(members) if !members.is_empty() && choices.below(3) > 0 => {
            let mut members = members.clone();
            let at = choices.below(members.len());
            members[at].1 = changed(&members[at].1, choices);
            Model::Object(members)
        }
        Model::Array(elements) => {
            let turned: Vec<_> = elements.iter().rev().cloned().collect();
            if turned != *elements {
                return Model::Array(turned);
            }
            Model::Array(elements.iter().cloned().chain([Model::Null]).collect())
        }
        Model::Object(members) => {
            let mut members = members.clone();
            let at = choices.below(members.len().max(1));
            // No part that keys are made of contains this, so no other key has such a name.
            const ANOTHER: &str = "a very different end";
            match choices.below(3) {
                0 if !members.is_empty() => drop(members.remove(at)),
                1 if !members.is_empty() => members[at].0.push_str(ANOTHER),
                _ => members.insert(at, (ANOTHER.into(), Model::Null)),
            }
            Model::Object(members)
        }
        Model::Null => Model::Bool(false),
        Model::Bool(true) => Model::Text("true".into()),
        Model::Bool(false) => Model::Number(0.0),
        Model::Number(x) if choices.below(2) == 0 => Model::Text(number_text(*x).unwrap()),
        Model::Number(x) => Model::Number(if *x == f64::MAX { 0.0 } else { x.next_up() }),
        Model::Text(text) if text.contains('é') => Model::Text(text.replace('é', "e\u{301}")),
        Model::Text(text) => Model::Text(format!("{text}\u{301}")),
    }
}

/// Texts near JSON: its tokens and some that are not, in any order.
fn near_json() -> impl Strategy<Value = String> {
    let tokens = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\n",
        "\"a\"",
        "\"\\u0061\"",
        "\"\\ud800\"",
        "\"\\ud83d\\ude00\"",
        "\"",
        "\\",
        "1",
        "-1",
        "0",
        "01",
        "1.5",
        "1.",
        ".5",
        "1e5",
        "1e",
        "e5",
        "-",
        "+",
        "true",
        "false",
        "null",
        "nul",
        "NaN",
        "\u{0}",
        "\u{1f}",
        "\u{feff}",
        "é",
        "{\"a\":",
        "[1,",
        "\"__proto__\"",
        "9007199254740993",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\t\"",
    ];
    vec(select(tokens.to_vec()), 0..9).prop_map(|tokens| tokens.concat())
}

/// What holds of every text that passed.
fn invariants(value: &Exact) {
    let text = value.text();
    assert_eq!(exact(text).text(), text, "compacting twice");
    let canonical = value.canonical();
    assert_eq!(exact(&canonical).canonical(), canonical, "canonical form of a canonical form");
    assert_eq!(exact(&canonical).text(), canonical);
    assert_eq!(exact(&canonical), *value);
    assert_eq!(exact(&canonical).digest(), value.digest());
    assert_eq!(value.canonical_len(), canonical.len());
    assert_eq!(serde_json::to_string(value).unwrap(), text);
    value.decode::<serde_json::Value>().unwrap();
}

proptest! {
    // Law 3, contract 4.5: spelling, white space and key order never change a value or its digest.
    #[test]
    fn respelling_keeps_the_value(model in models(), seeds in any::<(u64, u64)>()) {
        let (a, b) = (exact(&spelled(&model, seeds.0)), exact(&spelled(&model, seeds.1)));
        prop_assert!(a == b);
        prop_assert!(b == a);
        prop_assert_eq!(a.canonical(), b.canonical());
        prop_assert_eq!(a.digest(), b.digest());
        invariants(&a);
    }

    // Law 1, contract 4.5: any other change does, wherever it is.
    #[test]
    fn any_change_is_another_value(model in models(), seeds in any::<(u64, u64, u64)>()) {
        let other = changed(&model, &mut Choices(seeds.0));
        prop_assert!(model != other);
        let (a, b) = (exact(&spelled(&model, seeds.1)), exact(&spelled(&other, seeds.2)));
        prop_assert!(a != b);
        prop_assert!(b != a);
        prop_assert!(a.digest() != b.digest());
    }

    // Design 3: equality, canonical form and digest agree with the model on any two values.
    #[test]
    fn equality_is_that_of_the_model(a in models(), b in models(), seeds in any::<(u64, u64)>()) {
        let same = a == b;
        let (a, b) = (exact(&spelled(&a, seeds.0)), exact(&spelled(&b, seeds.1)));
        prop_assert_eq!(a == b, same);
        prop_assert_eq!(a.canonical() == b.canonical(), same);
        prop_assert_eq!(a.digest() == b.digest(), same);
    }

    // Law 3: a member taken out of an envelope is the value it was.
    #[test]
    fn documents_give_the_same_values(model in models(), seeds in any::<(u64, u64)>()) {
        let text = format!(r#"{{"other":[1 , {{}}],"value":{},"last":null}}"#, spelled(&model, seeds.0));
        let document = Document::parse(&text).unwrap();
        let node = document.root().get("value").unwrap();
        let value = node.to_exact(Gate::ARGUMENTS).unwrap();
        prop_assert!(value.text() == exact(node.raw()).text());
        prop_assert_eq!(value, exact(&spelled(&model, seeds.1)));
    }

    // Design 3: a finite double always prints to itself, in ECMAScript's form, and passes the gate.
    #[test]
    fn doubles_print_to_themselves(value in doubles()) {
        let text = number_text(value).unwrap();
        prop_assert_eq!(text.parse::<f64>().unwrap(), value);
        prop_assert_eq!(exact(&text).canonical(), text.as_str());
        prop_assert!(is_ecmascript(&text), "{}", text);
        let more = format!("{value:.17e}");
        let passes = Exact::parse(&more).is_ok();
        prop_assert_eq!(passes, exact(&text) == Exact::parse_with(&more, Gate::OUTPUT).unwrap());
    }

    // Design 3, RFC 8785: of two equally near shortest decimals, the even one. Between 2^50 and 2^51 a quarter is such a
    // tie.
    #[test]
    fn ties_print_the_even_decimal(whole in 1u64 << 50..1 << 51) {
        prop_assert_eq!(number_text(whole as f64 + 0.25), Some(format!("{whole}.2")));
        prop_assert_eq!(number_text(-(whole as f64) - 0.75), Some(format!("-{whole}.8")));
        let upper = format!("{whole}.3");
        prop_assert!(Exact::parse(&upper).is_err());
    }

    // Differential: serde_json and the scanner agree on what is JSON.
    #[test]
    fn syntax_agrees_with_serde_json(text in near_json()) {
        let ours = Exact::parse(&text).map_err(|refused| refused.kind());
        let theirs = serde_json::from_str::<&RawValue>(&text);
        prop_assert_eq!(ours == Err(RefusedKind::Syntax), theirs.is_err(), "{:?}", ours);
        prop_assert_eq!(Document::parse(&text).is_err_and(|e| e.kind() == RefusedKind::Syntax), theirs.is_err());
        if let Ok(value) = ours {
            invariants(&value);
        }
    }

    // Law 9: no bytes make it panic; what passes is sound.
    #[test]
    fn any_bytes_are_judged(bytes in vec(any::<u8>(), 0..64)) {
        let _ = Document::parse_bytes(&bytes).map(|document| document.root().path());
        if let Ok(value) = Exact::parse_bytes(&bytes) {
            invariants(&value);
        }
    }

    // Law 9: nor does JSON with bytes changed, dropped or doubled.
    #[test]
    fn damaged_json_is_judged(model in models(), seed in any::<u64>(), damages in 1usize..4) {
        let choices = &mut Choices(seed);
        let mut bytes = spelled(&model, seed).into_bytes();
        for _ in 0..damages {
            let at = choices.below(bytes.len().max(1));
            match choices.below(3) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] = b"\"\\{}[],:0-eu\x00\xff"[choices.below(14)],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        if let Ok(value) = Exact::parse_bytes(&bytes) {
            invariants(&value);
        }
        let syntax = Exact::parse_bytes(&bytes).is_err_and(|e| matches!(e.kind(), RefusedKind::Syntax | RefusedKind::Utf8));
        prop_assert_eq!(syntax, serde_json::from_slice::<&RawValue>(&bytes).is_err());
    }
}

/// Whether `text` has the form of ECMAScript's `Number::toString`.
fn is_ecmascript(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    if text == "0" {
        return true;
    }
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "1"));
            let exponent = exponent.strip_prefix('+').unwrap_or(exponent).parse::<i32>().unwrap_or(0);
            whole.len() == 1
                && whole != "0"
                && digits(fraction)
                && !fraction.ends_with('0')
                && !(-6..21).contains(&exponent)
        }
        None => match text.split_once('.') {
            Some((whole, fraction)) => {
                let zeros = fraction.len() - fraction.trim_start_matches('0').len();
                (whole == "0" && zeros < 6 || !whole.starts_with('0') && whole.len() <= 21)
                    && digits(fraction)
                    && !fraction.ends_with('0')
            }
            None => digits(text) && !text.starts_with('0') && text.len() <= 21,
        },
    }
}
