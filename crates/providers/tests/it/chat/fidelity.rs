//! Laws 1 and 3: the argument text that arrives is the one that the model wrote, however it was cut and escaped.

use countersign_providers::OpenAiChat;
use proptest::prelude::*;

use super::config;
use super::server::{Reply, Server, delta, finish, frames};
use crate::heard::{ask, calls, user};

/// The text of a JSON value with its own spacing, number spellings and escapes; also what the gate would refuse.
fn value() -> impl Strategy<Value = String> {
    let space = "[ \t\n\r]{0,2}";
    let string = r#""([a-z ]|\\u[0-9a-f]{4}|\\"|\\\\|\\/|\\n|é|😀|\u{2028}|\u{0}){0,6}""#;
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?",
        string,
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let item = (space, inner, space).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (string, item.clone()).prop_map(|(key, value)| format!("{key}:{value}"));
        prop_oneof![
            prop::collection::vec(item, 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..3).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// How one fragment is written as a JSON string.
#[derive(Debug, Clone, Copy)]
enum Spelling {
    Plain,
    /// Every UTF-16 unit as an escape.
    Escaped,
}

fn spell(text: &str, spelling: Spelling) -> String {
    match spelling {
        Spelling::Plain => serde_json::to_string(text).unwrap(),
        Spelling::Escaped => {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            format!("\"{units}\"")
        }
    }
}

/// Cuts a text at the given fractions of its length, between characters.
fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    places.retain(|place| text.is_char_boundary(*place));
    places.push(text.len());
    places.sort_unstable();
    let mut from = 0;
    places.into_iter().map(|place| &text[std::mem::replace(&mut from, place)..place]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn argument_text_arrives_as_it_was_written(
        first in value(),
        second in "\\PC{0,20}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        spelling in prop_oneof![Just(Spelling::Plain), Just(Spelling::Escaped)],
        piece in 1usize..40,
    ) {
        let mut chunks = Vec::new();
        for (index, id) in [(0, "a"), (1, "b")] {
            chunks.push(delta(&format!(
                r#"{{"tool_calls":[{{"index":{index},"id":"{id}","function":{{"name":"t","arguments":""}}}}]}}"#
            )));
        }
        // The two calls take turns, so that each fragment must find its own.
        let (mut a, mut b) = (cut(&first, &cuts).into_iter(), cut(&second, &cuts).into_iter());
        loop {
            let (next_a, next_b) = (a.next(), b.next());
            for (index, part) in [(0, next_a), (1, next_b)] {
                if let Some(part) = part {
                    let part = spell(part, spelling);
                    chunks.push(delta(&format!(
                        r#"{{"tool_calls":[{{"index":{index},"function":{{"arguments":{part}}}}}]}}"#
                    )));
                }
            }
            if next_a.is_none() && next_b.is_none() {
                break;
            }
        }
        chunks.push(finish("tool_calls"));
        let body = frames(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        let turn = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let server = Server::start(Reply::stream(body).pieces_of(piece)).await;
            ask(&OpenAiChat::new(config(server.url())).unwrap(), &[user("x")]).await.0.unwrap()
        });
        prop_assert_eq!(calls(&turn), [("a", "t", first.as_str()), ("b", "t", second.as_str())]);
    }

    /// No input panics, whatever a server sends (law 9).
    #[test]
    fn any_bytes_are_an_answer_or_an_error(
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "(data: |\\{|\\}|\"choices\"|:|\\[|\\]|\"delta\"|\"tool_calls\"|null|0|,|\n|\r){0,60}".prop_map(String::into_bytes),
        ],
        streamed in any::<bool>(),
    ) {
        let reply = if streamed { Reply::stream(body) } else { Reply::object(body) };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let server = Server::start(reply).await;
            let (turn, _) = ask(&OpenAiChat::new(config(server.url())).unwrap(), &[user("x")]).await;
            prop_assert!(turn.is_err(), "no answer was sent");
            Ok(())
        })?;
    }
}
