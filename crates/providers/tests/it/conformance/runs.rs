//! Whole runs: an adapter under a real driver, from the vendor's bytes to the tool and back.

use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::{ApprovalSettings, Driver, EventStream, Output, RunLimits, ToolSpec, tool};
use countersign_protocol::code::Code;
use countersign_protocol::event::{Event, EventBody};
use countersign_protocol::request::{Approvals, RunRequest};
use tracing_subscriber::util::SubscriberInitExt;

use super::vendor::{Ending, Part, Said, Told, Trouble, Unsayable, Vendor};
use super::{KEY, provider};
use crate::server::{Reply, Saw, Server};

/// A driver with the vendor's provider and two tools that need approval, `save` and `look`.
pub(crate) struct Bench<V> {
    driver: Driver,
    /// What the tools were called with, in order.
    effects: Arc<Mutex<Vec<String>>>,
    vendor: PhantomData<V>,
}

impl<V: Vendor> Bench<V> {
    pub(crate) fn new(server: &Server) -> Self {
        Self::within(server, RunLimits::default())
    }

    pub(crate) fn within(server: &Server, limits: RunLimits) -> Self {
        let effects: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut builder = Driver::builder()
            .provider(Arc::from(provider::<V>(server)))
            .limits(limits)
            .approvals(ApprovalSettings::default());
        for name in ["save", "look"] {
            let seen = Arc::clone(&effects);
            let spec = ToolSpec::new(name, "Does it.", r#"{"type":"object"}"#).unwrap().requires_approval();
            builder = builder.tool(tool(spec, move |input, _| {
                seen.lock().unwrap().push(input.text().to_owned());
                async { Ok(Output::json(&"done it")?) }
            }));
        }
        Self { driver: builder.build().unwrap(), effects, vendor: PhantomData }
    }

    pub(crate) fn request() -> RunRequest {
        let mut request =
            RunRequest::new(ProviderId::parse("local").unwrap(), ModelId::parse("demo").unwrap(), "Hello");
        request.tools = ["save", "look"].map(|name| ToolName::parse(name).unwrap()).into();
        request.approvals = Some(Approvals::new(IdlePolicy::Pause));
        request
    }

    pub(crate) fn stream(&self, request: RunRequest) -> EventStream {
        self.driver.stream(request, Principal::local()).unwrap()
    }

    /// A run in which everything is approved.
    pub(crate) async fn run(&self) -> Vec<Event> {
        self.run_as(Self::request()).await
    }

    pub(crate) async fn run_as(&self, request: RunRequest) -> Vec<Event> {
        let (mut stream, mut events) = (self.stream(request), Vec::new());
        while let Some(event) = stream.next().await {
            if let EventBody::ApprovalRequested { approval, .. } = &event.body {
                let decision = DecisionRequest::of(approval, Decision::Approve);
                self.driver.decide_approval(&decision, &Principal::local()).await.unwrap();
            }
            events.push(event);
        }
        events
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        self.effects.lock().unwrap().clone()
    }
}

/// The argument texts that a person was shown.
pub(crate) fn reviewed(events: &[Event]) -> Vec<String> {
    let shown = |event: &Event| match &event.body {
        EventBody::ApprovalRequested { approval, .. } => {
            Some(approval.call.call().arguments.text().to_owned())
        }
        _ => None,
    };
    events.iter().filter_map(shown).collect()
}

/// How the run ended: its text, or its code.
pub(crate) fn end(events: &[Event]) -> Result<String, Code> {
    match &events.last().unwrap().body {
        EventBody::RunCompleted { result } => Ok(result.text.clone()),
        EventBody::RunFailed { error } | EventBody::RunCancelled { error } => Err(error.code.clone()),
        other => panic!("no end: {other:?}"),
    }
}

fn streams<V: Vendor>(said: &[Said]) -> Vec<Reply> {
    said.iter().map(|said| Reply::stream(V::stream(said)).pieces_of(11)).collect()
}

async fn played<V: Vendor>(said: &[Said]) -> (Vec<Event>, Vec<String>) {
    let server = Server::script(streams::<V>(said)).await;
    let bench = Bench::<V>::new(&server);
    (bench.run().await, bench.effects())
}

async fn body(server: &mut Server) -> String {
    match server.saw().await {
        Saw::Request { body, .. } => body,
        Saw::Hangup => panic!("no request"),
    }
}

/// Laws 1 and 3: what is proposed is reviewed, executed and told again, in the same tokens.
pub(crate) async fn an_approved_call<V: Vendor>() {
    let call = Said::calls(&[("c1", "save", &["{ \"n\": 1.0,", " \"s\": \"\\u0041\" }"])]);
    let mut server = Server::script(streams::<V>(&[call, Said::text(&["Sav", "ed."])])).await;
    let bench = Bench::<V>::new(&server);
    let events = bench.run().await;
    assert_eq!(end(&events), Ok("Saved.".to_owned()));
    let text = r#"{"n":1.0,"s":"\u0041"}"#.to_owned();
    assert_eq!((reviewed(&events), bench.effects()), (vec![text.clone()], vec![text.clone()]));
    let first = V::asked(&body(&mut server).await);
    assert_eq!(first.messages, [Told::User("Hello".to_owned())]);
    assert_eq!(first.tools.len(), 2);
    let second = V::asked(&body(&mut server).await);
    let (id, name) = (Some("c1".to_owned()), "save".to_owned());
    assert_eq!(
        second.messages[1..],
        [
            Told::Call { id: id.clone(), name, arguments: text },
            Told::Output { id, output: "\"done it\"".to_owned() }
        ]
    );
    assert!(server.saw_nothing_more(), "nothing is sent twice");
}

/// M7: as many reviews as calls, in the model's order.
pub(crate) async fn every_call_is_reviewed<V: Vendor>() {
    let said = Said::text(&["Both."])
        .and_call("c1", "save", &["{\"n\":1}"])
        .and_call("c2", "look", &["{\"n\":", "2}"])
        .and_call("c3", "save", &["{\"n\":1}"]);
    let (events, effects) = played::<V>(&[said, Said::text(&["ok"])]).await;
    let expected = ["{\"n\":1}", "{\"n\":2}", "{\"n\":1}"];
    assert_eq!(reviewed(&events), expected);
    assert_eq!(effects, expected);
}

/// M9: a name that is not a tool's is an unknown tool; no review, no near match.
pub(crate) async fn names_that_are_not_the_tools<V: Vendor>() {
    for name in ["Save", "functions.save", "save ", "delete"] {
        let said = Said::calls(&[("c1", "look", &["{\"n\":1}"]), ("c2", name, &["{\"n\":1}"])]);
        let (events, effects) = played::<V>(&[said]).await;
        assert_eq!(end(&events), Err(Code::TOOL_NOT_ALLOWED), "{name:?}");
        assert!(reviewed(&events).is_empty() && effects.is_empty(), "{name:?}: nothing of the step ran");
    }
}

/// Contract 7.3: an id that was used before, in this step or in an earlier one.
pub(crate) async fn an_id_that_comes_twice<V: Vendor>() {
    let one = || Said::calls(&[("c1", "save", &["{\"n\":1}"])]);
    let (events, effects) = played::<V>(&[one().and_call("c1", "look", &["{\"n\":2}"])]).await;
    assert_eq!(end(&events), Err(Code::INVALID_TOOL_CALL));
    assert!(reviewed(&events).is_empty() && effects.is_empty());
    let (events, effects) = played::<V>(&[one(), one()]).await;
    assert_eq!(end(&events), Err(Code::INVALID_TOOL_CALL));
    assert_eq!((reviewed(&events).len(), effects.len()), (1, 1));
}

/// A call without an id is refused before review; where ids are not the vendor's custom it gets one that stays.
pub(crate) async fn a_call_without_an_id<V: Vendor>() {
    let mut said = Said::calls(&[("", "save", &["{\"n\":1}"]), ("", "save", &["{\"n\":2}"])]);
    for part in &mut said.parts {
        if let Part::Call { id, .. } = part {
            *id = None;
        }
    }
    let mut server = Server::script(streams::<V>(&[said.clone(), said, Said::text(&["ok"])])).await;
    let bench = Bench::<V>::new(&server);
    let events = bench.run().await;
    if V::can(Unsayable::CallsWithoutId) {
        assert_eq!(end(&events), Err(Code::INVALID_TOOL_CALL));
        assert!(reviewed(&events).is_empty() && bench.effects().is_empty());
        return;
    }
    assert_eq!(end(&events), Ok("ok".to_owned()));
    assert_eq!(bench.effects(), ["{\"n\":1}", "{\"n\":2}", "{\"n\":1}", "{\"n\":2}"]);
    // Calls and outputs are told in one order, so that the vendor can match them.
    let (_, _, third) = (body(&mut server).await, body(&mut server).await, body(&mut server).await);
    let told = V::asked(&third).messages;
    let calls = told.iter().filter(|told| matches!(told, Told::Call { .. })).count();
    let outputs = told.iter().filter(|told| matches!(told, Told::Output { .. })).count();
    assert_eq!((calls, outputs), (4, 4));
}

/// M1: `""`, nothing and `{}` are the empty object before review; `null` and anything else is refused.
pub(crate) async fn empty_arguments<V: Vendor>() {
    for fragments in [&[][..], &[""], &["{}"], &["{", " }"]] {
        let (events, effects) =
            played::<V>(&[Said::calls(&[("c1", "save", fragments)]), Said::text(&["ok"])]).await;
        assert_eq!(end(&events), Ok("ok".to_owned()), "{fragments:?}");
        assert_eq!((reviewed(&events), effects), (vec!["{}".to_owned()], vec!["{}".to_owned()]));
    }
    for text in ["null", "[]", "\"{}\"", "0", "false"] {
        let (events, effects) = played::<V>(&[Said::calls(&[("c1", "save", &[text])])]).await;
        let code = end(&events).unwrap_err();
        // An object where the wire wants one is the vendor's to keep.
        let known = [Code::INVALID_TOOL_ARGUMENTS, Code::INVALID_PROVIDER_RESPONSE];
        assert!(known.contains(&code), "{text}: {code}");
        assert!(reviewed(&events).is_empty() && effects.is_empty(), "{text}");
    }
}

/// M11: what the vendor wants told again comes back, unchanged and before its call, also after a review.
pub(crate) async fn reasoning_is_told_again<V: Vendor>() {
    let mut said = Said::text(&["Hm."]).and_call("c1", "save", &["{\"n\":1}"]);
    said.parts.insert(0, Part::Reasoning("OPAQUE-1".to_owned()));
    if !V::can(Unsayable::Reasoning) {
        // Then the run goes on without it.
        let (events, _) = played::<V>(&[said, Said::text(&["ok"])]).await;
        assert_eq!(end(&events), Ok("ok".to_owned()));
        return;
    }
    let mut again = Said::calls(&[("c2", "look", &["{\"n\":2}"])]);
    again.parts.insert(0, Part::Reasoning("OPAQUE-2".to_owned()));
    let mut server = Server::script(streams::<V>(&[said, again, Said::text(&["ok"])])).await;
    let bench = Bench::<V>::new(&server);
    assert_eq!(end(&bench.run().await), Ok("ok".to_owned()));
    let (_, _, third) = (body(&mut server).await, body(&mut server).await, body(&mut server).await);
    let call = |id: &str, name: &str, arguments: &str| Told::Call {
        id: Some(id.to_owned()),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let output = |id: &str| Told::Output { id: Some(id.to_owned()), output: "\"done it\"".to_owned() };
    let expected = [
        Told::User("Hello".to_owned()),
        Told::Reasoning("OPAQUE-1".to_owned()),
        Told::Assistant("Hm.".to_owned()),
        call("c1", "save", "{\"n\":1}"),
        output("c1"),
        Told::Reasoning("OPAQUE-2".to_owned()),
        call("c2", "look", "{\"n\":2}"),
        output("c2"),
    ];
    assert_eq!(V::asked(&third).messages, expected, "{third}");
}

/// M15: the vendor fails right after an approved call ran. The run says that it failed, and its events that the call ran.
pub(crate) async fn trouble_after_an_effect<V: Vendor>() {
    for trouble in [Trouble::TooLong, Trouble::Broken, Trouble::WrongKey] {
        let (status, words) = V::refusal(trouble, "SECRET");
        let call = Said::calls(&[("c1", "save", &["{\"n\":1}"])]);
        let refusal = Reply::new(status, "Content-Type: application/json", words);
        let server = Server::script(vec![Reply::stream(V::stream(&call)), refusal]).await;
        let bench = Bench::<V>::new(&server);
        let events = bench.run().await;
        assert_eq!(end(&events), Err(trouble.expected().0));
        assert_eq!(bench.effects(), ["{\"n\":1}"]);
        let types: Vec<&str> = events.iter().map(Event::type_name).collect();
        assert!(
            types.ends_with(&["approval.resolved", "tool.completed", "step.started", "run.failed"]),
            "{types:?}"
        );
        assert!(!format!("{events:?}").contains("SECRET"));
    }
}

/// M3: no part of a call that was cut is reviewed, whatever the vendor says of its end.
pub(crate) async fn truncated_calls<V: Vendor>() {
    let half = |ending| Said::calls(&[("c1", "save", &["{\"n\":1}"])]).ending(ending);
    for (said, code) in [
        (half(Ending::Length), Code::TRUNCATED_TOOL_CALL),
        (half(Ending::Open), Code::INCOMPLETE_STREAM),
        (half(Ending::Refused), Code::PROVIDER_REFUSAL),
    ] {
        let (events, effects) = played::<V>(&[said]).await;
        assert_eq!(end(&events), Err(code));
        assert!(reviewed(&events).is_empty() && effects.is_empty());
    }
    if V::can(Unsayable::ArgumentsThatAreNotJson) {
        for text in ["{\"n\":1", "{\"n\":", "{", "{\"n\":\"", "{}{", "{\"n\":1}x"] {
            let (events, effects) = played::<V>(&[Said::calls(&[("c1", "save", &[text])])]).await;
            assert_eq!(end(&events), Err(Code::INVALID_TOOL_CALL), "{text}");
            assert!(reviewed(&events).is_empty() && effects.is_empty(), "{text}: nothing is repaired");
        }
    }
}

/// Everything that is logged at the finest level during a run that ends well and one that does not.
pub(crate) async fn the_key_is_in_no_log<V: Vendor>() {
    let log = Log::default();
    let _guard = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .set_default();
    played::<V>(&[Said::calls(&[("c1", "save", &["{\"n\":1}"])]), Said::text(&["ok"])]).await;
    for trouble in Trouble::ALL {
        let (status, words) = V::refusal(trouble, &format!("SECRET {KEY}"));
        let server = Server::start(Reply::new(status, "Content-Type: application/json", words)).await;
        let events = Bench::<V>::new(&server).run().await;
        let EventBody::RunFailed { error } = &events.last().unwrap().body else { panic!() };
        assert!(!format!("{error:?}").contains("SECRET") && !error.message.contains(KEY));
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("a model turn failed"), "the failures are logged: {log}");
    assert!(!log.contains("SECRET") && !log.contains(KEY), "{log}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
