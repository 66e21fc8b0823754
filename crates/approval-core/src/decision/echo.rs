//! Reading a decision that carries the reviewed arguments as they are stored, byte for byte.
//!
//! Those bytes passed the gate when the call was proposed, and a stored value is one whole object, so that every reader
//! who meets it where a value is due reads exactly it. It is therefore enough to read the rest: the body with `{}` in the
//! place of the arguments, by the same code that reads any body. Where the stored text might stand is only guessed. A
//! wrong guess is noticed, and then the body is read the long way, as is every body that is refused.

use std::ops::Range;

use super::{DecisionRequest, read};
use crate::ids::ApprovalId;
use crate::json::Document;
use crate::snapshot::{MAX_SPELLED_BYTES, Snapshot};

/// Bodies for which looking the call up costs less than reading it, and that can be decisions at all.
const WORTH_IT: Range<usize> = 2_048..2 * MAX_SPELLED_BYTES;

/// What stands for the arguments while the rest is read.
const STAND_IN: &str = "{}";

const ID_LENGTH: usize = 36;

/// The decision, if it carries the arguments of the call that `reviewed` gives; otherwise nothing is said of the body.
pub(super) fn parse(
    body: &str,
    reviewed: impl FnOnce(ApprovalId) -> Option<Snapshot>,
) -> Option<DecisionRequest> {
    if !WORTH_IT.contains(&body.len()) {
        return None;
    }
    let start = value_of(body, "\"arguments\"")?;
    let (head, rest) = body.split_at_checked(start)?;
    let id = head.get(value_of(head, "\"approvalId\"")? + 1..)?.get(..ID_LENGTH)?;
    let snapshot = reviewed(ApprovalId::parse(id)?)?;
    let arguments = snapshot.echo()?;
    let tail = rest.strip_prefix(arguments.text())?;

    let envelope = [head, STAND_IN, tail].concat();
    let document = Document::parse(&envelope).ok()?;
    let stand_in = document.root().get("call")?.get("arguments")?;
    if stand_in.start() != start || stand_in.raw() != STAND_IN {
        return None;
    }
    let mut decision = read(document.root()).ok()?;
    decision.call.arguments = arguments.clone();
    Some(decision)
}

/// Where the value of what looks like the member `key` starts.
fn value_of(text: &str, key: &str) -> Option<usize> {
    const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];
    let after = text.get(text.find(key)? + key.len()..)?;
    let value = after.trim_start_matches(SPACE).strip_prefix(':')?.trim_start_matches(SPACE);
    Some(text.len() - value.len())
}
