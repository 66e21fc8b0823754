//! The smaller sections: addresses, reviews and bounds (contract 6.1).

use std::time::Duration;

use countersign_approval_core::registry::Limits;
use countersign_driver::{IdlePause, RunLimits};
use countersign_protocol::code::Code;
use countersign_protocol::version::feature;
use url::{Host, Url};

use super::reader::Field;
use super::{Approvals, Listen};
use crate::error::StartError;
use crate::options::{Concurrency, DEFAULT_PORT, MAX_CONCURRENCY, check_origin, require_loopback};
use crate::service::MAX_ORIGINS;

/// The greatest integer that every JSON reader carries exactly.
pub(super) const MAX_SAFE_INTEGER: i64 = 9_007_199_254_740_991;

pub(super) fn listen(field: Option<Field<'_>>) -> Result<Listen, StartError> {
    let mut listen = Listen { host: "127.0.0.1".into(), port: DEFAULT_PORT };
    let Some(field) = field else { return Ok(listen) };
    let mut members = field.object()?;
    if let Some(host) = members.optional("host") {
        listen.host = host.string(1..=255)?;
        require_loopback(host.path(), &listen.host)?;
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
    if let Some(features) = members.optional("features") {
        no_features(&features)?;
    }
    members.finish()?;
    Ok(Approvals { idle_pause, limits })
}

/// The design's additions to the contract come with later versions; naming one now must not look like having it.
fn no_features(field: &Field<'_>) -> Result<(), StartError> {
    const LATER: [&str; 3] = [feature::APPROVAL_DIGEST, feature::DENIAL_FEEDBACK, feature::BATCH_APPROVALS];
    match field.array(0..=LATER.len())?.first() {
        None => Ok(()),
        Some(named) if LATER.contains(&named.string(1..=64)?.as_str()) => {
            Err(named.invalid("not served by this version"))
        }
        Some(unknown) => Err(unknown.invalid("unknown feature")),
    }
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
    members.refuse(&["perAccount", "subjects", "accounts", "queue"])?;
    if let Some(total) = members.optional("total") {
        concurrency.total = total.number(1..=MAX_CONCURRENCY.into())?;
    }
    if let Some(per_subject) = members.optional("perSubject") {
        concurrency.per_subject = per_subject.number(1..=MAX_CONCURRENCY.into())?;
    }
    members.finish()?;
    Ok(concurrency)
}
