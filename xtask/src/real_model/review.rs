//! The reviewed call with a real model: `countersign serve` before it, `countersign run` as the person.
//!
//! Laws 1, 2 and 5, end to end. The model's text is random, so a run may propose twice, or be cut at its length; then
//! another is started. What must hold holds for each of them: as many effects as approvals, with exactly the reviewed
//! arguments, and an audit trail that says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::child::Program;
use super::probe;
use super::server::{MODEL, Place, Server, write_secret};
use crate::outside::outside;

const TOOL: &str = "save_proposal";
const TASK: &str = "Propose a brand direction for a sustainable homeware studio";
/// Without tools the model goes on for some hundred tokens: time to interrupt it.
const STORY: &str = "Tell me a long story about a studio that makes bowls from old glass, day by day.";
/// The adapters that the model's server understands, by id and kind. One asks for whole answers.
///
/// Of the Responses API it speaks a form without the places of items, which the adapter for it refuses.
pub(crate) const PROVIDERS: [(&str, &str); 3] =
    [("streamed", "openai-compatible"), (BUFFERED, "openai-compatible"), ("messages", "anthropic")];
const BUFFERED: &str = "buffered";
/// Runs of one kind until the model has said something of use.
const ATTEMPTS: usize = 4;
const RUN_LIMIT: Duration = Duration::from_secs(180);
/// A request that nobody waits for leaves its slot at the next token.
const FREE_LIMIT: Duration = Duration::from_secs(5);

/// The tool: appends its input to the file beside it.
const SAVE: &str = r#"
import os, sys
line = sys.stdin.readline()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "saved.jsonl"), "a") as file:
    file.write(line.rstrip("\n") + "\n")
print('{"saved": true}')
"#;

pub(crate) fn run(sh: &Shell, place: &Place, model: &Server) -> Result<()> {
    model_proposes(model)?;
    println!("the model itself: proposes a call of the right shape");
    outside(cmd!(sh, "cargo build --quiet --locked -p countersign")).run()?;
    let mut bench = Bench::new(sh, place, model)?;
    probe::tells_them_apart(&bench.binary, &bench.folder, model)?;
    for (provider, _) in PROVIDERS {
        bench.provider = provider;
        bench.review(
            "approve",
            Expect { status: 0, last: "run.completed", code: None, outcome: "approved" },
        )?;
        bench.review(
            "deny",
            Expect { status: 3, last: "run.failed", code: Some("APPROVAL_DENIED"), outcome: "denied" },
        )?;
        bench.review(
            "cancel",
            Expect { status: 4, last: "run.cancelled", code: Some("CANCELLED"), outcome: "cancelled" },
        )?;
        bench.slots_get_free()?;
        bench.interrupt(place)?;
    }
    bench.provider = PROVIDERS[0].0;
    bench.told_of_a_denial()?;
    bench.finish()
}

/// The model alone gives what the rest of the test needs.
fn model_proposes(model: &Server) -> Result<()> {
    let request = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": TASK}],
        "tools": [{"type": "function", "function": {
            "name": TOOL, "description": "Save a brand proposal so that a person can review it.", "parameters": schema()
        }}],
        "tool_choice": "required",
        "seed": 7,
        "max_tokens": 600,
    });
    let answer = model.complete(&request)?;
    let function = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    ensure!(function["name"] == TOOL, "the model called {}", function["name"]);
    let arguments = function["arguments"].as_str().context("arguments are not text")?;
    proposal(&serde_json::from_str(arguments)?)
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 4, "maxLength": 60},
            "body": {"type": "string", "minLength": 60, "maxLength": 240}
        },
        "required": ["title", "body"],
        "additionalProperties": false
    })
}

/// The shape that [`schema`] asks for, checked without a schema library.
fn proposal(arguments: &Value) -> Result<()> {
    let length = |name: &str| arguments[name].as_str().map_or(0, |text| text.chars().count());
    let members = arguments.as_object().map_or(0, |members| members.len());
    ensure!(
        members == 2 && (4..=60).contains(&length("title")) && (60..=240).contains(&length("body")),
        "not a proposal: {arguments}"
    );
    Ok(())
}

/// What a decision leads to.
#[derive(Clone, Copy)]
struct Expect {
    status: i32,
    last: &'static str,
    code: Option<&'static str>,
    outcome: &'static str,
}

/// Why a denial that is told was made.
const REASON: &str = "The title is not good enough. Answer in words.";
/// Model steps of a run: of each that a model takes, the host has asked it.
const MAX_STEPS: usize = 6;

