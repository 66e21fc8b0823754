//! The driver: checks a request, starts its run, takes decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use countersign_approval_core::Error;
use countersign_approval_core::clock::Clock;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::grants::{Grants, Principal};
use countersign_approval_core::ids::{Ids, ProviderId, RunId, ToolName};
use countersign_approval_core::json::{Digest, Exact};
use countersign_approval_core::review::{IdlePolicy, Resolution};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{EventBody, RunResult};
use countersign_protocol::provider_info::ProviderInfo;
use countersign_protocol::request::{Approvals, OnDeny, RunRequest, Unavailable};
use countersign_protocol::tool_execution::{ExecutionIdentity, ExecutionReceipt, ExecutionResult};
use countersign_protocol::version::feature;
use tracing::Instrument;

use crate::application::{self, ApplicationToolSettings, ApplicationTools};
use crate::approve::Approve;
use crate::builder::{ApprovalFeature, Builder, IdlePause, RunLimits};
use crate::executions::Executions;
use crate::figures::{Figures, Meter};
use crate::operation::operate::Operating;
use crate::operation::{Claim, OperationKey, OperationSettings, Origin, fingerprint};
use crate::provider::{Discovery, Provider, ToolDefinition};
use crate::reviews::Reviews;
use crate::run::{self, Run};
use crate::schema::{Budget, InputSchema, RequestSchema, Room};
use crate::scope::Scope;
use crate::stream::{self, EventStream};
use crate::tools::{Review, Tool};
use crate::trace::{self, LogArguments};

/// Runs agents. Clones are one driver.
#[derive(Clone)]
pub struct Driver(Arc<Parts>);

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) providers: Vec<(ProviderId, Arc<dyn Provider>)>,
    pub(crate) tools: BTreeMap<ToolName, RegisteredTool>,
    /// Interactive review is on, by these rules.
    pub(crate) approvals: Option<ReviewRules>,
    pub(crate) approve: Option<Arc<dyn Approve>>,
    /// Application tools are on, and this is their rule.
    pub(crate) application_tools: Option<ApplicationToolSettings>,
    pub(crate) executions: Arc<Executions>,
    pub(crate) limits: RunLimits,
    pub(crate) operations: Option<OperationSettings>,
    pub(crate) reviews: Arc<Reviews>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) log_arguments: LogArguments,
    pub(crate) room: Room,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
}

/// What a request may ask for where it selects reviews.
pub(crate) struct ReviewRules {
    pub(crate) idle_pause: IdlePause,
    pub(crate) features: Vec<ApprovalFeature>,
}

impl ReviewRules {
    pub(crate) fn offers(&self, feature: ApprovalFeature) -> bool {
        self.features.contains(&feature)
    }
}

/// A tool with what registration, or the check of a request, made of it.
pub(crate) struct RegisteredTool {
    pub(crate) executor: Executor,
    pub(crate) review: Review,
    pub(crate) definition: ToolDefinition,
    pub(crate) schema: ArgumentSchema,
}

/// What the arguments of a tool are judged by.
pub(crate) enum ArgumentSchema {
    /// Part of the host.
    Host(InputSchema),
    /// Part of a request.
    Request(RequestSchema),
}

impl ArgumentSchema {
    /// Checks arguments. The message repeats no value.
    pub(crate) async fn check(&self, arguments: &Exact) -> Result<(), String> {
        match self {
            Self::Host(schema) => schema.check(arguments),
            Self::Request(schema) => schema.check(arguments).await,
        }
    }
}

/// Who executes a tool.
pub(crate) enum Executor {
    /// The driver.
    Host(Arc<dyn Tool>),
    /// The application that started the run; its outputs are checked.
    Application { output_schema: Option<RequestSchema> },
}

