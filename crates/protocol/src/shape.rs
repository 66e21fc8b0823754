//! Reading bodies: bytes to text, and text to a shape.

use countersign_approval_core::json::Document;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::error::{InvalidRequest, InvalidShape};

/// The text of a request body: UTF-8, one leading byte order mark tolerated (contract 1.2, step 12).
///
/// # Errors
/// [`InvalidRequest`] if the bytes are not UTF-8.
pub fn body_text(bytes: &[u8]) -> Result<&str, InvalidRequest> {
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidRequest::new("the body is not UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Reads the JSON text of an answer as a `T`: a catalog, an error body, a receipt, a result (contract 10.2).
///
/// Members that `T` does not know are ignored, but duplicate keys and lone surrogates are refused everywhere.
///
/// ```
/// use countersign_protocol::code::{Code, ErrorBody};
///
/// let text = r#"{"error":{"code":"BUSY","message":"All run slots are taken.","retryable":true}}"#;
/// let body: ErrorBody = countersign_protocol::decode(text)?;
/// assert_eq!(body.error.code, Code::BUSY);
/// # Ok::<(), countersign_protocol::error::InvalidShape>(())
/// ```
///
/// # Errors
/// [`InvalidShape`]; an application sees it as `INVALID_RESPONSE`.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, InvalidShape> {
    Document::parse(text).map_err(|refused| InvalidShape { what: refused.to_string(), cause: None })?;
    from_raw(text, "the answer")
}

/// Reads one checked part of a document.
pub(crate) fn from_raw<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, InvalidShape> {
    serde_json::from_str(text).map_err(|cause| InvalidShape {
        what: format!("{what} does not have the protocol's shape"),
        cause: Some(cause),
    })
}

/// For optional members, which are left out and never null (contract 3.1): a member that is there must hold a `T`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Length in UTF-16 units, the unit of every string bound of the protocol (contract 12.2).
pub(crate) fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count()
}
