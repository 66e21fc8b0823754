//! Idempotency keys and `kill -9` (contract 9, laws 1 and 8): in whatever state a host dies, a restart never runs an
//! effect twice and never tells what it does not know.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{Host, LIMIT, Place, countersign, finish, until};

/// Inputs `asks 0` and so on, whose calls differ.
const ASKING: usize = 30;

/// A place whose host remembers operations and has scripts and tools for every state of a run. The effect of each tool
/// is a line in `effects`, and it ends once there is a file `go`.
fn place() -> Place {
    let place = Place::new();
    place.edit(|config| {
        config["operations"] = json!({"directory": "operations"});
        let call = |name: &str, n: usize| {
            json!({"calls": [{"id": "call-1", "name": name, "arguments": {"n": n}}]})
        };
        let later = json!({"text": "At last.", "delayMs": 100_000_000});
        let mut scripts = json!({
            "says": [{"deltas": ["He", "llo."]}],
            "thinks": [later],
            "acts": [call("free", 0), {"text": "Done."}],
            "acts and thinks": [call("free", 0), later],
        });
        for n in 0..ASKING {
            scripts[format!("asks {n}")] = json!([call("asked", n), {"text": "Done."}]);
        }
        config["providers"][0]["scripts"] = scripts;
        let tool = |name: &str, gated: bool| {
            json!({
                "name": name, "description": "Leaves a line.", "inputSchema": {"type": "object"},
                "requiresApproval": gated,
                "command": ["/bin/sh", "-c", "cat >> effects; while [ ! -e go ]; do sleep 0.02; done; echo true"],
            })
        };
        config["tools"] = json!([tool("asked", true), tool("free", false)]);
        config["tokens"][0]["tools"] = json!(["asked", "free"]);
        config["tokens"][0]["approveTools"] = json!(["asked", "free"]);
        config["concurrency"] = json!({"total": 100, "perSubject": 100});
    });
    place
}

fn effects(place: &Place) -> usize {
    fs::read_to_string(place.path("effects")).unwrap_or_default().lines().count()
}

fn body(input: &str, key: &str) -> Value {
    let mut body = json!({
        "provider": "mock", "model": "demo", "input": input, "tools": ["asked", "free"], "idempotencyKey": key,
    });
    if input.starts_with("asks") {
        body["approvals"] = json!({"mode": "interactive", "idlePolicy": "pause"});
    }
    body
}

/// An answer of the host, as it comes.
struct Answer {
    reader: BufReader<TcpStream>,
    status: u16,
    chunked: bool,
    length: usize,
    /// What was read of the body and not yet taken.
    text: String,
}

impl Answer {
    /// Sends a request and reads the head of its answer; none if the host goes before.
    fn to(host: &Host<'_>, path: &str, accept: &str, body: &Value) -> Option<Self> {
        let mut stream = connect(host);
        stream.write_all(&request(host, path, accept, body)).ok()?;
        let mut answer = Self {
            reader: BufReader::new(stream),
            status: 0,
            chunked: false,
            length: 0,
            text: String::new(),
        };
        let first = answer.line()?;
        answer.status = first.split(' ').nth(1)?.parse().ok()?;
        loop {
            let line = answer.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Some(answer);
            }
            answer.chunked |= line == "transfer-encoding: chunked";
            if let Some(length) = line.strip_prefix("content-length: ") {
                answer.length = length.parse().ok()?;
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads a piece of the body; none at its end, or if the host is gone.
    fn piece(&mut self) -> Option<()> {
        let size = match self.chunked {
            true => usize::from_str_radix(&self.line()?, 16).ok()?,
            false => std::mem::take(&mut self.length),
        };
        let mut piece = vec![0; size];
        self.reader.read_exact(&mut piece).ok()?;
        self.text.push_str(std::str::from_utf8(&piece).unwrap());
        if self.chunked {
            self.line()?;
        }
        (size > 0).then_some(())
    }

    /// The next event; none at the end of the stream, however it ends.
    fn event(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let frame: String = self.text.drain(..end + 2).collect();
                if let Some(data) = frame.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Some(serde_json::from_str(data).unwrap());
                }
            }
            self.piece()?;
        }
    }

    /// Reads up to the first event of this type.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().unwrap_or_else(|| panic!("the stream ended before {kind}"));
            if event["type"] == kind {
                return event;
            }
        }
    }

    fn rest(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.event()).collect()
    }

    fn json(mut self) -> Value {
        while self.piece().is_some() {}
        serde_json::from_str(&self.text).unwrap()
    }
}

