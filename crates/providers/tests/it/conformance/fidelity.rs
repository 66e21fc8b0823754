//! Laws 1 and 3 for any arguments: what a model writes is what the tool gets, or nothing is reviewed.

use countersign_approval_core::json::Exact;
use countersign_protocol::code::Code;
use countersign_protocol::event::Event;
use proptest::prelude::*;
use proptest::sample::Index;

use super::runs::{Bench, end, reviewed};
use super::vendor::{Part, Said, Unsayable, Vendor};
use super::{play, provider};
use crate::heard::{ask, user};
use crate::server::{Reply, Server};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The text of a JSON value with its own spacing, number spellings and escapes; also what the gate would refuse.
pub(crate) fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        string(),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(spaced(inner.clone()), 0..3)
                .prop_map(|items| format!("[{}]", items.join(","))),
            object(inner),
        ]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (string(), spaced(value)).prop_map(|(key, value)| format!("{key}:{value}"));
    (prop::collection::vec(member, 0..4), "[ \t\n\r]{0,2}")
        .prop_map(|(members, space)| format!("{{{space}{}}}", members.join(",")))
}

fn spaced(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let space = "[ \t\n\r]{0,2}";
    (space, value, space).prop_map(|(before, value, after)| format!("{before}{value}{after}"))
}

fn string() -> impl Strategy<Value = String> {
    r#""([a-z ]|\\u00[0-9a-f]{2}|\\ud83d\\ude00|\\"|\\\\|\\/|\\n|é|😀|\u{2028}|\u{7f}){0,6}""#
}

