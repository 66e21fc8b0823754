//! Tools that are commands (design 7).

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};

use crate::support::{Ended, Host, Place, Terminal, signal, until, wait};

/// A host whose one tool is this shell script.
fn place(script: &str, more: Value) -> Place {
    let place = Place::new();
    place.edit(|config| {
        let tool = &mut config["tools"][0];
        tool["command"] = json!(["/bin/sh", "-c", script]);
        tool.as_object_mut().unwrap().remove("timeoutMs");
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        // A line with every quoting problem.
        config["providers"][0]["default"][0]["calls"][0]["arguments"] =
            json!({"title": "it's \"quoted\" $(touch pwned)", "body": "one\ntwo 東京"});
    });
    place
}

fn approved(place: &Place) -> Ended {
    Host::start_with(place, &[("SECRET_OF_THE_HOST", "hunter2"), ("RUST_LOG", "debug")])
        .run(&["--json", "--decide", "approve", "x"])
}

fn output(ended: &Ended) -> Value {
    let lines = ended.lines();
    let completed = lines.iter().find(|line| line["type"] == "tool.completed");
    completed.unwrap_or_else(|| panic!("{}{}", ended.out, ended.err))["output"].clone()
}

// Law 1: exactly the reviewed arguments, as one line, and no shell sees them.
#[test]
fn arguments_come_as_one_line_and_the_output_is_the_result() {
    let place = place("cat > input; wc -l < input", json!({}));
    let ended = approved(&place);
    assert_eq!((ended.status, output(&ended)), (Some(0), json!(1)));
    let asked = &place.audit()[0]["approval"]["call"]["arguments"];
    assert_eq!(
        serde_json::from_str::<Value>(&fs::read_to_string(place.path("input")).unwrap()).unwrap(),
        *asked
    );
    assert!(!place.path("pwned").exists());
}

