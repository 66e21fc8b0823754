//! From a configuration and what only code can give to a driver (contract 6.1, 6.3).

use std::fmt;
use std::sync::Arc;

use countersign_approval_core::audit::AuditSink;
use countersign_approval_core::ids::ToolName;
use countersign_driver::operation::{OperationSettings, OperationStore};
use countersign_driver::{ApprovalSettings, Approve, BuildError, Driver, Tool};

use crate::config::HostConfig;
use crate::error::StartError;

/// What configuration cannot install. Nothing by default.
#[derive(Default)]
pub struct Extras {
    /// The tools. A run can use one only if its token and its request name it.
    pub tools: Vec<Arc<dyn Tool>>,
    /// A check of gated calls by rule, asked before any person is (contract 4.3).
    pub approve: Option<Arc<dyn Approve>>,
    /// Where the records of reviews go; used if the configuration switches `approvals` on. Without it nothing is
    /// recorded.
    pub on_approval_audit: Option<Arc<dyn AuditSink>>,
    /// What remembers runs with an idempotency key: [`HostConfig::open_operations`], or a store of your own, which a
    /// configuration without `operations` may have too. Without it such runs are refused.
    pub operations: Option<Arc<dyn OperationStore>>,
}

impl fmt::Debug for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras")
            .field("tools", &self.tools.iter().map(|tool| &tool.spec().name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Builds the driver that a configuration describes.
///
/// # Errors
/// [`StartError::Field`] if a tool cannot be registered, as when two have one name; `tools[1].name` is of the second in
/// [`Extras::tools`]; and if the configuration has `operations` but no store is given. [`StartError::Driver`] for what
/// the driver refuses else.
pub fn configured_driver(config: &HostConfig, extras: Extras) -> Result<Driver, StartError> {
    let names: Vec<_> = extras.tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let mut builder = Driver::builder().limits(config.limits).log_arguments(config.log_arguments);
    for provider in &config.providers {
        builder = builder.provider(provider.provider());
    }
    for tool in extras.tools {
        builder = builder.tool(tool);
    }
    if let Some(approve) = extras.approve {
        builder = builder.approve(approve);
    }
    match (&config.operations, extras.operations) {
        (None, None) => {}
        (Some(_), None) => {
            return Err(StartError::invalid(
                "operations",
                "the program gives no store; see Extras::operations",
            ));
        }
        (settings, Some(store)) => {
            let mut operations = OperationSettings::new(store);
            if let Some(settings) = settings {
                operations.max_record_bytes = settings.max_record_bytes;
            }
            builder = builder.operations(operations);
        }
    }
    if let Some(approvals) = &config.approvals {
        builder = builder.approvals(ApprovalSettings {
            idle_pause: approvals.idle_pause,
            limits: approvals.limits,
            features: approvals.features.clone(),
            sink: extras.on_approval_audit,
        });
    }
    if let Some(settings) = config.application_tools {
        builder = builder.application_tools(settings);
    }
    builder.build().map_err(|error| named(error, &names))
}

/// An error of the driver with the field of the tool that it is about.
fn named(error: BuildError, names: &[ToolName]) -> StartError {
    let at = |name: &ToolName| names.iter().position(|known| known == name);
    match &error {
        BuildError::DuplicateTool(name) => {
            // The driver stops at the first tool whose name it has seen before.
            match names.iter().enumerate().filter(|(_, known)| *known == name).nth(1) {
                Some((at, _)) => {
                    StartError::invalid(format!("tools[{at}].name"), format!("{name} is used twice"))
                }
                None => error.into(),
            }
        }
        BuildError::Schema { name, message } => match at(name) {
            Some(at) => StartError::invalid(format!("tools[{at}].inputSchema"), message),
            None => error.into(),
        },
        _ => error.into(),
    }
}
