//! `metrics` and `log`: what the host tells its operator (decision 0017). Members of ours, not of the contract.

use countersign_driver::LogArguments;
use secrecy::ExposeSecret;

use super::reader::Field;
use super::secrets::Secrets;
use crate::auth::check_token;
use crate::error::StartError;
use crate::metrics::MetricsAccess;
use crate::options::Token;

/// `true`, or an object that names the one token.
pub(super) fn metrics(
    field: &Field<'_>,
    tokens: &[Token],
    secrets: &Secrets<'_>,
) -> Result<MetricsAccess, StartError> {
    if cfg!(not(feature = "metrics")) {
        return Err(field.invalid("not served by this build, which is without the feature `metrics`"));
    }
    match field.node().as_bool() {
        Some(true) => return Ok(MetricsAccess::AnyToken),
        Some(false) => return Err(field.invalid("expected true; leave `metrics` out to switch it off")),
        None => {}
    }
    let mut members = field.object()?;
    let reference = members.required("tokenRef")?;
    members.finish()?;
    let token = secrets.resolve(&reference)?;
    check_token(reference.path(), token.expose_secret())?;
    // A start-up check among secrets of one file: nobody measures how long it takes.
    if tokens.iter().any(|other| other.token.expose_secret() == token.expose_secret()) {
        return Err(reference.invalid("a token of the host has the same value"));
    }
    Ok(MetricsAccess::Token(token))
}

pub(super) fn log(field: &Field<'_>) -> Result<LogArguments, StartError> {
    let mut members = field.object()?;
    let arguments = members.required("arguments")?.boolean()?;
    members.finish()?;
    Ok(if arguments { LogArguments::Shown } else { LogArguments::Hidden })
}
