//! How a Gemini server writes its chunks.

/// A frame. A line end in the data begins a new line of it, as the form wants.
pub(crate) fn frame(object: &str) -> String {
    let lines = object.split(['\n', '\r']).map(|line| format!("data: {line}\n"));
    lines.collect::<String>() + "\n"
}

/// A chunk with these parts.
pub(crate) fn parts(parts: &str) -> String {
    frame(&format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"index":0}}]}}"#))
}

/// A chunk that ends the answer.
pub(crate) fn finish(reason: &str) -> String {
    frame(&format!(r#"{{"candidates":[{{"finishReason":"{reason}","index":0}}]}}"#))
}
