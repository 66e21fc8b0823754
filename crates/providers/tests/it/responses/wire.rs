//! How the Responses API writes a stream.

/// Server-sent events, each with its type as its name.
pub(crate) fn events<T: AsRef<str>>(events: &[T]) -> String {
    let frame = |event: &T| {
        let data = event.as_ref();
        let kind: Option<&str> = data.split('"').nth(3);
        format!("event: {}\ndata: {data}\n\n", kind.unwrap_or_default())
    };
    events.iter().map(frame).collect()
}

pub(crate) fn item_added(index: usize, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.added","output_index":{index},"item":{item}}}"#)
}

pub(crate) fn item_done(index: usize, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#)
}