/// What the gate refuses, whatever stands around it (design 3).
fn poison() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("9007199254740993".to_owned()),
        Just("1e400".to_owned()),
        Just("0.10000000000000000001".to_owned()),
        Just(r#""\ud800""#.to_owned()),
        Just(r#"{"a":1,"\u0061":1}"#.to_owned()),
        Just(r#"{"__proto__":1}"#.to_owned()),
        Just(r#"{"\u005f_proto__":{}}"#.to_owned()),
        Just(format!("{}{}", "[".repeat(64), "]".repeat(64))),
    ]
}

/// A text in fragments, cut between characters.
fn fragments(call: usize, text: &str, cuts: &[Index]) -> Vec<Part> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    places.retain(|place| text.is_char_boundary(*place));
    places.push(text.len());
    places.sort_unstable();
    let mut from = 0;
    let mut piece = |to| text[std::mem::replace(&mut from, to)..to].to_owned();
    places.into_iter().map(|place| Part::Arguments { call, text: piece(place) }).collect()
}

/// Two calls with these texts; their fragments take turns where the vendor can say that.
fn said<V: Vendor>(first: &str, second: &str, cuts: &[Index]) -> Said {
    let begin = |call: usize| Said::calls(&[("c0", "save", &[]), ("c1", "look", &[])]).parts[call].clone();
    let (mut a, mut b) = (fragments(0, first, cuts), fragments(1, second, cuts));
    let mut parts = vec![begin(0)];
    if V::can(Unsayable::Interleaved) {
        parts.push(begin(1));
        a.reverse();
        b.reverse();
        while !(a.is_empty() && b.is_empty()) {
            parts.extend(a.pop());
            parts.extend(b.pop());
        }
    } else {
        parts.extend(a);
        parts.push(begin(1));
        parts.extend(b);
    }
    Said { parts, ..Said::text(&[]) }
}

/// The tokens of a JSON text, read without any of the code under test: it without the white space outside of strings.
pub(crate) fn tokens(text: &str) -> String {
    let (mut tokens, mut inside, mut escaped) = (String::new(), false, false);
    for character in text.chars() {
        if inside || !matches!(character, ' ' | '\t' | '\n' | '\r') {
            tokens.push(character);
        }
        match character {
            '"' if !escaped => inside = !inside,
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ => {}
        }
        escaped = false;
    }
    tokens
}

async fn run<V: Vendor>(said: &Said, bytes: usize) -> (Vec<Event>, Vec<String>) {
    let replies = [said, &Said::text(&["done"])].map(|said| Reply::stream(V::stream(said)).pieces_of(bytes));
    let server = Server::script(replies.into()).await;
    let bench = Bench::<V>::new(&server);
    (bench.run().await, bench.effects())
}

pub(crate) fn any_arguments_reach_the_tool_as_written<V: Vendor>() {
    let accepted = || object(value()).prop_filter("the gate's", |text| Exact::parse(text).is_ok());
    proptest!(config(), |(
        first in accepted(),
        second in accepted(),
        cuts in prop::collection::vec(any::<Index>(), 0..8),
        bytes in 1usize..40,
    )| {
        let (events, effects) = block_on(run::<V>(&said::<V>(&first, &second, &cuts), bytes));
        let expected = [tokens(&first), tokens(&second)];
        prop_assert_eq!(reviewed(&events), &expected);
        prop_assert_eq!(effects, &expected);
        prop_assert_eq!(end(&events), Ok("done".to_owned()));
    });
}

pub(crate) fn what_the_gate_refuses_is_never_reviewed<V: Vendor>() {
    let refused = prop_oneof![
        // Somewhere in a good object.
        (object(value()), spaced(poison())).prop_map(|(object, poison)| {
            let rest = object[1..].trim_start();
            let comma = if rest == "}" { "" } else { "," };
            format!("{{\"poison\":{poison}{comma}{rest}")
        }),
        // Not JSON: cut, or with something behind it.
        (object(value()), any::<Index>()).prop_map(|(object, at)| {
            let at = (1..=at.index(object.len().max(2))).rev().find(|at| object.is_char_boundary(*at));
            object[..at.unwrap_or(1)].to_owned()
        }),
        object(value()).prop_map(|object| format!("{object}{object}")),
    ];
    proptest!(config(), |(
        good in object(value()).prop_filter("the gate's", |text| Exact::parse(text).is_ok()),
        bad in refused.prop_filter("the gate's", |text| Exact::parse(text).is_err()),
        cuts in prop::collection::vec(any::<Index>(), 0..8),
        bytes in 1usize..40,
    )| {
        let json = serde_json::from_str::<&serde_json::value::RawValue>(&bad).is_ok();
        if !json && !V::can(Unsayable::ArgumentsThatAreNotJson) {
            return Ok(());
        }
        // The good call before it is not reviewed either: one bad call refuses the step (contract 7.3).
        let (events, effects) = block_on(run::<V>(&said::<V>(&good, &bad, &cuts), bytes));
        prop_assert_eq!(end(&events), Err(Code::INVALID_TOOL_CALL));
        prop_assert!(reviewed(&events).is_empty() && effects.is_empty());
        prop_assert!(events.iter().all(|event| event.type_name() != "tool.called"));
    });
}

/// No input panics, whatever a server sends (law 9); and an answer is not made of noise.
pub(crate) fn any_bytes_are_an_answer_or_an_error<V: Vendor>() {
    let good = V::stream(&Said::text(&["hi"]).and_call("c", "save", &["{\"n\":", "1}"]));
    let noise = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "(data: |event: |\\{|\\}|\"type\"|:|\\[|\\]|\"error\"|null|0|,|\n|\r){0,60}"
            .prop_map(String::into_bytes),
    ];
    proptest!(config(), |(body in noise, streamed in any::<bool>())| {
        let reply = if streamed { Reply::stream(body) } else { Reply::object(body) };
        prop_assert!(block_on(play::<V>(reply)).0.is_err(), "no answer was sent");
    });
    // A good stream with one byte changed, lost or doubled: it may still be an answer, but it ends.
    proptest!(config(), |(at in any::<Index>(), byte in any::<u8>(), what in 0..3)| {
        let mut body = good.clone().into_bytes();
        let at = at.index(body.len());
        match what {
            0 => body[at] = byte,
            1 => drop(body.remove(at)),
            _ => body.insert(at, byte),
        }
        block_on(async {
            let server = Server::start(Reply::stream(body)).await;
            let _ = ask(provider::<V>(&server).as_ref(), &[user("x")]).await;
        });
    });
}
