//! Putting a driver together: providers, tools, how reviews are done, and bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::audit::AuditSink;
use countersign_approval_core::clock::Clock;
use countersign_approval_core::ids::{Ids, ProviderId, ToolName};
use countersign_approval_core::json::Kind;
use countersign_approval_core::registry::{Limits, Reasons, Registry};
use countersign_protocol::version::feature;

use crate::application::ApplicationToolSettings;
use crate::approve::Approve;
use crate::driver::{ArgumentSchema, Driver, Executor, Parts, RegisteredTool, ReviewRules};
use crate::executions::Executions;
use crate::figures::Meter;
use crate::operation::OperationSettings;
use crate::provider::{Provider, ToolDefinition};
use crate::reviews::Reviews;
use crate::schema::{InputSchema, Room};
use crate::system::{RandomIds, SystemClock};
use crate::tools::Tool;
use crate::trace::LogArguments;

/// How many tools and how many providers a driver may have (contract 6.1; a run selects at most 32 of the tools).
const MAX_TOOLS: usize = 256;
const MAX_PROVIDERS: usize = 32;

/// Interactive review is on if a driver has these (contract 4.1).
#[derive(Clone, Default)]
pub struct ApprovalSettings {
    /// `allowIdlePause`.
    pub idle_pause: IdlePause,
    /// `maxPending` and `maxRejectedPerMinute`.
    pub limits: Limits,
    /// What a request may ask for beyond the contract; nothing by default.
    pub features: Vec<ApprovalFeature>,
    /// Where audit records go; without one nothing is recorded.
    pub sink: Option<Arc<dyn AuditSink>>,
}

/// Whether a request may stop its idle clock while a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdlePause {
    /// `idlePolicy: "pause"` is accepted.
    #[default]
    Allowed,
    /// `idlePolicy: "pause"` is answered `APPROVAL_POLICY`.
    Refused,
}

/// An addition to the contract (design 4): on only if the host has it, and used only if the request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalFeature {
    /// `approval-digest`: with `approvals.digest: true`, `approval.requested` carries the call's digest.
    Digest,
    /// `denial-feedback`: with `approvals.onDeny: "continue"`, the model is told of a denial or an expiry, and the run goes
    /// on. A decision may carry a reason.
    DenialFeedback,
}

impl ApprovalFeature {
    /// Its name in `GET /v1/protocol` and in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Digest => feature::APPROVAL_DIGEST,
            Self::DenialFeedback => feature::DENIAL_FEEDBACK,
        }
    }
}

/// The host's bounds on a run (contract 2, 6.1). A request can lower them only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Model steps; 1 to 64. Default 64.
    pub max_steps: u32,
    /// Tokens of one model step; 1 to 65,536. Default 65,536.
    pub max_output_tokens: u32,
    /// Attempts of one model step while the vendor is busy; 1 to 5. Default 5; a request that asks for none gets one.
    pub max_attempts: u32,
    /// The idle limit; none, or zero, means none.
    pub idle_timeout: Option<Duration>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { max_steps: 64, max_output_tokens: 65_536, max_attempts: 5, idle_timeout: None }
    }
}

/// Why a driver cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A driver without a provider can run nothing.
    #[error("no provider: call `provider` at least once")]
    NoProvider,
    /// Two providers have one id.
    #[error("provider {0} is registered twice")]
    DuplicateProvider(ProviderId),
    /// More than the driver holds.
    #[error("at most {limit} {what} can be registered")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// Two tools have one name.
    #[error("tool {0} is registered twice")]
    DuplicateTool(ToolName),
    /// The tool's schema does not compile.
    #[error("tool {name}: input schema: {message}")]
    Schema {
        /// The tool.
        name: ToolName,
        /// What is wrong.
        message: String,
    },
    /// A bound is out of its range.
    #[error("{what} must be {rule}")]
    Limit {
        /// Which.
        what: &'static str,
        /// Its range.
        rule: &'static str,
    },
}

/// Builds a [`Driver`].
#[must_use = "call `build`"]
#[derive(Default)]
pub struct Builder {
    providers: Vec<Arc<dyn Provider>>,
    tools: Vec<Arc<dyn Tool>>,
    approvals: Option<ApprovalSettings>,
    approve: Option<Arc<dyn Approve>>,
    application_tools: Option<ApplicationToolSettings>,
    limits: RunLimits,
    operations: Option<OperationSettings>,
    log_arguments: LogArguments,
    clock: Option<Arc<dyn Clock>>,
    ids: Option<Arc<dyn Ids>>,
}

impl Builder {
    /// Adds a provider instance.
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Registers a tool. A run can use it only if its request names it.
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Switches interactive review on.
    pub fn approvals(mut self, settings: ApprovalSettings) -> Self {
        self.approvals = Some(settings);
        self
    }

    /// Sets the embedder's own check of gated calls.
    pub fn approve(mut self, approve: Arc<dyn Approve>) -> Self {
        self.approve = Some(approve);
        self
    }

    /// Lets requests bring tools that their application executes (contract 7.6).
    #[cfg(feature = "schema")]
    pub const fn application_tools(mut self, settings: ApplicationToolSettings) -> Self {
        self.application_tools = Some(settings);
        self
    }

