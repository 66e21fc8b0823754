//! A schema that a request brings: `outputSchema`, and those of application tools (contract 7.5).
//!
//! Whoever may start a run may write it, so it is bounded before it is compiled, and it is compiled and used where a deep
//! recursion has room.

use std::sync::Arc;

use countersign_approval_core::json::Exact;
use countersign_protocol::code::{Code, ErrorInfo};
use jsonschema::Draft;
use serde_json::Value;

use super::{DRAFT_07, Judge, bounds, build, shorten, value_of};

/// The most bytes of a schema, as compact JSON.
pub(crate) const MAX_SCHEMA_BYTES: usize = 128_000;

/// A compiled pattern of a request may take this much memory; a host's own may take more.
const PATTERN_BYTES: usize = 1 << 18;

/// Room for the validator's recursion: a few dozen schemas for each of 64 levels of a value.
const STACK_BYTES: usize = 32 << 20;

const DRAFT_2020_12: [&str; 2] =
    ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"];

/// A compiled schema of a request. Clones are one schema.
#[derive(Debug, Clone)]
pub(crate) struct RequestSchema(Arc<Judge>);

impl RequestSchema {
    /// Compiles a schema object of either dialect. Nothing is fetched; `format` and `content…` are not enforced; patterns
    /// are of linear time.
    ///
    /// # Errors
    /// `INVALID_SCHEMA`; the message begins with `field`, the member that holds the schema.
    pub(crate) fn compile(field: &str, schema: &Exact) -> Result<Self, ErrorInfo> {
        compile(schema).map_err(|message| {
            ErrorInfo::new(Code::INVALID_SCHEMA).with_message(shorten(&format!("{field}: {message}")))
        })
    }

    /// Checks a value. Validating may take a while: keep it away from threads that others wait for.
    ///
    /// # Errors
    /// What does not fit, without any of the value.
    pub(crate) fn check(&self, value: &Exact) -> Result<(), String> {
        let value = value_of(value.text()).ok_or("it is not readable")?;
        with_room(|| self.0.check(&value))?.map_err(|(path, what)| {
            let path = if path.is_empty() { "the top" } else { &path };
            shorten(&format!("at {path}: {what}"))
        })
    }
}

fn compile(schema: &Exact) -> Result<RequestSchema, String> {
    let bytes = schema.text().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("it has {bytes} bytes; at most {MAX_SCHEMA_BYTES} are taken"));
    }
    let value = value_of(schema.text()).ok_or("it is not readable")?;
    if !value.is_object() {
        return Err("expected a JSON object".into());
    }
    let (dialect, draft) = match value.get("$schema") {
        None => (None, Draft::Draft7),
        Some(Value::String(uri)) if DRAFT_07.contains(&uri.as_str()) => (Some(uri.as_str()), Draft::Draft7),
        Some(Value::String(uri)) if DRAFT_2020_12.contains(&uri.as_str()) => {
            (Some(uri.as_str()), Draft::Draft202012)
        }
        Some(_) => return Err("$schema: draft-07 and 2020-12 are known".into()),
    };
    let shape = bounds::check(&value, dialect)?;
    let validator = with_room(|| build(&value, draft, PATTERN_BYTES))??;
    Ok(RequestSchema(Arc::new(Judge { validator, shape })))
}

/// Runs on a stack of its own. A panic of the validator is a value that cannot be checked.
fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("schema".into()).stack_size(STACK_BYTES);
        let worked = thread.spawn_scoped(scope, work).map_err(|_| "there is no room to check it now")?;
        worked.join().map_err(|_| "it cannot be checked".to_owned())
    })
}

#[cfg(test)]
mod tests;
