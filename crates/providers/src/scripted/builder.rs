//! A scripted provider made in code, for embedders and tests.

use std::collections::BTreeMap;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_protocol::provider_info::Capabilities;

use super::config::default_capabilities;
use super::{Scripted, ScriptedConfig, Step};
use crate::common::{check_models, check_name};
use crate::error::Error;

/// Builds a [`Scripted`]; see [`Scripted::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ScriptedBuilder {
    id: String,
    name: Option<String>,
    models: Vec<String>,
    scripts: BTreeMap<String, Vec<Step>>,
    default: Vec<Step>,
    capabilities: Capabilities,
}

impl ScriptedBuilder {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            name: None,
            models: Vec::new(),
            scripts: BTreeMap::new(),
            default: Vec::new(),
            capabilities: default_capabilities(),
        }
    }

    /// The name that people see; without one it is the id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The models that it answers for, 1 to 1,000. All answer alike.
    pub fn models<I>(mut self, models: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.models = models.into_iter().map(Into::into).collect();
        self
    }

    /// The turns that answer exactly this input. A second script for the same input replaces the first.
    pub fn script(mut self, input: impl Into<String>, steps: impl IntoIterator<Item = Step>) -> Self {
        self.scripts.insert(input.into(), steps.into_iter().collect());
        self
    }

    /// The turns that answer every other input.
    pub fn default_script(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.default = steps.into_iter().collect();
        self
    }

    /// What it advertises; unless told otherwise, `tools` and `textStreaming` (contract 1.7). The scripts do what they
    /// say in any case.
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The provider.
    ///
    /// # Errors
    /// [`Error`] if the id, the name or a model breaks its rule, or if there are no models or more than 1,000.
    pub fn build(self) -> Result<Scripted, Error> {
        check_models("models", self.models.len())?;
        if let Some(name) = &self.name {
            check_name("name", name)?;
        }
        Ok(Scripted::from_config(ScriptedConfig {
            id: ProviderId::parse(&self.id)?,
            name: self.name,
            models: self.models.iter().map(|model| ModelId::parse(model)).collect::<Result<_, _>>()?,
            scripts: self.scripts,
            default: self.default,
            capabilities: self.capabilities,
        }))
    }
}
