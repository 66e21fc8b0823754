//! The configuration file, version 1 (contract 6.1): strict everywhere, and every error names its field.
//!
//! Configuration installs no tools, callbacks or audit sinks; those are given in code
//! ([`configured_driver`](crate::configured_driver)). Secrets stand in it by reference only and are read with it, so
//! that a wrong reference is found at start.

mod file;
mod metrics;
mod operations;
mod probe;
mod providers;
mod reader;
mod secrets;
mod sections;
mod tls;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use countersign_approval_core::json::{Document, Exact, Gate, Refused};
use countersign_driver::operation::OperationStore;
use countersign_driver::{ApplicationToolSettings, ApprovalFeature, IdlePause, LogArguments, RunLimits};
use url::Url;

use crate::error::StartError;
use crate::metrics::MetricsAccess;
use crate::options::{Concurrency, Options, Token};
use crate::tls::Tls;

pub(crate) use operations::Operations;
pub use probe::{Answer, Probed};
pub(crate) use providers::ProviderConfig;
use reader::Object;
use secrets::Secrets;

/// Members of the contract's configuration that this version does not serve: refused by name, so that nobody
/// believes that they are in force.
const NOT_SERVED: &[&str] = &[
    "resources",
    "usage",
    "usageLog",
    "usagestat",
    "context",
    "sessions",
    "jobs",
    "retrieval",
    "management",
    "connections",
];

/// A host's configuration, read and checked, with its secrets. `Debug` shows none of them.
#[derive(Debug)]
pub struct HostConfig {
    listen: Listen,
    client_url: Option<Url>,
    tls: Option<Tls>,
    pub(crate) providers: Vec<ProviderConfig>,
    tokens: Vec<Token>,
    pub(crate) approvals: Option<Approvals>,
    pub(crate) application_tools: Option<ApplicationToolSettings>,
    pub(crate) limits: RunLimits,
    pub(crate) operations: Option<Operations>,
    allowed_origins: Vec<String>,
    concurrency: Concurrency,
    metrics: Option<MetricsAccess>,
    pub(crate) log_arguments: LogArguments,
}

#[derive(Debug)]
struct Listen {
    host: String,
    port: u16,
}

/// `approvals`: its presence switches interactive review on.
#[derive(Debug)]
pub(crate) struct Approvals {
    pub(crate) idle_pause: IdlePause,
    pub(crate) limits: countersign_approval_core::registry::Limits,
    pub(crate) features: Vec<ApprovalFeature>,
}

impl HostConfig {
    /// Reads a configuration file. Relative paths in it resolve against its directory.
    ///
    /// # Errors
    /// [`StartError`]: `INVALID_CONFIG`, or the more special code of contract 6.1, with the field and the reason.
    pub fn load(path: &Path) -> Result<Self, StartError> {
        Self::load_with_extensions(path, &[]).map(|(config, _)| config)
    }

