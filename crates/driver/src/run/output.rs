//! The answer as JSON of a schema that the request gave (contract 7.2, 7.5).

use countersign_approval_core::json::Exact;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::request::RunRequest;

use crate::schema::RequestSchema;

/// The most bytes of an answer of which `run.completed` can carry both the text and the value: a text of JSON takes at most
/// twice its length as a string, and clients take frames of 2,000,000 bytes (contract 10.2).
const MAX_BYTES: usize = 600_000;

/// The host's own words; the schema follows. Models of all vendors understand them, so no vendor's own way to ask for
/// structured output is needed, and none rewrites the schema.
const ASK: &str = "Your final answer must be one JSON value that is valid against the JSON Schema below. Write the JSON \
    value only: no explanation, no Markdown, no code fence.";

/// The instructions of a run: the request's, and with a schema the host's own after an empty line.
pub(super) fn instructions(request: &RunRequest) -> Option<String> {
    let given = request.instructions.clone();
    let Some(schema) = &request.output_schema else { return given };
    let own = format!("{ASK}\n{}", schema.text());
    Some(given.filter(|given| !given.is_empty()).map_or(own.clone(), |given| format!("{given}\n\n{own}")))
}

/// The value of an answer: exactly what the text says, or `INVALID_OUTPUT`.
pub(super) async fn of(schema: RequestSchema, text: &str) -> Result<Exact, ErrorInfo> {
    let invalid = |message: String| ErrorInfo::new(Code::INVALID_OUTPUT).with_message(message);
    if text.len() > MAX_BYTES {
        return Err(invalid(format!("the answer has {} bytes; at most {MAX_BYTES} are taken", text.len())));
    }
    let value =
        Exact::parse(text).map_err(|refused| invalid(format!("the answer is not exact JSON: {refused}")))?;
    let checked = schema.check(&value).await;
    checked.map_err(|message| invalid(format!("the answer does not fit outputSchema: {message}")))?;
    Ok(value)
}
