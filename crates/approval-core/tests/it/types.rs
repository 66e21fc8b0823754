//! Ids and names, grants, snapshots: what is parsed, and what binds.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::{
    ApprovalId, CallId, InvalidName, ModelId, ProviderId, RunId, Subject, ToolName,
};
use countersign_approval_core::json::Exact;
use countersign_approval_core::snapshot::{
    CallTooLarge, MAX_CALL_BYTES, MAX_SPELLED_BYTES, Snapshot, ToolCall,
};
use proptest::prelude::*;

use crate::registry_bench::call;

#[test]
fn one_approval_has_one_spelling() {
    // Contract 4.2: lower-case UUID with hyphens; every other spelling that a UUID reader takes is refused.
    const GOOD: &str = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d";
    let id = ApprovalId::parse(GOOD).unwrap();
    assert_eq!((id.to_string(), serde_json::to_string(&id).unwrap()), (GOOD.into(), format!("\"{GOOD}\"")));
    assert_eq!(serde_json::from_str::<ApprovalId>(&format!("\"{GOOD}\"")).unwrap(), id);
    let escaped = format!("\"\\u0030{}\"", &GOOD[1..]);
    assert_eq!(serde_json::from_str::<ApprovalId>(&escaped).unwrap(), id, "JSON may escape a character");
    let bad = [
        GOOD.to_uppercase(),
        GOOD.replace('-', ""),
        format!("{{{GOOD}}}"),
        format!("urn:uuid:{GOOD}"),
        format!(" {GOOD}"),
        format!("{GOOD}\n"),
        format!("{GOOD}0"),
        GOOD[1..].to_owned(),
        GOOD.replacen("0a1b2c3d-", "0a1b2c-3d", 1),
        GOOD.replacen('-', "_", 1),
        GOOD.replacen('0', "g", 1),
        GOOD.replacen('0', "\u{ff10}", 1),
        String::new(),
    ];
    for text in bad {
        assert!(ApprovalId::parse(&text).is_none() && RunId::parse(&text).is_none(), "{text}");
        assert!(serde_json::from_str::<RunId>(&serde_json::to_string(&text).unwrap()).is_err(), "{text}");
    }
    assert!(serde_json::from_str::<RunId>("1").is_err());
}

