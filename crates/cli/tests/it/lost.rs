//! A decision or a stream that is lost on its way (laws 1 and 8): no decision is sent again by itself, and what is
//! known is told.

use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use crate::support::{Host, Place, Terminal, countersign, finish, until};

/// What is lost: the stream, or the first decision. Later ones pass.
#[derive(Clone, Copy)]
enum Fate {
    /// It arrives, and its receipt is lost.
    ReceiptLost,
    /// It never arrives.
    Swallowed,
    /// The stream breaks behind this.
    Cut(&'static str),
}

/// A way to the host that loses one decision or its receipt.
struct Way {
    url: String,
    decisions: Arc<AtomicUsize>,
}

impl Way {
    fn to(host: &Host<'_>, fate: Fate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = host.url.trim_start_matches("http://").to_owned();
        let decisions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&decisions);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (target, counter) = (target.clone(), Arc::clone(&counter));
                thread::spawn(move || pass(client, &target, fate, &counter));
            }
        });
        Self { url, decisions }
    }
}

fn pass(mut client: TcpStream, target: &str, fate: Fate, decisions: &AtomicUsize) {
    let head = request_head(&mut client);
    let mut host = TcpStream::connect(target).unwrap();
    host.write_all(&head).unwrap();
    if head.starts_with(b"POST /v1/approvals/decisions") && decisions.fetch_add(1, Ordering::SeqCst) == 0 {
        let text = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length =
            text.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        client.read_exact(&mut body).unwrap();
        if matches!(fate, Fate::ReceiptLost) {
            host.write_all(&body).unwrap();
            assert!(host.read(&mut [0; 64]).unwrap() > 0);
        }
        return;
    }
    let (mut up, mut down) = (client.try_clone().unwrap(), host.try_clone().unwrap());
    thread::spawn(move || {
        let _ = copy(&mut up, &mut down);
        let _ = down.shutdown(Shutdown::Both);
    });
    match fate {
        Fate::Cut(last) if head.starts_with(b"POST /v1/runs ") => copy_through(last, &mut host, &mut client),
        _ => drop(copy(&mut host, &mut client)),
    }
    let _ = host.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

/// Copies through the frame that holds the text.
fn copy_through(last: &str, from: &mut TcpStream, to: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).unwrap_or(0) == 1 {
        seen.push(byte[0]);
        to.write_all(&byte).unwrap();
        if byte == *b"\n" && seen.ends_with(b"\n\n") && String::from_utf8_lossy(&seen).contains(last) {
            return;
        }
    }
}

/// Up to the empty line, byte by byte, so that nothing of the body is taken.
fn request_head(client: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    head
}

fn client(place: &Place, way: &Way, more: &[&str]) -> std::process::Command {
    let mut command = countersign(&["run", "--url", &way.url, "--token-file", &place.arg("token")]);
    command.args(["--provider", "mock", "--model", "demo", "--tools", "save_proposal"]).args(more);
    command
}

#[test]
fn a_lost_receipt_changes_nothing() {
    let place = Place::new();
    let host = Host::start(&place);
    let way = Way::to(&host, Fate::ReceiptLost);
    let ended = finish(&mut client(&place, &way, &["--json", "--decide", "approve", "x"]));
    assert_eq!(ended.status, Some(0), "{}{}", ended.out, ended.err);
    assert_eq!((way.decisions.load(Ordering::SeqCst), place.effects().len()), (1, 1));
}

#[test]
fn a_lost_decision_is_given_up_and_not_repeated() {
    let place = Place::new();
    let host = Host::start(&place);
    let way = Way::to(&host, Fate::Swallowed);
    let ended = finish(&mut client(&place, &way, &["--json", "--decide", "approve", "x"]));
    assert_eq!(ended.status, Some(1), "{}{}", ended.out, ended.err);
    let error = ended.lines().last().unwrap()["error"].clone();
    assert_eq!(
        (&error["code"], &error["outcome"]),
        (&json!("CONNECTION_FAILED"), &json!("uncertain")),
        "{error}"
    );
    until("the end of the review", || (place.audited().len() == 2).then_some(()));
    assert_eq!(place.audit()[1]["resolution"]["outcome"], "cancelled");
    assert_eq!((way.decisions.load(Ordering::SeqCst), place.effects().len()), (1, 0));
}

// Only the person may say it again.
#[test]
fn a_person_is_told_and_asked_again() {
    let place = Place::new();
    let host = Host::start(&place);
    let way = Way::to(&host, Fate::Swallowed);
    let mut run = Terminal::start(client(&place, &way, &["x"]), 100, 30);
    run.wait_for("[c] cancel the run > ");
    run.press("a\n");
    run.wait_for("cannot be known whether your decision arrived");
    run.wait_for("[c] cancel the run > ");
    assert_eq!(place.effects().len(), 0);
    run.press("a\n");
    assert_eq!(run.end().1, Some(0));
    assert_eq!((way.decisions.load(Ordering::SeqCst), place.effects().len()), (2, 1));
}

// The end of the agent's text is the end of its line: our own words are not taken for its.
#[test]
fn a_stream_that_breaks_in_a_text_ends_its_line() {
    let place = Place::new();
    place.edit(|config| config["providers"][0]["default"][0]["deltas"] = json!(["I think"]));
    let host = Host::start(&place);
    let way = Way::to(&host, Fate::Cut("I think"));
    let ended = finish(&mut client(&place, &way, &["--decide", "approve", "x"]));
    assert_eq!(ended.status, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.ends_with("│ I think\n") && ended.err.starts_with("countersign: "), "{ended:?}");
    assert_eq!(place.effects().len(), 0);
}

#[test]
fn a_stream_that_breaks_at_the_question_ends_its_line() {
    let place = Place::new();
    let host = Host::start(&place);
    let way = Way::to(&host, Fate::Cut("approval.requested"));
    let run = Terminal::start(client(&place, &way, &["x"]), 100, 30);
    let (seen, status) = run.end();
    assert_eq!(status, Some(1), "{seen}");
    let told = "countersign: the host is gone. Nothing was approved by you; look in the audit file.\r\n";
    assert!(seen.contains(&format!("[c] cancel the run > \r\n{told}")), "{seen}");
    assert_eq!(place.effects().len(), 0);
}
