//! Answers that are none, and what is never shown of them.

use std::error::Error as _;

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use tokio::net::TcpListener;
use url::Url;

use super::vendor::{Ending, Said, Trouble, Vendor};
use super::{KEY, at, check, play, provider};
use crate::heard::{Came, answer, ask, failure, user};
use crate::server::{End, Reply, Server};

/// What stands in a vendor's message in these tests; it may repeat the key and the conversation.
fn words() -> String {
    format!("SECRET {KEY}")
}

/// Everything that a log could be given of a failure.
fn shown(error: &ProviderError) -> String {
    let mut shown = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        shown += &format!(" {error} {error:?}");
        cause = error.source();
    }
    shown
}

fn assert_private(error: &ProviderError) {
    let shown = shown(error);
    assert!(!shown.contains("SECRET") && !shown.contains(KEY), "{shown}");
}

/// Contract 11, "Common", and 5.3: each class, its code and its retry hint. The vendor's words stay here.
pub(crate) async fn statuses<V: Vendor>() {
    for trouble in Trouble::ALL {
        let (status, body) = V::refusal(trouble, &words());
        let (turn, _) = play::<V>(Reply::new(status, "Content-Type: application/json", body)).await;
        let (code, retryable) = trouble.expected();
        assert_eq!(Came::of(&turn), Came::Failure { code, retryable }, "{trouble:?}");
        let error = turn.unwrap_err();
        assert_private(&error);
        assert!(shown(&error).contains(&status[..3]), "the log says which status: {}", shown(&error));
    }
    // Whatever a vendor may have meant, a status without its words is told by its number.
    let rows = [
        ("400 Bad Request", Code::PROVIDER_ERROR, false),
        ("401 Unauthorized", Code::PROVIDER_AUTH, false),
        ("403 Forbidden", Code::PROVIDER_AUTH, false),
        ("404 Not Found", Code::PROVIDER_ERROR, false),
        ("408 Request Timeout", Code::PROVIDER_ERROR, false),
        ("429 Too Many Requests", Code::RATE_LIMITED, true),
        ("500 Internal Server Error", Code::PROVIDER_ERROR, true),
        ("503 Service Unavailable", Code::PROVIDER_ERROR, true),
        ("599 Odd", Code::PROVIDER_ERROR, true),
    ];
    for (status, code, retryable) in rows {
        for body in [String::new(), "<html>SECRET".to_owned(), "x".repeat(100_000)] {
            let (turn, _) = play::<V>(Reply::new(status, "X-A: b", body)).await;
            assert_eq!(
                Came::of(&turn),
                Came::Failure { code: code.clone(), retryable },
                "{status}: only the vendor's own words may change it"
            );
            assert_private(&turn.unwrap_err());
        }
    }
}

/// An error object where an answer should go on: it ends the turn at once, and its words stay here.
pub(crate) async fn trouble_inside_a_stream<V: Vendor>() {
    let begun = [
        Said::text(&["I w"]).ending(Ending::Open),
        Said::calls(&[("call-1", "save", &["{\"n\":1}"])]).ending(Ending::Open),
    ];
    for trouble in [Trouble::Busy, Trouble::Broken, Trouble::Overloaded] {
        for said in &begun {
            let body = V::stream(said) + &V::trouble_in_stream(trouble, &words());
            for reply in [Reply::stream(body.as_str()).ending(End::Hold), Reply::stream(body).pieces_of(1)] {
                let (turn, _) = play::<V>(reply).await;
                let error = turn.unwrap_err();
                assert_eq!(error.info.code, trouble.expected().0, "{trouble:?} after {said:?}: {error:?}");
                assert_private(&error);
            }
        }
        let (turn, _) = play::<V>(Reply::stream(V::trouble_in_stream(trouble, &words()))).await;
        assert_eq!(turn.unwrap_err().info.code, trouble.expected().0, "{trouble:?} before any word");
    }
}

