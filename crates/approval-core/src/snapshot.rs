//! What is bound: the call that the model proposed, and the frozen copy that is reviewed and executed.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, ToolName};
use crate::json::{self, Digest, Exact, Gate, Kind};

/// A call that a model proposed (`call` on the wire). Clones share the text of the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The provider's id for the call.
    pub id: CallId,
    /// The tool.
    pub name: ToolName,
    /// The arguments: an object, in the provider's own tokens.
    pub arguments: Exact,
}

/// The most bytes that a reviewed call may have in canonical form (contract 4.3, design 3).
pub const MAX_CALL_BYTES: usize = 128_000;

/// The most bytes that a reviewed call may have as it is spelled, which is how events and audit carry it and exact
/// clients send it back: six times its canonical form, as when every character is an escape. More than that only
/// numbers such as `1.000…` have; their decisions would not fit into a request (contract 4.6).
pub const MAX_SPELLED_BYTES: usize = 6 * MAX_CALL_BYTES;

/// The call under review. What executes is this, never something that came back in a request (design 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    call: ToolCall,
    digest: Digest,
    echo: Echo,
}

/// Whether a decision may carry the arguments as they are spelled here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Echo {
    /// They pass all that the arguments of a decision must pass.
    Passes,
    /// A decision with this text is refused, or nobody has looked.
    Unknown,
}

impl Snapshot {
    /// Freezes a call for review.
    ///
    /// # Errors
    /// [`CallTooLarge`] if the canonical form of `{arguments,id,name}` exceeds [`MAX_CALL_BYTES`], or the arguments as
    /// they are spelled [`MAX_SPELLED_BYTES`].
    pub fn freeze(call: ToolCall) -> Result<Self, CallTooLarge> {
        let spelled = call.arguments.text().len();
        if spelled > MAX_SPELLED_BYTES {
            return Err(CallTooLarge::Spelled { bytes: spelled });
        }
        let (canonical, echo) = canonical(&call);
        if canonical.len() > MAX_CALL_BYTES {
            return Err(CallTooLarge::Canonical { bytes: canonical.len() });
        }
        Ok(Self { digest: Digest::of(canonical.as_bytes()), call, echo })
    }

    /// The digest that a call would have under review, for one that is executed without (design 4).
    pub fn digest_of(call: &ToolCall) -> Digest {
        Digest::of(canonical(call).0)
    }

    /// The call itself.
    pub const fn call(&self) -> &ToolCall {
        &self.call
    }

    /// SHA-256 of the canonical form of `{arguments,id,name}` (design 3).
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The arguments, if a decision that carries exactly their text passes the gate with it.
    pub(crate) fn echo(&self) -> Option<&Exact> {
        (self.echo == Echo::Passes).then_some(&self.call.arguments)
    }

    /// Whether an echoed call is this one (contract 4.5 as design 3 restates it).
    pub fn binds(&self, id: &str, name: &str, arguments: &Exact) -> bool {
        self.call.id.as_str() == id && self.call.name.as_str() == name && self.call.arguments == *arguments
    }
}

/// The call does not fit into a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallTooLarge {
    /// Its content is too large.
    #[error(
        "the proposed call has {bytes} bytes in canonical form; at most {MAX_CALL_BYTES} can be reviewed"
    )]
    Canonical {
        /// The size of the canonical form.
        bytes: usize,
    },
    /// Its content would fit, but it is spelled too long.
    #[error(
        "the proposed arguments are spelled in {bytes} bytes; at most {MAX_SPELLED_BYTES} can be reviewed"
    )]
    Spelled {
        /// The size of the arguments as they are spelled.
        bytes: usize,
    },
}

/// RFC 8785 form of `{"arguments":…,"id":…,"name":…}`.
fn canonical(ToolCall { id, name, arguments }: &ToolCall) -> (String, Echo) {
    let (id, name) = (id.as_str(), name.as_str());
    let mut text = String::with_capacity(arguments.text().len() + id.len() + name.len() + 40);
    text.push_str("{\"arguments\":");
    let passes = arguments.write_canonical_through(Gate::ARGUMENTS, &mut text);
    text.push_str(",\"id\":");
    json::canonical_string(id, &mut text);
    text.push_str(",\"name\":");
    json::canonical_string(name, &mut text);
    text.push('}');
    let echo = if passes && arguments.kind() == Kind::Object { Echo::Passes } else { Echo::Unknown };
    (text, echo)
}
