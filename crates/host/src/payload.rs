//! Request bodies: read within bounds, as UTF-8 text (contract 1.2 steps 10 to 12).

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::version::MAX_BODY_BYTES;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout_at;

use crate::wire::Signals;

/// How long a whole request may take to arrive (contract 1.8).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum NoPayload {
    /// The client is told.
    Refused(ErrorInfo),
    /// The body never came whole; there is nobody to tell.
    Gone(Abandoned),
}

/// The request did not arrive whole in time: the connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the request did not arrive whole")]
pub(crate) struct Abandoned;

/// Steps 10 and 11: what the headers say about the body.
pub(crate) fn check_headers(headers: &HeaderMap) -> Result<(), ErrorInfo> {
    let invalid = |message: &str| Err(ErrorInfo::new(Code::INVALID_REQUEST).with_message(message));
    if !headers.get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes())) {
        return invalid("The Content-Type must be application/json.");
    }
    if headers.get_all(CONTENT_ENCODING).iter().any(|value| value != "identity") {
        return invalid("The Content-Encoding must be absent or identity.");
    }
    Ok(())
}

/// Step 12: the text of the body, without a byte order mark.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    signals: &Signals,
) -> Result<String, NoPayload> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let too_large = |signals: &Signals| {
        signals.body_left_unread();
        Err(NoPayload::Refused(ErrorInfo::new(Code::BODY_TOO_LARGE).with_message(format!(
            "The request body is larger than {MAX_BODY_BYTES} bytes."
        ))))
    };
    if declared.is_some_and(|bytes| bytes > MAX_BODY_BYTES as u64) {
        return too_large(signals);
    }
    let deadline = signals.take_arrival() + REQUEST_TIMEOUT;
    let mut read = Pieces::default();
    while !body.is_end_stream() {
        let piece = match timeout_at(deadline, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(_))) | Err(_) => return Err(NoPayload::Gone(Abandoned)),
        };
        let Ok(data) = piece.into_data() else { continue };
        if data.len() > MAX_BODY_BYTES - read.len() {
            return too_large(signals);
        }
        read.push(data);
    }
    // The bytes of the next request start its own time.
    let _ = signals.take_arrival();
    text(read.join()).map_err(NoPayload::Refused)
}

fn text(mut body: Bytes) -> Result<String, ErrorInfo> {
    if body.starts_with(b"\xef\xbb\xbf") {
        body.advance(3);
    }
    String::from_utf8(body.into())
        .map_err(|_| ErrorInfo::new(Code::INVALID_REQUEST).with_message("The request body is not valid UTF-8."))
}

/// `application/json`, then nothing or white space and parameters; the case does not matter.
fn is_json(value: &[u8]) -> bool {
    const NAME: &[u8] = b"application/json";
    let Some((name, rest)) = value.split_at_checked(NAME.len()) else { return false };
    let rest = rest.trim_ascii_start();
    name.eq_ignore_ascii_case(NAME) && (rest.is_empty() || rest.starts_with(b";"))
}

/// A body that mostly arrives in one piece, which then is not copied.
#[derive(Default)]
struct Pieces {
    only: Bytes,
    joined: BytesMut,
}

impl Pieces {
    fn len(&self) -> usize {
        self.only.len() + self.joined.len()
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.only = piece;
            return;
        }
        let first = std::mem::take(&mut self.only);
        self.joined.extend_from_slice(&first);
        self.joined.extend_from_slice(&piece);
    }

    fn join(self) -> Bytes {
        if self.only.is_empty() { self.joined.freeze() } else { self.only }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Contract 1.2, step 10.
    #[test]
    fn only_json_content_types_pass() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json;charset=utf-8",
            "application/json ; charset=utf-8",
            "application/json ",
        ] {
            assert!(is_json(good.as_bytes()), "{good:?}");
        }
        for bad in ["", "text/plain", "application/jsonx", "application/json, text/plain", "application/json x", "json"] {
            assert!(!is_json(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn pieces_join_in_order() {
        let join = |pieces: &[&'static str]| {
            let mut joined = Pieces::default();
            for piece in pieces {
                joined.push(Bytes::from_static(piece.as_bytes()));
            }
            String::from_utf8(joined.join().into()).unwrap()
        };
        assert_eq!(join(&[]), "");
        assert_eq!(join(&["a"]), "a");
        assert_eq!(join(&["", "a", "", "b", "c"]), "abc");
    }
}
