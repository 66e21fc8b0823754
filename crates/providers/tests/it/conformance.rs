//! One suite that every vendor's adapter passes (contract 11, scenarios M).
//!
//! [`vendor::Vendor`] says how each situation looks in a vendor's wire form; the laws are written once, here, and played
//! over a real HTTP server on loopback that re-chunks what the vendor says. [`conformance!`] makes the tests of a vendor.

pub(crate) mod answers;
pub(crate) mod asked;
pub(crate) mod cancelled;
pub(crate) mod failures;
pub(crate) mod fidelity;
pub(crate) mod retries;
pub(crate) mod runs;
pub(crate) mod vendor;

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "openai-chat")]
mod chat;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(feature = "openai-responses")]
mod responses;

use std::time::Duration;

use countersign_driver::provider::{Message, Provider, ProviderError, Turn};
use url::Url;

use crate::heard::{Came, Heard, ask, user};
use crate::server::{Reply, Saw, Server};
use vendor::{Said, Vendor};

pub(crate) const KEY: &str = "sk-test-0123456789";

/// The tests of one vendor.
macro_rules! conformance {
    ($vendor:ident) => {
        mod suite {
            use super::$vendor;

            crate::conformance::conformance! { @tests $vendor;
                answers::text_arrives_piece_by_piece, answers::calls, answers::calls_after_text,
                answers::argument_text_that_is_empty, answers::ids_as_they_were_given, answers::interleaved_calls,
                answers::names_are_never_tidied, answers::usage, answers::length, answers::a_refusal,
                answers::one_object, answers::every_split_point,
                failures::statuses, failures::trouble_inside_a_stream, failures::a_stream_that_is_cut_anywhere,
                failures::a_stream_without_its_end, failures::what_is_no_answer, failures::redirects,
                failures::nobody_there, failures::a_missing_key, failures::the_key_is_never_shown,
                failures::a_label_that_is_the_key,
                failures::bounds,
                asked::the_conversation, asked::outputs_of_many_calls, asked::nothing_that_was_not_given,
                asked::the_key_is_in_its_header_only,
                cancelled::in_the_middle_of_an_answer, cancelled::before_the_answer,
                cancelled::after_an_answer_that_was_refused, cancelled::with_its_run,
                retries::a_busy_vendor_is_asked_again, retries::as_often_as_allowed, retries::nothing_else_is_sent_again,
                retries::a_wait_that_is_too_long, retries::as_the_run_asks,
                runs::an_approved_call, runs::every_call_is_reviewed, runs::names_that_are_not_the_tools,
                runs::an_id_that_comes_twice, runs::a_call_without_an_id, runs::empty_arguments,
                runs::reasoning_is_told_again,
                runs::trouble_after_an_effect, runs::truncated_calls, runs::the_key_is_in_no_log,
            }
            #[test]
            fn any_arguments_reach_the_tool_as_written() {
                crate::conformance::fidelity::any_arguments_reach_the_tool_as_written::<$vendor>();
            }
            #[test]
            fn what_the_gate_refuses_is_never_reviewed() {
                crate::conformance::fidelity::what_the_gate_refuses_is_never_reviewed::<$vendor>();
            }
            #[test]
            fn any_bytes_are_an_answer_or_an_error() {
                crate::conformance::fidelity::any_bytes_are_an_answer_or_an_error::<$vendor>();
            }
        }
    };
    (@tests $vendor:ident; $($module:ident::$law:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $law() {
                crate::conformance::$module::$law::<$vendor>().await;
            }
        )*
    };
}
pub(crate) use conformance;

/// A provider that is sent to `server`.
pub(crate) fn provider<V: Vendor>(server: &Server) -> Box<dyn Provider> {
    at::<V>(server.url())
}

pub(crate) fn at<V: Vendor>(url: Url) -> Box<dyn Provider> {
    V::provider(url, KEY).unwrap()
}

/// One turn against a server that gives `reply`.
pub(crate) async fn play<V: Vendor>(reply: Reply) -> (Result<Turn, ProviderError>, Heard) {
    let server = Server::start(reply).await;
    ask(provider::<V>(&server).as_ref(), &[user("Hello")]).await
}

/// Plays a stream whole and byte by byte; both must come to the same.
pub(crate) async fn check<V: Vendor>(said: &Said, expected: &Came) {
    let stream = V::stream(said);
    for bytes in [usize::MAX, 1] {
        let (turn, _) = play::<V>(Reply::stream(stream.as_str()).pieces_of(bytes)).await;
        assert_eq!(&Came::of(&turn), expected, "pieces of {bytes}: {said:?} as\n{stream}\n{turn:?}");
    }
}

/// What the model is told by one turn with these messages.
pub(crate) async fn request_of<V: Vendor>(messages: &[Message]) -> (String, String) {
    let mut server = Server::start(Reply::stream(V::stream(&Said::text(&["hi"])))).await;
    let (turn, _) = ask(provider::<V>(&server).as_ref(), messages).await;
    turn.unwrap();
    let Saw::Request { head, body } = server.saw().await else { panic!("no request") };
    (head, body)
}

/// Waits for the hangup; the bound only keeps a failing test from hanging.
pub(crate) async fn hangup(server: &mut Server) {
    let saw = tokio::time::timeout(Duration::from_secs(20), server.saw()).await.expect("it did not hang up");
    assert!(matches!(saw, Saw::Hangup), "{saw:?}");
}
