//! Contract 11: a run may let a busy vendor be asked again, before anything of an answer has come; nothing else is ever
//! sent twice.

use std::time::Duration;

use countersign_approval_core::ids::ModelId;
use countersign_driver::RunLimits;
use countersign_driver::provider::{ProviderError, RetryPolicy, Turn, TurnRequest};
use countersign_protocol::code::Code;
use countersign_protocol::request::{Retry, RunRequest};

use super::provider;
use super::runs::{Bench, end};
use super::vendor::{Ending, Said, Trouble, Vendor};
use crate::heard::{Came, Heard, answer, request, user};
use crate::server::{End, Reply, Saw, Server};

fn busy<V: Vendor>(header: &str) -> Reply {
    let (status, body) = V::refusal(Trouble::Busy, "SECRET");
    Reply::new(status, &format!("Content-Type: application/json{header}"), body)
}

fn hi<V: Vendor>() -> Reply {
    Reply::stream(V::stream(&Said::text(&["hi"])))
}

fn at_most(max_attempts: u32) -> RetryPolicy {
    RetryPolicy { max_attempts, base_delay: Duration::from_millis(1), max_delay: Duration::from_secs(30) }
}

/// One turn under a policy, what was heard, and the bodies that were sent.
async fn turn<V: Vendor>(
    replies: Vec<Reply>,
    retry: RetryPolicy,
) -> (Result<Turn, ProviderError>, Heard, Vec<String>) {
    let mut server = Server::script(replies).await;
    let (model, messages, heard) = (ModelId::parse("demo").unwrap(), [user("Hello")], Heard::default());
    let turn = provider::<V>(&server).turn(TurnRequest { retry, ..request(&model, &messages) }, &heard).await;
    let mut bodies = Vec::new();
    while let Some(saw) = server.next_seen() {
        if let Saw::Request { body, .. } = saw {
            bodies.push(body);
        }
    }
    (turn, heard, bodies)
}

pub(crate) async fn a_busy_vendor_is_asked_again<V: Vendor>() {
    let replies = vec![busy::<V>(""), busy::<V>("\r\nRetry-After: 0"), hi::<V>()];
    let (turn, heard, bodies) = turn::<V>(replies, at_most(3)).await;
    assert_eq!(Came::of(&turn), answer("hi", &[]));
    assert_eq!(heard.texts(), ["hi"]);
    assert!(bodies.len() == 3 && bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

pub(crate) async fn as_often_as_allowed<V: Vendor>() {
    for (retry, sent) in [(RetryPolicy::default(), 1), (at_most(1), 1), (at_most(2), 2), (at_most(5), 5)] {
        let (turn, heard, bodies) = turn::<V>(vec![busy::<V>("")], retry).await;
        assert_eq!(Came::of(&turn), Came::Failure { code: Code::RATE_LIMITED, retryable: true });
        assert!(heard.pieces().is_empty(), "waiting is no progress (contract 8)");
        assert_eq!(bodies.len(), sent, "{retry:?}");
    }
}

/// Whether the vendor's model has begun is not known after any of these, or will be the same the next time.
pub(crate) async fn nothing_else_is_sent_again<V: Vendor>() {
    let begun = V::stream(&Said::text(&["h"]).ending(Ending::Open));
    let mut replies: Vec<Reply> = Trouble::ALL
        .into_iter()
        .filter(|trouble| *trouble != Trouble::Busy)
        .map(|trouble| {
            let (status, body) = V::refusal(trouble, "SECRET");
            Reply::new(status, "Content-Type: application/json\r\nRetry-After: 0", body)
        })
        .collect();
    replies.extend([
        Reply::stream(V::trouble_in_stream(Trouble::Busy, "SECRET")),
        Reply::stream(begun.clone() + &V::trouble_in_stream(Trouble::Busy, "SECRET")),
        Reply::stream(begun.clone()),
        Reply::stream(begun).ending(End::Cut),
        Reply::object("{"),
    ]);
    for reply in replies {
        let (turn, _, bodies) = turn::<V>(vec![reply.clone(), hi::<V>()], at_most(5)).await;
        assert!(turn.is_err());
        assert_eq!(bodies.len(), 1, "{reply:?}");
    }
}

/// More patience than the policy has, or a date, which is not guessed at.
pub(crate) async fn a_wait_that_is_too_long<V: Vendor>() {
    for wait in ["31", "99999999999999999999", "Wed, 21 Oct 2026 07:28:00 GMT"] {
        let replies = vec![busy::<V>(&format!("\r\nRetry-After: {wait}")), hi::<V>()];
        let (turn, _, bodies) = turn::<V>(replies, at_most(5)).await;
        assert_eq!(Came::of(&turn), Came::Failure { code: Code::RATE_LIMITED, retryable: true });
        assert_eq!(bodies.len(), 1, "{wait}");
    }
}

/// Contract 2: the request's `retry` reaches the adapter, within the host's bound; without one there is one attempt.
pub(crate) async fn as_the_run_asks<V: Vendor>() {
    let retry = || Some(Retry { max_attempts: 2, base_delay_ms: Some(1), max_delay_ms: None });
    let host = |max_attempts| RunLimits { max_attempts, ..RunLimits::default() };
    for (retry, limits, expected) in [
        (retry(), host(5), Ok("hi".to_owned())),
        (retry(), host(1), Err(Code::RATE_LIMITED)),
        (None, host(5), Err(Code::RATE_LIMITED)),
    ] {
        let server = Server::script(vec![busy::<V>(""), hi::<V>()]).await;
        let request = RunRequest { retry, ..Bench::<V>::request() };
        assert_eq!(end(&Bench::<V>::within(&server, limits).run_as(request).await), expected);
    }
}