/// What one `countersign run --json` printed.
struct Run {
    status: i32,
    events: Vec<Value>,
}

impl Run {
    fn of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    fn last(&self) -> &Value {
        self.events.last().unwrap_or(&Value::Null)
    }

    /// Whether a step came after the first end of a review.
    fn answered_on(&self) -> bool {
        let place = |kind: &str| self.events.iter().position(|event| event["type"] == kind);
        let last_step = self.events.iter().rposition(|event| event["type"] == "step.started");
        place("approval.resolved").is_some_and(|resolved| last_step.is_some_and(|step| step > resolved))
    }

    /// The shapes of every run (contract 3.1), and of every proposal in it.
    fn check(&self, outcome: &str) -> Result<()> {
        for (at, event) in self.events.iter().enumerate() {
            ensure!(event["sequence"] == at + 1, "event {at} has the sequence {}", event["sequence"]);
            ensure!(event["runId"] == self.events[0]["runId"], "event {at} is of another run");
        }
        ensure!(self.events.first().is_some_and(|event| event["type"] == "run.started"), "no run.started");
        for event in self.of("approval.requested") {
            let call = &event["approval"]["call"];
            ensure!(call["name"] == TOOL, "a review of {}", call["name"]);
            proposal(&call["arguments"])?;
        }
        for event in self.of("approval.resolved") {
            ensure!(
                event["resolution"]["outcome"] == outcome,
                "resolved as {}",
                event["resolution"]["outcome"]
            );
        }
        ensure!(
            self.of("approval.requested").len() == self.of("approval.resolved").len(),
            "a review was not settled"
        );
        Ok(())
    }
}

/// A host before the model, a work folder, and what the runs so far must have left in it.
struct Bench<'a> {
    model: &'a Server,
    binary: PathBuf,
    folder: PathBuf,
    host: Program,
    url: String,
    /// The one of [`PROVIDERS`] that is asked.
    provider: &'static str,
    reviews: usize,
    outcomes: Vec<&'static str>,
    /// How many of the denials gave [`REASON`].
    reasons: usize,
    /// The arguments of each approved call, in order.
    approved: Vec<Value>,
}

impl<'a> Bench<'a> {
    fn new(sh: &Shell, place: &Place, model: &'a Server) -> Result<Self> {
        let folder = place.work.join("test");
        sh.remove_path(&folder)?;
        sh.create_dir(&folder)?;
        write_secret(&folder.join("key"), &model.key)?;
        write_secret(&folder.join("token"), "a-token-of-the-real-model-test-0123456789")?;
        fs::write(folder.join("save.py"), SAVE)?;
        let config = config(&folder, &model.base_url());
        fs::write(folder.join("host.json"), serde_json::to_string_pretty(&config)?)?;

        let binary = place.target.join("debug").join(format!("countersign{}", std::env::consts::EXE_SUFFIX));
        let mut command = Command::new(&binary);
        command.arg("serve").arg("--config").arg(folder.join("host.json"));
        let log = folder.join("serve.log");
        let mut host = Program::start(command, &log, RUN_LIMIT * 10)?;
        let url = loop {
            match host.line()? {
                Some(line) => {
                    if let Some(url) = line.strip_prefix("listening on ") {
                        break url.trim().to_owned();
                    }
                }
                None => bail!("`countersign serve` ended:\n{}", fs::read_to_string(log)?),
            }
        };
        let (provider, _) = PROVIDERS[0];
        Ok(Self {
            model,
            binary,
            folder,
            host,
            url,
            provider,
            reviews: 0,
            outcomes: Vec::new(),
            reasons: 0,
            approved: Vec::new(),
        })
    }

