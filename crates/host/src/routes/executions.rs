//! `POST /v1/tool-executions/…` (contract 7.6): what an application reports. It takes no run slot. Where application
//! tools are off nothing can be found (contract 1.9).

use std::sync::Arc;

use countersign_approval_core::grants::Principal;
use countersign_protocol::code::ErrorInfo;
use countersign_protocol::tool_execution::{ExecutionIdentity, ExecutionResult};

use crate::respond::{self, Answer};
use crate::service::Shared;

/// That work goes on.
pub(crate) fn progress(shared: &Shared, principal: &Arc<Principal>, text: &str) -> Result<Answer, ErrorInfo> {
    let identity = ExecutionIdentity::parse(text).map_err(|invalid| ErrorInfo::from(&invalid))?;
    Ok(respond::ok(&shared.driver.report_progress(&identity, principal)?))
}

/// How it ended.
pub(crate) async fn result(
    shared: &Shared,
    principal: &Arc<Principal>,
    text: &str,
) -> Result<Answer, ErrorInfo> {
    let result = ExecutionResult::parse(text).map_err(|invalid| ErrorInfo::from(&invalid))?;
    Ok(respond::ok(&shared.driver.submit_result(&result, principal).await?))
}
