//! Properties: cutting changes nothing, what is written is read back, and no input panics (law 9).

use std::sync::Arc;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{CallId, ExecutionId, RunId};
use countersign_approval_core::json::{Exact, Gate};
use countersign_approval_core::review::{IdlePolicy, Outcome};
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{
    Decoded, Event, EventBody, FinishReason, Phase, RunResult, ToolExecution, Usage,
};
use countersign_protocol::request::RunRequest;
use countersign_protocol::sse::{Decoder, encode_frame};
use countersign_protocol::stream::{Expectation, StreamCheck};
use futures_util::StreamExt as _;
use proptest::prelude::*;

use crate::sse::frames;
use crate::support::*;

/// Bytes that look like a stream: everything that means something to the decoder, and a little that does not.
fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&[u8]] = &[
        b"data: ",
        b"data:",
        b"id: 1",
        b"event: x",
        b": c",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        "é🌍".as_bytes(),
        b"\xef\xbb\xbf",
        b"{}",
        b"\xff",
    ];
    let piece = prop::sample::select(PIECES);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// JSON texts whose numbers and strings everybody carries exactly.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0".to_owned()),
        Just("1e0".to_owned()),
        any::<i32>().prop_map(|n| n.to_string()),
        any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            object(inner),
        ]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(value, 0..4).prop_map(|values| {
        let members: Vec<_> = values.iter().enumerate().map(|(i, v)| format!("\"k{i}\" :\n{v}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn usage() -> impl Strategy<Value = Usage> {
    let count = || prop::option::of(0..=9_007_199_254_740_991u64);
    let cost = || prop::option::of(0.0..1e9f64);
    (count(), count(), count(), count(), cost(), cost()).prop_map(|(a, b, c, d, e, f)| Usage {
        input_tokens: a,
        output_tokens: b,
        cached_input_tokens: c,
        reasoning_tokens: d,
        cost_usd: e,
        api_equivalent_cost_usd: f,
    })
}

fn tool_call() -> impl Strategy<Value = ToolCall> {
    ("\\PC{1,40}", object(json()))
        .prop_map(|(id, arguments)| ToolCall { id: CallId::parse(&id).unwrap(), ..call(&arguments) })
}

fn failure() -> impl Strategy<Value = ErrorInfo> {
    (0..Code::known().len(), any::<String>(), any::<bool>()).prop_map(|(code, message, uncertain)| {
        let info = ErrorInfo::new(Code::known()[code].code.clone()).with_message(message);
        if uncertain { info.uncertain() } else { info }
    })
}

fn body() -> impl Strategy<Value = EventBody> {
    let phase = prop_oneof![Just(Phase::Model), Just(Phase::Tool), Just(Phase::Context)];
    let policy = prop_oneof![Just(IdlePolicy::Pause), Just(IdlePolicy::Continue)];
    let outcome = prop_oneof![
        Just(Outcome::Approved),
        Just(Outcome::Denied),
        Just(Outcome::Cancelled),
        Just(Outcome::Expired)
    ];
    let finish = prop_oneof![Just(FinishReason::Stop), Just(FinishReason::Length)];
    let out = || json().prop_map(|text| Exact::parse_with(&text, Gate::OUTPUT).unwrap());
    prop_oneof![
        Just(EventBody::RunStarted { provider: provider(), model: model() }),
        (1..=u32::MAX).prop_map(|step| EventBody::StepStarted { step }),
        any::<String>().prop_map(|text| EventBody::TextDelta { text }),
        phase.prop_map(|phase| EventBody::RunProgress { phase }),
        (1..=u32::MAX, usage()).prop_map(|(step, usage)| EventBody::UsageReported { step, usage }),
        tool_call().prop_map(|call| EventBody::ToolCalled { call }),
        (tool_call(), 0..4u8).prop_map(|(call, id)| EventBody::ToolExecutionRequested {
            execution: ToolExecution {
                execution_id: ExecutionId::parse(&format!("0e1d2c3e-5a4b-4c3d-8e2f-00000000000{id}"))
                    .unwrap(),
                run_id: run(),
                call
            }
        }),
        (tool_call(), policy, prop::option::of(0..1_000_000i64), any::<bool>()).prop_map(
            |(call, policy, expiry, digest)| {
                let mut approval = approval("{}");
                approval.call = Snapshot::freeze(call).unwrap();
                approval.idle_policy = policy;
                approval.expires_at = expiry.map(at);
                let digest = digest.then(|| approval.call.digest());
                EventBody::ApprovalRequested { approval: Arc::new(approval), digest }
            }
        ),
        outcome.prop_map(|outcome| EventBody::ApprovalResolved { resolution: resolution(outcome) }),
        out().prop_map(|output| EventBody::ToolCompleted { call_id: call_id(), output }),
        (any::<String>(), usage(), 1..=u32::MAX, finish, prop::option::of(out())).prop_map(
            |(text, usage, steps, finish_reason, output)| EventBody::RunCompleted {
                result: Box::new(RunResult {
                    run_id: run(),
                    provider: provider(),
                    model: model(),
                    text,
                    usage,
                    steps,
                    finish_reason,
                    output,
                })
            }
        ),
        failure().prop_map(|error| EventBody::RunFailed { error }),
        failure().prop_map(|error| EventBody::RunCancelled { error }),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    (any::<u64>(), any::<u32>(), body()).prop_map(|(sequence, millis, body)| Event {
        run_id: run(),
        sequence,
        timestamp: Timestamp::from_millis(i64::from(millis) * 1000),
        body,
    })
}

/// Cuts `bytes` at the given places.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut chunks = Vec::new();
    let mut from = 0;
    for place in places {
        chunks.push(&bytes[from..place]);
        from = place;
    }
    chunks.push(&bytes[from..]);
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However the bytes are cut, the frames and the end are the same.
    #[test]
    fn any_cut_gives_the_same_frames(bytes in stream_bytes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = frames(Decoder::with_limit(60), &[&bytes]);
        prop_assert_eq!(frames(Decoder::with_limit(60), &cut(&bytes, &cuts)), whole);
    }

    /// On well-formed input another decoder gives the same data.
    #[test]
    fn another_decoder_agrees(values in prop::collection::vec(("[a-z]{1,5}", "\\PC{1,20}"), 0..6)) {
        let text: String = values.iter().map(|(event, data)| format!(": c\nevent: {event}\ndata: {data}\n\n")).collect();
        let (ours, _) = frames(Decoder::new(), &[text.as_bytes()]);
        let theirs: Vec<_> = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let body = futures_util::stream::iter([Ok::<_, std::io::Error>(std::io::Cursor::new(text.clone()))]);
            let mut stream = std::pin::pin!(sse_stream::SseStream::from_bytes_stream(body));
            let mut frames = Vec::new();
            while let Some(frame) = stream.next().await {
                let frame = frame.unwrap();
                frames.push((frame.event, frame.data));
            }
            frames
        });
        let ours: Vec<_> = ours.into_iter().map(|frame| (frame.event, Some(frame.data))).collect();
        prop_assert_eq!(ours, theirs);
    }

    /// Event to frame to event: nothing is lost, and what is sent again is byte for byte the same (E7, law 3).
    #[test]
    fn events_survive_the_wire(event in events()) {
        let mut bytes = Vec::new();
        encode_frame(&event, &mut bytes);
        let (frames, end) = frames(Decoder::new(), &[&bytes]);
        prop_assert_eq!((frames.len(), end), (1, Ok(())));
        prop_assert_eq!(frames[0].event.as_deref(), Some(event.type_name()));
        prop_assert_eq!(frames[0].id.clone(), Some(event.sequence.to_string()));
        let Decoded::Event(back) = Event::decode(&frames[0].data, &Expectation::own_log()).unwrap() else {
            panic!("an event of ours is never skipped");
        };
        prop_assert_eq!(&back, &event);
        prop_assert_eq!(back.to_json(), event.to_json());
    }

    /// Any bytes, to every reader of this crate.
    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::with_limit(50);
        decoder.push(&bytes);
        while decoder.next_frame().is_some() {}
        let text = String::from_utf8_lossy(&bytes);
        let _ = RunRequest::decode(&text);
        let _ = Event::decode(&text, &Expectation::of(&paused()));
    }

    /// A good text with one byte changed, taken out or put in.
    #[test]
    fn nothing_panics_near_good_input(event in events(), at in any::<prop::sample::Index>(), byte in any::<u8>(), kind in 0..3) {
        let request = r#"{"provider":"p","model":"m","input":"x","history":[{"role":"user","content":"x"}],"tools":["a"],"maxSteps":8.0,"metadata":{"k":"v"},"retry":{"maxAttempts":1},"approvals":{"mode":"interactive","idlePolicy":"pause"}}"#;
        for good in [event.to_json(), request.to_owned()] {
            let mut bytes = good.into_bytes();
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
            let text = String::from_utf8_lossy(&bytes);
            let _ = RunRequest::decode(&text);
            let _ = StreamCheck::new(Expectation::of(&paused())).accept(&text);
            let _ = Event::decode(&text, &Expectation::own_log());
        }
    }

    /// A stream of any valid events is accepted exactly up to the first rule it breaks, and never after the end.
    #[test]
    fn streams_end_once(bodies in prop::collection::vec(body(), 0..8)) {
        let mut check = StreamCheck::new(Expectation::own_log());
        let start = EventBody::RunStarted { provider: provider(), model: model() };
        let mut ended = false;
        let (mut executions, mut calls) = (Vec::new(), Vec::new());
        for (i, body) in std::iter::once(start).chain(bodies).enumerate() {
            let sequence = i as u64 + 1;
            let mut again = i > 0 && matches!(body, EventBody::RunStarted { .. });
            if let EventBody::ToolExecutionRequested { execution } = &body {
                again |= executions.contains(&execution.execution_id) || calls.contains(&execution.call.id);
                executions.push(execution.execution_id);
                calls.push(execution.call.id.clone());
            }
            let terminal = body.is_terminal();
            let event = Event { run_id: RunId::parse(RUN).unwrap(), sequence, timestamp: at(0), body };
            let accepted = check.accept(&event.to_json());
            prop_assert_eq!(accepted.is_ok(), !ended && !again);
            if accepted.is_err() {
                break;
            }
            ended = terminal;
            prop_assert_eq!(check.is_finished(), ended);
        }
    }
}
