//! What the vendor is told: everything that happened, in its own form, and nothing else.

use countersign_approval_core::ids::{CallId, ModelId, ToolName};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::snapshot::ToolCall;
use countersign_driver::provider::{AssistantMessage, Message, ToolDefinition, TurnRequest};

use super::vendor::{Asked, Said, Told, Unsayable, Vendor};
use super::{KEY, play, provider, request_of};
use crate::heard::{Heard, assistant, request, user};
use crate::server::{Reply, Saw, Server, header};

const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"number","maximum":1e2}}}"#;

fn output(id: &str, name: &str, text: &str) -> Message {
    Message::Tool {
        call_id: CallId::parse(id).unwrap(),
        name: ToolName::parse(name).unwrap(),
        output: Exact::parse_with(text, Gate::OUTPUT).unwrap(),
    }
}

/// What a turn becomes in the next step, as the driver makes it.
async fn turned<V: Vendor>(said: &Said) -> Message {
    let (turn, _) = play::<V>(Reply::stream(V::stream(said))).await;
    let turn = turn.unwrap();
    let calls = turn.calls.iter().map(|call| ToolCall {
        id: CallId::parse(&call.id).unwrap(),
        name: ToolName::parse(&call.name).unwrap(),
        arguments: if call.arguments.is_empty() {
            Exact::empty_object()
        } else {
            Exact::parse(&call.arguments).unwrap()
        },
    });
    Message::Assistant(AssistantMessage {
        text: turn.text.clone(),
        calls: calls.collect(),
        native: turn.native.clone(),
    })
}

/// M13: the model is told of a call in the text that was reviewed and executed, and of outputs as they were.
pub(crate) async fn the_conversation<V: Vendor>() {
    let said = Said::text(&["I save."])
        .and_call("c1", "save", &[r#"{ "n" : 1.0, "#, r#""s": "\u0041\u00e9" }"#])
        .and_call("c2", "look", &[]);
    let messages = [
        user("before"),
        assistant("said"),
        user("Save \"it\" \u{1f600}"),
        turned::<V>(&said).await,
        output("c1", "save", r#"{"n":12345678901234567890.5,"s":"\u0041"}"#),
        output("c2", "look", "null"),
        turned::<V>(&Said::calls(&[("c3", "look", &["{}"])])).await,
        output("c3", "look", r#""text""#),
    ];
    let tools = [ToolDefinition {
        name: ToolName::parse("save").unwrap(),
        description: "Saves.".to_owned(),
        input_schema: Exact::parse_with(SCHEMA, Gate::OUTPUT).unwrap(),
    }];
    let mut server = Server::start(Reply::stream(V::stream(&Said::text(&["hi"])))).await;
    let model = ModelId::parse("demo").unwrap();
    let request = TurnRequest {
        instructions: Some("Be brief."),
        tools: &tools,
        max_output_tokens: 600,
        ..request(&model, &messages)
    };
    provider::<V>(&server).turn(request, &Heard::default()).await.unwrap();
    let Saw::Request { body, .. } = server.saw().await else { panic!() };
    let call = |id: &str, name: &str, arguments: &str| Told::Call {
        id: Some(id.to_owned()),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let told = |id: &str, output: &str| Told::Output { id: Some(id.to_owned()), output: output.to_owned() };
    let expected = Asked {
        instructions: Some("Be brief.".to_owned()),
        messages: vec![
            Told::User("before".to_owned()),
            Told::Assistant("said".to_owned()),
            Told::User("Save \"it\" \u{1f600}".to_owned()),
            Told::Assistant("I save.".to_owned()),
            call("c1", "save", r#"{"n":1.0,"s":"\u0041\u00e9"}"#),
            call("c2", "look", "{}"),
            told("c1", r#"{"n":12345678901234567890.5,"s":"\u0041"}"#),
            told("c2", "null"),
            call("c3", "look", "{}"),
            told("c3", r#""text""#),
        ],
        tools: vec![("save".to_owned(), "Saves.".to_owned(), SCHEMA.to_owned())],
        max_output_tokens: 600,
    };
    assert_eq!(V::asked(&body), expected, "{body}");
}

/// Each output is told of the call that it belongs to, though names and texts are equal.
pub(crate) async fn outputs_of_many_calls<V: Vendor>() {
    let ids: Vec<String> = (0..32).map(|n| format!("call-{n}")).collect();
    let said = ids.iter().fold(Said::text(&[]), |said, id| said.and_call(id, "save", &["{\"n\":1}"]));
    let mut messages = vec![user("Save all."), turned::<V>(&said).await];
    messages.extend(ids.iter().enumerate().map(|(n, id)| output(id, "save", &n.to_string())));
    let (_, body) = request_of::<V>(&messages).await;
    let mut expected = vec![Told::User("Save all.".to_owned())];
    expected.extend(ids.iter().map(|id| Told::Call {
        id: Some(id.clone()),
        name: "save".to_owned(),
        arguments: "{\"n\":1}".to_owned(),
    }));
    expected.extend(
        ids.iter().enumerate().map(|(n, id)| Told::Output { id: Some(id.clone()), output: n.to_string() }),
    );
    assert_eq!(V::asked(&body).messages, expected, "{body}");
}

/// Without tools and instructions there is no trace of them; and reasoning of one vendor is never made up.
pub(crate) async fn nothing_that_was_not_given<V: Vendor>() {
    let (_, body) = request_of::<V>(&[user("Hello")]).await;
    let expected = Asked {
        instructions: None,
        messages: vec![Told::User("Hello".to_owned())],
        tools: Vec::new(),
        max_output_tokens: 4_096,
    };
    assert_eq!(V::asked(&body), expected, "{body}");
    assert!(!body.contains("tools") && !body.contains("null"), "{body}");
    assert_eq!(V::can(Unsayable::Reasoning), V::stream(&reasoned()).contains("OPAQUE"));
}

fn reasoned() -> Said {
    let mut said = Said::text(&["hi"]);
    said.parts.insert(0, super::vendor::Part::Reasoning("OPAQUE".to_owned()));
    said
}

/// The key is in the one header that carries it: not in the URL, not in the body.
pub(crate) async fn the_key_is_in_its_header_only<V: Vendor>() {
    let (head, body) = request_of::<V>(&[user("Hello")]).await;
    let (name, before) = V::KEY_HEADER;
    assert_eq!(header(&head, name), Some(format!("{before}{KEY}").as_str()), "{head}");
    assert_eq!(head.matches(KEY).count(), 1, "{head}");
    assert!(!body.contains(KEY));
    assert_eq!(header(&head, "content-type"), Some("application/json"));
    assert_eq!(header(&head, "accept"), Some("text/event-stream"));
}
