//! What clients in other languages make of the reviewed call, and how they send it back (contract 4.5, 4.6; design 3).
//!
//! An honest echo is accepted however it is spelled, and what runs is the stored text all the same. Another value is
//! refused. Scenarios B1, B3, B5, B9, B13, L9.

mod foreign;
mod spell;

use countersign_approval_core::review::Decision;
use countersign_host::Service;
use countersign_protocol::event::Event;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::contract::sized;
use crate::support::{ANN, World, question, rest, reviewed};
use spell::{Spelling, spell};

/// Everything that encoders are known to spell differently, each a value that is carried exactly.
const AWKWARD: &str = concat!(
    r#"{"numbers":[1.0,1,1e0,100e-2,1e21,1e-7,-0,-0.0,0e0,9007199254740992,123456789012345680000,0.1,5e-324,"#,
    r#"1.7976931348623157e308,-12.50],"strings":["<a href='x'>&amp;</a>","\u2028\u2029","🙂","\ud83d\ude42","\u0000\u001f","#,
    r#""\/a\\b\"","é","e\u0301"],"10":1,"2":2,"b":{"z":[3,{"y":true,"x":null}],"a":[]},"a":{},"":"empty","#,
    r#""constructor":{"toString":null},"é<":"<é"}"#
);

/// A run that waits, and what the reviewer's program was sent.
async fn shown(world: &World) -> (countersign_client::EventStream, Event) {
    let mut events = world.client(ANN).stream(&reviewed("write")).await.unwrap();
    let (mut seen, _) = question(&mut events).await;
    (events, seen.pop().unwrap())
}

/// The decision that a program makes of the event that it parsed.
fn decision(event: &Event, decision: Decision) -> Value {
    let event: Value = serde_json::from_str(&event.to_json()).unwrap();
    let approval = &event["approval"];
    json!({
        "approvalId": approval["approvalId"], "runId": approval["runId"], "call": approval["call"],
        "decision": decision,
    })
}

/// Sends the body as it is, and returns the status and the code or outcome.
async fn post(service: &Service, body: &str) -> (u16, String) {
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let service = service.clone();
    tokio::spawn(async move { service.serve_connection(far).await });
    let head = format!(
        "POST /v1/approvals/decisions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {ANN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    near.write_all(head.as_bytes()).await.unwrap();
    near.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let said = body["error"]["code"].as_str().or(body["outcome"].as_str()).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), said.to_owned())
}

// Contract 4.5, 4.6; scenarios B13 and L9: every spelling of every honest echo, up to the largest call.
#[tokio::test(start_paused = true)]
async fn every_spelling_of_the_same_value_is_accepted() {
    let largest = sized(128_000);
    for arguments in [AWKWARD, &largest] {
        for spelling in Spelling::ALL {
            let world = World::proposing(arguments);
            let (mut events, event) = shown(&world).await;
            let body = spell(&decision(&event, Decision::Approve), spelling);
            assert!(body.len() < 1_000_000, "{spelling:?}: {} bytes", body.len());
            assert_eq!(post(&world.service, &body).await, (200, "approved".into()), "{spelling:?}");
            assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
            assert_eq!(
                world.effects.texts(),
                [arguments],
                "{spelling:?}: the stored text ran, not the echoed one"
            );
        }
    }
}

// The largest echo of the largest call is a sixfold one, and the body's bound has room for it (contract 4.6).
#[tokio::test(start_paused = true)]
async fn the_largest_escaped_echo_is_near_the_bound_of_a_body() {
    let world = World::proposing(&sized(128_000));
    let (_events, event) = shown(&world).await;
    let body = spell(&decision(&event, Decision::Approve), Spelling::EveryCharacter);
    assert!((760_000..1_000_000).contains(&body.len()), "{} bytes", body.len());
}

// Scenario B9, law 1: another value is another call, however near it is.
#[tokio::test(start_paused = true)]
async fn another_value_is_refused() {
    let world = World::proposing(AWKWARD);
    let (mut events, event) = shown(&world).await;
    let honest = decision(&event, Decision::Approve);
    let changes: [(&str, Value); 13] = [
        ("/numbers/0", json!("1")),
        ("/numbers/0", json!(1.000_000_000_000_000_2)),
        ("/numbers/9", json!(9_007_199_254_740_994_u64)),
        ("/numbers/11", json!(0.100_000_000_000_000_02)),
        ("/numbers", json!([])),
        ("/strings/0", json!("&lt;a href='x'&gt;&amp;amp;&lt;/a&gt;")),
        ("/strings/6", json!("e\u{301}")),
        ("/strings/7", json!("é")),
        ("/b/z", json!([{"y": true, "x": null}, 3])),
        ("/b/z/1", json!({"y": true})),
        ("/b/z/1/y", json!("true")),
        ("/b/a", json!({})),
        ("/a", json!({"extra": null})),
    ];
    for (at, value) in changes {
        let mut altered = honest.clone();
        let place = altered["call"]["arguments"].pointer_mut(at).unwrap();
        assert_ne!(*place, value, "{at}");
        *place = value;
        for spelling in [Spelling::JavaScript, Spelling::EveryCharacter] {
            let answer = post(&world.service, &spell(&altered, spelling)).await;
            assert_eq!(answer, (409, "APPROVAL_MISMATCH".into()), "{at}");
        }
    }
    // What could not have been shown is refused as a decision, whatever it would round to (scenario B1).
    let text = honest.to_string();
    for (shown, sent) in [
        ("9007199254740992", "9007199254740993"),
        ("0.1,", "0.10000000000000000001,"),
        (r#""constructor":"#, r#""__proto__":"#),
        (r#""a":{}"#, r#""a":{},"a":{}"#),
    ] {
        assert!(text.contains(shown), "{shown}");
        let answer = post(&world.service, &text.replacen(shown, sent, 1)).await;
        assert_eq!(answer, (400, "INVALID_APPROVAL".into()), "{sent}");
    }
    assert_eq!(world.effects.len(), 0);
    assert_eq!(post(&world.service, &text).await, (200, "approved".into()));
    assert_eq!(rest(&mut events).await.last().unwrap(), "run.completed");
    assert_eq!(world.effects.texts(), [AWKWARD]);
}