    /// Runs the task until the model has brought `decision` to its expected end; checks every run on the way.
    fn review(&mut self, decision: &str, expect: Expect) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            let run = self.task(decision)?;
            run.check(expect.outcome).with_context(|| format!("{decision}, attempt {attempt}"))?;
            self.account(&run, expect.outcome)?;
            let reviews = run.of("approval.requested").len();
            if run.status == expect.status && reviews > 0 {
                let last = run.last();
                ensure!(last["type"] == expect.last, "{decision}: the last event is {last}");
                if let Some(code) = expect.code {
                    ensure!(last["error"]["code"] == code, "{decision}: the run ended with {last}");
                }
                let (provider, status) = (self.provider, run.status);
                println!("{provider} {decision}: exit {status}, {reviews} reviews, attempt {attempt}");
                return Ok(());
            }
            // Only the model may be the reason for another attempt: it said nothing of use, or was cut.
            let model_failed =
                reviews == 0 || (expect.outcome == "approved" && run.last()["type"] == "run.failed");
            ensure!(model_failed, "{decision}: exit {} after {}", run.status, run.last());
            let (provider, status) = (self.provider, run.status);
            println!("{provider} {decision}: exit {status} after {} (attempt {attempt})", run.last());
        }
        bail!("{decision}: the model gave nothing of use in {ATTEMPTS} attempts")
    }

    /// Design 4, denial-feedback, streamed: a denial is told to the model with its reason, and the model answers on.
    fn told_of_a_denial(&mut self) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            let run =
                self.run("deny", &["--on-deny", "continue", "--reason", REASON, "--tools", TOOL, TASK])?;
            run.check("denied").with_context(|| format!("denial-feedback, attempt {attempt}"))?;
            self.account(&run, "denied")?;
            let reviews = run.of("approval.requested").len();
            let steps = run.of("step.started").len();
            self.reasons += reviews;
            // Whatever the model says, no denial has ended the run, and its step limit holds.
            ensure!(
                run.last()["error"]["code"] != "APPROVAL_DENIED",
                "a denial ended the run: {}",
                run.last()
            );
            ensure!(steps <= MAX_STEPS, "{steps} steps");
            if reviews > 0 {
                ensure!(run.answered_on(), "the model was not asked again: {}", run.last());
            }
            let (status, last) = (run.status, &run.last()["type"]);
            if reviews > 0 && status == 0 && last == "run.completed" {
                println!("denial-feedback: {reviews} reviews, {steps} steps, exit 0, attempt {attempt}");
                return Ok(());
            }
            println!("denial-feedback: exit {status} after {} (attempt {attempt})", run.last());
        }
        bail!("denial-feedback: the model gave nothing of use in {ATTEMPTS} attempts")
    }

    /// Law 1: exactly the approved calls have had their effect, in order, with exactly the reviewed arguments.
    fn account(&mut self, run: &Run, outcome: &'static str) -> Result<()> {
        let requested = run.of("approval.requested");
        self.reviews += requested.len();
        self.outcomes.extend(requested.iter().map(|_| outcome));
        if outcome == "approved" {
            self.approved
                .extend(requested.iter().map(|event| event["approval"]["call"]["arguments"].clone()));
            ensure!(run.of("tool.completed").len() == requested.len(), "an approved call was not completed");
        } else {
            ensure!(run.of("tool.completed").is_empty(), "a call was completed without approval");
        }
        let saved = json_lines(&self.folder.join("saved.jsonl"))?;
        ensure!(saved == self.approved, "effects {saved:?} are not the approved calls {:?}", self.approved);
        Ok(())
    }

    /// Law 5: Ctrl-C in the middle of the model's answer ends the run, and the model stops working on it.
    fn interrupt(&mut self, place: &Place) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            let before = cancelled_tasks(place)?;
            let mut command = self.command("cancel");
            command.arg(STORY);
            let mut program = Program::start(command, &self.folder.join("run.log"), RUN_LIMIT)?;
            let mut events = Vec::new();
            // Its first words say that it is at work; without a stream only the server can.
            let at_work = if self.provider == BUFFERED { "step.started" } else { "text.delta" };
            while let Some(line) = program.line()? {
                events.push(event(&line)?);
                if events.last().is_some_and(|event| event["type"] == at_work) {
                    break;
                }
            }
            self.a_slot_is_taken()?;
            program.interrupt()?;
            while let Some(line) = program.line()? {
                events.push(event(&line)?);
            }
            let status = program.status()?;
            if status == 0 {
                println!("{} interrupt: the model was faster (attempt {attempt})", self.provider);
                continue;
            }
            ensure!(status == 4, "an interrupted run ended with {status}: {:?}", events.last());
            let waited = self.slots_get_free()?;
            ensure!(cancelled_tasks(place)? > before, "the model was not told to stop");
            println!("{} interrupt: exit 4, and the model's slot was free {waited:?} later", self.provider);
            return Ok(());
        }
        bail!("no run could be interrupted in {ATTEMPTS} attempts")
    }

    /// Waits until the model works for the run, or is done with it already.
    fn a_slot_is_taken(&self) -> Result<()> {
        let deadline = Instant::now() + FREE_LIMIT;
        while self.model.busy_slots()? == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until the model works for nobody, and says how long that took.
    fn slots_get_free(&self) -> Result<Duration> {
        // Without a stream the server looks once a second whether somebody still waits, and each question about its slots
        // lets that second begin anew.
        let pause = Duration::from_millis(if self.provider == BUFFERED { 1_500 } else { 10 });
        let start = Instant::now();
        while self.model.busy_slots()? > 0 {
            ensure!(start.elapsed() < FREE_LIMIT, "the model still works for a run that has ended");
            std::thread::sleep(pause);
        }
        Ok(start.elapsed())
    }

    /// Stops the host, then reads the audit trail (law 2).
    fn finish(self) -> Result<()> {
        self.host.terminate()?;
        let status = self.host.status()?;
        ensure!(status == 0, "`countersign serve` ended with {status}");
        let audit = self.folder.join("audit.jsonl");
        let records = json_lines(&audit)?;
        check_audit(&records, &self.outcomes, &self.approved)?;
        let reasons = records.iter().filter(|line| line["record"]["reason"] == REASON).count();
        ensure!(reasons == self.reasons, "{} denials with a reason, {reasons} in the trail", self.reasons);
        ensure!(verify(&self.binary, &audit)? == 0, "`audit verify` refuses the trail");

        // The check can fail: another tool's name in the first review breaks the chain.
        let forged = self.folder.join("forged.jsonl");
        fs::write(&forged, fs::read_to_string(&audit)?.replacen(TOOL, "save_anything", 1))?;
        ensure!(verify(&self.binary, &forged)? == 1, "`audit verify` takes a forged trail");
        println!(
            "audit: {} records, {} effects, verified; a forged copy is refused",
            records.len(),
            self.approved.len()
        );
        Ok(())
    }

    fn task(&self, decision: &str) -> Result<Run> {
        self.run(decision, &["--tools", TOOL, TASK])
    }

    fn run(&self, decision: &str, arguments: &[&str]) -> Result<Run> {
        let mut command = self.command(decision);
        command.args(arguments);
        let mut program = Program::start(command, &self.folder.join("run.log"), RUN_LIMIT)?;
        let mut events = Vec::new();
        while let Some(line) = program.line()? {
            events.push(event(&line)?);
        }
        // The last line of a failed run repeats its error and is no event.
        events.retain(|event| !event["type"].is_null());
        Ok(Run { status: program.status()?, events })
    }

    fn command(&self, decision: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["run", "--json", "--url", &self.url, "--provider", self.provider, "--model", MODEL]);
        command.arg("--token-file").arg(self.folder.join("token")).args(["--decide", decision]);
        command
    }
}

