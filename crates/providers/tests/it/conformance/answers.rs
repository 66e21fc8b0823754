//! Answers that are answers: text, calls, usage, and how they end.

use countersign_protocol::code::Code;
use countersign_protocol::result::Usage;

use super::vendor::{Ending, Part, Said, Unsayable, Vendor};
use super::{check, play, provider};
use crate::heard::{Came, Piece, answer, ask, failure, user};
use crate::server::{Reply, Server};

/// What `said` must come to if it is a good answer.
fn came(said: &Said) -> Came {
    Came::Answer {
        text: said.whole_text(),
        calls: said
            .whole_calls()
            .into_iter()
            .map(|(id, name, arguments)| (id.unwrap_or_default(), name, arguments))
            .collect(),
        finish: if said.ending == Ending::Length { "Length" } else { "Stop" }.to_owned(),
    }
}

pub(crate) async fn text_arrives_piece_by_piece<V: Vendor>() {
    let pieces = ["Hel", "lo ", "w\u{f6}rld \u{1f600}\n\"{}\u{2028}"];
    let said = Said::text(&pieces);
    check::<V>(&said, &came(&said)).await;
    let (_, heard) = play::<V>(Reply::stream(V::stream(&said)).pieces_of(1)).await;
    assert_eq!(heard.texts(), pieces);
    // The model had nothing to say.
    let nothing = Said::text(&[]);
    let (turn, heard) = play::<V>(Reply::stream(V::stream(&nothing))).await;
    assert_eq!(Came::of(&turn), answer("", &[]));
    assert!(heard.texts().is_empty());
}

/// M5, M7: one call, and several, each with its own text; and contract 8: what a call says is progress.
pub(crate) async fn calls<V: Vendor>() {
    let one = Said::calls(&[("call-1", "save", &["{\"k\"", ": 1.0, \"s\":\"\\u00e9\\/", "\u{e9}\" }"])]);
    check::<V>(&one, &came(&one)).await;
    let (_, heard) = play::<V>(Reply::stream(V::stream(&one))).await;
    assert!(heard.pieces().contains(&Piece::Progress) && heard.texts().is_empty(), "{heard:?}");
    // The same tool and the same text twice are two calls.
    let three = Said::calls(&[
        ("call-1", "save", &["{\"n\":1}"]),
        ("call-2", "save", &["{\"n\":", "1}"]),
        ("call-3", "look", &["{}"]),
    ]);
    check::<V>(&three, &came(&three)).await;
}

pub(crate) async fn calls_after_text<V: Vendor>() {
    let said = Said::text(&["I will ", "save."]).and_call("call-1", "save", &["{\"n\"", ":1}"]);
    check::<V>(&said, &came(&said)).await;
    let (_, heard) = play::<V>(Reply::stream(V::stream(&said))).await;
    assert_eq!(heard.texts(), ["I will ", "save."]);
}

/// M1: a call without arguments has blank text or the empty object; which of the two, the driver does not mind.
pub(crate) async fn argument_text_that_is_empty<V: Vendor>() {
    for fragments in [&[][..], &[""], &["", ""], &["{}"], &["{", "}"]] {
        let said = Said::calls(&[("call-1", "ping", fragments)]);
        for reply in [Reply::stream(V::stream(&said)).pieces_of(1), Reply::object(V::whole(&said))] {
            let (turn, _) = play::<V>(reply).await;
            let calls = turn.unwrap().calls;
            let [call] = calls.as_slice() else { panic!("{calls:?}") };
            assert!(["", "{}"].contains(&call.arguments.as_str()), "{fragments:?}: {call:?}");
        }
    }
}

/// Ids are the vendor's own, whatever they look like; equal ones are not mended (the driver refuses them, contract 7.3).
pub(crate) async fn ids_as_they_were_given<V: Vendor>() {
    for (a, b) in
        [("call_ABC-1.2:3", "VRJyNOSTXWu6zB0Z4mdB5eUJv5m8KdPq"), ("\u{e9} \"", "x"), ("same", "same")]
    {
        let said = Said::calls(&[(a, "save", &["{\"n\":1}"]), (b, "save", &["{\"n\":2}"])]);
        check::<V>(&said, &came(&said)).await;
        let (turn, _) = play::<V>(Reply::object(V::whole(&said))).await;
        assert_eq!(Came::of(&turn), came(&said));
    }
}

/// M5: two calls whose fragments take turns are two calls, or no answer; never one.
pub(crate) async fn interleaved_calls<V: Vendor>() {
    let mut said = Said::calls(&[("a", "save", &["{\"n\":"]), ("b", "save", &["{\"n\": "])]);
    for (call, text) in [(0, "1"), (1, "2"), (1, "2 "), (0, "}"), (1, "}")] {
        said.parts.push(Part::Arguments { call, text: text.to_owned() });
    }
    let expected =
        if V::can(Unsayable::Interleaved) { came(&said) } else { failure(Code::INVALID_PROVIDER_RESPONSE) };
    check::<V>(&said, &expected).await;
}

/// M9: names are neither trimmed nor folded nor matched.
pub(crate) async fn names_are_never_tidied<V: Vendor>() {
    for name in ["Save", "functions.save", "save ", " save", "save\n", "s\u{e1}ve", "SAVE"] {
        let said = Said::calls(&[("call-1", name, &["{\"n\":1}"])]);
        let (turn, _) = play::<V>(Reply::stream(V::stream(&said))).await;
        assert_eq!(Came::of(&turn), came(&said));
        let (turn, _) = play::<V>(Reply::object(V::whole(&said))).await;
        assert_eq!(Came::of(&turn), came(&said));
    }
}