fn connect(host: &Host<'_>) -> TcpStream {
    let stream = TcpStream::connect(host.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn request(host: &Host<'_>, path: &str, accept: &str, body: &Value) -> Vec<u8> {
    let token = fs::read_to_string(host.place.path("token")).unwrap();
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nAccept: {accept}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        token.trim(),
        body.len()
    )
    .into_bytes()
}

fn stream(host: &Host<'_>, input: &str, key: &str) -> Answer {
    Answer::to(host, "/v1/runs", "text/event-stream", &body(input, key)).unwrap()
}

/// The whole stream of a request that starts no run.
fn told(host: &Host<'_>, input: &str, key: &str) -> Vec<Value> {
    let answer = stream(host, input, key);
    assert_eq!(answer.status, 200);
    answer.rest()
}

fn approve(host: &Host<'_>, requested: &Value) -> u16 {
    let approval = &requested["approval"];
    let decision = json!({
        "approvalId": approval["approvalId"], "runId": approval["runId"], "call": approval["call"],
        "decision": "approve",
    });
    Answer::to(host, "/v1/approvals/decisions", "application/json", &decision).unwrap().status
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// Numbers without a gap, one run, nothing that prompts; and how it ended.
fn check_replay(events: &[Value]) -> &Value {
    for (event, sequence) in events.iter().zip(1..) {
        assert_eq!((&event["sequence"], &event["runId"]), (&json!(sequence), &events[0]["runId"]));
        let kind = event["type"].as_str().unwrap();
        assert!(!kind.starts_with("approval.") && kind != "tool.execution.requested", "{kind}");
    }
    assert_eq!(events[0]["type"], "run.started");
    events.last().unwrap()
}

/// That the key is told to be uncertain, as a stream and buffered, and that this changes nothing.
fn is_uncertain(host: &Host<'_>, input: &str, key: &str, seen: &[&str]) {
    let before = effects(host.place);
    for _ in 0..2 {
        let events = told(host, input, key);
        let last = check_replay(&events);
        assert_eq!(
            (&last["type"], &last["error"]["code"], &last["error"]["outcome"], &last["error"]["retryable"]),
            (&json!("run.failed"), &json!("OPERATION_UNCERTAIN"), &json!("uncertain"), &json!(false)),
        );
        assert_eq!(types(&events[..events.len() - 1]), seen);
    }
    if !input.starts_with("asks") {
        let answer = Answer::to(host, "/v1/runs", "application/json", &body(input, key)).unwrap();
        assert_eq!(answer.status, 409);
        assert_eq!(answer.json()["error"]["code"], "OPERATION_UNCERTAIN");
    }
    assert_eq!(effects(host.place), before);
}

// State: before the claim. Nothing is known of the key, so it runs, for the first time.
#[test]
fn killed_before_the_claim() {
    let place = place();
    fs::write(place.path("go"), "").unwrap();
    let host = Host::start(&place);
    let half = request(&host, "/v1/runs", "text/event-stream", &body("acts", "k"));
    let mut connection = connect(&host);
    connection.write_all(&half[..half.len() - 10]).unwrap();
    host.kill();
    let host = Host::start(&place);
    let first = told(&host, "acts", "k");
    assert_eq!((check_replay(&first)["type"].as_str(), effects(&place)), (Some("run.completed"), 1));
    assert_eq!(told(&host, "acts", "k"), first);
    assert_eq!(effects(&place), 1);
}

#[test]
fn killed_while_the_model_runs() {
    let place = place();
    let host = Host::start(&place);
    stream(&host, "thinks", "k").until("step.started");
    host.kill();
    let host = Host::start(&place);
    is_uncertain(&host, "thinks", "k", &["run.started", "step.started"]);
    assert!(place.log().contains("were interrupted"), "{}", place.log());
}

#[test]
fn killed_while_a_person_is_asked() {
    let place = place();
    let host = Host::start(&place);
    let question = stream(&host, "asks 0", "k").until("approval.requested");
    host.kill();
    let host = Host::start(&place);
    assert_eq!(approve(&host, &question), 404);
    is_uncertain(&host, "asks 0", "k", &["run.started", "step.started", "tool.called"]);
    assert_eq!((approve(&host, &question), effects(&place)), (404, 0));
}

#[test]
fn killed_while_a_tool_runs() {
    let place = place();
    let host = Host::start(&place);
    let mut run = stream(&host, "acts", "k");
    run.until("tool.called");
    until("the effect", || (effects(&place) == 1).then_some(()));
    host.kill();
    let host = Host::start(&place);
    is_uncertain(&host, "acts", "k", &["run.started", "step.started", "tool.called"]);
    fs::write(place.path("go"), "").unwrap();
    is_uncertain(&host, "acts", "k", &["run.started", "step.started", "tool.called"]);
    assert_eq!(effects(&place), 1);
}

#[test]
fn killed_after_a_tool_and_before_the_end() {
    let place = place();
    fs::write(place.path("go"), "").unwrap();
    let host = Host::start(&place);
    stream(&host, "acts and thinks", "k").until("tool.completed");
    host.kill();
    let host = Host::start(&place);
    let events = told(&host, "acts and thinks", "k");
    assert_eq!(check_replay(&events)["error"]["code"], "OPERATION_UNCERTAIN");
    assert_eq!(types(&events)[..4], ["run.started", "step.started", "tool.called", "tool.completed"]);
    assert_eq!(effects(&place), 1);
}

#[test]
fn killed_after_the_end() {
    let place = place();
    fs::write(place.path("go"), "").unwrap();
    let host = Host::start(&place);
    let mut run = stream(&host, "asks 0", "k");
    let question = run.until("approval.requested");
    assert_eq!(approve(&host, &question), 200);
    let end = run.until("run.completed");
    host.kill();
    let host = Host::start(&place);
    for _ in 0..2 {
        let events = told(&host, "asks 0", "k");
        assert_eq!(check_replay(&events)["result"], end["result"]);
        assert_eq!(
            types(&events),
            [
                "run.started",
                "step.started",
                "tool.called",
                "tool.completed",
                "step.started",
                "text.delta",
                "run.completed"
            ]
        );
    }
    assert_eq!((approve(&host, &question), effects(&place)), (404, 1));
    // Another request under this key is a conflict still.
    let answer = stream(&host, "says", "k");
    assert_eq!(answer.status, 409);
    assert_eq!(answer.json()["error"]["code"], "IDEMPOTENCY_CONFLICT");
}

// Every point between two events, each with a key of its own: the host dies as soon as the event was read.
#[test]
fn killed_after_each_event() {
    let place = place();
    fs::write(place.path("go"), "").unwrap();
    let mut ends = BTreeSet::new();
    for count in 0.. {
        let (input, key) = (format!("asks {count}"), format!("k{count}"));
        let host = Host::start(&place);
        let mut run = stream(&host, &input, &key);
        let mut seen: Vec<Value> = Vec::new();
        while seen.len() < count {
            let Some(event) = run.event() else { break };
            if event["type"] == "approval.requested" {
                assert_eq!(approve(&host, &event), 200);
            }
            seen.push(event);
        }
        let finished = seen.len() < count;
        host.kill();
        let host = Host::start(&place);
        let answer = stream(&host, &input, &key);
        assert_eq!(answer.status, 200, "after {count}");
        let mut again = answer.rest_unless_asked();
        let line = format!(r#"{{"n":{count}}}"#);
        let text = fs::read_to_string(place.path("effects")).unwrap_or_default();
        // The command may outlive its host for a moment, so that none is right too.
        assert!(text.lines().filter(|found| **found == line).count() <= 1, "after {count}: it ran twice");
        let last = check_replay(&again)["type"].as_str().unwrap().to_owned();
        ends.insert(last.clone());
        assert_eq!(again[0]["runId"], seen.first().unwrap_or(&again[0])["runId"]);
        if seen.iter().any(|event| event["type"] == "run.completed") {
            assert_eq!(last, "run.completed", "what was told as done stays done");
        }
        // Everything that was told, but text that was under way, is told again.
        again.pop();
        let known = |event: &Value| {
            let kind = event["type"].as_str().unwrap();
            kind.starts_with("approval.")
                || kind == "text.delta"
                || kind == "run.completed"
                || again.iter().any(|told| told["type"] == kind && told["timestamp"] == event["timestamp"])
        };
        assert!(seen.iter().all(known), "after {count}: {seen:?} and then {again:?}");
        if finished {
            break;
        }
    }
    assert_eq!(ends, BTreeSet::from(["run.completed".to_owned(), "run.failed".to_owned()]));
}

impl Answer {
    /// As [`Answer::rest`]; a run that asks a person would never end.
    fn rest_unless_asked(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.event() {
            assert_ne!(event["type"], "approval.requested", "a key that was claimed never asks again");
            events.push(event);
        }
        events
    }
}

// Contract 6.1, 9: the folder is made private; one that is not is refused, and so is a file that is damaged.
#[test]
fn the_folder_is_private_and_whole() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    let check = || finish(&mut countersign(&["serve", "--check", "--config", &place.arg("host.json")]));
    let serve = || finish(&mut countersign(&["serve", "--config", &place.arg("host.json")]));
    assert_eq!(check().status, Some(0), "{}", check().err);
    assert!(!place.path("operations").exists(), "a check changes nothing");
    Host::start(&place).stop();
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("operations"), mode("operations/operations.db")), (0o700, 0o600));

    fs::set_permissions(place.path("operations"), fs::Permissions::from_mode(0o750)).unwrap();
    for ended in [check(), serve()] {
        assert_eq!(ended.status, Some(2), "{}", ended.err);
        assert!(
            ended.err.contains("INVALID_CONFIG: operations.directory: others may use the folder"),
            "{}",
            ended.err
        );
        assert!(ended.err.contains("(mode 750); chmod 700 it"), "{}", ended.err);
    }
    fs::set_permissions(place.path("operations"), fs::Permissions::from_mode(0o700)).unwrap();

    let host = Host::start(&place);
    // With no audit file, as that is locked too.
    let mut second: Value = serde_json::from_slice(&fs::read(place.path("host.json")).unwrap()).unwrap();
    second.as_object_mut().unwrap().remove("audit");
    fs::write(place.path("second.json"), second.to_string()).unwrap();
    let second = finish(&mut countersign(&["serve", "--config", &place.arg("second.json")]));
    assert_eq!(second.status, Some(2));
    assert!(second.err.contains("OPERATION_STORE_ERROR: operations.directory: "), "{}", second.err);
    assert!(second.err.contains("is in use: one writer a file"), "{}", second.err);
    host.stop();

    fs::write(place.path("operations/operations.db"), "x".repeat(5_000)).unwrap();
    let damaged = serve();
    assert_eq!(damaged.status, Some(2));
    assert!(damaged.err.contains("is not a database of operations"), "{}", damaged.err);
}
