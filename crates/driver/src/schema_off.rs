//! Without the feature `schema` nothing can validate arguments, so only a schema that says nothing beyond "an
//! object" is accepted.

use countersign_approval_core::json::Exact;
use countersign_protocol::code::{Code, ErrorInfo};

/// The one schema that needs no validator: every call's arguments are an object anyway.
#[derive(Debug)]
pub(crate) struct InputSchema;

impl InputSchema {
    /// Accepts `{"type":"object"}`.
    pub(crate) fn of_tool(schema: &Exact) -> Result<Self, String> {
        if schema.canonical() == r#"{"type":"object"}"# {
            Ok(Self)
        } else {
            Err("this build cannot validate arguments (feature `schema` of the driver is off); \
                 only {\"type\":\"object\"} can be registered"
                .into())
        }
    }

    pub(crate) fn check(&self, _arguments: &Exact) -> Result<(), String> {
        Ok(())
    }
}

/// A schema that a request brings: none can be had.
#[derive(Debug, Clone)]
pub(crate) enum RequestSchema {}

impl RequestSchema {
    /// Refuses the member by its name.
    pub(crate) fn compile(field: &str, _schema: &Exact, _budget: &mut Budget) -> Result<Self, ErrorInfo> {
        let message = format!("{field} is not served by this host; leave it out");
        Err(ErrorInfo::new(Code::INVALID_REQUEST).with_message(message))
    }

    #[allow(clippy::unused_async, reason = "as with the feature")]
    pub(crate) async fn check(&self, _value: &Exact) -> Result<(), String> {
        match *self {}
    }
}

/// Where a driver would work on the schemas of requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room;

impl Room {
    /// Does `work`, which is little.
    #[allow(clippy::unused_async, reason = "as with the feature")]
    pub(crate) async fn aside<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        Some(work())
    }
}

/// What the schemas of one request may take: there are none.
#[derive(Debug)]
pub(crate) struct Budget;

impl Budget {
    pub(crate) fn new(_room: &Room) -> Self {
        Self
    }
}
