//! Worker processes: what they cannot do, how they end, and that nothing of them is left (design 5; laws 5, 8 and 9).

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_sandbox_js::{
    Answer, Approval, Backend, Bound, Config, Ending, Error, Function, Limits, Output, RowState, RunOptions,
    RunOutcome, Sandbox, WorkerCommand,
};
use tokio::sync::Notify;

use crate::in_worker::harness::{Log, asking, failed, functions, rows, summary};

const WORKER: &str = env!("CARGO_BIN_EXE_countersign-sandbox-worker");

/// A program that computes until it is stopped, and one whose natives cannot be interrupted.
const FOREVER: &str = "for (;;) {}";
const STUCK: &str = "const a = 'a'.repeat(6e6) + 'b', b = 'a'.repeat(6e6) + 'c'; for (;;) a === b";

/// A sandbox whose workers can be told from those of other tests by their argument.
fn tagged(threads: usize, tag: &str) -> Sandbox {
    let backend = Backend::Worker(WorkerCommand::new(WORKER).arg(tag));
    Sandbox::new(Config { backend, threads, ..Config::default() }).unwrap()
}

/// The workers of a tag that live or that nobody buried.
fn workers(tag: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == tag.as_bytes())
            && !std::fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| !exe.ends_with(Path::new(WORKER).file_name().unwrap()))
    })
    .collect()
}

/// Children of this process that ended and were not buried.
fn zombies(of: &[u32]) -> usize {
    let is_zombie = |pid: &&u32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    };
    of.iter().filter(is_zombie).count()
}

fn kill(pid: u32) {
    assert!(Command::new("kill").arg("-9").arg(pid.to_string()).status().unwrap().success());
}

