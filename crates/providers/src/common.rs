//! What holds for every provider (contract 2.2 and 6.1).

use crate::error::Error;

/// The largest count that a usage report carries (2^53 - 1, contract 2.2).
pub(crate) const MAX_COUNT: u64 = 9_007_199_254_740_991;

/// The most models that an instance may list (contract 6.1).
const MAX_MODELS: usize = 1_000;

/// The longest name in UTF-16 units (contract 6.1).
const MAX_NAME: usize = 100;

pub(crate) fn check_models(path: &str, count: usize) -> Result<(), Error> {
    if (1..=MAX_MODELS).contains(&count) {
        Ok(())
    } else {
        Err(Error::config(path, format!("expected 1 to {MAX_MODELS} models")))
    }
}

pub(crate) fn check_name(path: &str, name: &str) -> Result<(), Error> {
    if (1..=MAX_NAME).contains(&name.encode_utf16().count()) {
        Ok(())
    } else {
        Err(Error::config(path, format!("expected 1 to {MAX_NAME} characters")))
    }
}