impl Driver {
    /// Starts to build a driver.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Checks a request without starting it (contract 2.1, rows 2 to 14), so that a host can check grants and
    /// capacity in between.
    ///
    /// # Errors
    /// What the contract answers for the first check that fails.
    pub fn prepare(&self, request: RunRequest) -> Result<Prepared, ErrorInfo> {
        let Checked { provider, application, output } = check(&self.0, &request)?;
        let key = request.idempotency_key.as_ref();
        let fingerprint = key.map(|_| fingerprint(&request)).transpose();
        let fingerprint = fingerprint.map_err(|_| ErrorInfo::new(Code::INTERNAL_ERROR))?;
        Ok(Prepared { driver: self.clone(), provider, request, application, output, fingerprint })
    }

    /// As [`Driver::prepare`], away from threads that others wait for if the request brings schemas: compiling them may take
    /// a tenth of a second.
    ///
    /// # Errors
    /// As [`Driver::prepare`].
    pub async fn prepare_aside(&self, request: RunRequest) -> Result<Prepared, ErrorInfo> {
        if request.output_schema.is_none() && request.application_tools.is_empty() {
            return self.prepare(request);
        }
        let driver = self.clone();
        let prepared = self.0.room.aside(move || driver.prepare(request)).await;
        prepared.unwrap_or_else(|| Err(ErrorInfo::new(Code::INTERNAL_ERROR)))
    }

    /// Starts a run and returns its events. The run is cancelled when the stream is dropped.
    ///
    /// A request with an idempotency key may be told an earlier run instead, or be refused by the operation store
    /// (contract 9). Then its only event is `run.failed`: a run that began has `run.started` before it.
    ///
    /// # Errors
    /// Everything that can be refused before the first event: shape, contract 2.1, and the principal's grants.
    pub fn stream(&self, request: RunRequest, principal: Principal) -> Result<EventStream, ErrorInfo> {
        let prepared = self.prepare(strict(&request)?)?;
        prepared.authorize(&principal.grants)?;
        Ok(prepared.stream(&principal, &Scope::default()))
    }

    /// Runs to the end and returns the result. Runs with interactive reviews or application tools must be streamed.
    ///
    /// # Errors
    /// As [`Driver::stream`], `TOOL_STREAM_REQUIRED`, `APPROVAL_STREAM_REQUIRED`, and the error of a run that failed or was cancelled.
    pub async fn run(&self, request: RunRequest, principal: Principal) -> Result<RunResult, ErrorInfo> {
        let prepared = self.prepare_aside(strict(&request)?).await?;
        prepared.authorize(&principal.grants)?;
        prepared.run(&principal, &Scope::default()).await
    }

    /// Takes a decision of an embedder, who vouches for the principal (contract 4.4).
    ///
    /// # Errors
    /// [`Error`]; nothing happened unless it is `Ok`.
    pub async fn decide_approval(
        &self,
        decision: &DecisionRequest,
        principal: &Principal,
    ) -> Result<Resolution, Error> {
        self.0.reviews.decide(principal, decision).await
    }

    /// Takes the body of a decision request (contract 4.4, rows 1 to 7).
    ///
    /// # Errors
    /// What the contract answers; nothing happened unless it is `Ok`.
    pub async fn decide_text(&self, body: &str, principal: &Principal) -> Result<Resolution, ErrorInfo> {
        self.0.reviews.decide_text(principal, body).await
    }

    /// Takes an application's sign of life about an execution (contract 7.6): the idle clock of its run starts anew.
    ///
    /// # Errors
    /// `TOOL_EXECUTION_NOT_FOUND`, `FORBIDDEN` or `TOOL_EXECUTION_MISMATCH`; nothing happened then.
    pub fn report_progress(
        &self,
        identity: &ExecutionIdentity,
        principal: &Principal,
    ) -> Result<ExecutionReceipt, ErrorInfo> {
        self.0.executions.progress(principal, identity)
    }