/// Waits until something is so.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A worker that a test speaks to itself.
struct Raw {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Raw {
    fn start() -> (Self, String) {
        let mut child = Command::new(WORKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut raw = Self { child, to, from };
        let ready = raw.receive().unwrap();
        (raw, ready)
    }

    fn send(&mut self, text: &str) {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        // The worker may be gone.
        let _ = self.to.write_all(&[&length[..], text.as_bytes()].concat());
    }

    fn receive(&mut self) -> Option<String> {
        let mut length = [0; 4];
        self.from.read_exact(&mut length).ok()?;
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.from.read_exact(&mut text).ok()?;
        Some(String::from_utf8(text).unwrap())
    }

    fn ends(mut self) -> bool {
        drop(self.to);
        self.child.wait().unwrap().success()
    }
}

// The worker tries what it gave up, and each is refused by the system: not for want of a file, but of the right. (That the
// attempts succeed elsewhere is a unit test.)
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_worker_can_open_nothing_and_start_nothing() {
    let (raw, ready) = Raw::start();
    for what in ["open", "create", "socket", "local socket", "exec", "fork", "thread"] {
        let refused = format!(r#"["{what}","Operation not permitted (os error 1)"]"#);
        assert!(ready.contains(&refused), "{what}: {ready}");
    }
    // The filter is on, for all its threads.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", raw.child.id())).unwrap();
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", raw.child.id())).unwrap();
    for (name, most) in [
        ("Max cpu time", "600"),
        ("Max file size", "0"),
        ("Max core file size", "0"),
        ("Max processes", "0"),
        ("Max open files", "0"),
        ("Max address space", "1073741824"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let values: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
        assert_eq!(values, [most, most], "{line}");
    }
    assert!(raw.ends());
}

// The environment of the host does not reach a worker, nor does its folder.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_worker_inherits_nothing() {
    let sandbox = tagged(1, "tag-inherits");
    assert_eq!(summary(&sandbox.run(RunOptions::new("return 1", Vec::new())).await.unwrap()), "completed 1");
    let [pid] = workers("tag-inherits")[..] else { panic!("not one worker") };
    assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
}

// The protocol, by hand. What is no message, or comes out of turn, ends the worker.
#[test]
fn the_protocol() {
    let limits = r#"{"source":1000,"memory":16000000,"stack":500000,"polls":1000,"compute":{"secs":1,"nanos":0},"run":{"secs":1,"nanos":0},"calls":10,"input":1000,"result":1000,"console":1000}"#;
    let seed = format!("[{}]", ["7"; 32].join(","));
    let start = |text: &str| {
        format!(
            r#"{{"start":{{"text":"(async () => {{\n\n{text}\n}})","functions":["f"],"limits":{limits},"seed":{seed},"clock":5}}}}"#
        )
    };
    let (mut raw, ready) = Raw::start();
    raw.send(&start("return [await f({ a: 1 }), Date.now()]"));
    let calls = raw.receive().unwrap();
    assert!(
        calls.starts_with(
            r#"{"calls":{"calls":[{"number":1,"function":0,"input":{"a":1},"at":[1,15]}],"rest":{"#
        ),
        "{calls}"
    );
    raw.send(r#"{"settle":{"number":1,"outcome":{"Value":[1.50]},"clock":9,"at":null}}"#);
    let end = raw.receive().unwrap();
    assert!(end.starts_with(r#"{"end":{"how":{"Step":{"Done":{"Ok":[[1.5],9]}}}"#), "{end}");
    assert_eq!(raw.receive().unwrap(), ready);
    // A waiting program is left with `stop`.
    raw.send(&start("await f({})"));
    raw.receive().unwrap();
    raw.send(r#""stop""#);
    assert_eq!(raw.receive().unwrap(), ready);
    raw.send(&start("return f("));
    assert!(raw.receive().unwrap().contains("NotCompiled"));
    assert_eq!(raw.receive().unwrap(), ready);
    assert!(raw.ends());

    for wrong in [
        "",
        "{}",
        "\"stop\"",
        "{\"settle\":{}}",
        "{\"start\":{}}",
        "\u{0}",
        "[[[[",
        r#"{"start":1,"start":2}"#,
    ] {
        let (mut raw, _) = Raw::start();
        raw.send(wrong);
        assert_eq!(raw.receive(), None, "{wrong}");
        assert!(!raw.ends(), "{wrong}");
    }
    let (mut raw, _) = Raw::start();
    raw.to.write_all(&[0xff; 8]).unwrap();
    assert_eq!(raw.receive(), None);
    assert!(!raw.ends());
}

// W40, law 9: what cannot be interrupted is killed at its deadline; one worker more, and the next run works.
#[tokio::test]
async fn a_worker_is_killed_at_its_deadline() {
    let sandbox = tagged(1, "tag-deadline");
    assert_eq!(summary(&sandbox.run(RunOptions::new("return 1", Vec::new())).await.unwrap()), "completed 1");
    let before = workers("tag-deadline");
    let mut options = RunOptions::new(STUCK, Vec::new());
    options.limits.compute = Duration::from_millis(300);
    let began = Instant::now();
    let outcome = sandbox.run(options).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(summary(&outcome).ends_with("its worker was killed"), "{}", summary(&outcome));
    assert_eq!(failed(outcome).ending, Ending::LimitExceeded(Bound::Compute));
    assert_eq!(summary(&sandbox.run(RunOptions::new("return 2", Vec::new())).await.unwrap()), "completed 2");
    let after = workers("tag-deadline");
    assert_eq!((after.len(), zombies(&after)), (1, 0));
    assert_ne!(before, after);
}

// A worker that died by itself, in a step: the run says so, and what was being executed is uncertain (law 8).
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_loses_its_run() {
    let sandbox = tagged(1, "tag-dies");
    let wipe = Function::new("wipe", |_, _| std::future::pending::<Result<Output, _>>()).requires_approval();
    let mut all = functions(&Log::default());
    all.push(wipe);
    let mut options = RunOptions::new("wipe({}); await slow({}); console.log('on'); for (;;) {}", all);
    options.approval = Approval::pause(|_| async { Ok(Answer::Approve) });
    options.limits.polls = u64::MAX;
    options.limits.compute = Duration::from_secs(60);
    let run = {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.run(options).await.unwrap() })
    };
    // A thread of its own: tokio's clock would stand still for one of tokio's.
    let (killed, is_killed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        soon("nothing computes", || {
            workers("tag-dies").iter().any(|pid| {
                // Programs spin; workers that wait do not.
                let ticks = || {
                    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                    stat.rsplit(") ")
                        .next()
                        .and_then(|rest| rest.split(' ').nth(11)?.parse::<u64>().ok())
                        .unwrap_or(0)
                };
                let before = ticks();
                std::thread::sleep(Duration::from_millis(100));
                ticks() > before + 3
            })
        });
        workers("tag-dies").into_iter().for_each(kill);
        killed.send(()).unwrap();
    });
    is_killed.await.unwrap();
    let outcome = run.await.unwrap();
    assert_eq!(rows(&outcome), ["1 wipe uncertain", "2 slow executed"]);
    assert_eq!(outcome.report()[0].state, RowState::Uncertain);
    let failed = failed(outcome);
    assert_eq!(failed.ending, Ending::WorkerLost);
    assert_eq!(failed.message, "the worker died: signal: 9 (SIGKILL)");
    assert_eq!(summary(&sandbox.run(RunOptions::new("return 2", Vec::new())).await.unwrap()), "completed 2");
}

// A worker that dies while its program waits for a function loses nothing: the journal makes another engine.
#[tokio::test]
async fn a_worker_that_dies_at_rest_is_replaced() {
    let sandbox = tagged(1, "tag-rest");
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (handler_started, handler_go) = (Arc::clone(&started), Arc::clone(&go));
    let wait = Function::new("wait", move |_, _| {
        let (started, go) = (Arc::clone(&handler_started), Arc::clone(&handler_go));
        async move {
            started.notify_one();
            go.notified().await;
            Ok(Output::json("7"))
        }
    });
    let code = "console.log('before'); const n = await wait({}); console.log('after'); return n";
    let run = {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.run(RunOptions::new(code, vec![wait])).await.unwrap() })
    };
    started.notified().await;
    let killed = workers("tag-rest");
    killed.iter().copied().for_each(kill);
    soon("the worker lives", || {
        // Its first thread is a zombie before the others have ended, and only then it is seen to be gone.
        let threads = |pid| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        killed.iter().all(|pid| {
            (zombies(&[*pid]) == 1 && threads(*pid) <= 1) || !Path::new(&format!("/proc/{pid}")).exists()
        })
    });
    go.notify_one();
    let outcome = run.await.unwrap();
    assert_eq!(summary(&outcome), "completed 7");
    let lines: Vec<&str> = outcome.console().lines().map(|line| line.text.as_str()).collect();
    assert_eq!(lines, ["before", "after"]);
}

// Law 5: cancelled or dropped while it computes, a run takes its worker with it; while it waits, the worker goes on to
// others. With the sandbox the last of them ends, and none is left unburied.
#[tokio::test]
async fn nothing_is_left() {
    let sandbox = tagged(2, "tag-left");
    for round in 0..6 {
        let mut options = RunOptions::new(if round % 2 == 0 { STUCK } else { FOREVER }, Vec::new());
        options.limits.polls = u64::MAX;
        options.limits.compute = Duration::from_secs(200);
        let cancellation = options.cancellation.clone();
        let run = {
            let sandbox = sandbox.clone();
            tokio::spawn(async move { sandbox.run(options).await })
        };
        tokio::time::sleep(Duration::from_millis(150)).await;
        if round < 3 {
            cancellation.cancel();
            assert_eq!(failed(run.await.unwrap().unwrap()).ending, Ending::Cancelled);
        } else {
            run.abort();
            assert!(run.await.is_err());
        }
        assert_eq!(
            summary(&sandbox.run(RunOptions::new("return 3", Vec::new())).await.unwrap()),
            "completed 3"
        );
        assert!(workers("tag-left").len() <= 3, "{:?}", workers("tag-left"));
    }
    soon("workers that nobody waits for compute", || workers("tag-left").len() <= 2);
    soon("workers are unburied", || zombies(&workers("tag-left")) == 0);
    drop(sandbox);
    soon("workers outlive their sandbox", || workers("tag-left").is_empty());
}

// More runs than workers: each gets its turn, in workers that serve one after another.
#[tokio::test]
async fn workers_are_bounded_and_used_again() {
    let sandbox = tagged(2, "tag-bounded");
    let runs: Vec<_> = (0..60)
        .map(|n| {
            let sandbox = sandbox.clone();
            let code = format!("return (await read({{ n: {n} }})).n + (await read({{ n: 1 }})).n");
            tokio::spawn(async move {
                sandbox.run(RunOptions::new(code, functions(&Log::default()))).await.unwrap()
            })
        })
        .collect();
    let mut most = 0;
    for (n, run) in runs.into_iter().enumerate() {
        most = most.max(workers("tag-bounded").len());
        assert_eq!(summary(&run.await.unwrap()), format!("completed {}", n + 1));
    }
    assert!(most <= 2, "{most} workers");
}

/// Run by the test below: a host with a worker that computes, and one that waits.
#[tokio::test]
async fn child_is_a_host() {
    if std::env::var_os("COUNTERSIGN_TEST_HOST").is_none() {
        return;
    }
    let sandbox = tagged(2, "tag-host");
    let mut options = RunOptions::new(STUCK, Vec::new());
    options.limits.compute = Duration::from_secs(100);
    let computing = sandbox.run(options);
    let waiting = sandbox.run(RunOptions::new(
        "await wait({})",
        vec![Function::new("wait", |_, _| std::future::pending::<Result<Output, _>>())],
    ));
    let _ = tokio::join!(computing, waiting);
}

// Law 5: a host that is killed takes its workers along, whatever they do.
#[cfg(target_os = "linux")]
#[test]
fn workers_end_with_their_host() {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workers::child_is_a_host", "--nocapture"])
        .env("COUNTERSIGN_TEST_HOST", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    soon("the host has no workers", || workers("tag-host").len() == 2);
    std::thread::sleep(Duration::from_millis(300));
    host.kill().unwrap();
    host.wait().unwrap();
    soon("workers outlive their host", || workers("tag-host").is_empty());
}

// A worker that does not start, or starts as something else, is the caller's mistake, told before anything runs.
#[tokio::test]
async fn no_worker() {
    let relative = Backend::Worker(WorkerCommand::new("worker"));
    assert!(matches!(Sandbox::new(Config { backend: relative, ..Config::default() }), Err(Error::Engine(_))));
    for (command, why) in [
        (WorkerCommand::new("/no/such/worker"), "No such file"),
        (WorkerCommand::new("/bin/true"), "the worker died: exit status: 0"),
        (WorkerCommand::new("/bin/echo").arg("hello"), "no message"),
    ] {
        let sandbox =
            Sandbox::new(Config { backend: Backend::Worker(command), ..Config::default() }).unwrap();
        let refused = sandbox.run(RunOptions::new("return 1", Vec::new())).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let sandbox = tagged(1, "tag-limits");
    let too_much: [fn(&mut Limits); 3] = [
        |it| it.memory = (256 << 20) + 1,
        |it| it.compute = Duration::from_secs(301),
        |it| it.result = 9 << 20,
    ];
    for change in too_much {
        let mut options = RunOptions::new("return 1", Vec::new());
        change(&mut options.limits);
        assert!(matches!(sandbox.run(options).await, Err(Error::Limit(_))));
    }
}

/// A process that greets like a worker and then says `frames`, whatever it is told.
fn liar(frames: &[&str]) -> Backend {
    let (raw, ready) = Raw::start();
    assert!(raw.ends());
    let octal = |text: &str| -> String {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        length.iter().chain(text.as_bytes()).map(|byte| format!("\\{byte:03o}")).collect()
    };
    let lies: String = frames.iter().map(|frame| octal(frame)).collect();
    // It lies once it was told something.
    let script = format!("printf '{}'; head -c 1 >/dev/null; printf '{lies}'; cat >/dev/null", octal(&ready));
    Backend::Worker(WorkerCommand::new("/bin/sh").arg("-c").arg(script))
}

// Law 9: a worker may be in a program's hands. What it says is checked like any input.
#[tokio::test]
async fn what_a_worker_says_is_checked() {
    let rest = r#"{"console":{"head":[],"omitted":0,"tail":[]},"spent":{"secs":0,"nanos":1}}"#;
    let calls = |calls: &str| format!(r#"{{"calls":{{"calls":[{calls}],"rest":{rest}}}}}"#);
    let end = |how: &str| format!(r#"{{"end":{{"how":{how},"rest":{rest}}}}}"#);
    let long = format!("\"{}\"", "x".repeat(2_000));
    for (frame, expected) in [
        // The liar is believed where it tells nothing wrong, so that the rest can fail.
        (end(r#"{"Step":{"Done":{"Ok":[1]}}}"#), "completed [1]"),
        (end(r#"{"Step":{"Done":{"Ok":9007199254740993}}}"#), "WorkerLost: the worker sent no message"),
        (end(r#"{"Step":{"Done":{"Ok":{"a":1,"a":2}}}}"#), "WorkerLost: the worker sent no message"),
        (
            end(&format!(r#"{{"Step":{{"Done":{{"Ok":{long}}}}}}}"#)),
            "WorkerLost: the worker sent nonsense: a result",
        ),
        (end(r#"{"Step":"Idle"}"#), "WorkerLost: the worker sent nonsense: an end that is none"),
        (
            calls(r#"{"number":1,"function":9,"input":{},"at":null}"#),
            "WorkerLost: the worker sent nonsense: a call",
        ),
        (
            calls(r#"{"number":2,"function":0,"input":{},"at":null}"#),
            "WorkerLost: the worker sent nonsense: a call",
        ),
        (
            calls(r#"{"number":1,"function":0,"input":{"__proto__":1},"at":null}"#),
            "WorkerLost: the worker sent no message",
        ),
        (
            calls(&format!(r#"{{"number":1,"function":0,"input":{long},"at":null}}"#)),
            "WorkerLost: the worker sent nonsense: a call",
        ),
        (
            calls(
                &(1..=11)
                    .map(|n| format!(r#"{{"number":{n},"function":3,"input":{n},"at":[9,9]}}"#))
                    .collect::<Vec<_>>()
                    .join(","),
            ),
            "WorkerLost: the worker sent nonsense: a call",
        ),
        (
            r#"{"ready":{"build":"x","refused":[]}}"#.to_owned(),
            "WorkerLost: the worker sent nonsense: `ready`",
        ),
        ("{}".to_owned(), "WorkerLost: the worker sent no message"),
    ] {
        let log = Log::default();
        let sandbox =
            Sandbox::new(Config { backend: liar(&[&frame]), threads: 1, ..Config::default() }).unwrap();
        let mut options = RunOptions::new("return 1", functions(&log));
        options.limits = Limits { result: 1_000, input: 1_000, calls: 10, ..Limits::default() };
        options.approval = asking(&log, Duration::ZERO, |_| Answer::Approve);
        let outcome = sandbox.run(options).await.unwrap();
        assert!(summary(&outcome).starts_with(expected), "{frame}\n{}", summary(&outcome));
        assert_eq!(log.all(), [""; 0], "{frame}");
        assert!(matches!(outcome, RunOutcome::Completed(_)) == expected.starts_with("completed"));
    }
}

// The same over several steps: what a liar claims to have used neither overflows nor hangs the host.
#[tokio::test]
async fn what_a_worker_claims_is_bounded() {
    let rest = r#"{"console":{"head":[],"omitted":18446744073709551615,"tail":[{"level":"log","text":"x"}]},"spent":{"secs":18446744073709551615,"nanos":999999999}}"#;
    let call = format!(
        r#"{{"calls":{{"calls":[{{"number":1,"function":0,"input":1,"at":[4294967295,4294967295]}}],"rest":{rest}}}}}"#
    );
    let none = format!(r#"{{"calls":{{"calls":[],"rest":{rest}}}}}"#);
    let end = |how: &str| format!(r#"{{"end":{{"how":{how},"rest":{rest}}}}}"#);
    let done = end(r#"{"Step":{"Done":{"Ok":[1]}}}"#);
    let refusal = end(r#"{"NotCompiled":{"message":"x","at":null}}"#);
    for (frames, expected) in [
        (vec![&call, &done], "completed [1]"),
        (vec![&none], "WorkerLost: the engine waits for a call that it did not make"),
        (vec![&call, &none], "WorkerLost: the engine waits for a call that it did not make"),
        (vec![&refusal], "Syntax: x"),
        (vec![&call, &refusal], "WorkerLost: the worker sent nonsense: a refusal"),
    ] {
        let frames: Vec<&str> = frames.into_iter().map(String::as_str).collect();
        let config = Config { backend: liar(&frames), threads: 1, ..Config::default() };
        let options = RunOptions::new("return await read(1)", functions(&Log::default()));
        let outcome = Sandbox::new(config).unwrap().run(options).await.unwrap();
        assert!(summary(&outcome).starts_with(expected), "{frames:?}\n{}", summary(&outcome));
    }
}