/// M3: wherever a stream breaks off, in good order or not, nothing of it is an answer.
pub(crate) async fn a_stream_that_is_cut_anywhere<V: Vendor>() {
    let said = Said::text(&["I "]).and_call("call-1", "save", &["{\"n\":", "1}"]);
    let stream = V::stream(&said);
    let cut = |end, step| (0..stream.len()).step_by(step).map(move |byte| (byte, end));
    let cuts: Vec<_> = cut(End::Whole, 1).chain(cut(End::Cut, 7)).collect();
    let replies = cuts.iter().map(|(byte, end)| Reply::stream(&stream.as_bytes()[..*byte]).ending(*end));
    let server = Server::script(replies.collect()).await;
    let provider = provider::<V>(&server);
    for (byte, end) in cuts {
        let (turn, _) = ask(provider.as_ref(), &[user("Hello")]).await;
        let cause = format!("{end:?} after {byte} bytes:\n{}\n{turn:?}", &stream[..floor(&stream, byte)]);
        assert_eq!(Came::of(&turn), failure(Code::INCOMPLETE_STREAM), "{cause}");
    }
    let object = V::whole(&said);
    for byte in [0, 1, object.len() / 2, object.len() - 1] {
        let reply = Reply::object(&object.as_bytes()[..byte]).ending(End::Cut);
        let (turn, _) = play::<V>(reply).await;
        assert_eq!(Came::of(&turn), failure(Code::INCOMPLETE_STREAM), "an object cut after {byte} bytes");
    }
}

fn floor(text: &str, byte: usize) -> usize {
    (0..=byte).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// M3: a server that closes the stream properly, but never said that the answer is complete.
pub(crate) async fn a_stream_without_its_end<V: Vendor>() {
    for said in [
        Said::text(&[]),
        Said::text(&["All of it."]),
        Said::calls(&[("call-1", "save", &["{\"n\":1}"])]),
        Said::calls(&[("call-1", "save", &[])]),
    ] {
        check::<V>(&said.ending(Ending::Open), &failure(Code::INCOMPLETE_STREAM)).await;
    }
}

pub(crate) async fn what_is_no_answer<V: Vendor>() {
    let refused = failure(Code::INVALID_PROVIDER_RESPONSE);
    for data in ["{", "[]", "7", "null", "\"text\"", "{}{}", "{\"object\":\"something else\"}", "\u{feff}{}"]
    {
        let (turn, _) = play::<V>(Reply::stream(format!("data: {data}\n\n"))).await;
        assert_eq!(Came::of(&turn), refused, "{data}: {turn:?}");
        let (turn, _) = play::<V>(Reply::object(data)).await;
        assert_eq!(Came::of(&turn), refused, "{data}: {turn:?}");
    }
    for (name, reply) in [
        ("not UTF-8", Reply::stream(*b"data: \xff\n\n")),
        ("an object that is not UTF-8", Reply::object(*b"{\"a\":\"\xff\"}")),
        ("a page", Reply::new("200 OK", "Content-Type: text/html", "<html>")),
        ("nothing at all", Reply::object("")),
        ("nothing at all, without a type", Reply::new("200 OK", "X-A: b", "")),
    ] {
        let (turn, _) = play::<V>(reply).await;
        assert_eq!(Came::of(&turn), refused, "{name}");
    }
}

/// Contract 11: redirects are refused, and the key goes nowhere else.
pub(crate) async fn redirects<V: Vendor>() {
    let mut other = Server::start(Reply::stream(V::stream(&Said::text(&["hi"])))).await;
    for status in
        ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let (turn, _) = play::<V>(Reply::new(status, &format!("Location: {}", other.url()), "")).await;
        assert_eq!(Came::of(&turn), failure(Code::PROVIDER_ERROR), "{status}");
    }
    assert!(other.saw_nothing_more());
}

pub(crate) async fn nobody_there<V: Vendor>() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
    let unreachable = Came::Failure { code: Code::PROVIDER_UNREACHABLE, retryable: true };
    let provider = at::<V>(url);

    // It hangs up without a word.
    let hang_up = async {
        drop(listener.accept().await.unwrap());
        listener
    };
    let messages = [user("x")];
    let ((turn, _), listener) = tokio::join!(ask(provider.as_ref(), &messages), hang_up);
    assert_eq!(Came::of(&turn), unreachable);
    assert_private(&turn.unwrap_err());

    // Nobody listens.
    drop(listener);
    let (turn, _) = ask(provider.as_ref(), &messages).await;
    assert_eq!(Came::of(&turn), unreachable);
    assert_private(&turn.unwrap_err());
}

