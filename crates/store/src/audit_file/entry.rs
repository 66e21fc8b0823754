//! One line as a reader sees it.

use countersign_approval_core::clock::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::head::LineHash;
use super::line::Parts;

/// One line: its place in the chain, its record, and what most readers want to know of it.
///
/// Records may be of kinds that this version does not know; members that it does not know, or that are not text
/// where it expects text, are `None` here and stand in [`record`](Entry::record). All texts are as they were
/// written: escape them before showing them in a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The number of the line, from 1.
    pub n: u64,
    /// When it was written, by the host's wall clock.
    pub at: Timestamp,
    /// The hash of the line before.
    pub prev: LineHash,
    /// The hash of this line.
    pub hash: LineHash,
    /// The record, a JSON object, as it stands in the line.
    pub record: Box<str>,
    /// The record's `type`, such as `approval.resolved`.
    pub kind: String,
    /// Whose run it is, or, in `approval.rejected`, who tried.
    pub subject: Option<String>,
    /// The run's provider.
    pub provider: Option<String>,
    /// The run.
    pub run_id: Option<String>,
    /// The review.
    pub approval_id: Option<String>,
    /// The call.
    pub call_id: Option<String>,
    /// The tool of the reviewed call.
    pub tool: Option<String>,
    /// The arguments of the reviewed call: JSON text, exactly as reviewed and executed.
    pub arguments: Option<Box<str>>,
    /// How the review or the execution ended.
    pub outcome: Option<String>,
    /// What the person gave as the reason of the decision.
    pub reason: Option<String>,
    /// Why a decision was refused.
    pub code: Option<String>,
    /// The digest of the reviewed or executed call.
    pub digest: Option<String>,
}

impl Entry {
    /// `None` if the record is not an object with a `type`, or has one of the members below twice, so that two
    /// readers could understand it differently.
    pub(crate) fn parse(parts: Parts<'_>, hash: LineHash) -> Option<Self> {
        let members: Members<'_> = serde_json::from_str(parts.record).ok()?;
        let approval: Approval<'_> = object(members.approval)?;
        let call: Call<'_> = object(approval.call)?;
        let resolution: Ending<'_> = object(members.resolution)?;
        Some(Self {
            n: parts.n,
            at: parts.at,
            prev: parts.prev,
            hash,
            record: parts.record.into(),
            kind: text(members.kind)?,
            subject: text(members.subject),
            provider: text(members.provider),
            run_id: text(members.run_id.or(approval.run_id)),
            approval_id: text(members.approval_id.or(approval.approval_id)),
            call_id: text(members.call_id.or(call.id)),
            tool: text(call.name),
            arguments: call.arguments.map(|raw| raw.get().into()),
            outcome: text(members.outcome.or(resolution.outcome)),
            reason: text(members.reason),
            code: text(members.code),
            digest: text(members.digest),
        })
    }
}

/// Members are kept as text, so that no value is rounded on the way and an unexpected type is no error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
    #[serde(borrow)]
    provider: Option<&'a RawValue>,
    #[serde(borrow)]
    run_id: Option<&'a RawValue>,
    #[serde(borrow)]
    approval_id: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    outcome: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    digest: Option<&'a RawValue>,
    #[serde(borrow)]
    approval: Option<&'a RawValue>,
    #[serde(borrow)]
    resolution: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Approval<'a> {
    #[serde(borrow)]
    approval_id: Option<&'a RawValue>,
    #[serde(borrow)]
    run_id: Option<&'a RawValue>,
    #[serde(borrow)]
    call: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Ending<'a> {
    #[serde(borrow)]
    outcome: Option<&'a RawValue>,
}

/// What is not there, or is no object, has no members; an object with a member twice is refused.
fn object<'a, T: Default + Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    match raw {
        Some(raw) if raw.get().starts_with('{') => serde_json::from_str(raw.get()).ok(),
        _ => Some(T::default()),
    }
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}
