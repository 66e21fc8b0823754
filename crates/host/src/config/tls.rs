//! `tls`: the certificate and the key of the host (contract 6.1).

use std::fs::{self, File};
use std::io::{self, Read};

use countersign_protocol::code::Code;

use super::reader::Field;
use super::secrets::Secrets;
use crate::error::StartError;
use crate::tls::Tls;

/// The most bytes of the certificates' file.
const MAX_CERTIFICATE_BYTES: u64 = 1_000_000;

pub(super) fn read(field: &Field<'_>, secrets: &Secrets<'_>) -> Result<Tls, StartError> {
    let mut members = field.object()?;
    let (file, key) = (members.required("certFile")?, members.required("keyRef")?);
    members.finish()?;
    let certificates = certificates(&file, secrets)?;
    // A key that is not there is a pair that cannot be used, whatever it is called elsewhere.
    let key = secrets.resolve(&key).map_err(|error| match error {
        StartError::Field { code, field, reason } if code == Code::AUTH_REQUIRED => {
            StartError::with(Code::INVALID_TLS, field, reason)
        }
        other => other,
    })?;
    Tls::from_pem(&certificates, &key)
}

fn certificates(field: &Field<'_>, secrets: &Secrets<'_>) -> Result<Vec<u8>, StartError> {
    let path = secrets.base().join(field.string(1..=4096)?);
    let wrong = |reason: String| StartError::with(Code::INVALID_TLS, field.path(), reason);
    let unreadable = |error: io::Error| {
        let path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        wrong(format!("cannot read {}: {error}", path.display().to_string().escape_debug()))
    };
    // Asked before opening: opening a pipe would wait for its other end.
    if !fs::metadata(&path).map_err(unreadable)?.is_file() {
        return Err(wrong("not a regular file".into()));
    }
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(MAX_CERTIFICATE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_CERTIFICATE_BYTES {
        return Err(wrong(format!("larger than {MAX_CERTIFICATE_BYTES} bytes")));
    }
    Ok(bytes)
}
