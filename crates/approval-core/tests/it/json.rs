//! Exact JSON by table: each example of design 3, the scenarios of group B, and what other crates rely on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes helpers of tests for other code"
)]

use countersign_approval_core::json::{
    Digest, Document, Exact, Gate, Kind, Numbers, RefusedKind, canonical_string, canonical_string_len,
    number_text,
};

pub(crate) fn exact(text: &str) -> Exact {
    Exact::parse(text).unwrap_or_else(|refused| panic!("{text:.200}: {refused}"))
}

fn refusal(text: &str) -> (RefusedKind, String) {
    let refused = Exact::parse(text).expect_err(&format!("{text:.200} passed"));
    (refused.kind(), refused.path().to_owned())
}

fn nested(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

// Scenario B1, law 3: a large integer stays as it is or is refused; the rounded one is never the same value.
#[test]
fn large_integers_are_kept_or_refused() {
    for digits in ["9007199254740993", "9223372036854775807", "18446744073709551616", "2512292042121000001"] {
        let text = format!(r#"{{"amount":{digits}}}"#);
        assert_eq!(refusal(&text), (RefusedKind::Number, "/amount".into()), "{digits}");
        let message = Exact::parse(&text).unwrap_err().to_string();
        assert!(
            message.contains(digits) && message.contains("/amount") && message.contains("string"),
            "{message}"
        );
    }
    for digits in ["9007199254740991", "9007199254740992", "9007199254740994", "-9007199254740992"] {
        assert_eq!(exact(digits).text(), digits);
        assert_eq!(exact(digits).canonical(), digits);
    }
}

// Scenario B3, design 3: spellings of one decimal value are one value, one canonical form and one digest; the stored
// text keeps the spelling.
#[test]
fn spellings_of_one_number_are_one_value() {
    for group in [
        ["1", "1.0", "1e0", "100e-2"],
        ["0", "-0", "-0.0", "0e0"],
        ["1000", "1e3", "1E+3", "1000.00"],
        ["0.1", "1e-1", "0.10", "100e-3"],
        ["1e21", "1000000000000000000000", "1E21", "0.1e22"],
    ] {
        for a in group {
            assert_eq!(exact(a).text(), a);
            for b in group {
                assert_eq!(exact(a), exact(b));
                assert_eq!(exact(a).canonical(), exact(b).canonical());
                assert_eq!(exact(a).digest(), exact(b).digest());
            }
        }
    }
}

// Scenario B5, law 9: hostile numbers end at once. A quadratic reader would not finish these before the suite is
// killed; no clock is read.
#[test]
fn hostile_numbers_end_at_once() {
    let zeros = "0".repeat(200_000);
    for text in [
        "1e-10000000".into(),
        "1e10000000".into(),
        "1e99999999999999999999999999".into(),
        "9".repeat(200_000),
        format!("1{zeros}"),
        format!("0.{zeros}1"),
        format!("1e{}", "9".repeat(200_000)),
        format!("-1.{zeros}1e-{}", "9".repeat(200_000)),
    ] {
        assert_eq!(refusal(&text), (RefusedKind::Number, String::new()), "{text:.40}");
    }
    // The standard library would read 700001 as 70000.
    let far = format!("0.{}12345678901234567e700001", "0".repeat(700_000));
    assert_eq!(exact(&far).canonical(), "1.2345678901234567");
    // Long spellings of ordinary values are those values.
    for (text, canonical) in [
        (format!("1.{zeros}"), "1"),
        (format!("0.{zeros}1e200001"), "1"),
        (format!("1{zeros}e-200000"), "1"),
        (format!("0.{zeros}e99999999999999999999"), "0"),
        (format!("1e{zeros}2"), "100"),
    ] {
        assert_eq!(exact(&text).canonical(), canonical);
        assert_eq!(exact(&text), exact(canonical));
        assert_eq!(exact(&text).canonical_len(), canonical.len());
    }
}

// Scenario B7: unpaired surrogates and bytes that are not UTF-8 are refused, never replaced.
#[test]
fn text_that_is_not_unicode_is_refused() {
    for text in [r#"{"memo":"\ud800"}"#, r#"{"memo":"\udc00\ud800"}"#, r#"{"memo":"\ud800A"}"#] {
        assert_eq!(refusal(text), (RefusedKind::LoneSurrogate, "/memo".into()));
    }
    assert_eq!(refusal(r#"[{"\udc00":1}]"#).0, RefusedKind::LoneSurrogate);
    for bytes in [b"\"\xff\"".as_slice(), b"\xff", b"\"\xc0\xaf\"", b"\"\xed\xa0\x80\"", b"{}\xe2\x82"] {
        assert_eq!(Exact::parse_bytes(bytes).unwrap_err().kind(), RefusedKind::Utf8);
        assert_eq!(Document::parse_bytes(bytes).unwrap_err().kind(), RefusedKind::Utf8);
    }
    assert_eq!(Exact::parse_bytes(b"\xef\xbb\xbf{}").unwrap_err().kind(), RefusedKind::Syntax);
}

// Scenario B9, contract 4.5: key order is immaterial at every depth, array order and normal form are not.
#[test]
fn order_of_keys_is_immaterial_and_nothing_else_is() {
    let reviewed = exact(r#"{"to":"é","tags":["a","b"],"o":{"x":1,"y":{"p":null,"q":true}}}"#);
    for same in [
        r#"{"o":{"y":{"q":true,"p":null},"x":1},"tags":["a","b"],"to":"é"}"#,
        r#" { "to" : "\u00e9", "tags" : [ "a" , "\u0062" ], "o" : {"x":1.0,"y":{"p":null,"q":true}} } "#,
    ] {
        assert_eq!(reviewed, exact(same));
        assert_eq!(reviewed.digest(), exact(same).digest());
    }
    for other in [
        r#"{"to":"é","tags":["b","a"],"o":{"x":1,"y":{"p":null,"q":true}}}"#,
        "{\"to\":\"e\u{301}\",\"tags\":[\"a\",\"b\"],\"o\":{\"x\":1,\"y\":{\"p\":null,\"q\":true}}}",
        r#"{"to":"é","tags":["a","b"],"o":{"x":1,"y":{"p":null,"q":false}}}"#,
        r#"{"to":"é","tags":["a","b"],"o":{"x":1,"y":{"q":true}}}"#,
        r#"{"to":"é","tags":["a","b"],"o":{"x":"1","y":{"p":null,"q":true}}}"#,
        r#"{"to":"é","tags":["a","b","b"],"o":{"x":1,"y":{"p":null,"q":true}}}"#,
    ] {
        assert_ne!(reviewed, exact(other));
        assert_ne!(reviewed.digest(), exact(other).digest());
    }
}

// Scenario B11, law 9: depth is bounded, and what is too deep is told apart from what is not JSON.
#[test]
fn depth_is_bounded() {
    assert_eq!(exact(&nested(64)).text(), nested(64));
    for levels in [65, 129, 257, 1000, 200_000] {
        let (kind, path) = refusal(&nested(levels));
        assert_eq!(kind, RefusedKind::TooDeep);
        assert_eq!(path, "/0/0/0/0/0/0/0/0/…");
        assert_eq!(refusal(&"[".repeat(levels)).0, RefusedKind::Syntax);
        assert_eq!(refusal(&(nested(levels) + "x")).0, RefusedKind::Syntax);
    }
    let in_object = format!("{{\"a\":{}}}", nested(64));
    assert_eq!(refusal(&in_object).0, RefusedKind::TooDeep);
    let siblings = format!("[{0},{0},{0}]", nested(63));
    assert_eq!(exact(&siblings).canonical(), siblings);
    // A gate that promises more than the recursion can carry is cut to 128.
    let gate = Gate { max_depth: usize::MAX, numbers: Numbers::Interoperable };
    let deepest = Exact::parse_with(&nested(128), gate).unwrap();
    assert_eq!(deepest.canonical(), nested(128));
    let spelled =
        Exact::parse_with(&format!("{}{{\"a\":1.0}}{}", "[".repeat(127), "]".repeat(127)), gate).unwrap();
    let echoed =
        Exact::parse_with(&format!("{}{{\"a\":1}}{}", "[".repeat(127), "]".repeat(127)), gate).unwrap();
    assert_eq!(spelled, echoed);
    assert_ne!(spelled, deepest);
    assert_eq!(Exact::parse_with(&nested(129), gate).unwrap_err().kind(), RefusedKind::TooDeep);
}

// Scenario B13: what a JavaScript program prints after reading the text is the same value, or the text never passed.
#[test]
fn what_javascript_prints_back_is_the_same_value() {
    for (text, javascript) in [
        ("1.0", "1"),
        ("-0.0", "0"),
        ("1e21", "1e+21"),
        ("123456789012345680000", "123456789012345680000"),
        ("0.000001", "0.000001"),
        ("1E-7", "1e-7"),
        ("1424953923781206.2", "1424953923781206.2"),
        ("5e-324", "5e-324"),
    ] {
        assert_eq!(exact(text), exact(javascript));
        assert_eq!(exact(text).canonical(), javascript);
    }
    assert_eq!(refusal("9007199254740993").0, RefusedKind::Number);
}

// Design 3, contract 4.6: duplicate keys by any spelling, and an own key `__proto__`, wherever they stand.
#[test]
fn keys_that_readers_disagree_on_are_refused() {
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"b":0,"a":1,"c":[{}],"\u0061":1}"#,
        r#"{"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"a":0,"9":0,"a":0}"#,
    ] {
        assert_eq!(refusal(text), (RefusedKind::DuplicateKey, "/a".into()), "{text}");
        assert_eq!(Document::parse(text).unwrap_err().kind(), RefusedKind::DuplicateKey);
        assert_eq!(Exact::parse_with(text, Gate::OUTPUT).unwrap_err().kind(), RefusedKind::DuplicateKey);
    }
    for text in [r#"{"x":[0,{"__proto__":1}]}"#, r#"{"x":[0,{"\u005f_proto_\u005F":1}]}"#] {
        assert_eq!(refusal(text), (RefusedKind::ProtoKey, "/x/1/__proto__".into()));
        assert_eq!(Exact::parse_with(text, Gate::OUTPUT).unwrap_err().kind(), RefusedKind::ProtoKey);
    }
    for fine in [r#"{"":1,"constructor":2,"toString":3}"#, r#"["__proto__"]"#, r#"[{"a":1},{"a":2}]"#] {
        exact(fine);
    }
}

// Law 9: many keys, long keys and escaped keys cost n log n, not n².
#[test]
fn many_keys_are_compared_at_once() {
    let member = |i: usize| format!("\"{}\\u0061{i}\":{i}", "k".repeat(10));
    let mut members: Vec<String> = (0..100_000).map(member).collect();
    let forward = exact(&format!("{{{}}}", members.join(",")));
    members.reverse();
    let backward = exact(&format!("{{{}}}", members.join(",")));
    assert_eq!(forward, backward);
    assert_eq!(forward.digest(), backward.digest());
    members.push(member(50_000).replace("\\u0061", "a"));
    let (kind, path) = refusal(&format!("{{{}}}", members.join(",")));
    assert_eq!(kind, RefusedKind::DuplicateKey);
    assert_eq!(path, format!("/{}a50000", "k".repeat(10)));
}

// Design 3: outputs keep any number, by its exact decimal value.
#[test]
fn outputs_keep_numbers_as_written() {
    let output = |text| Exact::parse_with(text, Gate::OUTPUT).unwrap();
    for (text, canonical) in [
        ("9007199254740993", "9007199254740993"),
        ("1e400", "1e+400"),
        ("1e-10000000", "1e-10000000"),
        ("0.10000000000000000001", "0.10000000000000000001"),
        ("1E99999999999999999999", "1E99999999999999999999"),
    ] {
        assert_eq!(output(text).text(), text);
        assert_eq!(output(text).canonical(), canonical);
        assert_eq!(output(text).canonical_len(), canonical.len());
        assert_eq!(output(text), output(text));
    }
    assert_eq!(output("1e400"), output("10e399"));
    assert_ne!(output("1e400"), output("1e401"));
    assert_ne!(output("9007199254740993"), output("9007199254740992"));
    assert_ne!(output("1e99999999999999999999"), output("1e99999999999999999998"));
}

// Style 13 and the refusal's promise: a message shows the path and at most 40 characters of a number, nothing else.
#[test]
fn refusals_hold_no_private_values() {
    let number = "7".repeat(500);
    for (text, shown) in [
        (format!(r#"{{"secret-free":"SECRET","n":{number}}}"#), &number[..40]),
        (r#"{"a":"SECRET","a":"SECRET"}"#.to_owned(), "/a"),
        (r#"{"a":"SECRET\ud800"}"#.to_owned(), "/a"),
        (r#"{"a":"SECRET"#.to_owned(), "byte"),
        (r#"{"a":SECRET}"#.to_owned(), "byte 5"),
    ] {
        let refused = Exact::parse(&text).unwrap_err();
        for told in [refused.to_string(), format!("{refused:?}")] {
            assert!(!told.contains("SECRET") && !told.contains(&number[..41]), "{told}");
            assert!(told.contains(shown), "{told}");
        }
    }
    assert_eq!(format!("{:?}", exact(r#"{"a":"SECRET"}"#)), "Exact(14 bytes)");
    let document = Document::parse(r#"{"a":"SECRET"}"#).unwrap();
    assert_eq!(format!("{document:?} {:?}", document.root()), "Document(14 bytes) Node(Object, 14 bytes)");
}

// Law 9: a path is as short as its promise, and cannot disturb a terminal.
#[test]
fn paths_are_cut_and_visible() {
    let long = "k".repeat(1000);
    let deep = format!(r#"{{"{long}":{{"a/b":{{"~":{{"\n":{{"\u202e":[[[[[1e999]]]]]}}}}}}}}}}"#);
    let expected = format!("/{}…/a~1b/~0/\\u{{a}}/\\u{{202e}}/0/0/0/…", "k".repeat(64));
    assert_eq!(refusal(&deep), (RefusedKind::Number, expected));
    assert_eq!(refusal(r#"{"a":[1,{"b":x}]}"#), (RefusedKind::Syntax, "/a/1/b".into()));
    assert_eq!(refusal(r#"{"a":[1,2"#), (RefusedKind::Syntax, "/a".into()));
}

#[test]
fn kinds_follow_the_value() {
    let rows = [
        ("{}", Kind::Object),
        (" []", Kind::Array),
        ("\"\"", Kind::String),
        ("-1", Kind::Number),
        ("true", Kind::Bool),
        ("false", Kind::Bool),
        ("null", Kind::Null),
    ];
    for (text, kind) in rows {
        assert_eq!(exact(text).kind(), kind);
        assert_eq!(Document::parse(text).unwrap().root().kind(), kind);
    }
    assert_eq!(Exact::empty_object(), exact(" { } "));
}

// Contract 4.3, 4.4: what the decoders of envelopes stand on.
#[test]
fn a_document_gives_typed_members_with_paths() {
    let text = r#"{ "runId" : "r\u0031", "n": 8.0, "big": 9007199254740993, "neg": -9223372036854775808,
        "half": 0.5, "huge": 1e400, "yes": true, "nothing": null,
        "call": {"arguments": {"b" : [1.0 , "x y"], "a": {"__proto__": 1}}, "list": [10, 20]} }"#;
    let document = Document::parse(text).unwrap();
    let root = document.root();
    let keys: Vec<String> = root.as_object().unwrap().map(|(key, _)| key.into_owned()).collect();
    assert_eq!(keys, ["runId", "n", "big", "neg", "half", "huge", "yes", "nothing", "call"]);
    assert_eq!(root.get("runId").unwrap().as_str().as_deref(), Some("r1"));
    assert_eq!(root.get("runId").unwrap().raw(), r#""r\u0031""#);
    let integers =
        ["n", "big", "neg", "half", "huge", "yes", "runId"].map(|key| root.get(key).unwrap().as_integer());
    assert_eq!(integers, [Some(8), Some(9007199254740993), Some(i64::MIN), None, None, None, None]);
    assert_eq!(root.get("yes").unwrap().as_bool(), Some(true));
    assert!(root.get("nothing").unwrap().is_null() && root.get("missing").is_none());
    assert_eq!(root.get("n").unwrap().as_str(), None);
    let call = root.get("call").unwrap();
    let second = call.get("list").unwrap().as_array().unwrap().nth(1).unwrap();
    assert_eq!((second.path().as_str(), second.as_integer()), ("/call/list/1", Some(20)));
    let arguments = call.get("arguments").unwrap();
    assert_eq!(arguments.path(), "/call/arguments");
    assert_eq!(arguments.get("b").unwrap().to_exact(Gate::ARGUMENTS).unwrap().text(), r#"[1.0,"x y"]"#);
    let refused = arguments.to_exact(Gate::ARGUMENTS).unwrap_err();
    assert_eq!((refused.kind(), refused.path()), (RefusedKind::ProtoKey, "/call/arguments/a/__proto__"));
    let refused = root.get("big").unwrap().to_exact(Gate::ARGUMENTS).unwrap_err();
    assert_eq!((refused.kind(), refused.path()), (RefusedKind::Number, "/big"));
    assert_eq!(root.get("big").unwrap().to_exact(Gate::OUTPUT).unwrap().text(), "9007199254740993");
}

// Design 3: integers by value at the edges of i64.
#[test]
fn integers_are_read_by_value() {
    for (text, integer) in [
        ("-0", Some(0)),
        ("0e999999999999999999999", Some(0)),
        ("80e-1", Some(8)),
        ("0.8e1", Some(8)),
        ("1e18", Some(1_000_000_000_000_000_000)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775807.000", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("1e19", None),
        ("1e-1", None),
        ("123.5", None),
        ("1e99999999999999999999", None),
    ] {
        assert_eq!(Document::parse(text).unwrap().root().as_integer(), integer, "{text}");
    }
}

// Design 3: depth counts from the bound value; an envelope adds eight.
#[test]
fn envelopes_add_eight_levels() {
    let within = |outer: usize, inner: usize| {
        let text = r#"{"a":"#.repeat(outer) + &nested(inner) + &"}".repeat(outer);
        let document = match Document::parse(&text) {
            Ok(document) => document,
            Err(refused) => return Err(refused.kind()),
        };
        let mut node = document.root();
        for _ in 0..outer {
            node = node.get("a").unwrap();
        }
        node.to_exact(Gate::ARGUMENTS).map(|value| value.text().len()).map_err(|refused| refused.kind())
    };
    assert_eq!(within(8, 64), Ok(128));
    assert_eq!(within(9, 64), Err(RefusedKind::TooDeep));
    assert_eq!(within(0, 64), Ok(128));
    assert_eq!(within(2, 65), Err(RefusedKind::TooDeep));
}

// Design 3: the digest is SHA-256 of the canonical form, written one way.
#[test]
fn digests_have_one_spelling() {
    let digest = exact("{ }").digest();
    let text = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(digest.to_string(), text);
    assert_eq!(format!("{digest:?}"), text);
    assert_eq!(text.parse(), Ok(digest));
    assert_eq!(digest, Digest::of("{}"));
    assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{text}\""));
    assert_eq!(serde_json::from_str::<Digest>(&format!("\"{text}\"")).unwrap(), digest);
    for bad in [
        "",
        "sha256:",
        &text[7..],
        &text.to_uppercase(),
        &text[..70],
        &format!("{text}0"),
        &text.replace('4', "g"),
    ] {
        assert!(bad.parse::<Digest>().is_err(), "{bad}");
    }
}

// Law 1: serde carries the text verbatim, and its private names mean nothing.
#[test]
fn serde_carries_the_text_verbatim() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Call {
        name: String,
        arguments: Exact,
    }
    let text = r#"{"name":"pay","arguments":{"b":1.0,"a":"\u0041","n":-0.0,"$serde_json::private::RawValue":"[1]"}}"#;
    let call: Call = serde_json::from_str(text).unwrap();
    assert_eq!(call.arguments.kind(), Kind::Object);
    assert_eq!(serde_json::to_string(&call).unwrap(), text);
    for bad in ["1e400", r#"{"a":1,"a":1}"#, r#"{"__proto__":1}"#, r#""\ud800""#, "9007199254740993"] {
        let body = format!(r#"{{"name":"pay","arguments":{bad}}}"#);
        assert!(serde_json::from_str::<Call>(&body).is_err(), "{bad}");
    }
    let decoded: std::collections::BTreeMap<String, serde_json::Value> =
        exact(r#"{"a":[1,"x"]}"#).decode().unwrap();
    assert_eq!(decoded["a"][1], "x");
    assert!(exact("[]").decode::<std::collections::BTreeMap<String, u8>>().is_err());
}

// Contract 4.3: the caller who builds `{"arguments":..,"id":..,"name":..}` prints strings as the canonical form does.
#[test]
fn canonical_strings_are_those_of_the_canonical_form() {
    for value in ["", "plain", "q\"b\\s/", "\u{0}\u{1f}\u{8}\t\n\u{b}\u{c}\r\u{7f}", "é\u{2028}\u{feff}😀"]
    {
        let mut out = String::from("x");
        canonical_string(value, &mut out);
        let printed = &out[1..];
        assert_eq!(printed.len(), canonical_string_len(value));
        assert_eq!(exact(printed).canonical(), printed);
        assert_eq!(exact(&serde_json::to_string(value).unwrap()).canonical(), printed);
        assert_eq!(exact(printed).decode::<String>().unwrap(), value);
    }
}

// Design 3: a finite double always prints to itself, ties included.
#[test]
fn doubles_print_as_ecmascript_prints_them() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "0"),
        (-1.5, "-1.5"),
        (5699815695124825.0 / 4.0, "1424953923781206.2"),
        (2f64.powi(-44), "5.684341886080802e-14"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
    ] {
        assert_eq!(number_text(value).as_deref(), Some(text));
        assert_eq!(exact(text).canonical(), text);
    }
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(number_text(value), None);
    }
}
