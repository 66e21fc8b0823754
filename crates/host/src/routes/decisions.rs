//! `POST /v1/approvals/decisions` (contract 4.4). It takes no run slot, so a full host can still be decided.

use std::sync::Arc;

use countersign_approval_core::grants::Principal;
use countersign_protocol::code::ErrorInfo;

use crate::log::About;
use crate::respond::{self, Answer};
use crate::service::Shared;

/// Hands the text to the driver, which alone reads it. A caller who hangs up changes nothing (design 4).
pub(crate) async fn decide(
    shared: &Shared,
    principal: &Arc<Principal>,
    text: &str,
) -> Result<Answer, ErrorInfo> {
    let receipt = shared.driver.decide_text(text, principal).await?;
    let about = About { run: receipt.run_id, approval: Some(receipt.approval_id) };
    Ok(about.on(respond::ok(&receipt)))
}