/// Contract 2.2 and 11: what the vendor reports in the contract's terms, and nothing where it reports nothing.
pub(crate) async fn usage<V: Vendor>() {
    let known = |what, count| V::can(what).then_some(count);
    let all = Usage {
        input_tokens: Some(1_000),
        output_tokens: Some(70),
        cached_input_tokens: known(Unsayable::CachedTokens, 600),
        reasoning_tokens: known(Unsayable::ReasoningTokens, 30),
        ..Usage::default()
    };
    for said in [Said::text(&["hi"]), Said::calls(&[("call-1", "save", &["{\"n\":1}"])])] {
        let told = said.clone().using(all);
        for reply in [Reply::stream(V::stream(&told)).pieces_of(1), Reply::object(V::whole(&told))] {
            let (turn, _) = play::<V>(reply).await;
            assert_eq!(turn.unwrap().usage, Some(all));
        }
        for reply in [Reply::stream(V::stream(&said)), Reply::object(V::whole(&said))] {
            let (turn, _) = play::<V>(reply).await;
            assert_eq!(turn.unwrap().usage.unwrap_or_default(), Usage::default());
        }
    }
    // A count that no reader carries exactly is refused or unknown, never rounded (law 3).
    let edge =
        Usage { input_tokens: Some(9_007_199_254_740_991), output_tokens: Some(0), ..Usage::default() };
    let (turn, _) = play::<V>(Reply::stream(V::stream(&Said::text(&["hi"]).using(edge)))).await;
    assert_eq!(turn.unwrap().usage, Some(edge));
    let over =
        Usage { input_tokens: Some(9_007_199_254_740_992), output_tokens: Some(0), ..Usage::default() };
    let (turn, _) = play::<V>(Reply::stream(V::stream(&Said::text(&["hi"]).using(over)))).await;
    assert_eq!(Came::of(&turn), failure(Code::INVALID_PROVIDER_RESPONSE));
}

/// M3: an answer that was cut says so, and a call in it is never handed on, however whole its text looks.
pub(crate) async fn length<V: Vendor>() {
    let said = Said::text(&["half an ans"]).ending(Ending::Length);
    check::<V>(&said, &came(&said)).await;
    let (turn, _) = play::<V>(Reply::object(V::whole(&said))).await;
    assert_eq!(Came::of(&turn), came(&said));
    for text in ["{\"n\":1}", "{}"] {
        let cut = Said::calls(&[("call-1", "save", &[text])]).ending(Ending::Length);
        check::<V>(&cut, &failure(Code::TRUNCATED_TOOL_CALL)).await;
        let (turn, _) = play::<V>(Reply::object(V::whole(&cut))).await;
        assert_eq!(Came::of(&turn), failure(Code::TRUNCATED_TOOL_CALL));
    }
}

/// A refusal is no answer, whatever was said before it; and calls beside it are not handed on.
pub(crate) async fn a_refusal<V: Vendor>() {
    let refused = failure(Code::PROVIDER_REFUSAL);
    for said in [
        Said::text(&[]),
        Said::text(&["I was ab"]),
        Said::text(&["I"]).and_call("call-1", "save", &["{\"n\":1}"]),
    ] {
        let said = said.ending(Ending::Refused);
        check::<V>(&said, &refused).await;
        let (turn, _) = play::<V>(Reply::object(V::whole(&said))).await;
        assert_eq!(Came::of(&turn), refused);
    }
}

/// Contract 11: a 200 that is no stream is read as the final object. Nothing of it is streamed.
pub(crate) async fn one_object<V: Vendor>() {
    let text = "{ \"k\": [1.0, 1e2, \"\\u00e9\u{e9}\"] }";
    for said in [
        Said::text(&["Hello"]),
        Said::text(&[]),
        Said::calls(&[("call-1", "save", &[text])]),
        Said::text(&["I save."]).and_call("call-1", "save", &[text]).and_call("call-2", "look", &["{}"]),
    ] {
        let (turn, heard) = play::<V>(Reply::object(V::whole(&said)).pieces_of(7)).await;
        assert_eq!(Came::of(&turn), came(&said));
        assert!(heard.pieces().is_empty(), "{heard:?}");
    }
}

/// Law 3: a stream may be divided anywhere.
pub(crate) async fn every_split_point<V: Vendor>() {
    let said = Said::text(&["\u{e9}\u{1f600}"])
        .and_call("call-1", "save", &["{\"k\":\"\u{1f600}\\ud83d", "\\ude00\",\"n\":1.0}"])
        .and_call("call-2", "look", &["{}"]);
    let stream = V::stream(&said);
    let cuts = (0..=stream.len()).map(|byte| Reply::stream(stream.as_str()).cut_at(byte)).collect();
    let server = Server::script(cuts).await;
    let provider = provider::<V>(&server);
    let expected = came(&said);
    for byte in 0..=stream.len() {
        let (turn, heard) = ask(provider.as_ref(), &[user("Hello")]).await;
        assert_eq!(Came::of(&turn), expected, "cut at {byte}: {turn:?}");
        assert_eq!(heard.texts(), ["\u{e9}\u{1f600}"], "cut at {byte}");
    }
}
