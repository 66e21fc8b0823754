//! The checks on the calls of one model step, before any of them is shown (contract 7.3; design 3, "Where it refuses").

use std::collections::BTreeMap;

use countersign_approval_core::ids::{CallId, ToolName};
use countersign_approval_core::json::{Exact, Kind};
use countersign_approval_core::snapshot::ToolCall;
use countersign_protocol::code::{Code, ErrorInfo};

use crate::application::ApplicationTools;
use crate::driver::RegisteredTool;
use crate::provider::ProposedCall;

/// Contract 7.3: calls in one step.
const MAX_CALLS: usize = 32;

/// How many steps there still are after the one that proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The last one: its calls could not be answered.
    Last,
    /// Others may follow.
    Earlier,
}

/// The tools that a run selected.
#[derive(Clone, Copy)]
pub(crate) struct Selected<'a> {
    /// All that are registered.
    pub(crate) tools: &'a BTreeMap<ToolName, RegisteredTool>,
    /// Those that the request brings.
    pub(crate) application: &'a ApplicationTools,
    /// Those that the request names, at most 32.
    pub(crate) names: &'a [ToolName],
}

impl<'a> Selected<'a> {
    fn get(self, name: &str) -> Option<(&'a ToolName, &'a RegisteredTool)> {
        let name = self.names.iter().find(|selected| selected.as_str() == name)?;
        Some((name, self.application.get(name).or_else(|| self.tools.get(name))?))
    }
}

/// Checks all calls of a step; one bad call refuses them all.
pub(crate) async fn check(
    proposed: Vec<ProposedCall>,
    step: Step,
    selected: Selected<'_>,
    used_ids: &mut Vec<CallId>,
) -> Result<Vec<ToolCall>, ErrorInfo> {
    if step == Step::Last {
        return Err(ErrorInfo::new(Code::STEP_LIMIT));
    }
    if proposed.len() > MAX_CALLS {
        return Err(ErrorInfo::new(Code::TOOL_LIMIT).with_message(format!(
            "the model proposed {} calls in one step; at most {MAX_CALLS} are taken",
            proposed.len()
        )));
    }
    let mut calls = Vec::with_capacity(proposed.len());
    for call in proposed {
        calls.push(check_one(call, selected, used_ids).await?);
    }
    Ok(calls)
}

async fn check_one(
    proposed: ProposedCall,
    selected: Selected<'_>,
    used_ids: &mut Vec<CallId>,
) -> Result<ToolCall, ErrorInfo> {
    let Some((name, tool)) = selected.get(&proposed.name) else {
        return Err(ErrorInfo::new(Code::TOOL_NOT_ALLOWED));
    };
    let invalid = |message: String| ErrorInfo::new(Code::INVALID_TOOL_CALL).with_message(message);
    let id = CallId::parse(&proposed.id).map_err(|error| invalid(format!("a call of {name}: {error}")))?;
    match used_ids.binary_search(&id) {
        Ok(_) => return Err(invalid(format!("a call of {name}: its id was used before in this run"))),
        Err(place) => used_ids.insert(place, id.clone()),
    }
    let arguments =
        arguments(&proposed.arguments).map_err(|refused| invalid(format!("{name}: {refused}")))?;
    let wrong = |message: String| ErrorInfo::new(Code::INVALID_TOOL_ARGUMENTS).with_message(message);
    if arguments.kind() != Kind::Object {
        return Err(wrong(format!("{name}: the arguments are not a JSON object")));
    }
    tool.schema.check(&arguments).await.map_err(|message| wrong(format!("{name}: {message}")))?;
    Ok(ToolCall { id, name: name.clone(), arguments })
}

/// Missing or blank argument text means no arguments; nothing else is mended (scenario M1).
fn arguments(text: &str) -> Result<Exact, countersign_approval_core::json::Refused> {
    let blank = text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    if blank { Ok(Exact::empty_object()) } else { Exact::parse(text) }
}
