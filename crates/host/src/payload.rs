//! Request bodies, read within bounds of size and time (contract 1.2 steps 10 to 12).

use std::time::Duration;

use bytes::Bytes;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::version::MAX_BODY_BYTES;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

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

/// Step 12: the bytes of the body of a request whose first byte came at `arrived`.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Incoming,
    arrived: Instant,
    signals: &Signals,
) -> Result<Bytes, NoPayload> {
    let too_large = || {
        let message = format!("The request body is larger than {MAX_BODY_BYTES} bytes.");
        NoPayload::Refused(ErrorInfo::new(Code::BODY_TOO_LARGE).with_message(message))
    };
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    let deadline = arrived + REQUEST_TIMEOUT;
    match timeout_at(deadline, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(read)) => {
            signals.body_read();
            Ok(read.to_bytes())
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) | Err(_) => Err(NoPayload::Gone(Abandoned)),
    }
}

/// `application/json`, then nothing or white space and parameters; the case does not matter.
fn is_json(value: &[u8]) -> bool {
    const NAME: &[u8] = b"application/json";
    let Some((name, rest)) = value.split_at_checked(NAME.len()) else { return false };
    let rest = rest.trim_ascii_start();
    name.eq_ignore_ascii_case(NAME) && (rest.is_empty() || rest.starts_with(b";"))
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
        for bad in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json, text/plain",
            "application/json x",
            "json",
        ] {
            assert!(!is_json(bad.as_bytes()), "{bad:?}");
        }
    }
}
