//! Contract 8: the idle clock, progress events, and the queue between a model and a slow reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::clock::{Clock, Now};
use countersign_approval_core::grants::Principal;
use countersign_approval_core::ids::{ModelId, ProviderId, ToolName};
use countersign_approval_core::review::{Decision, IdlePolicy};
use countersign_driver::provider::{Provider, ProviderError, Turn, TurnRequest, TurnSink};
use countersign_driver::{ApprovalSettings, Driver, Output, RunLimits, ToolSpec, tool};
use countersign_protocol::event::FinishReason;
use countersign_protocol::provider_info::{AuthMode, Capabilities, ProviderInfo};
use countersign_protocol::request::RunRequest;
use countersign_testkit::{FakeClock, RecordingSink};

use crate::support::{Bench, Step, calls, question, request, rest, reviewed, says, words, writes};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test(start_paused = true)]
async fn limits_of_request_and_host() {
    let slow = || Step { delay: ms(100), ..says("late") };
    let cases = [
        (None, None, "run.completed late"),
        (Some(0), None, "run.completed late"),
        (Some(101), None, "run.completed late"),
        (Some(99), None, "run.cancelled IDLE_TIMEOUT retryable"),
        (Some(0), Some(20), "run.cancelled IDLE_TIMEOUT retryable"),
        (Some(5_000), Some(20), "run.cancelled IDLE_TIMEOUT retryable"),
    ];
    for (asked, host, end) in cases {
        let bench = Bench::with([slow()], RecordingSink::new(), |builder, settings| {
            builder
                .approvals(settings)
                .limits(RunLimits { idle_timeout: host.map(ms), ..RunLimits::default() })
        });
        let events = rest(&mut bench.stream(RunRequest { idle_timeout_ms: asked, ..request() })).await;
        assert_eq!(words(&events).last().unwrap(), end, "asked {asked:?}, host {host:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_review_gets_its_own_wait_and_a_full_interval_after() {
    // Scenario G13: two chained approvals, each answered after 3 s, idle limit 500 ms.
    let bench = Bench::new([
        calls(&[("call-1", "write", "{}"), ("call-2", "write", "{}")]),
        Step { delay: ms(499), ..says("saved") },
    ]);
    let mut stream = bench.stream(RunRequest { idle_timeout_ms: Some(500), ..reviewed(IdlePolicy::Pause) });
    for _ in 0..2 {
        let approval = question(&mut stream).await;
        tokio::time::sleep(ms(3_000)).await;
        bench.decide(&approval, Decision::Approve).await.unwrap();
        tokio::time::sleep(ms(499)).await;
    }
    assert_eq!(words(&rest(&mut stream).await).last().unwrap(), "run.completed saved");
}

#[tokio::test(start_paused = true)]
async fn decisions_that_fail_are_not_progress() {
    let bench = Bench::new([writes()]);
    let mut stream =
        bench.stream(RunRequest { idle_timeout_ms: Some(100), ..reviewed(IdlePolicy::Continue) });
    let approval = question(&mut stream).await;
    let stranger = Principal {
        subject: countersign_approval_core::ids::Subject::parse("stranger").unwrap(),
        ..Principal::local()
    };
    for _ in 0..3 {
        tokio::time::sleep(ms(30)).await;
        let decision = countersign_approval_core::decision::DecisionRequest::of(&approval, Decision::Approve);
        bench.driver.decide_approval(&decision, &stranger).await.unwrap_err();
    }
    tokio::time::sleep(ms(11)).await;
    assert_eq!(bench.driver.pending_approvals(), 0);
}

/// A model whose turn is a closure.
struct Speaks<F>(ProviderInfo, F);

fn info() -> ProviderInfo {
    ProviderInfo {
        id: ProviderId::parse("mock").unwrap(),
        name: "Mock".into(),
        vendor: "test".into(),
        auth_mode: AuthMode::None,
        capabilities: Capabilities { tools: true, text_streaming: true, others: Default::default() },
        models: Some(vec![ModelId::parse("demo").unwrap()]),
        health: None,
        model_catalog: None,
    }
}

#[async_trait]
impl<F> Provider for Speaks<F>
where
    F: Fn(&dyn TurnSink, u32) + Send + Sync,
{
    fn info(&self) -> &ProviderInfo {
        &self.0
    }

    async fn turn(&self, _: TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ProviderError> {
        for round in 0..100 {
            tokio::time::sleep(ms(20)).await;
            (self.1)(sink, round);
        }
        Ok(Turn { text: "x".into(), calls: vec![], usage: None, finish: FinishReason::Stop, native: None })
    }
}

fn speaking(speak: impl Fn(&dyn TurnSink, u32) + Send + Sync + 'static) -> Driver {
    Driver::builder().provider(Arc::new(Speaks(info(), speak))).build().unwrap()
}

fn plain(idle: u32) -> RunRequest {
    RunRequest { tools: vec![], idle_timeout_ms: Some(idle), ..request() }
}

#[tokio::test(start_paused = true)]
async fn reports_keep_a_run_alive_and_are_shown_once_a_second() {
    let driver = speaking(|sink, _| sink.progress());
    let told = words(&rest(&mut driver.stream(plain(30), Principal::local()).unwrap()).await);
    assert_eq!(told.last().unwrap(), "run.completed x");
    // 2 s of reports every 20 ms: the first at once, one more after a second.
    assert_eq!(told.iter().filter(|word| *word == "run.progress").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn empty_text_is_not_progress() {
    let driver = speaking(|sink, _| sink.text(""));
    let told = words(&rest(&mut driver.stream(plain(30), Principal::local()).unwrap()).await);
    assert_eq!(told.last().unwrap(), "run.cancelled IDLE_TIMEOUT retryable");
}

#[tokio::test(start_paused = true)]
async fn text_for_a_slow_reader_is_merged() {
    let driver = speaking(|sink, round| sink.text(if round == 0 { "a" } else { "b" }));
    let mut stream = driver.stream(plain(0), Principal::local()).unwrap();
    stream.next().await.unwrap();
    stream.next().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let told = words(&rest(&mut stream).await);
    assert_eq!(told, [format!("text.delta a{}", "b".repeat(99)), "run.completed x".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn text_that_nobody_takes_aborts_the_run() {
    let driver = speaking(|sink, _| sink.text(&"x".repeat(100_000)));
    let mut stream = driver.stream(plain(0), Principal::local()).unwrap();
    stream.next().await.unwrap();
    stream.next().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let told = words(&rest(&mut stream).await);
    assert_eq!(told.last().unwrap(), "run.cancelled OUTPUT_BUFFER_LIMIT");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_reports_progress_stays_alive_even_if_nobody_reads() {
    let bench = Bench::with([calls(&[("c", "slow", "{}")])], RecordingSink::new(), |builder, _| {
        builder.tool(tool(
            ToolSpec::new("slow", "Slow.", r#"{"type":"object"}"#).unwrap(),
            |_, context| async move {
                for _ in 0..100 {
                    tokio::time::sleep(ms(20)).await;
                    context.report_progress();
                }
                Ok(Output::json("slow")?)
            },
        ))
    });
    let mut asked = RunRequest { idle_timeout_ms: Some(30), ..request() };
    asked.tools.push(ToolName::parse("slow").unwrap());
    let mut stream = bench.stream(asked);
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.push(stream.next().await.unwrap());
    }
    assert_eq!(seen[4].type_name(), "tool.called");
    let first = stream.next().await.unwrap();
    assert_eq!(first.type_name(), "run.progress");
    tokio::time::sleep(ms(1_000)).await;
    let told = words(&rest(&mut stream).await);
    assert_eq!(told[..2], ["run.progress", "tool.completed \"slow\""]);
}

/// Tokio's time and whatever was added to it.
struct Leaping(FakeClock, AtomicU64);

impl Clock for Leaping {
    fn now(&self) -> Now {
        let now = self.0.now();
        Now { monotonic: now.monotonic + ms(self.1.load(Ordering::SeqCst)), ..now }
    }
}

/// Takes a while for one kind of record.
struct SlowFor(Arc<Leaping>, &'static str);

impl AuditSink for SlowFor {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        if serde_json::to_string(record)?.contains(self.1) {
            self.0.1.fetch_add(101, Ordering::SeqCst);
        }
        Ok(())
    }
}

// Law 7, contract 3.4: the idle clock runs out while the start is being recorded, so the tool is not called.
#[tokio::test(start_paused = true)]
async fn an_idle_limit_that_passes_during_a_record_is_seen_before_the_call() {
    for policy in [IdlePolicy::Pause, IdlePolicy::Continue] {
        let clock = Arc::new(Leaping(FakeClock::new(), AtomicU64::new(0)));
        let sink = Arc::new(SlowFor(Arc::clone(&clock), "execution.started"));
        let bench = Bench::with([writes()], RecordingSink::new(), |builder, settings| {
            builder.clock(clock).approvals(ApprovalSettings { sink: Some(sink), ..settings })
        });
        let asked = RunRequest { idle_timeout_ms: Some(100), ..reviewed(policy) };
        let told = words(&bench.play(asked, Decision::Approve).await);
        assert_eq!(told.last().unwrap(), "run.cancelled IDLE_TIMEOUT retryable");
        assert_eq!(bench.effects(), [] as [&str; 0]);
    }
}
