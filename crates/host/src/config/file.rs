//! Reading the configuration file within its bounds (contract 6.1).

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::error::StartError;

/// The most bytes of a configuration file.
const MAX_CONFIG_BYTES: u64 = 1_000_000;

/// The text of the file.
pub(super) fn read(path: &Path) -> Result<String, StartError> {
    let wrong = |reason: String| StartError::File { path: path.display().to_string(), reason };
    // Asked before opening: opening a pipe would wait for its other end.
    let metadata = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("not a regular file".into()));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(wrong(format!("larger than {MAX_CONFIG_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| wrong("not valid UTF-8".into()))
}
