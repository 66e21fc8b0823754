//! What an operator sees of a run: spans in the log and figures (issue of the design, "observability"; scenario V5).

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::Subject;
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::{Figures, LogArguments};
use countersign_protocol::code::Code;
use countersign_protocol::request::{Approvals, RunRequest};
use countersign_testkit::{Answer, RecordingSink};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::{Bench, Step, calls, question, rest, reviewed, says, writes};

/// What was logged on this thread since it was made.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self, with: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
    }

    fn keep(&self, level: LevelFilter) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_writer(move || log.clone())
            .set_default()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// One span for each of run, step, call and review, with typed fields; nothing that is private (V5).
#[tokio::test(start_paused = true)]
async fn spans_say_which_and_never_what() {
    let log = Log::default();
    let _kept = log.keep(LevelFilter::TRACE);
    let script = [calls(&[("call-1", "write", r#"{"k":"private-argument"}"#)]), says("private-answer")];
    let bench = Bench::new(script);
    let request = RunRequest { input: "private-prompt".into(), ..reviewed(IdlePolicy::Pause) };
    let mut stream = bench.stream(request);
    let approval = question(&mut stream).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    rest(&mut stream).await;
    let ended = log.lines("a review ended");
    let (run, id) = (approval.run_id, approval.approval_id);
    let spans = format!(
        "run{{runId={run} subject=\"local\" provider=mock}}:step{{step=1}}:\
         call{{callId=\"call-1\" tool=write}}:review{{approvalId={id} tool=write outcome=\"approved\" waitMs="
    );
    assert_eq!(ended.len(), 1, "{}", log.text());
    assert!(ended[0].contains(&spans), "{}\n{spans}", ended[0]);
    assert!(!log.text().contains("private"), "{}", log.text());
}

// At `info` a run has one span and a review none: a run that waits holds no more memory than it must.
#[tokio::test(start_paused = true)]
async fn failures_name_their_run_where_only_info_is_logged() {
    let log = Log::default();
    let _kept = log.keep(LevelFilter::INFO);
    let bench = Bench::new([Step { error: Some(Code::PROVIDER_ERROR), ..says("") }]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let run = stream.next().await.unwrap().run_id;
    rest(&mut stream).await;
    let failed = log.lines("a model turn failed");
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].contains(&format!("run{{runId={run} ")) && !failed[0].contains("step{"),
        "{}",
        failed[0]
    );
}

// Arguments only by an explicit switch: escaped, bounded, one line a call.
#[tokio::test(start_paused = true)]
async fn arguments_are_logged_by_request_only_escaped_and_bounded() {
    let long = "x".repeat(5_000);
    let arguments = format!("{{\"k\":\"\u{202e}\u{9b}2J\",\"long\":\"{long}\"}}");
    let id = "call\n\u{1b}[2J\u{202e}";
    for (setting, expected) in [(LogArguments::Hidden, 0), (LogArguments::Shown, 1)] {
        let log = Log::default();
        let kept = log.keep(LevelFilter::TRACE);
        let bench =
            Bench::with([calls(&[(id, "write", &arguments)])], RecordingSink::new(), |builder, settings| {
                builder.approvals(settings).log_arguments(setting)
            });
        bench.play(reviewed(IdlePolicy::Pause), Decision::Approve).await;
        drop(kept);
        let lines = log.lines("arguments=");
        assert_eq!(lines.len(), expected, "{}", log.text());
        for line in lines {
            assert!(line.contains(r#"\u{202e}\u{9b}2J"#), "{line}");
            let bytes = arguments.len() - arguments.char_indices().nth(1_000).unwrap().0;
            assert!(line.contains(&format!("omittedBytes={bytes}")), "{line}");
            assert!(line.matches('x').count() < 1_000, "{line}");
        }
        // A call id is the model's to choose.
        assert!(log.text().contains(r"callId="), "{}", log.text());
        assert!(log.text().chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{:?}", log.text());
    }
}

/// Figures without those that are none.
fn told(figures: &Figures) -> Vec<String> {
    let named = |what: &str, of: &[(&'static str, u64)]| {
        of.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{what} {name} {n}")).collect::<Vec<_>>()
    };
    let times = figures.decision_times.iter().map(|(name, times)| (*name, times.count)).collect::<Vec<_>>();
    let one = |what: &'static str, n: u64| named("", &[(what, n)]);
    [
        named("now", &figures.runs),
        named("ended", &figures.runs_ended),
        one("pending", figures.pending_reviews),
        named("review", &times),
        one("audit", figures.audit_failures),
        named("refused", &figures.rejected_decisions),
    ]
    .concat()
}

// Runs by what they do, reviews by how they ended and after how long.
#[tokio::test(start_paused = true)]
async fn figures_follow_a_run() {
    let bench = Bench::new([writes(), says("saved"), writes(), writes(), writes()]);
    assert!(told(&bench.driver.figures()).is_empty());
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    while stream.next().await.is_some_and(|event| event.type_name() != "step.started") {}
    assert_eq!(told(&bench.driver.figures()), ["now model 1"]);
    let approval = question(&mut stream).await;
    assert_eq!(told(&bench.driver.figures()), ["now review 1", " pending 1"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.decide(&approval, Decision::Approve).await.unwrap();
    while stream.next().await.is_some_and(|event| event.type_name() != "tool.completed") {}
    rest(&mut stream).await;
    drop(stream);
    assert_eq!(told(&bench.driver.figures()), ["ended completed 1", "review approved 1"]);
    let figures = bench.driver.figures();
    let (_, times) = &figures.decision_times[0];
    assert_eq!(times.sum, Duration::from_secs(20));
    let class = times.classes.iter().find(|(_, count)| *count == 1).unwrap();
    assert_eq!(class.0, Duration::from_secs(30), "20 s are more than 15 and at most 30");

    bench.play(reviewed(IdlePolicy::Pause), Decision::Deny).await;
    bench.play(reviewed(IdlePolicy::Pause), Decision::Cancel).await;
    let mut approvals = Approvals::new(IdlePolicy::Pause);
    approvals.expires_after_ms = Some(1_000);
    let mut stream = bench.stream(RunRequest { approvals: Some(approvals), ..reviewed(IdlePolicy::Pause) });
    rest(&mut stream).await;
    drop(stream);
    assert_eq!(
        told(&bench.driver.figures()),
        [
            "ended completed 1",
            "ended failed 2",
            "ended cancelled 1",
            "review approved 1",
            "review denied 1",
            "review cancelled 1",
            "review expired 1"
        ]
    );
}

// Law 5: a run that is dropped in a review is counted nowhere any more.
#[tokio::test(start_paused = true)]
async fn whoever_hangs_up_is_not_counted_on() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    question(&mut stream).await;
    drop(stream);
    while bench.driver.pending_approvals() > 0 || bench.driver.figures().runs.iter().any(|(_, n)| *n > 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(told(&bench.driver.figures()), ["ended cancelled 1", "review cancelled 1"]);
}

// Contract 4.4: each refusal is counted under the code that its sender got; a failing sink is counted too.
#[tokio::test(start_paused = true)]
async fn refused_decisions_are_counted_by_code() {
    let bench = Bench::new([writes()]);
    let mut stream = bench.stream(reviewed(IdlePolicy::Pause));
    let approval = question(&mut stream).await;
    let me = Principal::local();
    let blind = Principal {
        subject: me.subject.clone(),
        grants: Grants { approve_tools: Allow::only([""; 0]), ..me.grants.clone() },
    };
    let other = Principal { subject: Subject::parse("other").unwrap(), grants: me.grants.clone() };
    let good = serde_json::to_value(DecisionRequest::of(&approval, Decision::Approve)).unwrap();
    let mut altered = good.clone();
    altered["call"]["arguments"]["n"] = 2.into();
    let (good, altered) = (good.to_string(), altered.to_string());
    let cases = [
        ("{", &me, "INVALID_REQUEST"),
        ("{}", &me, "INVALID_APPROVAL"),
        (good.as_str(), &other, "APPROVAL_NOT_FOUND"),
        (good.as_str(), &blind, "FORBIDDEN"),
        (altered.as_str(), &me, "APPROVAL_MISMATCH"),
    ];
    for (body, who, code) in cases {
        assert_eq!(bench.driver.decide_text(body, who).await.unwrap_err().code.as_str(), code);
    }
    bench.sink.answer(Answer::Refuse);
    let failed = bench.driver.decide_text(&good, &me).await.unwrap_err();
    assert_eq!(failed.code, Code::APPROVAL_AUDIT_FAILED);
    rest(&mut stream).await;
    drop(stream);
    let figures = bench.driver.figures();
    let ones: Vec<_> =
        figures.rejected_decisions.iter().filter(|(_, n)| *n == 1).map(|(code, _)| *code).collect();
    assert_eq!(
        ones,
        [
            "APPROVAL_AUDIT_FAILED",
            "APPROVAL_MISMATCH",
            "APPROVAL_NOT_FOUND",
            "FORBIDDEN",
            "INVALID_APPROVAL",
            "INVALID_REQUEST"
        ]
    );
    assert_eq!((figures.audit_failures, figures.rejected_decisions.len()), (1, 7));
    assert!(figures.decision_times.iter().all(|(_, times)| times.count == 0), "its end was not accepted");
    assert!(bench.effects().is_empty());
}