/// An entry of the configuration.
pub(crate) fn provider(id: &str, kind: &str, base_url: &str, key: &str) -> Value {
    json!({"id": id, "kind": kind, "models": [MODEL], "baseUrl": base_url, "apiKeyRef": {"file": key}})
}

fn config(folder: &Path, base_url: &str) -> Value {
    json!({
        "version": 1,
        "listen": {"host": "127.0.0.1", "port": 0},
        "providers": PROVIDERS.map(|(id, kind)| {
            let mut provider = provider(id, kind, base_url, "key");
            if id == BUFFERED {
                provider["streaming"] = json!(false);
            }
            provider
        }),
        "tokens": [{
            "id": "person", "subject": "person", "tokenRef": {"file": "token"},
            "providers": PROVIDERS.map(|(id, _)| id), "tools": [TOOL], "approveTools": [TOOL]
        }],
        "approvals": {"interactive": true, "allowIdlePause": true, "features": ["denial-feedback"]},
        "limits": {"maxSteps": MAX_STEPS, "maxOutputTokens": 600},
        "tools": [{
            "name": TOOL,
            "description": "Save a brand proposal so that a person can review it.",
            "inputSchema": schema(),
            "requiresApproval": true,
            "command": ["python3", folder.join("save.py")]
        }],
        "audit": {"file": folder.join("audit.jsonl")}
    })
}

