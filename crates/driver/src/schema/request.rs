//! A schema that a request brings: `outputSchema`, and those of application tools (contract 7.5).
//!
//! Whoever may start a run may write it, so it is bounded before it is compiled, and it is compiled and used where a deep
//! recursion has room.

use std::sync::Arc;

use countersign_approval_core::json::Exact;
use countersign_protocol::code::{Code, ErrorInfo};
use jsonschema::Draft;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{DRAFT_07, Judge, MAX_WORK, bounds, build, search_cost, shorten, value_of};

/// The most bytes of a schema, as compact JSON.
pub(crate) const MAX_SCHEMA_BYTES: usize = 128_000;

/// The most bytes of all schemas of a request, as compact JSON: some 40,000 small schemas, at one or two microseconds each.
const MAX_REQUEST_BYTES: usize = 512_000;

/// A compiled pattern of a request may take this much memory; a host's own may take more. Compiling takes about half a millisecond for it.
const PATTERN_BYTES: usize = 1 << 17;

/// How many threads of a driver may be busy with schemas of requests. The others of the runtime's pool stay free for the
/// audit and the stores.
const THREADS: usize = 4;

/// Room for the validator's recursion: a few dozen schemas for each of 64 levels of a value.
const STACK_BYTES: usize = 32 << 20;

const DRAFT_2020_12: [&str; 2] =
    ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"];

/// Where a driver works on the schemas of requests. Clones are one room.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS)))
    }
}

impl Room {
    /// Does `work` away from threads that others wait for, in its turn. None if it broke down. Leaving this does not stop
    /// work that has begun, so work is bounded.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.ok()
    }
}

/// What the schemas of one request may still take, all together.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    patterns: usize,
    room: Room,
}

impl Budget {
    /// Of a new request; its values will be checked in `room`.
    pub(crate) fn new(room: &Room) -> Self {
        Self { bytes: MAX_REQUEST_BYTES, patterns: bounds::MAX_PATTERNS, room: room.clone() }
    }
}

/// A compiled schema of a request. Clones are one schema.
#[derive(Debug, Clone)]
pub(crate) struct RequestSchema {
    judge: Arc<Judge>,
    room: Room,
}

impl RequestSchema {
    /// Compiles a schema object of either dialect. Nothing is fetched; `format` and `content…` are not enforced; patterns
    /// are of linear time.
    ///
    /// # Errors
    /// `INVALID_SCHEMA`; the message begins with `field`, the member that holds the schema.
    pub(crate) fn compile(field: &str, schema: &Exact, budget: &mut Budget) -> Result<Self, ErrorInfo> {
        let judge = compile(schema, budget).map_err(|message| {
            ErrorInfo::new(Code::INVALID_SCHEMA).with_message(shorten(&format!("{field}: {message}")))
        })?;
        Ok(Self { judge: Arc::new(judge), room: budget.room.clone() })
    }

    /// Checks a value, away from threads that others wait for.
    ///
    /// # Errors
    /// What does not fit, without any of the value; or that the value would take too long to check.
    pub(crate) async fn check(&self, value: &Exact) -> Result<(), String> {
        let (schema, value) = (self.clone(), value.clone());
        let checked = self.room.aside(move || schema.check_here(&value)).await;
        checked.unwrap_or_else(|| Err("it cannot be checked now".into()))
    }

    fn check_here(&self, value: &Exact) -> Result<(), String> {
        let value = value_of(value.text()).ok_or("it is not readable")?;
        let work = self.judge.work(&value);
        if work > MAX_WORK {
            return Err(format!(
                "it would take up to {work} steps to check against its schema; at most {MAX_WORK} are done"
            ));
        }
        with_room(|| self.judge.check(&value, work))?.map_err(|(path, what)| {
            let path = if path.is_empty() { "the top" } else { &path };
            shorten(&format!("at {path}: {what}"))
        })
    }
}

fn compile(schema: &Exact, budget: &mut Budget) -> Result<Judge, String> {
    let bytes = schema.text().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("it has {bytes} bytes; at most {MAX_SCHEMA_BYTES} are taken"));
    }
    budget.bytes = budget.bytes.checked_sub(bytes).ok_or_else(|| {
        format!("the schemas of the request have more than {MAX_REQUEST_BYTES} bytes together")
    })?;
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
    let patterns = budget.patterns;
    let (found, validator) = with_room(|| {
        let found = bounds::check(&value, dialect, patterns, |pattern| search_cost(pattern, PATTERN_BYTES))?;
        Ok::<_, String>((found, build(&value, draft, PATTERN_BYTES)?))
    })??;
    budget.patterns = patterns.saturating_sub(found.patterns);
    Ok(Judge { validator, found: Some(found) })
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