    /// Sets the host's bounds.
    pub const fn limits(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Honours idempotency keys (contract 9).
    pub fn operations(mut self, settings: OperationSettings) -> Self {
        self.operations = Some(settings);
        self
    }

    /// Says whether the log may hold arguments of calls; by default it does not.
    pub const fn log_arguments(mut self, log_arguments: LogArguments) -> Self {
        self.log_arguments = log_arguments;
        self
    }

    /// Replaces the machine's clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Replaces the source of ids.
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// Checks everything that was given.
    ///
    /// # Errors
    /// [`BuildError`] names the first thing that is wrong.
    pub fn build(self) -> Result<Driver, BuildError> {
        let in_range = |value: u32, most: u32| (1..=most).contains(&value);
        if !in_range(self.limits.max_steps, 64) {
            return Err(BuildError::Limit { what: "max_steps", rule: "1 to 64" });
        }
        if !in_range(self.limits.max_output_tokens, 65_536) {
            return Err(BuildError::Limit { what: "max_output_tokens", rule: "1 to 65,536" });
        }
        if !in_range(self.limits.max_attempts, 5) {
            return Err(BuildError::Limit { what: "max_attempts", rule: "1 to 5" });
        }
        if self.limits.idle_timeout.is_some_and(|limit| limit > Duration::from_millis(2_147_483_647)) {
            return Err(BuildError::Limit { what: "idle_timeout", rule: "at most 2,147,483,647 ms" });
        }
        if self.approvals.as_ref().is_some_and(|settings| settings.limits.max_pending == 0) {
            return Err(BuildError::Limit { what: "approvals.limits.max_pending", rule: "at least 1" });
        }
        if self.application_tools.is_some_and(|settings| settings.max_pending == 0) {
            return Err(BuildError::Limit { what: "application_tools.max_pending", rule: "at least 1" });
        }
        if self.operations.as_ref().is_some_and(|settings| settings.max_record_bytes == 0) {
            return Err(BuildError::Limit { what: "operations.max_record_bytes", rule: "at least 1" });
        }
        let providers = providers(self.providers)?;
        let tools = tools(self.tools)?;
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let ids = self.ids.unwrap_or_else(|| Arc::new(RandomIds));
        let settings = self.approvals.as_ref();
        let approvals = settings.map(|settings| ReviewRules {
            idle_pause: settings.idle_pause,
            features: settings.features.clone(),
        });
        let reasons = match &approvals {
            Some(rules) if rules.offers(ApprovalFeature::DenialFeedback) => Reasons::Accepted,
            _ => Reasons::Refused,
        };
        let settings = self.approvals.unwrap_or_default();
        let registry = Registry::new(settings.limits).with_reasons(reasons);
        let meter = Arc::new(Meter::default());
        let reviews =
            Reviews::new(registry, settings.sink, Arc::clone(&clock), Arc::clone(&ids), Arc::clone(&meter));
        let max_executions = self.application_tools.unwrap_or_default().max_pending;
        let executions = Executions::new(max_executions, Arc::clone(&ids));
        Ok(Driver::new(Parts {
            providers,
            tools,
            approvals,
            approve: self.approve,
            application_tools: self.application_tools,
            executions,
            limits: self.limits,
            operations: self.operations,
            reviews,
            meter,
            log_arguments: self.log_arguments,
            room: Room::default(),
            clock,
            ids,
        }))
    }
}

type Named<T> = Vec<(ProviderId, T)>;

fn providers(given: Vec<Arc<dyn Provider>>) -> Result<Named<Arc<dyn Provider>>, BuildError> {
    if given.is_empty() {
        return Err(BuildError::NoProvider);
    }
    if given.len() > MAX_PROVIDERS {
        return Err(BuildError::TooMany { what: "providers", limit: MAX_PROVIDERS });
    }
    let mut providers: Named<Arc<dyn Provider>> = Vec::with_capacity(given.len());
    for provider in given {
        let id = provider.info().id.clone();
        if providers.iter().any(|(known, _)| *known == id) {
            return Err(BuildError::DuplicateProvider(id));
        }
        providers.push((id, provider));
    }
    Ok(providers)
}

fn tools(given: Vec<Arc<dyn Tool>>) -> Result<BTreeMap<ToolName, RegisteredTool>, BuildError> {
    if given.len() > MAX_TOOLS {
        return Err(BuildError::TooMany { what: "tools", limit: MAX_TOOLS });
    }
    let mut tools = BTreeMap::new();
    for tool in given {
        let spec = tool.spec();
        let name = spec.name.clone();
        if tools.contains_key(&name) {
            return Err(BuildError::DuplicateTool(name));
        }
        let wrong = |message: String| BuildError::Schema { name: name.clone(), message };
        if spec.input_schema.kind() != Kind::Object {
            return Err(wrong("expected a JSON object".into()));
        }
        let schema = InputSchema::of_tool(&spec.input_schema).map_err(wrong)?;
        let definition = ToolDefinition {
            name: name.clone(),
            description: spec.description.clone(),
            input_schema: spec.input_schema.clone(),
        };
        let registered = RegisteredTool {
            review: spec.review,
            definition,
            schema: ArgumentSchema::Host(schema),
            executor: Executor::Host(Arc::clone(&tool)),
        };
        tools.insert(name, registered);
    }
    Ok(tools)
}
