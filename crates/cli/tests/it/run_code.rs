//! Programs in the sandbox, their functions commands (design 7).

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Ended, Terminal, countersign, finish, signal, until, wait};

const PROMPT: &str = "[c] cancel the run > ";
const WHY: &str = "Enter for no reason > ";

/// A folder with a program and its functions file.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(program: &str, functions: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("program.ts"), program).unwrap();
        fs::write(folder.path().join("functions.json"), json!({"functions": functions}).to_string()).unwrap();
        Self { folder }
    }

    /// A program of which `del` is marked and writes down what it is given.
    fn deleting(program: &str) -> Self {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        Self::new(
            program,
            json!({
                "del": {"approval": true, "inputSchema": schema, "command": sh("cat >> deleted; echo true")},
                "list": {"command": sh(r#"echo '["a","b","c"]'"#)},
            }),
        )
    }

    fn command(&self, approval: &str, more: &[&str]) -> Command {
        let mut command = countersign(&["run-code", "program.ts", "--functions", "functions.json"]);
        command.current_dir(self.folder.path()).args(["--approval", approval]).args(more);
        command
    }

    fn run(&self, approval: &str) -> (Ended, Value) {
        let ended = finish(&mut self.command(approval, &[]));
        assert_eq!(ended.out.lines().count(), 1, "{ended:?}");
        let object = serde_json::from_str(&ended.out).unwrap();
        (ended, object)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

fn sh(script: &str) -> Value {
    json!(["/bin/sh", "-c", script])
}

/// The states of the report.
fn states(object: &Value) -> Vec<&str> {
    object["report"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect()
}

#[test]
fn a_program_that_completes_is_one_object() {
    let bench = Bench::new(
        "const sum: number = await add([1, 2.50]);\nconsole.log('sum', sum);\nconsole.error('\u{1b}[2J');\nreturn { sum, nothing: await none() }",
        json!({
            "add": {"description": "Adds.", "command": sh("cat > input; echo ' 3.50 '")},
            "none": {"command": ["true"]},
        }),
    );
    let (ended, object) = bench.run("deny");
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""));
    assert_eq!(object["status"], "completed");
    assert_eq!(object["value"], json!({"sum": 3.5, "nothing": null}));
    assert_eq!(
        object["console"],
        json!([{"level": "log", "text": "sum 3.5"}, {"level": "error", "text": "\u{1b}[2J"}])
    );
    let run = object["runId"].as_str().unwrap();
    assert_eq!(
        object["report"],
        json!([
            {"callId": format!("{run}-1"), "seq": 1, "fn": "add", "input": [1, 2.5], "state": "executed", "line": 1, "column": 27},
            {"callId": format!("{run}-2"), "seq": 2, "fn": "none", "input": {}, "state": "executed", "line": 4, "column": 30},
        ])
    );
    // One line of JSON, and no byte that a terminal would obey.
    assert_eq!(bench.text("input"), "[1,2.5]\n");
    assert!(!ended.out.trim_end().contains(|c: char| c.is_control()), "{}", ended.out);
}

// Law 1, in mode deny: nothing marked runs, and the program may go on.
#[test]
fn deny_runs_nothing_that_is_marked() {
    let bench = Bench::deleting(
        "const kept = [];\nfor (const path of await list()) try { await del({ path }) } catch (e) { kept.push(e.reason) }\nreturn kept",
    );
    let (ended, object) = bench.run("deny");
    assert_eq!((ended.status, &object["value"]), (Some(0), &json!(["denied", "denied", "denied"])));
    assert_eq!(states(&object), ["executed", "rejected", "rejected", "rejected"]);
    assert_eq!(bench.text("deleted"), "");
}

// Design 7: the kind of each ending, with its place in the source.
#[test]
fn a_failure_says_why_and_where() {
    let functions = || {
        json!({
            "del": {"approval": true, "command": ["true"]},
            "get": {"command": ["true"], "inputSchema": {"properties": {"n": {"maximum": 3}}, "required": ["n"]}},
            "bad": {"command": sh("echo one >&2; echo 'two: it is locked' >&2; echo >&2; exit 3")},
            "silent": {"command": sh("exit 4")},
            "large": {"command": sh("head -c 1000001 /dev/zero | tr '\\0' 1")},
            "crooked": {"command": sh("echo '{'")},
            "late": {"command": sh("sleep 60"), "timeoutMs": 200},
        })
    };
    for (program, kind, at, told) in [
        ("let x = ;", "Syntax", (1, 9), "Unexpected token"),
        ("await null\ndelet({})", "UnknownFunction", (2, 1), "did you mean del?"),
        ("\n  await del({})", "ApprovalRejected", (2, 9), "was not approved"),
        ("throw new TypeError('no')", "Thrown", (1, 11), "TypeError: no"),
        ("await bad()", "Thrown", (1, 7), "two: it is locked"),
        ("await silent()", "Thrown", (1, 7), "the command ended with exit status 4"),
        ("await large()", "Thrown", (1, 7), "more than 1000000 bytes"),
        ("await late()", "Thrown", (1, 7), "took longer than 200ms"),
        ("await get({ n: 7 })", "Thrown", (1, 7), "at /n: expected at most 3, got the number 7"),
        (
            "await get({ m: 1 })",
            "Thrown",
            (1, 7),
            r#"expected the member "n", got an object with the member "m""#,
        ),
        ("await crooked()", "ResultRefused", (1, 7), "the result of crooked was refused, its effect is real"),
    ] {
        let (ended, object) = Bench::new(program, functions()).run("deny");
        let error = &object["error"];
        assert_eq!((ended.status, &object["status"]), (Some(1), &json!("failed")), "{program}");
        assert_eq!(error["kind"], kind, "{program}: {error}");
        assert_eq!((&error["line"], &error["column"]), (&json!(at.0), &json!(at.1)), "{program}: {error}");
        assert!(error["message"].as_str().unwrap().contains(told), "{program}: {error}");
    }
    let (_, object) = Bench::new("await del({ path: '/a' })", functions()).run("deny");
    let error = &object["error"];
    assert_eq!((&error["fn"], &error["seq"], &error["reason"]), (&json!("del"), &json!(1), &json!("denied")));
    // Commands that we ended: whether they had their effect nobody knows, also where the program goes on (law 8).
    for program in ["await large()", "await late()", "await late().catch(() => null)"] {
        let (_, object) = Bench::new(program, functions()).run("deny");
        assert_eq!(states(&object), ["uncertain"], "{program}");
    }
    let (_, object) = Bench::new("while (true) {}", functions()).run("deny");
    assert_eq!(
        (&object["error"]["kind"], &object["error"]["limit"]),
        (&json!("LimitExceeded"), &json!("compute"))
    );
}

// Everything that can be known before the first effect is said before it (law 7).
#[test]
fn what_cannot_work_is_refused_before_anything_runs() {
    let good = json!({"get": {"command": sh("echo > ran")}});
    for (approval, told) in [
        ("pause", "there is no terminal to ask a person at"),
        ("collect", "collect is not built yet"),
        ("ask", "invalid value 'ask'"),
    ] {
        let bench = Bench::new("await get()", good.clone());
        let ended = finish(&mut bench.command(approval, &[]));
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{approval}");
        assert!(ended.err.contains(told), "{}", ended.err);
        assert_eq!(bench.text("ran"), "");
    }
    for (functions, told) in [
        (json!({"get": {}}), "functions.get.command: required"),
        (json!({"get": {"command": []}}), "functions.get.command: expected a program"),
        (json!({"get": {"command": ["no-such-program"]}}), "there is no program"),
        (json!({"get": {"command": ["true"], "aproval": true}}), "functions.get.aproval: unknown member"),
        (
            json!({"get": {"command": ["true"], "approval": "yes"}}),
            "functions.get.approval: expected true or false",
        ),
        (
            json!({"get": {"command": ["true"], "inputSchema": {"type": "strin"}}}),
            "functions.get.inputSchema",
        ),
        (json!({"get": {"command": ["true"], "env": {"COUNTERSIGN_X": ""}}}), "set by the host"),
        (json!({"no-name": {"command": ["true"]}}), "must be an identifier"),
        (json!({"eval": {"command": ["true"]}}), "is reserved"),
        (json!([]), "functions: expected an object"),
    ] {
        let ended = finish(&mut Bench::new("", functions).command("deny", &[]));
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{told}: {}", ended.err);
        assert!(ended.err.contains(told), "{told}: {}", ended.err);
    }
    let bench = Bench::new("", json!({}));
    for (file, told) in [
        ("[]", "INVALID_CONFIG: functions file: expected an object"),
        ("{}", "INVALID_CONFIG: functions: required"),
        (r#"{"functions":{},"tools":{}}"#, "INVALID_CONFIG: tools: unknown member"),
    ] {
        fs::write(bench.folder.path().join("functions.json"), file).unwrap();
        let ended = finish(&mut bench.command("deny", &[]));
        assert!(ended.err.contains(told), "{told}: {}", ended.err);
    }
    fs::write(
        bench.folder.path().join("functions.json"),
        r#"{"functions":{"a":{"command":["true"]},"a":{}}}"#,
    )
    .unwrap();
    assert!(finish(&mut bench.command("deny", &[])).err.contains("functions.json"), "a key twice");
    fs::remove_file(bench.folder.path().join("program.ts")).unwrap();
    assert_eq!(finish(&mut bench.command("deny", &[])).status, Some(2));
}

#[test]
fn a_command_has_a_cleared_environment() {
    let bench = Bench::new(
        "await get({})",
        json!({"get": {"command": sh("env > env.txt; pwd > pwd.txt"), "env": {"OWN": "x y"}}}),
    );
    let mut command = bench.command("deny", &[]);
    let ended = finish(command.env("SECRET", "hunter2").current_dir(bench.folder.path()));
    let object: Value = serde_json::from_str(&ended.out).unwrap();
    let text = bench.text("env.txt");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    assert_eq!(value("OWN"), Some("x y"));
    assert_eq!(value("COUNTERSIGN_RUN_ID"), object["runId"].as_str());
    assert_eq!(value("COUNTERSIGN_CALL_ID"), object["report"][0]["callId"].as_str());
    assert_eq!((value("COUNTERSIGN_ATTEMPT"), value("COUNTERSIGN_SUBJECT")), (Some("1"), Some("local")));
    assert_eq!(value("SECRET"), None);
    let folder = fs::canonicalize(bench.folder.path()).unwrap();
    assert_eq!(fs::canonicalize(bench.text("pwd.txt").trim()).unwrap(), folder);
}

// Law 8: a command that was ended by us may have had its effect; its whole group is gone.
#[test]
fn an_interrupt_ends_commands_and_says_what_is_uncertain() {
    let script = "trap 'exit 0' TERM; sleep 600 & echo $! > pid; wait";
    let bench =
        Bench::new("await get({ n: 1 }); await get({ n: 2 })", json!({"get": {"command": sh(script)}}));
    let mut child = bench.command("deny", &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = until("the command", || Pid::from_raw(bench.text("pid").trim().parse().ok()?));
    signal(&child, Signal::INT);
    let status = wait(&mut child);
    let output = child.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((status.code(), &object["error"]["kind"]), (Some(1), &json!("Cancelled")));
    assert_eq!(states(&object), ["uncertain"]);
    until("the end of the group", || test_kill_process(pid).is_err().then_some(()));
}

#[test]
fn a_person_answers_each_call() {
    let bench = Bench::deleting(
        "const told = [];\nfor (const path of await list()) try { await del({ path }); told.push('ok') } catch (e) { told.push(e.message) }\nconsole.warn('\u{1b}[2Jdone');\nreturn told",
    );
    let mut run = Terminal::start(bench.command("pause", &[]), 80, 40);
    let card = run.wait_for(PROMPT);
    assert!(card.contains("The program asks to call del.") && card.contains(r#""path": "a""#), "{card}");
    assert!(card.contains("call 2, made at line 2, column 46 of program.ts"), "{card}");
    assert_eq!(bench.text("deleted"), "");
    run.press("a\n");
    run.wait_for(PROMPT);
    run.press("d\n");
    run.wait_for(WHY);
    run.press("still \u{e9} needed\n");
    run.wait_for(PROMPT);
    run.press("y\n");
    run.wait_for("Please type a, d or c, and Enter.");
    run.wait_for(PROMPT);
    run.press("d\n");
    run.wait_for(WHY);
    run.press("\n");
    let (rest, status) = run.end();
    assert_eq!(status, Some(0), "{rest}");
    assert!(rest.contains("was not approved: still \u{e9} needed"), "{rest}");
    assert!(rest.contains(r"warn: \u{1b}[2Jdone") || rest.contains(r"\u{1b}"), "{rest}");
    assert!(!rest.contains("\u{1b}[2J"), "{rest:?}");
    assert!(rest.contains("executed") && rest.contains("rejected") && rest.contains("Completed"), "{rest}");
    // Law 1: the one that was approved, once.
    assert_eq!(bench.text("deleted"), "{\"path\":\"a\"}\n");
}

#[test]
fn cancelling_at_the_question_runs_nothing() {
    for key in ["c\n", "\u{4}"] {
        let bench = Bench::deleting("await del({ path: 'a' })");
        let mut run = Terminal::start(bench.command("pause", &[]), 80, 40);
        run.wait_for(PROMPT);
        run.press(key);
        let (rest, status) = run.end();
        assert_eq!(status, Some(1), "{rest}");
        assert!(rest.contains("Cancelled") && rest.contains("not executed"), "{rest}");
        assert_eq!(bench.text("deleted"), "");
    }
    let bench = Bench::deleting("await del({ path: 'a' })");
    let mut run = Terminal::start(bench.command("pause", &[]), 80, 40);
    run.wait_for(PROMPT);
    signal(&run.child, Signal::INT);
    let (rest, status) = run.end();
    assert_eq!(status, Some(1), "{rest}");
    assert!(rest.contains("Interrupted") && rest.contains("not executed"), "{rest}");
    assert_eq!(bench.text("deleted"), "");
}

#[test]
fn an_error_shows_its_line() {
    let bench = Bench::deleting("const a = 1;\n  a.b.c();\n");
    let (rest, status) = Terminal::start(bench.command("deny", &[]), 80, 40).end();
    let plain = anstream::adapter::strip_str(&rest).to_string().replace("\r\n", "\n");
    assert_eq!(status, Some(1), "{plain}");
    let excerpt = plain.lines().position(|line| line == "  │ 2: a.b.c();");
    let mark = plain.lines().nth(excerpt.unwrap_or_else(|| panic!("{plain}")) + 1).unwrap();
    let column = mark.chars().position(|c| c == '^').unwrap();
    assert!(plain.contains("Failed: Thrown, at line 2") && (7..=13).contains(&column), "{plain}");
    assert!(plain.contains("The program made no calls."), "{plain}");
}

// With --json a terminal still gets one object on standard output; cards go to standard error.
#[test]
fn json_in_a_terminal_asks_on_standard_error() {
    let bench = Bench::deleting("return await del({ path: 'a' })");
    let line = "\"$0\" run-code program.ts --functions functions.json --approval pause --json > object";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_countersign")]).current_dir(bench.folder.path());
    let mut run = Terminal::start(command, 80, 40);
    run.wait_for(PROMPT);
    run.press("a\n");
    assert_eq!(run.end().1, Some(0));
    let object: Value = serde_json::from_str(&bench.text("object")).unwrap();
    assert_eq!((&object["status"], &object["value"]), (&json!("completed"), &json!(true)));
}
