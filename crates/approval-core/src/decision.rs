//! A person's decision as it comes in, read strictly (contract 4.2; design 3, "Where it refuses").

mod echo;

use serde::Serialize;

use crate::ids::{ApprovalId, CallId, ToolName};
use crate::json::{Document, Exact, Gate, Kind, Node, RefusedKind};
use crate::review::{ApprovalRequest, Decision};
use crate::snapshot::Snapshot;

/// `POST /v1/approvals/decisions`: which call, and the answer. It carries neither subject nor grants (law 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRequest {
    /// The review that is decided, as the caller wrote it.
    pub approval_id: String,
    /// The run that the caller believes it belongs to.
    pub run_id: String,
    /// The call that the caller reviewed.
    pub call: EchoedCall,
    /// The answer.
    pub decision: Decision,
    /// Why, in at most [`MAX_REASON_CHARS`] characters, where the registry takes reasons (design 4, feature
    /// `denial-feedback`). It is recorded; of a denial a run that goes on tells it to its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The most characters (UTF-16 units, as everywhere on the wire) of a decision's reason (design 8).
pub const MAX_REASON_CHARS: usize = 2_000;

/// The reviewed call as the caller sends it back. It is compared, never executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EchoedCall {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Exact,
}

/// Why a body is not a decision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDecision {
    /// Not JSON at all: `INVALID_REQUEST`, and nothing is audited.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// JSON, but not a decision, or not one that can be carried exactly: `INVALID_APPROVAL`, audited.
    #[error("{message}")]
    Shape {
        /// What the caller named, if it is text.
        approval_id: Option<String>,
        /// What the caller named, if it is text.
        run_id: Option<String>,
        /// What is wrong, with the path of the member.
        message: String,
    },
}

impl DecisionRequest {
    /// The decision that sends a reviewed call back unchanged.
    pub fn of(approval: &ApprovalRequest, decision: Decision) -> Self {
        let call = approval.call.call();
        Self {
            approval_id: approval.approval_id.to_string(),
            run_id: approval.run_id.to_string(),
            call: EchoedCall {
                id: call.id.as_str().to_owned(),
                name: call.name.as_str().to_owned(),
                arguments: call.arguments.clone(),
            },
            decision,
            reason: None,
        }
    }

    /// The same decision with its reason.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`InvalidDecision`].
    pub fn parse(body: &str) -> Result<Self, InvalidDecision> {
        let document = Document::parse(body).map_err(|refused| match refused.kind() {
            RefusedKind::Syntax | RefusedKind::Utf8 => InvalidDecision::NotJson(refused.to_string()),
            _ => InvalidDecision::Shape { approval_id: None, run_id: None, message: refused.to_string() },
        })?;
        let root = document.root();
        read(root).map_err(|message| InvalidDecision::Shape {
            approval_id: text_of(root, "approvalId"),
            run_id: text_of(root, "runId"),
            message,
        })
    }

    /// Reads a body as [`parse`](Self::parse) does, and faster where it carries a large call as it was shown:
    /// `reviewed` gives the call of the review with this id, if it waits for this caller. What it gives changes the
    /// time that reading takes and nothing else.
    ///
    /// # Errors
    /// [`InvalidDecision`], the same as `parse`.
    pub fn parse_echo(
        body: &str,
        reviewed: impl FnOnce(ApprovalId) -> Option<Snapshot>,
    ) -> Result<Self, InvalidDecision> {
        echo::parse(body, reviewed).map_or_else(|| Self::parse(body), Ok)
    }
}

/// A member's text, for the audit of a refusal.
fn text_of(root: Node<'_>, key: &str) -> Option<String> {
    root.get(key)?.as_str().map(Into::into)
}

fn read(root: Node<'_>) -> Result<DecisionRequest, String> {
    let ([approval_id, run_id, call, decision], reason) =
        members(root, "the decision", ["approvalId", "runId", "call", "decision"], Some("reason"))?;
    let ([id, name, arguments], _) = members(call, "call", ["id", "name", "arguments"], None)?;
    let reason = match reason.map(|reason| reason.as_str()) {
        None => None,
        Some(Some(reason)) => Some(reason.into_owned()),
        Some(None) => return Err("reason: expected text".into()),
    };
    let decision = match decision.as_str().as_deref() {
        Some("approve") => Decision::Approve,
        Some("deny") => Decision::Deny,
        Some("cancel") => Decision::Cancel,
        _ => return Err("decision: expected \"approve\", \"deny\" or \"cancel\"".into()),
    };
    let name = name
        .as_str()
        .and_then(|name| ToolName::parse(&name).ok())
        .ok_or("call.name: expected the name of a tool")?;
    if arguments.kind() != Kind::Object {
        return Err("call.arguments: expected an object".into());
    }
    Ok(DecisionRequest {
        approval_id: short(approval_id, "approvalId")?,
        run_id: short(run_id, "runId")?,
        call: EchoedCall {
            id: short(id, "call.id")?,
            name: name.as_str().to_owned(),
            arguments: arguments.to_exact(Gate::ARGUMENTS).map_err(|refused| refused.to_string())?,
        },
        decision,
        reason,
    })
}

/// Exactly these members of an object, in any order, and one that may be there.
fn members<'a, const N: usize>(
    node: Node<'a>,
    what: &str,
    names: [&str; N],
    optional: Option<&str>,
) -> Result<([Node<'a>; N], Option<Node<'a>>), String> {
    let members = node.as_object().ok_or_else(|| format!("{what}: expected an object"))?;
    let mut found = [None; N];
    let mut extra = None;
    for (name, value) in members {
        match names.iter().position(|known| *known == name) {
            Some(at) => found[at] = Some(value),
            None if optional == Some(&name) => extra = Some(value),
            None => {
                return Err(format!(
                    "{what}: a member that a decision does not have; it has only {}",
                    names.join(", ")
                ));
            }
        }
    }
    let mut all = [node; N];
    for ((slot, value), name) in all.iter_mut().zip(found).zip(names) {
        *slot = value.ok_or_else(|| format!("{what}: the member {name} is missing"))?;
    }
    Ok((all, extra))
}

/// Text of 1 to 256 UTF-16 units.
fn short(node: Node<'_>, what: &str) -> Result<String, String> {
    node.as_str()
        .filter(|text| CallId::parse(text).is_ok())
        .map(Into::into)
        .ok_or_else(|| format!("{what}: expected text of 1 to 256 characters"))
}