    /// As [`HostConfig::load`], for a program that keeps top-level members of its own in the same file: those that
    /// `names` lists are taken out as they are written, and the rest is read strictly.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn load_with_extensions(
        path: &Path,
        names: &[&str],
    ) -> Result<(Self, BTreeMap<String, Exact>), StartError> {
        let text = file::read(path)?;
        let base = path.parent().unwrap_or_else(|| Path::new(""));
        Self::parse_with_extensions(&text, base, names).map_err(|error| error.in_file(path))
    }

    /// Reads a configuration text. Relative paths in it resolve against `base`.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn parse(text: &str, base: &Path) -> Result<Self, StartError> {
        Self::parse_with_extensions(text, base, &[]).map(|(config, _)| config)
    }

    /// As [`HostConfig::load_with_extensions`], from a text.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn parse_with_extensions(
        text: &str,
        base: &Path,
        names: &[&str],
    ) -> Result<(Self, BTreeMap<String, Exact>), StartError> {
        let document = Document::parse(text).map_err(|refused| not_exact(text, &refused))?;
        let mut top = Object::top(document.root())?;
        let mut extensions = BTreeMap::new();
        for name in names {
            if let Some(field) = top.optional(name) {
                let value = field.node().to_exact(Gate::OUTPUT);
                extensions
                    .insert((*name).to_owned(), value.map_err(|refused| field.invalid(refused.to_string()))?);
            }
        }
        let config = Self::read(top, &Secrets::new(base))?;
        Ok((config, extensions))
    }

    fn read(mut top: Object<'_>, secrets: &Secrets<'_>) -> Result<Self, StartError> {
        let version = top.required("version")?;
        if version.integer(i64::MIN..=i64::MAX)? != 1 {
            return Err(version.invalid("expected 1"));
        }
        top.refuse(NOT_SERVED)?;
        let tls = top.optional("tls").map(|field| tls::read(&field, secrets)).transpose()?;
        let listen = sections::listen(top.optional("listen"), tls.as_ref())?;
        let client_url = top.optional("clientUrl").map(|field| sections::client_url(&field)).transpose()?;
        let providers = providers::read(&top.required("providers")?, secrets)?;
        let tokens = tokens::read(&top.required("tokens")?, &providers, secrets)?;
        let approvals = top.optional("approvals").map(|field| sections::approvals(&field)).transpose()?;
        let application_tools = top.optional("applicationTools");
        let application_tools =
            application_tools.map(|field| sections::application_tools(&field)).transpose()?;
        let limits = sections::limits(top.optional("limits"))?;
        let operations = top.optional("operations").map(|field| operations::read(&field, secrets.base()));
        let operations = operations.transpose()?;
        let allowed_origins = sections::allowed_origins(top.optional("allowedOrigins"))?;
        let concurrency = sections::concurrency(top.optional("concurrency"))?;
        let metrics = top.optional("metrics").map(|field| metrics::metrics(&field, &tokens, secrets));
        let metrics = metrics.transpose()?;
        let log_arguments = top.optional("log").map(|field| metrics::log(&field)).transpose()?;
        top.finish()?;
        Ok(Self {
            listen,
            client_url,
            tls,
            providers,
            tokens,
            approvals,
            application_tools,
            limits,
            operations,
            allowed_origins,
            concurrency,
            metrics,
            log_arguments: log_arguments.unwrap_or_default(),
        })
    }

    /// What [`serve`](crate::serve()) takes.
    pub fn options(&self) -> Options {
        let token = |token: &Token| Token {
            token: token.token.clone(),
            subject: token.subject.clone(),
            providers: token.providers.clone(),
            tools: token.tools.clone(),
            approve_tools: token.approve_tools.clone(),
            application_tools: token.application_tools.clone(),
        };
        Options {
            host: self.listen.host.clone(),
            port: self.listen.port,
            tokens: self.tokens.iter().map(token).collect(),
            allowed_origins: self.allowed_origins.clone(),
            concurrency: self.concurrency.clone(),
            tls: self.tls.clone(),
            max_connections: self.concurrency.connections(),
            metrics: self.metrics.clone(),
        }
    }

    /// Opens the store of `operations`, where the configuration has it: SQLite in its directory. Give it to
    /// [`configured_driver`](crate::configured_driver) as [`Extras::operations`](crate::Extras::operations). It blocks.
    ///
    /// # Errors
    /// [`StartError`] naming the field: the folder cannot be made or is not private, or the store cannot be opened
    /// (`OPERATION_STORE_ERROR`).
    pub fn open_operations(&self) -> Result<Option<Arc<dyn OperationStore>>, StartError> {
        self.operations.as_ref().map(Operations::open).transpose()
    }

    /// Checks what [`HostConfig::open_operations`] needs, and changes nothing.
    ///
    /// # Errors
    /// As there, for the folder.
    pub fn check_operations(&self) -> Result<(), StartError> {
        self.operations.as_ref().map_or(Ok(()), Operations::examine)
    }

    /// `clientUrl`: where clients reach the host, for a program that tells them.
    pub const fn client_url(&self) -> Option<&Url> {
        self.client_url.as_ref()
    }
}

/// A person wrote this text with an editor, which knows lines and columns, not bytes.
fn not_exact(text: &str, refused: &Refused) -> StartError {
    let Some((offset, expected)) = refused.expected() else { return StartError::text(refused.to_string()) };
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    StartError::Text { path: None, position: Some((line, column)), reason: format!("expected {expected}") }
}
