//! What holds for every provider (contract 1.7, 2.2, 6.1 and 11, "Common").

use countersign_driver::provider::{ProviderError, Turn};
use countersign_protocol::code::Code;
use countersign_protocol::result::FinishReason;

use crate::error::Error;

/// The largest count that a usage report carries (2^53 - 1, contract 2.2).
pub(crate) const MAX_COUNT: u64 = 9_007_199_254_740_991;

/// The most models that an instance may list (contract 6.1).
const MAX_MODELS: usize = 1_000;

/// The longest name in UTF-16 units (contract 6.1).
const MAX_NAME: usize = 100;

/// Refuses a turn that the length bound cut while it was proposing calls: the last call may be half of one.
pub(crate) fn checked(turn: Turn) -> Result<Turn, ProviderError> {
    if turn.finish == FinishReason::Length && !turn.calls.is_empty() {
        return Err(ProviderError::new(Code::TRUNCATED_TOOL_CALL));
    }
    Ok(turn)
}

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