/// Each review was requested and resolved as decided, and each effect has its beginning and its end in the trail, in
/// that order.
fn check_audit(records: &[Value], outcomes: &[&str], approved: &[Value]) -> Result<()> {
    let of = |kind: &str| -> Vec<&Value> {
        records.iter().map(|line| &line["record"]).filter(|record| record["type"] == kind).collect()
    };
    let requested = of("approval.requested");
    ensure!(
        requested.len() == outcomes.len(),
        "{} reviews, {} in the trail",
        outcomes.len(),
        requested.len()
    );
    let resolved: Vec<&str> = of("approval.resolved")
        .iter()
        .map(|record| record["resolution"]["outcome"].as_str().unwrap_or("?"))
        .collect();
    ensure!(resolved == outcomes, "resolved as {resolved:?}, decided {outcomes:?}");
    let reviewed: Vec<&Value> = of("approval.resolved")
        .into_iter()
        .filter(|record| record["resolution"]["outcome"] == "approved")
        .map(|record| &record["approval"]["call"]["arguments"])
        .collect();
    ensure!(reviewed.iter().copied().eq(approved), "the trail holds other arguments");
    for kind in ["execution.started", "execution.finished"] {
        ensure!(
            of(kind).len() == approved.len(),
            "{} times {kind}, {} effects",
            of(kind).len(),
            approved.len()
        );
    }
    Ok(())
}

fn verify(binary: &Path, file: &Path) -> Result<i32> {
    let output = Command::new(binary).args(["audit", "verify"]).arg(file).output()?;
    output.status.code().context("`audit verify` was killed")
}

/// How often the server says that a request was given up.
fn cancelled_tasks(place: &Place) -> Result<usize> {
    Ok(String::from_utf8_lossy(&fs::read(place.log_file())?).matches("cancel task").count())
}

fn event(line: &str) -> Result<Value> {
    serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))
}

fn json_lines(path: &Path) -> Result<Vec<Value>> {
    match fs::read_to_string(path) {
        Ok(text) => text.lines().map(event).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Value {
        json!({"title": "Glass", "body": "b".repeat(60)})
    }

    fn review(outcome: &str) -> Vec<Value> {
        let approval = json!({"call": {"id": "c", "name": TOOL, "arguments": arguments()}});
        vec![
            json!({"type": "run.started", "runId": "r", "sequence": 1}),
            json!({"type": "approval.requested", "runId": "r", "sequence": 2, "approval": approval}),
            json!({"type": "approval.resolved", "runId": "r", "sequence": 3, "resolution": {"outcome": outcome}}),
        ]
    }

    #[test]
    fn a_run_of_another_shape_is_refused() {
        let check = |change: fn(&mut Vec<Value>)| {
            let mut events = review("denied");
            change(&mut events);
            Run { status: 3, events }.check("denied")
        };
        check(|_| {}).unwrap();
        let wrong: [fn(&mut Vec<Value>); 7] = [
            |events| events[2]["sequence"] = json!(4),
            |events| events[2]["runId"] = json!("other"),
            |events| events[0]["type"] = json!("step.started"),
            |events| events[1]["approval"]["call"]["name"] = json!("other"),
            |events| events[1]["approval"]["call"]["arguments"]["title"] = json!("abc"),
            |events| events[2]["resolution"]["outcome"] = json!("approved"),
            |events| drop(events.pop()),
        ];
        for (at, change) in wrong.into_iter().enumerate() {
            assert!(check(change).is_err(), "change {at}");
        }
    }

    #[test]
    fn a_run_that_stops_at_its_denial_has_not_answered_on() {
        let mut events = review("denied");
        events.insert(1, json!({"type": "step.started"}));
        assert!(!Run { status: 3, events: events.clone() }.answered_on());
        events.push(json!({"type": "step.started"}));
        assert!(Run { status: 0, events }.answered_on());
    }

    #[test]
    fn a_trail_that_says_otherwise_is_refused() {
        let approval = json!({"call": {"arguments": arguments()}});
        let trail: Vec<Value> = [
            json!({"type": "approval.requested", "approval": approval}),
            json!({"type": "approval.resolved", "approval": approval, "resolution": {"outcome": "approved"}}),
            json!({"type": "execution.started"}),
            json!({"type": "execution.finished"}),
        ]
        .map(|record| json!({"record": record}))
        .into();
        check_audit(&trail, &["approved"], &[arguments()]).unwrap();
        for missing in 0..trail.len() {
            let mut trail = trail.clone();
            trail.remove(missing);
            assert!(check_audit(&trail, &["approved"], &[arguments()]).is_err(), "without {missing}");
        }
        assert!(check_audit(&trail, &["denied"], &[]).is_err());
        assert!(check_audit(&trail, &["approved"], &[json!({})]).is_err());
    }
}
