//! Reading the catalog of providers (contract 1.7).

use countersign_approval_core::json::{Document, Kind, Node};
use countersign_protocol::provider_info::{ProviderInfo, ProviderList};

use crate::error::Error;

/// Reads the answer of `GET /v1/providers`.
pub(crate) fn read(text: &str) -> Result<Vec<ProviderInfo>, Error> {
    let list: ProviderList = countersign_protocol::decode(text).map_err(|cause| Error::InvalidResponse {
        what: "it is not a catalog of providers",
        cause: Some(cause),
    })?;
    check_unserved(text)?;
    Ok(list.providers)
}

/// Members of the contract that this version does not hand out are not trusted blindly either: they are never null,
/// and a media type must be of a kind that a request could carry (contract 2, `attachments`; 10.4, catalog rows).
fn check_unserved(text: &str) -> Result<(), Error> {
    let document = Document::parse(text).map_err(|_| Error::invalid("it is not JSON"))?;
    for provider in document.root().get("providers").and_then(|list| list.as_array()).into_iter().flatten() {
        for (name, value) in provider.as_object().into_iter().flatten() {
            let fits = match &*name {
                "usageStatId" | "connection" => !value.is_null(),
                "inputMediaTypes" => is_media_types(value),
                _ => true,
            };
            if !fits {
                return Err(Error::invalid("a provider's optional member does not have its shape"));
            }
        }
    }
    Ok(())
}

fn is_media_types(value: Node<'_>) -> bool {
    value.as_array().is_some_and(|mut types| {
        types.all(|entry| {
            entry.kind() == Kind::String && entry.as_str().is_some_and(|text| is_media_type(&text))
        })
    })
}

fn is_media_type(text: &str) -> bool {
    match text.split_once('/') {
        Some(("text" | "image", kind)) => !kind.is_empty(),
        Some(("application", kind)) => matches!(kind, "pdf" | "json"),
        _ => false,
    }
}