#[test]
fn names_and_their_edges() {
    // Contract 2, 4.2, 6.2, 7.1; law 9: each bound at its edge. Lengths count UTF-16 units.
    let n = |c: &str, n: usize| c.repeat(n);
    let wide = "\u{1f600}";
    let tool = |s: &str| ToolName::parse(s).map(|name| name.to_string());
    let call = |s: &str| CallId::parse(s).map(|name| name.to_string());
    let provider = |s: &str| ProviderId::parse(s).map(|name| name.to_string());
    let model = |s: &str| ModelId::parse(s).map(|name| name.to_string());
    let subject = |s: &str| Subject::parse(s).map(|name| name.to_string());
    type Parse<'a> = &'a dyn Fn(&str) -> Result<String, InvalidName>;
    let cases: [(&str, Parse<'_>, Vec<String>, Vec<String>); 5] = [
        (
            "tool name",
            &tool,
            vec!["a".into(), "_".into(), "A9_".into(), n("a", 64)],
            vec![
                "".into(),
                "9a".into(),
                "a-b".into(),
                "a.b".into(),
                "a b".into(),
                "a\n".into(),
                "é".into(),
                "s\u{430}ve".into(),
                n("a", 65),
            ],
        ),
        (
            "call id",
            &call,
            vec!["c".into(), " ".into(), "\0".into(), n("é", 256), n(wide, 128)],
            vec!["".into(), n("c", 257), n(wide, 129)],
        ),
        (
            "provider",
            &provider,
            vec!["m".into(), "0.a_b-c".into(), n("p", 80)],
            vec!["".into(), "-a".into(), ".a".into(), "a/b".into(), "a:b".into(), "é".into(), n("p", 81)],
        ),
        (
            "model",
            &model,
            vec!["m".into(), "a/b:c[1]-x.y_z".into(), n("m", 200)],
            vec!["".into(), "/a".into(), "a b".into(), "a\\b".into(), n("m", 201)],
        ),
        (
            "subject",
            &subject,
            vec!["local".into(), "é".into(), n("s", 128), n(wide, 64)],
            vec!["".into(), n("s", 129), n(wide, 65)],
        ),
    ];
    for (what, parse, good, bad) in cases {
        for text in good {
            assert_eq!(parse(&text).unwrap(), text, "{what}");
        }
        for text in bad {
            assert_eq!(parse(&text).unwrap_err().what, what, "{text:?}");
        }
    }
    assert!(serde_json::from_str::<ToolName>(r#""a-b""#).is_err(), "reading JSON checks too");
    assert_eq!(Subject::local().as_str(), "local");
}

#[test]
fn grants_name_what_they_allow() {
    // Contract 4.4, 6.2: a list is exact; only an embedder has none.
    assert!(Allow::All.allows("anything") && Allow::All.allows(""));
    let some = Allow::only(["write", "pay"]);
    for (name, allowed) in
        [("write", true), ("pay", true), ("Write", false), ("writ", false), ("*", false), ("", false)]
    {
        assert_eq!(some.allows(name), allowed, "{name}");
    }
    assert!(!Allow::none().allows("write") && !Allow::only(["*"]).allows("write"));
    assert_eq!(Principal::local().grants, Grants::all());
}

#[test]
fn digests_of_calls() {
    // Design 3: SHA-256 of the canonical form of `{arguments,id,name}`. The expected values come from another
    // implementation over the canonical text in the comment.
    let cases = [
        // {"arguments":{"amount":100,"to":"a"},"id":"call-1","name":"transfer"}
        (
            call("call-1", "transfer", r#"{"to":"\u0061","amount":1e2}"#),
            "sha256:29163aa39a2d825576de7a8f2bbd8129c960f42d6ca30bdb3afac225cd9f2fba",
        ),
        // {"arguments":{},"id":"c","name":"ping"}
        (call("c", "ping", "{ }"), "sha256:24ebf3e968345d25e03be9d9110d2cc94ba77e9bc38d3c28cdbda4a83f986f67"),
        // {"arguments":{"é":[1,1e+21,true,null,"\n"]},"id":"€\"","name":"set_any"}
        (
            call("€\"", "set_any", r#"{"é":[1.0,1000000000000000000000,true,null,"\u000a"]}"#),
            "sha256:b08a6c7f1ab97e2378add145d6f9e263728b70a5eac59dbae6bb0b273d01d439",
        ),
    ];
    for (call, digest) in cases {
        assert_eq!(Snapshot::digest_of(&call).to_string(), digest);
        assert_eq!(Snapshot::freeze(call).unwrap().digest().to_string(), digest);
    }
}

#[test]
fn a_reviewed_call_has_at_most_128_000_canonical_bytes() {
    // Contract 4.3, design 3; scenario L9; law 9. The frame around the text has as many bytes as here.
    let frame = r#"{"arguments":{"m":""},"id":"c","name":"t"}"#.len();
    let of = |text: &str| Snapshot::freeze(call("c", "t", &format!(r#"{{"m":"{text}"}}"#)));
    assert!(of(&"x".repeat(MAX_CALL_BYTES - frame)).is_ok());
    let error = of(&"x".repeat(MAX_CALL_BYTES - frame + 1)).unwrap_err();
    assert_eq!(error, CallTooLarge::Canonical { bytes: 128_001 });
    assert!(error.to_string().contains("128000"), "{error}");
    // Bytes of the canonical form count: spelling and white space do not, width does.
    assert!(of(&"\\u0078".repeat(MAX_CALL_BYTES - frame)).is_ok());
    assert!(of(&"é".repeat((MAX_CALL_BYTES - frame) / 2 + 1)).is_err());
    assert!(of(&"<".repeat(127_000)).is_ok());
}

#[test]
fn a_reviewed_call_has_at_most_768_000_spelled_bytes() {
    // Contract 4.6: a decision fits into a request. Law 9: `1.000…` is canonically one byte, and yet every reader gets
    // all of it.
    let frame = r#"{"n":1.}"#.len();
    let of = |zeros: usize| Snapshot::freeze(call("c", "t", &format!(r#"{{"n":1.{}}}"#, "0".repeat(zeros))));
    assert!(of(MAX_SPELLED_BYTES - frame).is_ok());
    let error = of(MAX_SPELLED_BYTES - frame + 1).unwrap_err();
    assert_eq!(error, CallTooLarge::Spelled { bytes: 768_001 });
    assert!(error.to_string().contains("768000"), "{error}");
}

/// A JSON value, told from others by its own equality.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Null,
    Bool(bool),
    Number(i32),
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// Writes it with the keys in another order for each `order`.
    fn write(&self, order: usize, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => write!(out, "{value}").unwrap(),
            Self::Number(n) if order % 2 == 1 => write!(out, "{n}.0").unwrap(),
            Self::Number(n) => write!(out, "{n}").unwrap(),
            Self::Text(text) => out.push_str(&serde_json::to_string(text).unwrap()),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    item.write(order, out);
                }
                out.push(']');
            }
            Self::Map(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if !members.is_empty() {
                    let turn = order % members.len();
                    members.rotate_left(turn);
                }
                if order % 3 == 1 {
                    members.reverse();
                }
                out.push('{');
                for (at, (key, value)) in members.into_iter().enumerate() {
                    out.push_str(if at > 0 { " ,\n" } else { "" });
                    out.push_str(&serde_json::to_string(key).unwrap());
                    out.push(':');
                    value.write(order, out);
                }
                out.push('}');
            }
        }
    }

    fn exact(&self, order: usize) -> Exact {
        let mut text = String::new();
        self.write(order, &mut text);
        Exact::parse(&text).unwrap()
    }

    /// Changes the `at`-th value, counted from the outside in; false if there are fewer.
    fn change(&mut self, at: &mut usize) -> bool {
        if *at == 0 {
            *self = match &*self {
                Self::Null => Self::Bool(false),
                Self::Bool(value) => Self::Bool(!value),
                Self::Number(n) => Self::Number(n.wrapping_add(1)),
                Self::Text(text) => Self::Text(format!("{text}\u{301}")),
                Self::List(items) if items.len() > 1 && items[0] != items[items.len() - 1] => {
                    Self::List(items.iter().rev().cloned().collect())
                        .differing_from(self)
                        .unwrap_or(Self::Null)
                }
                Self::List(items) => Self::List([items.clone(), vec![Self::Null]].concat()),
                Self::Map(members) => {
                    let mut members = members.clone();
                    if members.pop_first().is_none() {
                        members.insert("x".into(), Self::Null);
                    }
                    Self::Map(members)
                }
            };
            return true;
        }
        *at -= 1;
        match self {
            Self::List(items) => items.iter_mut().any(|item| item.change(at)),
            Self::Map(members) => members.values_mut().any(|value| value.change(at)),
            _ => false,
        }
    }

    fn differing_from(self, other: &Self) -> Option<Self> {
        (self != *other).then_some(self)
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3i32..3).prop_map(Value::Number),
        any::<i32>().prop_map(Value::Number),
        "[a-c\u{e9}\"\\\\\n\u{1f600}]{0,4}".prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            members(inner).prop_map(Value::Map),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = BTreeMap<String, Value>> {
    prop::collection::btree_map("[a-c\u{e9}\"]{0,2}", value, 0..4)
}

proptest! {
    // Contract 4.5, design 3; law 1, law 3; scenario B9.
    #[test]
    fn key_order_and_number_spelling_never_matter(map in members(values()), order in 0usize..12) {
        let map = Value::Map(map);
        let snapshot = frozen(map.exact(0));
        let echoed = map.exact(order);
        prop_assert!(snapshot.binds("c", "t", &echoed));
        prop_assert_eq!(snapshot.digest(), frozen(echoed).digest());
    }

    #[test]
    fn any_other_change_does(map in members(values()), at in 0usize..24, order in 0usize..12) {
        let map = Value::Map(map);
        let mut changed = map.clone();
        if !changed.change(&mut at.clone()) {
            changed.change(&mut 0);
        }
        prop_assert_ne!(&map, &changed);
        let (snapshot, echoed) = (frozen(map.exact(0)), changed.exact(order));
        prop_assert!(!snapshot.binds("c", "t", &echoed));
        prop_assert_ne!(snapshot.digest(), frozen(echoed).digest());
    }

    #[test]
    fn two_values_bind_if_and_only_if_they_are_one(a in members(values()), b in members(values())) {
        let (a, b) = (Value::Map(a), Value::Map(b));
        prop_assert_eq!(frozen(a.exact(0)).binds("c", "t", &b.exact(1)), a == b);
    }
}

fn frozen(arguments: Exact) -> Snapshot {
    let ToolCall { id, name, .. } = call("c", "t", "{}");
    Snapshot::freeze(ToolCall { id, name, arguments }).unwrap()
}

#[test]
fn id_and_name_bind_exactly() {
    let snapshot = frozen(Exact::empty_object());
    for (id, name, binds) in [
        ("c", "t", true),
        ("C", "t", false),
        ("c", "T", false),
        ("c ", "t", false),
        ("", "t", false),
        ("t", "c", false),
    ] {
        assert_eq!(snapshot.binds(id, name, &Exact::empty_object()), binds, "{id} {name}");
    }
    assert!(!snapshot.binds("c", "t", &Exact::parse("[]").unwrap()));
}
