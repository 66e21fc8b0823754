//! The client: one method for each endpoint (contract 1.1, 10.1).

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::review::Resolution;
use countersign_protocol::provider_info::ProviderInfo;
use countersign_protocol::request::RunRequest;
use countersign_protocol::result::RunResult;
use countersign_protocol::stream::Expectation;
use countersign_protocol::tool_execution::{
    ExecutionIdentity, ExecutionReceipt, ExecutionResult, ReportStatus,
};
use countersign_protocol::version::{
    DECISIONS_PATH, OPTIONAL_EVENTS_HEADER, PROTOCOL, PROTOCOL_PATH, PROVIDERS_PATH, PROVIDERS_REFRESH_PATH,
    ProtocolInfo, RUNS_PATH, SSE_MEDIA_TYPE, TOOL_PROGRESS_PATH, TOOL_RESULTS_PATH, VERSION, VERSION_HEADER,
};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer;
use crate::base_url::BaseUrl;
use crate::builder::ClientBuilder;
use crate::catalog;
use crate::error::{Error, Misuse};
use crate::stream::EventStream;
use crate::transport::{BodyStream, Transport};

/// The most time a `GET` may take, from the connection to the last byte (contract 10.1).
const GET_LIMIT: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";

/// A host and a token. Cheap to clone; all clones are one client.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) base: BaseUrl,
    pub(crate) authorization: HeaderValue,
    pub(crate) timeout: Option<Duration>,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Client {
    /// Begins a client for the host at `base_url`: `https`, or `http` to `localhost`, `127.0.0.1` or `::1`; a path
    /// prefix is kept (contract 10.1).
    pub fn builder(base_url: impl Into<String>, token: SecretString) -> ClientBuilder {
        ClientBuilder::new(base_url.into(), token)
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// What the host speaks (contract 1.6).
    ///
    /// # Errors
    /// [`Error`]; [`Error::UnsupportedVersion`] if it is not this client's version.
    pub async fn protocol(&self) -> Result<ProtocolInfo, Error> {
        let text = self.get(PROTOCOL_PATH).await?;
        let info: ProtocolInfo = decode(&text)?;
        if info.protocol != PROTOCOL {
            return Err(Error::invalid("it names another protocol"));
        }
        if info.version != VERSION {
            return Err(Error::UnsupportedVersion);
        }
        Ok(info)
    }

    /// The providers that the token may use (contract 1.7). The host may answer from a cache of 30 seconds.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn providers(&self) -> Result<Vec<ProviderInfo>, Error> {
        catalog::read(&self.get(PROVIDERS_PATH).await?)
    }

    /// As [`Client::providers`], after the host has probed the providers anew.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn providers_refreshed(&self) -> Result<Vec<ProviderInfo>, Error> {
        catalog::read(&self.get(PROVIDERS_REFRESH_PATH).await?)
    }

    /// Runs to the end and gives the result only (contract 2.2). Dropping the future hangs up, and the host cancels
    /// the run.
    ///
    /// # Errors
    /// [`Error`]. [`Error::Remote`] also for a run that failed or was cancelled. A request that defines
    /// application tools or selects approvals is refused before anything is sent: [`Error::ToolStreamRequired`],
    /// [`Error::ApprovalStreamRequired`].
    pub async fn run(&self, request: &RunRequest) -> Result<RunResult, Error> {
        if !request.application_tools.is_empty() {
            return Err(Error::ToolStreamRequired);
        }
        if request.approvals.is_some() {
            return Err(Error::ApprovalStreamRequired);
        }
        let text = self.post(RUNS_PATH, run_body(request)?).await?;
        let result: RunResult = decode(&text)?;
        if !Expectation::of(request).fits(&result) {
            return Err(Error::invalid(
                "the result has another provider or model than the request, or lacks its `output`",
            ));
        }
        Ok(result)
    }

    /// Starts a run and gives its events (contract 3). It returns once the host has accepted the run.
    ///
    /// Dropping the stream, or the future before it, hangs up, and the host cancels the run.
    ///
    /// # Errors
    /// [`Error`], if the run did not start. A run that fails later says so in its last event.
    pub async fn stream(&self, request: &RunRequest) -> Result<EventStream, Error> {
        let body = run_body(request)?;
        let begin = async {
            let response = self.send(Method::POST, RUNS_PATH, SSE_MEDIA_TYPE, body).await?;
            answer::event_stream(response).await
        };
        let body = within(self.inner.timeout, begin).await?;
        Ok(EventStream::new(body, Expectation::of(request)))
    }

    /// Sends a person's decision and gives the receipt (contract 4.2). The receipt says that the decision was taken,
    /// not that anything was executed: the events of the run say that.
    ///
    /// Nothing sends a decision a second time. If the receipt is lost ([`Error::is_uncertain`]), the decision may have
    /// been taken; the run's stream tells.
    ///
    /// # Errors
    /// [`Error`]; [`Error::InvalidResponse`] if the receipt is not that of this decision.
    pub async fn decide_approval(&self, decision: &DecisionRequest) -> Result<Resolution, Error> {
        let text = self.post(DECISIONS_PATH, json(decision)?).await?;
        let receipt: Resolution = decode(&text)?;
        let echoes = receipt.approval_id.to_string() == decision.approval_id
            && receipt.run_id.to_string() == decision.run_id
            && receipt.call_id.as_str() == decision.call.id
            && receipt.outcome == decision.decision.outcome();
        if echoes { Ok(receipt) } else { Err(Error::invalid("the receipt is not that of this decision")) }
    }

    /// Says that work on an execution goes on (contract 7.6). A [`ToolBox`](crate::ToolBox) does this for a function.
    ///
    /// # Errors
    /// [`Error`]; [`Error::InvalidResponse`] if the receipt is not that of this report.
    pub async fn report_progress(&self, execution: &ExecutionIdentity) -> Result<ExecutionReceipt, Error> {
        let text = self.post(TOOL_PROGRESS_PATH, json(execution)?).await?;
        echoed(&text, &execution.receipt(ReportStatus::Progress))
    }

    /// Says how an execution ended, once (contract 7.6). A [`ToolBox`](crate::ToolBox) does this by itself.
    ///
    /// Nothing sends a result a second time. If the receipt is lost ([`Error::is_uncertain`]), the result may have been
    /// taken; the run's stream tells.
    ///
    /// # Errors
    /// As [`Client::report_progress`].
    pub async fn submit_result(&self, result: &ExecutionResult) -> Result<ExecutionReceipt, Error> {
        let text = self.post(TOOL_RESULTS_PATH, json(result)?).await?;
        echoed(&text, &result.identity.receipt(ReportStatus::Accepted))
    }

    async fn get(&self, path: &str) -> Result<String, Error> {
        within(Some(GET_LIMIT), async {
            answer::json_text(self.send(Method::GET, path, JSON, Bytes::new()).await?).await
        })
        .await
    }

    async fn post(&self, path: &str, body: Bytes) -> Result<String, Error> {
        within(self.inner.timeout, async {
            answer::json_text(self.send(Method::POST, path, JSON, body).await?).await
        })
        .await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Bytes,
    ) -> Result<Response<BodyStream>, Error> {
        let mut request = Request::builder()
            .uri(self.inner.base.join(path))
            .header(AUTHORIZATION, self.inner.authorization.clone())
            .header(VERSION_HEADER, VERSION)
            .header(OPTIONAL_EVENTS_HEADER, "true")
            .header(ACCEPT, accept);
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, JSON);
        }
        let request =
            request.method(method).body(body).map_err(|_| Misuse::BaseUrl("it cannot stand in a request"))?;
        self.inner.transport.send(request).await.map_err(Error::Transport)
    }
}