    /// Takes an application's word on how an execution ended, once (contract 7.6). A caller who goes away changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Driver::report_progress`]. `TOOL_OUTPUT_LIMIT` and `INVALID_TOOL_OUTPUT`, both uncertain: the execution is
    /// over, and its run ends with `TOOL_OUTCOME_UNCERTAIN`.
    pub async fn submit_result(
        &self,
        result: &ExecutionResult,
        principal: &Principal,
    ) -> Result<ExecutionReceipt, ErrorInfo> {
        self.0.executions.result(principal, result).await
    }

    /// The protocol features that this driver switches on, in the contract's order (contract 1.6).
    pub fn features(&self) -> Vec<&'static str> {
        let application_tools = self.0.application_tools.map(|_| feature::APPLICATION_TOOLS);
        let rules = self.0.approvals.as_ref();
        let approvals = rules.map(|_| feature::INTERACTIVE_APPROVALS);
        let operations = self.0.operations.as_ref().map(|_| feature::IDEMPOTENCY);
        let additions = [ApprovalFeature::Digest, ApprovalFeature::DenialFeedback];
        let offered =
            additions.into_iter().filter(|addition| rules.is_some_and(|rules| rules.offers(*addition)));
        let contract = application_tools.into_iter().chain(approvals).chain(operations);
        contract.chain(offered.map(ApprovalFeature::name)).collect()
    }

    /// The providers, in the order of registration.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderInfo> {
        self.0.providers.iter().map(|(_, provider)| provider.info())
    }

    /// Asks a provider's vendor how it is and what models it has (contract 1.7). It may take as long as it takes: whoever
    /// asks bounds it, and remembers the answer. None if the provider cannot be asked, or is not registered.
    pub async fn discover(&self, id: &ProviderId) -> Option<Discovery> {
        let (_, provider) = self.0.providers.iter().find(|(known, _)| known == id)?;
        provider.discover().await
    }

    /// The names of the registered tools.
    pub fn tool_names(&self) -> impl Iterator<Item = &ToolName> {
        self.0.tools.keys()
    }

    /// How many reviews are open.
    pub fn pending_approvals(&self) -> usize {
        self.0.reviews.pending()
    }

    /// What was counted since the driver was built.
    pub fn figures(&self) -> Figures {
        self.0.meter.figures(self.pending_approvals())
    }

    /// How many executions applications were asked for and have not answered.
    pub fn pending_executions(&self) -> usize {
        self.0.executions.pending()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("providers", &self.0.providers.iter().map(|(id, _)| id).collect::<Vec<_>>())
            .field("tools", &self.0.tools.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A request that passed every check but grants and capacity.
#[must_use = "nothing runs until `stream` or `run`"]
pub struct Prepared {
    driver: Driver,
    provider: Arc<dyn Provider>,
    request: RunRequest,
    application: ApplicationTools,
    /// What the answer must fit, compiled.
    output: Option<RequestSchema>,
    /// Of a request with an idempotency key.
    fingerprint: Option<Digest>,
}

impl Prepared {
    /// Checks grants (contract 2.1, row 16). `approve_tools` is not needed to start a run.
    ///
    /// # Errors
    /// `FORBIDDEN`.
    pub fn authorize(&self, grants: &Grants) -> Result<(), ErrorInfo> {
        let provider = grants.providers.allows(self.request.provider.as_str());
        let tools = self.request.tools.iter().all(|tool| {
            let granted =
                if self.application.contains_key(tool) { &grants.application_tools } else { &grants.tools };
            granted.allows(tool.as_str())
        });
        if provider && tools { Ok(()) } else { Err(ErrorInfo::new(Code::FORBIDDEN)) }
    }

    /// Checks that the request can be served without a stream (contract 2.1, row 18).
    ///
    /// # Errors
    /// `TOOL_STREAM_REQUIRED`, `APPROVAL_STREAM_REQUIRED`.
    pub fn check_buffered(&self) -> Result<(), ErrorInfo> {
        if !self.application.is_empty() {
            return Err(ErrorInfo::new(Code::TOOL_STREAM_REQUIRED));
        }
        match self.request.approvals {
            Some(_) => Err(ErrorInfo::new(Code::APPROVAL_STREAM_REQUIRED)),
            None => Ok(()),
        }
    }

    /// Starts the run, as [`Driver::stream`] does. It is cancelled when its scope is, or when the stream is dropped.
    pub fn stream(self, principal: &Principal, scope: &Scope) -> EventStream {
        let run_id = RunId::new(self.driver.0.ids.uuid());
        let operating = self.operating(principal, run_id);
        let Self { driver, provider, request, mut application, output, .. } = self;
        application::apply_grants(&mut application, &principal.grants);
        let cancellation = scope.cancellation.child_token();
        let (outlet, stream) = stream::channel(cancellation.clone());
        let (subject, tasks) = (principal.subject.clone(), scope.tasks.clone());
        let span = trace::run(run_id, &subject, &request.provider);
        let clock = Arc::clone(&driver.0.clock);
        let run = move |outlet| {
            Run::new(
                driver.0,
                provider,
                request,
                application,
                output,
                subject,
                run_id,
                outlet,
                cancellation,
                tasks,
            )
        };
        match operating {
            None => drop(scope.tasks.spawn(run::drive(run(outlet)).instrument(span))),
            Some(operating) => drop(scope.tasks.spawn(operating.claim(clock, outlet, run).instrument(span))),
        }
        stream
    }

    /// What a request with an idempotency key claims (contract 9). Without a store it did not come this far.
    fn operating(&self, principal: &Principal, run_id: RunId) -> Option<Operating> {
        let parts = &self.driver.0;
        let settings = parts.operations.clone()?;
        let key = OperationKey::of(&principal.subject, self.request.idempotency_key.as_ref()?);
        let origin = Origin {
            run_id,
            provider: self.request.provider.clone(),
            model: self.request.model.clone(),
            claimed_at: parts.clock.now().wall,
        };
        Some(Operating { settings, claim: Claim { key, fingerprint: self.fingerprint?, origin } })
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// As [`Prepared::check_buffered`], or the error of a run that failed or was cancelled.
    pub async fn run(self, principal: &Principal, scope: &Scope) -> Result<RunResult, ErrorInfo> {
        self.check_buffered()?;
        let mut events = self.stream(principal, scope);
        while let Some(event) = events.next().await {
            match event.body {
                EventBody::RunCompleted { result } => return Ok(*result),
                EventBody::RunFailed { error } | EventBody::RunCancelled { error } => return Err(error),
                _ => {}
            }
        }
        Err(ErrorInfo::new(Code::INTERNAL_ERROR))
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("provider", &self.request.provider).finish_non_exhaustive()
    }
}

/// An embedder fills the request's fields itself, so it goes through the same strict reading as a request that came
/// over the wire.
fn strict(request: &RunRequest) -> Result<RunRequest, ErrorInfo> {
    let invalid = |message: String| ErrorInfo::new(Code::INVALID_REQUEST).with_message(message);
    let text = serde_json::to_string(request).map_err(|error| invalid(error.to_string()))?;
    RunRequest::decode(&text).map_err(|error| invalid(error.to_string()))
}

/// What checking a request gives.
struct Checked {
    provider: Arc<dyn Provider>,
    application: ApplicationTools,
    output: Option<RequestSchema>,
}

/// Contract 2.1, rows 2 to 14, in their order.
fn check(parts: &Parts, request: &RunRequest) -> Result<Checked, ErrorInfo> {
    let unavailable = |field: Unavailable, code: Code| {
        if request.unavailable.contains(&field) { Err(ErrorInfo::new(code)) } else { Ok(()) }
    };
    let not_served = |field: Unavailable, name: &str| {
        if request.unavailable.contains(&field) {
            let message = format!("{name} is not served by this host; leave it out");
            Err(ErrorInfo::new(Code::INVALID_REQUEST).with_message(message))
        } else {
            Ok(())
        }
    };
    unavailable(Unavailable::Session, Code::SESSIONS_UNAVAILABLE)?;
    unavailable(Unavailable::Retrieval, Code::RETRIEVAL_UNAVAILABLE)?;
    not_served(Unavailable::Attachments, "attachments")?;
    if request.idempotency_key.is_some() && parts.operations.is_none() {
        return Err(ErrorInfo::new(Code::IDEMPOTENCY_UNAVAILABLE));
    }
    let provider = parts
        .providers
        .iter()
        .find(|(id, _)| *id == request.provider)
        .map(|(_, provider)| provider)
        .ok_or_else(|| ErrorInfo::new(Code::UNKNOWN_PROVIDER))?;
    not_served(Unavailable::OutputArtifact, "outputArtifact")?;
    let info = provider.info();
    let capable = |name: &str| info.capabilities.has(name);
    if request.retry.as_ref().is_some_and(|retry| retry.max_attempts > 1) && !capable("safeRetries") {
        return Err(ErrorInfo::new(Code::UNSUPPORTED_CAPABILITY)
            .with_message("retry.maxAttempts: this provider offers no safe retries"));
    }
    if info.models.as_ref().is_some_and(|models| !models.contains(&request.model)) {
        return Err(ErrorInfo::new(Code::UNSUPPORTED_MODEL));
    }
    if !request.required_capabilities.iter().all(|name| capable(name)) {
        return Err(ErrorInfo::new(Code::UNSUPPORTED_CAPABILITY));
    }
    if !request.tools.is_empty() && !capable("tools") {
        return Err(ErrorInfo::new(Code::UNSUPPORTED_TOOLS));
    }
    if request.tools.iter().collect::<BTreeSet<_>>().len() < request.tools.len() {
        return Err(ErrorInfo::new(Code::INVALID_REQUEST).with_message("tools: a name is repeated"));
    }
    let mut budget = Budget::new(&parts.room);
    let application = application::check(parts.application_tools, &parts.tools, request, &mut budget)?;
    let known = |tool: &ToolName| parts.tools.contains_key(tool) || application.contains_key(tool);
    if let Some(unknown) = request.tools.iter().find(|tool| !known(tool)) {
        return Err(ErrorInfo::new(Code::UNKNOWN_TOOL)
            .with_message(format!("tools: {unknown} is not registered with this host")));
    }
    if let Some(approvals) = &request.approvals {
        check_approvals(parts.approvals.as_ref(), approvals)?;
    }
    let output = request
        .output_schema
        .as_ref()
        .map(|schema| RequestSchema::compile("outputSchema", schema, &mut budget))
        .transpose()?;
    Ok(Checked { provider: Arc::clone(provider), application, output })
}

/// Contract 2.1, row 13, and design 4 for the additions.
fn check_approvals(host: Option<&ReviewRules>, approvals: &Approvals) -> Result<(), ErrorInfo> {
    let Some(host) = host else { return Err(ErrorInfo::new(Code::APPROVAL_UNAVAILABLE)) };
    let refused = if host.idle_pause == IdlePause::Refused && approvals.idle_policy == IdlePolicy::Pause {
        "approvals.idlePolicy: this host does not let an idle clock pause; use \"continue\""
    } else if approvals.digest == Some(true) && !host.offers(ApprovalFeature::Digest) {
        "approvals.digest: this host has it switched off"
    } else if approvals.on_deny == Some(OnDeny::Continue) && !host.offers(ApprovalFeature::DenialFeedback) {
        "approvals.onDeny: this host has \"continue\" switched off"
    } else if approvals.batch == Some(true) {
        "approvals.batch: this host has it switched off"
    } else {
        return Ok(());
    };
    Err(ErrorInfo::new(Code::APPROVAL_POLICY).with_message(refused))
}

/// A duration of the wire in milliseconds.
pub(crate) fn millis(value: Option<u32>) -> Option<Duration> {
    value.map(|millis| Duration::from_millis(millis.into()))
}
