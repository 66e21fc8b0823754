//! Secrets by reference: an environment variable or a private file (contract 6.1). Inline secrets are refused.

use std::env::{self, VarError};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use countersign_protocol::code::Code;
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::reader::Field;
use crate::error::StartError;

/// The most bytes of a secret's file.
const MAX_SECRET_BYTES: u64 = 65_536;

/// Where references are resolved.
pub(super) struct Secrets<'a> {
    base: &'a Path,
    variable: fn(&str) -> Result<String, VarError>,
}

impl<'a> Secrets<'a> {
    pub(super) fn new(base: &'a Path) -> Self {
        Self { base, variable: |name| env::var(name) }
    }

    /// What relative paths of the configuration resolve against.
    pub(super) fn base(&self) -> &'a Path {
        self.base
    }

    /// The secret that a reference names, without white space at its end.
    ///
    /// # Errors
    /// A missing file or variable is an empty secret (contract 6.1) and so never of use: `AUTH_REQUIRED`, with its name.
    pub(super) fn resolve(&self, field: &Field<'_>) -> Result<SecretString, StartError> {
        if field.node().as_str().is_some() {
            return Err(field.invalid(
                "a secret is named by reference, {\"env\": NAME} or {\"file\": PATH}, not written here",
            ));
        }
        let mut reference = field.object()?;
        let (variable, file) = (reference.optional("env"), reference.optional("file"));
        if reference.optional("keychain").is_some() {
            return Err(
                field.invalid("secrets in a keychain are not served by this version; use env or file")
            );
        }
        reference.finish()?;
        let value = match (variable, file) {
            (Some(variable), None) => self.read_variable(&variable)?,
            (None, Some(file)) => self.read_file(&file)?,
            (None, None) | (Some(_), Some(_)) => {
                return Err(field.invalid("expected exactly one of env and file"));
            }
        };
        Ok(SecretString::from(value.trim_end()))
    }

    fn read_variable(&self, field: &Field<'_>) -> Result<Zeroizing<String>, StartError> {
        let name = field.string(1..=128)?;
        let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        let good =
            name.bytes().all(|b| letter(b) || b.is_ascii_digit()) && name.bytes().next().is_some_and(letter);
        if !good {
            return Err(field.invalid("must match ^[A-Za-z_][A-Za-z0-9_]{0,127}$"));
        }
        match (self.variable)(&name) {
            Ok(value) => Ok(Zeroizing::new(value)),
            Err(VarError::NotPresent) => Err(missing(field, format!("the variable {name} is not set"))),
            Err(VarError::NotUnicode(_)) => {
                let reason = format!("the variable {name} is not valid UTF-8");
                Err(StartError::with(Code::SECRET_UNAVAILABLE, field.path(), reason))
            }
        }
    }

    fn read_file(&self, field: &Field<'_>) -> Result<Zeroizing<String>, StartError> {
        let name = field.string(1..=4096)?;
        let path = self.base.join(&name);
        let unavailable =
            |error: &io::Error| StartError::with(Code::SECRET_UNAVAILABLE, field.path(), error.to_string());
        // Asked before opening: opening a pipe would wait for its other end.
        match fs::metadata(&path) {
            Ok(metadata) => check_kind(field, &metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_file(field, &name, &path));
            }
            Err(error) => return Err(unavailable(&error)),
        }
        let file = File::open(&path).map_err(|error| unavailable(&error))?;
        // Asked again of what was opened: the name may mean another file by now.
        let metadata = file.metadata().map_err(|error| unavailable(&error))?;
        check_kind(field, &metadata)?;
        check_mode(field, &metadata)?;
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unavailable(&error))?;
        if bytes.len() as u64 > MAX_SECRET_BYTES {
            let reason = format!("the file is larger than {MAX_SECRET_BYTES} bytes");
            return Err(StartError::with(Code::SECRET_TOO_LARGE, field.path(), reason));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Zeroizing::new(text.to_owned())),
            Err(_) => {
                Err(StartError::with(Code::SECRET_UNAVAILABLE, field.path(), "the file is not valid UTF-8"))
            }
        }
    }
}

/// The whole path, as a relative one resolves against the configuration's folder, which a reader may not expect.
fn no_file(field: &Field<'_>, name: &str, path: &Path) -> StartError {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let tilde = if name.starts_with('~') { "; ~ is not expanded" } else { "" };
    missing(field, format!("the file {} does not exist{tilde}", path.display().to_string().escape_debug()))
}

fn missing(field: &Field<'_>, reason: String) -> StartError {
    StartError::with(Code::AUTH_REQUIRED, field.path(), reason)
}

fn check_kind(field: &Field<'_>, metadata: &Metadata) -> Result<(), StartError> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(StartError::with(Code::SECRET_UNAVAILABLE, field.path(), "not a regular file"))
}

#[cfg(unix)]
fn check_mode(field: &Field<'_>, metadata: &Metadata) -> Result<(), StartError> {
    use std::os::unix::fs::PermissionsExt;

    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let reason = format!("others may use the file (mode {mode:03o}); chmod 600 it");
    Err(StartError::with(Code::SECRET_PERMISSIONS, field.path(), reason))
}

/// Only POSIX modes are looked at (contract 6.1).
#[cfg(not(unix))]
fn check_mode(_: &Field<'_>, _: &Metadata) -> Result<(), StartError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use countersign_approval_core::json::Document;
    use secrecy::ExposeSecret;

    use super::super::reader::Object;
    use super::*;

    // The environment of a test process cannot be set safely, so the lookup is replaced.
    #[test]
    fn a_variable_is_read_and_trimmed_at_its_end_and_a_missing_one_is_named() {
        let variable = |name: &str| match name {
            "KEY" => Ok(" value \n".to_owned()),
            "BYTES" => Err(VarError::NotUnicode("s3cret".into())),
            _ => Err(VarError::NotPresent),
        };
        let secrets = Secrets { base: Path::new(""), variable };
        let resolve = |text: &str| {
            let document = Document::parse(text).unwrap();
            let field = Object::top(document.root()).unwrap().required("ref").unwrap();
            secrets
                .resolve(&field)
                .map(|secret| secret.expose_secret().to_owned())
                .map_err(|error| error.to_string())
        };
        assert_eq!(resolve(r#"{"ref":{"env":"KEY"}}"#).as_deref(), Ok(" value"));
        assert_eq!(
            resolve(r#"{"ref":{"env":"OTHER"}}"#),
            Err("AUTH_REQUIRED: ref.env: the variable OTHER is not set".to_owned())
        );
        assert_eq!(
            resolve(r#"{"ref":{"env":"BYTES"}}"#),
            Err("SECRET_UNAVAILABLE: ref.env: the variable BYTES is not valid UTF-8".to_owned())
        );
        assert_eq!(
            resolve(r#"{"ref":{"env":"1KEY"}}"#),
            Err("INVALID_CONFIG: ref.env: must match ^[A-Za-z_][A-Za-z0-9_]{0,127}$".to_owned())
        );
    }
}