#[test]
fn no_output_is_null_and_numbers_keep_their_spelling() {
    assert_eq!(output(&approved(&place("cat > /dev/null; echo", json!({})))), json!(null));
    let ended = approved(&place("printf ' {\"n\": 1.50, \"big\": 12345678901234567890}\\n'", json!({})));
    assert!(ended.out.contains(r#""output":{"n":1.50,"big":12345678901234567890}"#), "{}", ended.out);
}

#[test]
fn the_environment_is_cleared() {
    let place = place("env > env.txt; pwd > pwd.txt", json!({"env": {"OWN": "x y"}}));
    let ended = approved(&place);
    assert_eq!(ended.status, Some(0));
    let text = fs::read_to_string(place.path("env.txt")).unwrap();
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    let run_id = ended.lines()[0]["runId"].as_str().unwrap().to_owned();
    assert_eq!(value("OWN"), Some("x y"));
    assert_eq!(value("COUNTERSIGN_RUN_ID"), Some(run_id.as_str()));
    assert_eq!(value("COUNTERSIGN_CALL_ID"), Some("call-1"));
    assert_eq!(value("COUNTERSIGN_ATTEMPT"), Some("1"));
    assert_eq!(value("COUNTERSIGN_SUBJECT"), Some("person"));
    assert!(value("PATH").is_some());
    let own =
        ["OWN", "COUNTERSIGN_RUN_ID", "COUNTERSIGN_CALL_ID", "COUNTERSIGN_ATTEMPT", "COUNTERSIGN_SUBJECT"];
    // The shell itself sets PWD, SHLVL and _.
    let known = ["PATH", "HOME", "LANG", "TZ", "PWD", "OLDPWD", "SHLVL", "_"];
    for line in text.lines() {
        let name = line.split('=').next().unwrap();
        assert!(own.contains(&name) || known.contains(&name), "{line}");
    }
    let folder = fs::read_to_string(place.path("pwd.txt")).unwrap();
    assert_eq!(fs::canonicalize(folder.trim()).unwrap(), fs::canonicalize(place.folder.path()).unwrap());
}

// Law 8: the command was called, so its effect is unknown to the host; it is told so and recorded so.
#[test]
fn a_command_that_goes_wrong_is_uncertain() {
    let cases = [
        ("exit 3", json!({}), "exit status 3"),
        ("kill -9 $$", json!({}), "signal 9"),
        ("echo '{'", json!({}), "output"),
        ("echo '{\"a\":1,\"a\":2}'", json!({}), "output"),
        ("printf '\\377'", json!({}), "not UTF-8"),
        ("sleep 60", json!({"timeoutMs": 200}), "took longer than 200ms"),
        // At most 1,000,000 bytes, and whoever writes on without an end is ended.
        ("head -c 1000001 /dev/zero | tr '\\0' 1; sleep 60", json!({}), "more than 1000000 bytes"),
    ];
    for (script, more, logged) in cases {
        let place = place(script, more);
        let ended = approved(&place);
        assert_eq!(ended.status, Some(1), "{script}: {}", ended.out);
        let error = ended.lines().last().unwrap()["error"].clone();
        assert_eq!(
            (&error["code"], &error["outcome"]),
            (&json!("TOOL_OUTCOME_UNCERTAIN"), &json!("uncertain")),
            "{script}"
        );
        assert_eq!(place.audit().last().unwrap()["outcome"], "uncertain", "{script}");
        assert!(place.log().contains(logged), "{script}: {}", place.log());
        // The cause stays with the host.
        assert!(!ended.out.contains(logged) && !place.log().contains("quoted"), "{script}: {}", place.log());
    }
}

#[test]
fn the_most_output_that_is_carried_is_carried() {
    // A string of 999,998 characters and its quotes.
    let place = place(r#"printf '"'; head -c 999998 /dev/zero | tr '\0' x; printf '"'"#, json!({}));
    assert_eq!(output(&approved(&place)).as_str().map(str::len), Some(999_998));
}

#[test]
fn standard_error_goes_to_the_log_bounded_and_escaped() {
    let script = r#"printf 'told \033[2J\n' >&2; i=0; while [ $i -lt 300 ]; do echo "line $i" >&2; i=$((i+1)); done; echo 1"#;
    let place = place(script, json!({}));
    // The host lives on until its log is read: the run can be over before the last line of it is.
    let host = Host::start_with(&place, &[("RUST_LOG", "debug")]);
    assert_eq!(output(&host.run(&["--json", "--decide", "approve", "x"])), json!(1));
    let log =
        until("the whole log", || place.log().contains("more lines are not logged").then(|| place.log()));
    assert!(log.contains(r"told \u{1b}[2J") && log.contains("line 98") && !log.contains("line 150"), "{log}");
}

/// The processes that a script wrote down, one number a line.
fn noted(place: &Place, count: usize) -> Vec<Pid> {
    until("the processes of the command", || {
        let text = fs::read_to_string(place.path("pids")).unwrap_or_default();
        let pids: Vec<_> = text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
        (pids.len() == count && text.ends_with('\n')).then_some(pids)
    })
}

fn gone(pids: &[Pid]) {
    until("the end of every process of the command", || {
        pids.iter().all(|pid| test_kill_process(*pid).is_err()).then_some(())
    });
}

// H7: a cancelled call that had begun is uncertain; nothing of its group lives on.
#[test]
fn a_cancelled_run_ends_the_whole_group() {
    // The shell asks for nothing at TERM; its child ignores it and must be killed.
    let script = "(trap '' TERM; echo $$ >> pids; while :; do sleep 1; done) & echo $! >> pids; trap 'echo asked >> asked; exit 0' TERM; wait";
    let place = place(script, json!({}));
    let host = Host::start(&place);
    let mut client = host
        .client(&["--json", "--decide", "approve", "x"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pids = noted(&place, 2);
    signal(&client, Signal::INT);
    assert_eq!(wait(&mut client).code(), Some(4));
    gone(&pids);
    assert_eq!(fs::read_to_string(place.path("asked")).unwrap(), "asked\n");
    until("the record", || (place.audited().len() == 4).then_some(()));
    assert_eq!(place.audit()[3]["outcome"], "uncertain");
}

// TERM is not enough for everybody: KILL follows.
#[test]
fn a_command_that_ignores_term_is_killed_with_its_host() {
    let place = place("trap '' TERM; echo $$ >> pids; while :; do sleep 1; done", json!({}));
    let host = Host::start(&place);
    let client = Terminal::start(host.client(&["--decide", "approve", "x"]), 80, 24);
    let pids = noted(&place, 1);
    assert_eq!(host.stop().code(), Some(0));
    assert_eq!(client.end().1, Some(4));
    gone(&pids);
    assert_eq!(place.verify().status, Some(0));
}

// Law 9: what left the group may live on, but the host keeps nothing open for it.
#[cfg(target_os = "linux")]
#[test]
fn what_leaves_the_group_holds_nothing_of_the_host() {
    // It ends only when nobody reads its standard error any more; its parent waits until it has left the group.
    let stays =
        "echo here >&2; echo > left; trap '' PIPE; while echo more >&2; do sleep 0.05; done; echo > closed";
    let script =
        format!("setsid sh -c \"{stays}\" > /dev/null & while [ ! -e left ]; do sleep 0.01; done; echo 1");
    let place = place(&script, json!({}));
    let host = Host::start(&place);
    let open = || fs::read_dir(format!("/proc/{}/fd", host.child.id())).unwrap().count();
    let before = open();
    let ended = host.run(&["--json", "--decide", "approve", "x"]);
    assert_eq!(output(&ended), json!(1));
    until("the end of the log of the call", || place.path("closed").exists().then_some(()));
    until("the file descriptors of before", || (open() <= before).then_some(()));
    assert!(place.log().contains("here"), "{}", place.log());
}

// Law 5: who stops the host lets its tools come to their end; they have a TERM and two seconds.
#[test]
fn a_tool_may_clean_up_when_the_host_ends() {
    let script =
        "trap 'sleep 0.7; echo clean > clean; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.05; done";
    let place = place(script, json!({}));
    let host = Host::start(&place);
    let client = Terminal::start(host.client(&["--decide", "approve", "x"]), 80, 24);
    let pids = noted(&place, 1);
    assert_eq!(host.stop().code(), Some(0));
    // Nothing is waited for: it has been written, and the process is gone.
    assert_eq!(fs::read_to_string(place.path("clean")).unwrap(), "clean\n");
    assert!(pids.iter().all(|pid| test_kill_process(*pid).is_err()));
    assert_eq!(client.end().1, Some(4));
    assert_eq!(place.audit().last().unwrap()["outcome"], "uncertain");
}

// A child that stays behind neither delays the result nor outlives the call.
#[test]
fn what_a_command_leaves_behind_is_ended() {
    let place = place("sleep 600 & echo $! >> pids; echo '\"done\"'", json!({}));
    let ended = approved(&place);
    assert_eq!(output(&ended), json!("done"));
    gone(&noted(&place, 1));
}
