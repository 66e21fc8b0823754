//! How Chat Completions writes a stream.

/// Server-sent frames of these chunks, and `[DONE]`.
pub(crate) fn frames(chunks: &[&str]) -> String {
    frames_open(chunks) + "data: [DONE]\n\n"
}

/// The same without `[DONE]`.
pub(crate) fn frames_open(chunks: &[&str]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// A chunk with this delta.
pub(crate) fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

/// A chunk that ends the answer.
pub(crate) fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}
