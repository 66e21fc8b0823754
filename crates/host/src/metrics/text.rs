//! The figures in Prometheus' text format, version 0.0.4.

use std::fmt;
use std::time::Duration;

use countersign_driver::Figures;
use countersign_protocol::code::{Code, ErrorInfo};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::respond::{self, Answer};
use crate::service::Shared;

/// Answers `GET /metrics`.
pub(crate) fn answer(shared: &Shared) -> Result<Answer, ErrorInfo> {
    let told = Told {
        figures: shared.driver.figures(),
        queued: shared.slots.waiting().into(),
        streams: shared.streams.count() as u64,
    };
    let mut registry = Registry::with_prefix("countersign");
    registry.register_collector(Box::new(told));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry).map_err(|_| ErrorInfo::new(Code::INTERNAL_ERROR))?;
    Ok(respond::text(prometheus_text::CONTENT_TYPE, text))
}

/// What is told, at one moment.
#[derive(Debug)]
struct Told {
    figures: Figures,
    queued: u64,
    streams: u64,
}

impl Collector for Told {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = &self.figures;
        let queued = [("queued", self.queued)];
        let runs = queued.iter().chain(&figures.runs);
        labelled(&mut to, "runs", "Runs at this moment, by what they do", "state", runs, gauge)?;
        let ended = &figures.runs_ended;
        labelled(&mut to, "runs_ended", "Runs that ended, by how", "state", ended, counter)?;
        plain(
            &mut to,
            "reviews_waiting",
            "Reviews that wait for a decision",
            &gauge(figures.pending_reviews),
        )?;
        let mut times = to.encode_descriptor(
            "review_duration",
            "How long reviews were open, by how they ended.",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (outcome, open) in &figures.decision_times {
            let classes: Vec<_> =
                open.classes.iter().map(|(bound, count)| (seconds(*bound), *count)).collect();
            times.encode_family(&[("outcome", *outcome)])?.encode_histogram::<NoLabelSet>(
                seconds(open.sum),
                open.count,
                &classes,
                None,
            )?;
        }
        let failures = counter(figures.audit_failures);
        plain(&mut to, "audit_failures", "Records that the audit sink refused", &failures)?;
        plain(&mut to, "streams_open", "Event streams that are open", &gauge(self.streams))?;
        let help = "Decisions that were refused, by the code that their sender got";
        labelled(&mut to, "decisions_rejected", help, "code", &figures.rejected_decisions, counter)
    }
}

fn plain(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: &impl EncodeMetric) -> fmt::Result {
    let to = to.encode_descriptor(name, &format!("{help}."), None, value.metric_type())?;
    value.encode(to)
}

/// One metric with a value for each value of its label.
fn labelled<'a, M: EncodeMetric>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl IntoIterator<Item = &'a (&'static str, u64)>,
    metric: fn(u64) -> M,
) -> fmt::Result {
    let help = format!("{help}.");
    let mut to: MetricEncoder<'_> = to.encode_descriptor(name, &help, None, metric(0).metric_type())?;
    for (of, count) in values {
        metric(*count).encode(to.encode_family(&[(label, *of)])?)?;
    }
    Ok(())
}

fn counter(count: u64) -> ConstCounter<u64> {
    ConstCounter::new(count)
}

fn gauge(count: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
}

const fn seconds(of: Duration) -> f64 {
    of.as_secs_f64()
}
