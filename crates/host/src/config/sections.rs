//! The smaller sections: addresses, reviews and bounds (contract 6.1).

use std::time::Duration;

use countersign_approval_core::ids::Subject;
use countersign_approval_core::registry::Limits;
use countersign_driver::{ApplicationToolSettings, ApprovalFeature, IdlePause, Review, RunLimits};
use countersign_protocol::code::Code;
use countersign_protocol::version::feature;
use url::{Host, Url};

use super::reader::Field;
use super::{Approvals, Listen};
use crate::error::StartError;
use crate::options::{Concurrency, DEFAULT_PORT, MAX_CONCURRENCY, Queue, check_origin, require_loopback};
use crate::service::MAX_ORIGINS;
use crate::tls::Tls;

/// The greatest integer that every JSON reader carries exactly.
pub(super) const MAX_SAFE_INTEGER: i64 = 9_007_199_254_740_991;

pub(super) fn listen(field: Option<Field<'_>>, tls: Option<&Tls>) -> Result<Listen, StartError> {
    let mut listen = Listen { host: "127.0.0.1".into(), port: DEFAULT_PORT };
    let Some(field) = field else { return Ok(listen) };
    let mut members = field.object()?;
    if let Some(host) = members.optional("host") {
        listen.host = host.string(1..=255)?;
        if tls.is_none() {
            require_loopback(host.path(), &listen.host)?;
        }
    }
    if let Some(port) = members.optional("port") {
        listen.port = port.number(0..=65_535)?;
    }
    members.finish()?;
    Ok(listen)
}

pub(super) fn client_url(field: &Field<'_>) -> Result<Url, StartError> {
    let url =
        Url::parse(&field.string(1..=2048)?).map_err(|error| field.invalid(format!("not a URL: {error}")))?;
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address == std::net::Ipv4Addr::LOCALHOST,
        Some(Host::Ipv6(address)) => address == std::net::Ipv6Addr::LOCALHOST,
        None => false,
    };
    let insecure = |reason: &str| Err(StartError::with(Code::INSECURE_TRANSPORT, field.path(), reason));
    match url.scheme() {
        "https" => {}
        "http" if loopback => {}
        _ => return insecure("expected https, or http to localhost, 127.0.0.1 or [::1]"),
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return insecure("expected no credentials, query or fragment");
    }
    Ok(url)
}

pub(super) fn approvals(field: &Field<'_>) -> Result<Approvals, StartError> {
    let mut members = field.object()?;
    let interactive = members.required("interactive")?;
    if !interactive.boolean()? {
        return Err(interactive.invalid("expected true; leave `approvals` out to switch reviews off"));
    }
    let idle_pause = match members.optional("allowIdlePause").map(|field| field.boolean()).transpose()? {
        None | Some(true) => IdlePause::Allowed,
        Some(false) => IdlePause::Refused,
    };
    let mut limits = Limits::default();
    if let Some(pending) = members.optional("maxPending") {
        limits.max_pending = pending.number(1..=MAX_SAFE_INTEGER)?;
    }
    if let Some(rejected) = members.optional("maxRejectedPerMinute") {
        limits.max_rejected_per_minute = rejected.number(1..=u32::MAX.into())?;
    }
    let features =
        members.optional("features").map(|field| features(&field)).transpose()?.unwrap_or_default();
    members.finish()?;
    Ok(Approvals { idle_pause, limits, features })
}

/// The design's additions to the contract. One that comes with a later version must not look like being had.
fn features(field: &Field<'_>) -> Result<Vec<ApprovalFeature>, StartError> {
    const SERVED: [ApprovalFeature; 2] = [ApprovalFeature::Digest, ApprovalFeature::DenialFeedback];
    let mut features = Vec::new();
    for named in field.array(0..=SERVED.len() + 1)? {
        let name = named.string(1..=64)?;
        match SERVED.into_iter().find(|served| served.name() == name) {
            Some(served) if features.contains(&served) => return Err(named.invalid("it is named twice")),
            Some(served) => features.push(served),
            None if name == feature::BATCH_APPROVALS => {
                return Err(named.invalid("not served by this version"));
            }
            None => return Err(named.invalid("unknown feature")),
        }
    }
    Ok(features)
}

pub(super) fn application_tools(field: &Field<'_>) -> Result<ApplicationToolSettings, StartError> {
    let mut members = field.object()?;
    let enabled = members.required("enabled")?;
    if !enabled.boolean()? {
        return Err(
            enabled.invalid("expected true; leave `applicationTools` out to switch application tools off")
        );
    }
    let mut settings = ApplicationToolSettings::default();
    if let Some(require) = members.optional("requireApproval") {
        settings.review = if require.boolean()? { Review::Required } else { Review::NotRequired };
    }
    if let Some(pending) = members.optional("maxPending") {
        settings.max_pending = pending.number(1..=MAX_SAFE_INTEGER)?;
    }
    members.finish()?;
    Ok(settings)
}

pub(super) fn limits(field: Option<Field<'_>>) -> Result<RunLimits, StartError> {
    let mut limits = RunLimits::default();
    let Some(field) = field else { return Ok(limits) };
    let mut members = field.object()?;
    if let Some(steps) = members.optional("maxSteps") {
        limits.max_steps = steps.number(1..=64)?;
    }
    if let Some(tokens) = members.optional("maxOutputTokens") {
        limits.max_output_tokens = tokens.number(1..=65_536)?;
    }
    if let Some(idle) = members.optional("idleTimeoutMs") {
        let millis: u64 = idle.number(0..=2_147_483_647)?;
        limits.idle_timeout = (millis > 0).then(|| Duration::from_millis(millis));
    }
    if let Some(attempts) = members.optional("maxAttempts") {
        limits.max_attempts = attempts.number(1..=5)?;
    }
    members.finish()?;
    Ok(limits)
}

pub(super) fn allowed_origins(field: Option<Field<'_>>) -> Result<Vec<String>, StartError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let read = |origin: Field<'_>| {
        let text = origin.string(1..=2048)?;
        check_origin(origin.path(), &text)?;
        Ok(text)
    };
    field.array(0..=MAX_ORIGINS)?.into_iter().map(read).collect()
}

pub(super) fn concurrency(field: Option<Field<'_>>) -> Result<Concurrency, StartError> {
    let mut concurrency = Concurrency::default();
    let Some(field) = field else { return Ok(concurrency) };
    let mut members = field.object()?;
    for name in ["perAccount", "accounts"] {
        if let Some(field) = members.optional(name) {
            return Err(field.invalid("not served by this version, whose providers have no accounts"));
        }
    }
    let bound = |field: Field<'_>| field.number(1..=MAX_CONCURRENCY.into());
    if let Some(total) = members.optional("total") {
        concurrency.total = bound(total)?;
    }
    if let Some(per_subject) = members.optional("perSubject") {
        concurrency.per_subject = bound(per_subject)?;
    }
    if let Some(subjects) = members.optional("subjects") {
        for (name, field) in subjects.object()?.members() {
            Subject::parse(&name).map_err(|invalid| field.invalid(invalid.rule))?;
            concurrency.subjects.insert(name, bound(field)?);
        }
    }
    if let Some(queue) = members.optional("queue") {
        let mut members = queue.object()?;
        concurrency.queue = Some(Queue {
            total: bound(members.required("total")?)?,
            per_subject: bound(members.required("perSubject")?)?,
        });
        members.finish()?;
    }
    members.finish()?;
    Ok(concurrency)
}