/// Shows where the host is, and never the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.inner.base.join(""))
            .field("timeout", &self.inner.timeout)
            .finish_non_exhaustive()
    }
}

/// A request that was read from a text may have members that this version does not write. Leaving them out would run
/// something else than was asked for (law 3).
fn run_body(request: &RunRequest) -> Result<Bytes, Error> {
    if !request.unavailable.is_empty() {
        return Err(Misuse::UnsendableRequest.into());
    }
    json(request)
}

/// These types hold nothing that JSON cannot.
fn json(value: &impl Serialize) -> Result<Bytes, Error> {
    Ok(serde_json::to_vec(value).map_err(|_| Misuse::UnsendableRequest)?.into())
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    countersign_protocol::decode(text).map_err(|cause| Error::InvalidResponse {
        what: "it does not have the expected shape",
        cause: Some(cause),
    })
}

/// The receipt, if it is the expected one.
fn echoed(text: &str, expected: &ExecutionReceipt) -> Result<ExecutionReceipt, Error> {
    let receipt: ExecutionReceipt = decode(text)?;
    if receipt == *expected {
        Ok(receipt)
    } else {
        Err(Error::invalid("the receipt is not that of this report"))
    }
}

/// Dropping the request at the limit closes its connection.
async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Err(Error::Timeout { limit })),
        None => work.await,
    }
}