/// Contract 11, "missing key": nothing is sent without it; one that no header can carry is refused at once.
pub(crate) async fn a_missing_key<V: Vendor>() {
    let mut server = Server::start(Reply::stream(V::stream(&Said::text(&["hi"])))).await;
    let provider = V::provider(server.url(), "").unwrap();
    let (turn, _) = ask(provider.as_ref(), &[user("x")]).await;
    assert_eq!(Came::of(&turn), failure(Code::AUTH_REQUIRED));
    assert!(server.saw_nothing_more());
    for bad in ["a\nb", "a b", "\u{43a}\u{43b}\u{44e}\u{447}", "a\0"] {
        let Err(error) = V::provider(server.url(), bad) else { panic!("{bad:?} was taken") };
        assert!(!format!("{error} {error:?}").contains(bad));
    }
}

/// Neither the provider nor what it says of itself shows the key.
pub(crate) async fn the_key_is_never_shown<V: Vendor>() {
    let provider = at::<V>(Url::parse("http://127.0.0.1:9/v1").unwrap());
    let info = provider.info();
    let shown = format!("{info:?} {}", serde_json::to_string(info).unwrap());
    assert!(!shown.contains(KEY), "{shown}");
    assert_eq!((info.id.as_str(), info.name.as_str()), ("local", "local"));
    assert!(info.capabilities.tools && info.capabilities.text_streaming);
    for url in
        ["http://example.com/v1", "http://10.0.0.1/v1", "http://u:p@127.0.0.1/v1", "http://127.0.0.1/?x=1"]
    {
        assert!(V::provider(Url::parse(url).unwrap(), KEY).is_err(), "{url}: the key would be seen");
    }
}

/// A vendor that repeats the key where its label should stand, with a key that looks like one.
pub(crate) async fn a_label_that_is_the_key<V: Vendor>() {
    for key in ["0123456789abcdef0123456789abcdef", "qwertyuiopasdfghjklzxcvb", "live_qwertyuiopasdfghjkl"] {
        let error =
            format!(r#"{{"type":"error","error":{{"type":"{key}","code":"{key}","status":"{key}"}}}}"#);
        for reply in [
            Reply::new("400 Bad Request", "Content-Type: application/json", error.as_str()),
            Reply::object(error.as_str()),
            Reply::stream(format!("data: {error}\n\n")),
        ] {
            let server = Server::start(reply).await;
            let provider = V::provider(server.url(), key).unwrap();
            let (turn, _) = ask(provider.as_ref(), &[user("x")]).await;
            let shown = shown(&turn.unwrap_err());
            assert!(!shown.contains(key), "{shown}");
        }
    }
}

/// Law 9: contract 11's bounds on a stream, on one object and on a frame, at the edge and one byte over.
pub(crate) async fn bounds<V: Vendor>() {
    let said = Said::text(&["hi"]);
    let too_large = || failure(Code::RESPONSE_TOO_LARGE);
    let stream = V::stream(&said);
    for (over, expected) in [(0, answer("hi", &[])), (1, too_large())] {
        let reply = Reply::stream(comments(10_000_000 + over - stream.len()) + &stream).pieces_of(65_536);
        let (turn, _) = play::<V>(reply).await;
        assert_eq!(Came::of(&turn), expected, "a stream");
    }
    let object = V::whole(&said);
    for (size, expected) in [(2_000_000, answer("hi", &[])), (2_000_001, too_large())] {
        let body = format!("{object}{}", " ".repeat(size - object.len()));
        let (turn, _) = play::<V>(Reply::object(body)).await;
        assert_eq!(Came::of(&turn), expected, "an object of {size} bytes");
    }
    let endless = Reply::stream(vec![b'x'; 2_000_001]).ending(End::Hold);
    let (turn, _) = play::<V>(endless).await;
    assert_eq!(Came::of(&turn), too_large(), "a line without an end");
}

/// So many bytes of frames without data, each smaller than a frame's own bound.
fn comments(bytes: usize) -> String {
    let mut body = String::with_capacity(bytes);
    while body.len() < bytes {
        let line = (bytes - body.len()).min(1_000_000);
        body.extend(std::iter::repeat_n(':', line - 1));
        body.push('\n');
        if body.len() < bytes {
            body.push('\n');
        }
    }
    body
}
