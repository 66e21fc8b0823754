//! Without the feature `schema` nothing can validate arguments, so only a schema that says nothing beyond "an
//! object" is accepted.

use countersign_approval_core::json::Exact;

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
