//! Tools that the application executes itself: what a request defines, checked (contract 7.6, 2.1 row 12).

use std::collections::BTreeMap;

use countersign_approval_core::grants::Grants;
use countersign_approval_core::ids::ToolName;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::request::{ApplicationTool, MAX_DEFINITION_BYTES, RunRequest};

use crate::driver::{ArgumentSchema, Executor, RegisteredTool};
use crate::provider::ToolDefinition;
use crate::schema::{Budget, RequestSchema};
use crate::tools::Review;

/// Application tools are on if a driver has these (contract 6.1, `applicationTools`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationToolSettings {
    /// `requireApproval`: whether every call is reviewed, whatever definitions and grants say. Default
    /// [`Review::Required`].
    pub review: Review,
    /// `maxPending`: how many executions may be open at once, over all runs. Default 1,000.
    pub max_pending: usize,
}

impl Default for ApplicationToolSettings {
    fn default() -> Self {
        Self { review: Review::Required, max_pending: 1_000 }
    }
}

/// The application tools of one run.
pub(crate) type ApplicationTools = BTreeMap<ToolName, RegisteredTool>;

/// Contract 2.1, row 12, but for its last check. Each check is done for all definitions before the next one begins.
pub(crate) fn check(
    settings: Option<ApplicationToolSettings>,
    registered: &BTreeMap<ToolName, RegisteredTool>,
    request: &RunRequest,
    budget: &mut Budget,
) -> Result<ApplicationTools, ErrorInfo> {
    let definitions = &request.application_tools;
    if definitions.is_empty() {
        return Ok(ApplicationTools::new());
    }
    let Some(settings) = settings else {
        return Err(ErrorInfo::new(Code::APPLICATION_TOOLS_UNAVAILABLE));
    };
    let refused = |code: Code, at: usize, message: String| {
        ErrorInfo::new(code).with_message(format!("applicationTools[{at}]: {message}"))
    };
    for (at, ApplicationTool { name, .. }) in definitions.iter().enumerate() {
        if definitions.iter().take(at).any(|earlier| earlier.name == *name) {
            return Err(refused(Code::TOOL_DEFINITION_CONFLICT, at, format!("{name} is defined twice")));
        }
        if registered.contains_key(name) {
            return Err(refused(
                Code::TOOL_DEFINITION_CONFLICT,
                at,
                format!("the host has a tool {name} of its own"),
            ));
        }
    }
    for (at, ApplicationTool { name, .. }) in definitions.iter().enumerate() {
        if !request.tools.contains(name) {
            return Err(refused(Code::INVALID_REQUEST, at, format!("{name} is not listed in tools")));
        }
    }
    for (at, definition) in definitions.iter().enumerate() {
        let bytes = definition.compact_len();
        if bytes > MAX_DEFINITION_BYTES {
            let message = format!("it has {bytes} bytes; at most {MAX_DEFINITION_BYTES} are taken");
            return Err(refused(Code::TOOL_DEFINITION_LIMIT, at, message));
        }
    }
    let compiled = definitions.iter().enumerate().map(|(at, definition)| {
        compile(at, definition, settings, budget).map(|tool| (definition.name.clone(), tool))
    });
    compiled.collect()
}

/// The part of the review rule that only the credential knows (contract 7.6): a grant that does not opt out asks for
/// reviews.
pub(crate) fn apply_grants(tools: &mut ApplicationTools, grants: &Grants) {
    for (name, tool) in tools {
        if !grants.unreviewed_application_tools.allows(name.as_str()) {
            tool.review = Review::Required;
        }
    }
}

fn compile(
    at: usize,
    definition: &ApplicationTool,
    settings: ApplicationToolSettings,
    budget: &mut Budget,
) -> Result<RegisteredTool, ErrorInfo> {
    let mut compile = |member: &str, schema| {
        RequestSchema::compile(&format!("applicationTools[{at}].{member}"), schema, budget)
    };
    let schema = ArgumentSchema::Request(compile("inputSchema", &definition.input_schema)?);
    let output_schema =
        definition.output_schema.as_ref().map(|schema| compile("outputSchema", schema)).transpose()?;
    let review = match (settings.review, definition.requires_approval) {
        (Review::Required, _) | (_, Some(true)) => Review::Required,
        (Review::NotRequired, None | Some(false)) => Review::NotRequired,
    };
    Ok(RegisteredTool {
        executor: Executor::Application { output_schema },
        review,
        definition: ToolDefinition {
            name: definition.name.clone(),
            description: definition.description.clone(),
            input_schema: definition.input_schema.clone(),
        },
        schema,
    })
}
