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
use countersign_approval_core::json::Digest;
use countersign_approval_core::review::{IdlePolicy, Resolution};
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::event::{EventBody, RunResult};
use countersign_protocol::provider_info::ProviderInfo;
use countersign_protocol::request::{Approvals, OnDeny, RunRequest, Unavailable};
use countersign_protocol::version::feature;

use crate::approve::Approve;
use crate::builder::{Builder, IdlePause, RunLimits};
use crate::operation::operate::Operating;
use crate::operation::{Claim, OperationKey, OperationSettings, Origin, fingerprint};
use crate::provider::{Provider, ToolDefinition};
use crate::reviews::Reviews;
use crate::run::{self, Run};
use crate::schema::InputSchema;
use crate::scope::Scope;
use crate::stream::{self, EventStream};
use crate::tools::{Review, Tool};

/// Runs agents. Clones are one driver.
#[derive(Clone)]
pub struct Driver(Arc<Parts>);

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) providers: Vec<(ProviderId, Arc<dyn Provider>)>,
    pub(crate) tools: BTreeMap<ToolName, RegisteredTool>,
    /// Interactive review is on, and this is its rule for `pause`.
    pub(crate) approvals: Option<IdlePause>,
    pub(crate) approve: Option<Arc<dyn Approve>>,
    pub(crate) limits: RunLimits,
    pub(crate) operations: Option<OperationSettings>,
    pub(crate) reviews: Arc<Reviews>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
}

/// A tool with what registration made of it.
pub(crate) struct RegisteredTool {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) review: Review,
    pub(crate) definition: ToolDefinition,
    pub(crate) schema: InputSchema,
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
        let provider = check(&self.0, &request)?;
        let key = request.idempotency_key.as_ref();
        let fingerprint = key.map(|_| fingerprint(&request)).transpose();
        let fingerprint = fingerprint.map_err(|_| ErrorInfo::new(Code::INTERNAL_ERROR))?;
        Ok(Prepared { driver: self.clone(), provider, request, fingerprint })
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

    /// Runs to the end and returns the result. Runs with interactive reviews must be streamed.
    ///
    /// # Errors
    /// As [`Driver::stream`], `APPROVAL_STREAM_REQUIRED`, and the error of a run that failed or was cancelled.
    pub async fn run(&self, request: RunRequest, principal: Principal) -> Result<RunResult, ErrorInfo> {
        let prepared = self.prepare(strict(&request)?)?;
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

    /// The protocol features that this driver switches on (contract 1.6).
    pub fn features(&self) -> Vec<&'static str> {
        let approvals = self.0.approvals.as_ref().map(|_| feature::INTERACTIVE_APPROVALS);
        let operations = self.0.operations.as_ref().map(|_| feature::IDEMPOTENCY);
        approvals.into_iter().chain(operations).collect()
    }

    /// The providers, in the order of registration.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderInfo> {
        self.0.providers.iter().map(|(_, provider)| provider.info())
    }

    /// The names of the registered tools.
    pub fn tool_names(&self) -> impl Iterator<Item = &ToolName> {
        self.0.tools.keys()
    }

    /// How many reviews are open.
    pub fn pending_approvals(&self) -> usize {
        self.0.reviews.pending()
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
        let tools = self.request.tools.iter().all(|tool| grants.tools.allows(tool.as_str()));
        if provider && tools { Ok(()) } else { Err(ErrorInfo::new(Code::FORBIDDEN)) }
    }

    /// Checks that the request can be served without a stream (contract 2.1, row 18).
    ///
    /// # Errors
    /// `APPROVAL_STREAM_REQUIRED`.
    pub fn check_buffered(&self) -> Result<(), ErrorInfo> {
        match self.request.approvals {
            Some(_) => Err(ErrorInfo::new(Code::APPROVAL_STREAM_REQUIRED)),
            None => Ok(()),
        }
    }

    /// Starts the run, as [`Driver::stream`] does. It is cancelled when its scope is, or when the stream is dropped.
    pub fn stream(self, principal: &Principal, scope: &Scope) -> EventStream {
        let run_id = RunId::new(self.driver.0.ids.uuid());
        let operating = self.operating(principal, run_id);
        let Self { driver, provider, request, .. } = self;
        let cancellation = scope.cancellation.child_token();
        let (outlet, stream) = stream::channel(cancellation.clone());
        let (subject, tasks) = (principal.subject.clone(), scope.tasks.clone());
        let clock = Arc::clone(&driver.0.clock);
        let run =
            move |outlet| Run::new(driver.0, provider, request, subject, run_id, outlet, cancellation, tasks);
        match operating {
            None => drop(scope.tasks.spawn(run::drive(run(outlet)))),
            Some(operating) => drop(scope.tasks.spawn(operating.claim(clock, outlet, run))),
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
    /// `APPROVAL_STREAM_REQUIRED`, or the error of a run that failed or was cancelled.
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

/// Contract 2.1, rows 2 to 14, in their order.
fn check(parts: &Parts, request: &RunRequest) -> Result<Arc<dyn Provider>, ErrorInfo> {
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
    unavailable(Unavailable::ApplicationTools, Code::APPLICATION_TOOLS_UNAVAILABLE)?;
    if let Some(unknown) = request.tools.iter().find(|tool| !parts.tools.contains_key(*tool)) {
        return Err(ErrorInfo::new(Code::UNKNOWN_TOOL)
            .with_message(format!("tools: {unknown} is not registered with this host")));
    }
    if let Some(approvals) = &request.approvals {
        check_approvals(parts.approvals, approvals)?;
    }
    not_served(Unavailable::OutputSchema, "outputSchema")?;
    Ok(Arc::clone(provider))
}

/// Contract 2.1, row 13, and design 4 for the additions that this version does not have.
fn check_approvals(host: Option<IdlePause>, approvals: &Approvals) -> Result<(), ErrorInfo> {
    let policy = |message: &str| Err(ErrorInfo::new(Code::APPROVAL_POLICY).with_message(message));
    match host {
        None => Err(ErrorInfo::new(Code::APPROVAL_UNAVAILABLE)),
        Some(IdlePause::Refused) if approvals.idle_policy == IdlePolicy::Pause => {
            policy("approvals.idlePolicy: this host does not let an idle clock pause; use \"continue\"")
        }
        Some(_) if approvals.digest == Some(true) => {
            policy("approvals.digest: this host has it switched off")
        }
        Some(_) if approvals.on_deny == Some(OnDeny::Continue) => {
            policy("approvals.onDeny: this host has \"continue\" switched off")
        }
        Some(_) if approvals.batch == Some(true) => policy("approvals.batch: this host has it switched off"),
        Some(_) => Ok(()),
    }
}

/// A duration of the wire in milliseconds.
pub(crate) fn millis(value: Option<u32>) -> Option<Duration> {
    value.map(|millis| Duration::from_millis(millis.into()))
}
