//! How a Messages server writes its events.

use crate::conformance::vendor::quoted;

/// An event; `members` follow its type.
pub(crate) fn event(kind: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{comma}{members}}}\n\n")
}

pub(crate) fn start(usage: &str) -> String {
    event(
        "message_start",
        &format!(
            r#""message":{{"id":"msg_1","type":"message","role":"assistant","model":"demo","content":[],"stop_reason":null,"stop_sequence":null,"usage":{usage}}}"#
        ),
    )
}

pub(crate) fn begin(index: u64, block: &str) -> String {
    event("content_block_start", &format!(r#""index":{index},"content_block":{{{block}}}"#))
}

pub(crate) fn delta(index: u64, kind: &str, member: &str, piece: &str) -> String {
    let piece = quoted(piece);
    event(
        "content_block_delta",
        &format!(r#""index":{index},"delta":{{"type":"{kind}","{member}":{piece}}}"#),
    )
}

pub(crate) fn end(index: u64) -> String {
    event("content_block_stop", &format!(r#""index":{index}"#))
}

pub(crate) fn finish(reason: &str, usage: Option<&str>) -> String {
    let usage = usage.map_or_else(String::new, |usage| format!(r#","usage":{usage}"#));
    event("message_delta", &format!(r#""delta":{{"stop_reason":"{reason}","stop_sequence":null}}{usage}"#))
}
