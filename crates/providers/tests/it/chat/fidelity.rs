//! Law 3 for what the suite's own writer never does: argument fragments spelled in escapes only, repeated ids and names.

use countersign_providers::OpenAiChat;
use proptest::prelude::*;

use super::config;
use super::wire::{delta, finish, frames};
use crate::conformance::fidelity::value;
use crate::heard::{ask, calls, user};
use crate::server::{Reply, Server};

/// A text as a JSON string with every UTF-16 unit as an escape.
fn escaped(text: &str) -> String {
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn escapes_are_read_once(text in prop_oneof![value(), "\\PC{0,20}"], piece in 1usize..40) {
        let mut chunks: Vec<String> = Vec::new();
        let mut from = 0;
        for (at, _) in text.char_indices().step_by(3).chain([(text.len(), ' ')]) {
            let part = escaped(&text[std::mem::replace(&mut from, at)..at]);
            chunks.push(delta(&format!(
                r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"t","arguments":{part}}}}}]}}"#
            )));
        }
        chunks.push(finish("tool_calls"));
        let body = frames(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        let turn = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let server = Server::start(Reply::stream(body).pieces_of(piece)).await;
            ask(&OpenAiChat::new(config(server.url())).unwrap(), &[user("x")]).await.0.unwrap()
        });
        prop_assert_eq!(calls(&turn), [("a", "t", text.as_str())]);
    }
}
