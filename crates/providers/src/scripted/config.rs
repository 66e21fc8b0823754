//! Reading a scripted provider from data.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_approval_core::ids::{ModelId, ProviderId};
use countersign_driver::provider::ProposedCall;
use countersign_protocol::code::{Code, ErrorInfo};
use countersign_protocol::provider_info::Capabilities;
use countersign_protocol::result::{FinishReason, Usage};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{ScriptedConfig, Step};
use crate::common::{MAX_COUNT, check_models, check_name};
use crate::error::Error;
use crate::fields::{Field, Fields};

/// The longest wait of a step in milliseconds, as of every time span of the contract.
const MAX_DELAY_MS: u64 = 2_147_483_647;

impl ScriptedConfig {
    /// Reads the configuration from its JSON text. A call's `arguments` keep the spelling and the white space of this
    /// very text, so hand over the text of the file and not a value that was printed again.
    ///
    /// # Errors
    /// [`Error::Config`] with the path of the first member that is unknown, repeated, missing or of the wrong form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut fields = Fields::parse(text)?;
        let kind = fields.required("kind")?;
        if kind.string()? != "scripted" {
            return Err(kind.expected("\"scripted\""));
        }
        let id = named(&fields.required("id")?, ProviderId::parse)?;
        let name = fields.optional("name").map(name).transpose()?;
        let models = models(fields.required("models")?)?;
        let scripts = fields.optional("scripts").map(scripts).transpose()?.unwrap_or_default();
        let default = fields.optional("default").map(steps).transpose()?.unwrap_or_default();
        let capabilities = fields
            .optional("capabilities")
            .map(capabilities)
            .transpose()?
            .unwrap_or_else(default_capabilities);
        fields.finish()?;
        Ok(Self { id, name, models, scripts, default, capabilities })
    }
}

/// For configurations inside a larger file. It works with serde_json's readers of text, which keep raw values; kept
/// argument text is the reason.
impl<'de> Deserialize<'de> for ScriptedConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// What a scripted provider can do unless it is told otherwise.
pub(super) fn default_capabilities() -> Capabilities {
    Capabilities { tools: true, text_streaming: true, ..Capabilities::default() }
}

fn named<T, E: std::fmt::Display>(field: &Field<'_>, parse: fn(&str) -> Result<T, E>) -> Result<T, Error> {
    parse(&field.string()?).map_err(|error| Error::config(&field.path, error.to_string()))
}

fn name(field: Field<'_>) -> Result<String, Error> {
    let name = field.string()?;
    check_name(&field.path, &name)?;
    Ok(name)
}

fn models(field: Field<'_>) -> Result<Vec<ModelId>, Error> {
    let path = field.path.clone();
    let items = field.array()?;
    check_models(&path, items.len())?;
    items.iter().map(|item| named(item, ModelId::parse)).collect()
}

fn scripts(field: Field<'_>) -> Result<BTreeMap<String, Vec<Step>>, Error> {
    field.object()?.rest().map(|(input, script)| Ok((input, steps(script)?))).collect()
}

fn capabilities(field: Field<'_>) -> Result<Capabilities, Error> {
    let mut fields = field.object()?;
    let mut capabilities = default_capabilities();
    if let Some(tools) = fields.optional("tools") {
        capabilities.tools = tools.boolean()?;
    }
    if let Some(text_streaming) = fields.optional("textStreaming") {
        capabilities.text_streaming = text_streaming.boolean()?;
    }
    for (name, value) in fields.rest() {
        capabilities.others.insert(name, value.boolean()?);
    }
    Ok(capabilities)
}

fn steps(field: Field<'_>) -> Result<Vec<Step>, Error> {
    field.array()?.into_iter().map(step).collect()
}

fn step(field: Field<'_>) -> Result<Step, Error> {
    let path = field.path.clone();
    let mut fields = field.object()?;
    let text = fields.optional("text").map(|field| field.string()).transpose()?;
    let deltas = fields.optional("deltas").map(deltas).transpose()?;
    let calls = fields.optional("calls").map(calls).transpose()?;
    let usage = fields.optional("usage").map(usage).transpose()?;
    let delay = fields.optional("delayMs").map(|field| field.integer(MAX_DELAY_MS)).transpose()?;
    let finish = fields.optional("finish").map(|field| finish(&field)).transpose()?;
    let error = fields.optional("error").map(error).transpose()?;
    fields.finish()?;

    // A step that fails has no answer, so one that is written beside it would never be seen. Pieces may come before.
    if error.is_some() && (text.is_some() || calls.is_some() || usage.is_some() || finish.is_some()) {
        return Err(Error::config(path, "a step with `error` takes no `text`, `calls`, `usage` or `finish`"));
    }
    let deltas = deltas.unwrap_or_default();
    let streamed = deltas.concat();
    let text = match text {
        // What was streamed cannot be taken back, so another text would be a second answer.
        Some(text) if !deltas.is_empty() && text != streamed => {
            return Err(Error::config(path, "`text` must equal the `deltas` joined; leave one of them out"));
        }
        Some(text) => text,
        None => streamed,
    };
    Ok(Step {
        text,
        deltas,
        calls: calls.unwrap_or_default(),
        usage,
        delay: Duration::from_millis(delay.unwrap_or_default()),
        finish: finish.unwrap_or(FinishReason::Stop),
        error,
    })
}

fn deltas(field: Field<'_>) -> Result<Vec<String>, Error> {
    field.array()?.iter().map(Field::string).collect()
}

fn calls(field: Field<'_>) -> Result<Vec<ProposedCall>, Error> {
    field.array()?.into_iter().map(call).collect()
}

fn call(field: Field<'_>) -> Result<ProposedCall, Error> {
    let path = field.path.clone();
    let mut fields = field.object()?;
    // Neither is checked further: scripts exist to propose bad ids and unknown tools, too.
    let id = fields.required("id")?.string()?;
    let name = fields.required("name")?.string()?;
    let arguments = match (fields.optional("arguments"), fields.optional("argumentsText")) {
        (Some(object), None) => object.object_text()?.to_owned(),
        (None, Some(text)) => text.string()?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Error::config(path, "expected exactly one of `arguments` and `argumentsText`"));
        }
    };
    fields.finish()?;
    Ok(ProposedCall { id, name, arguments })
}

fn usage(field: Field<'_>) -> Result<Usage, Error> {
    let mut fields = field.object()?;
    let mut count = |name| fields.optional(name).map(|field| field.integer(MAX_COUNT)).transpose();
    let mut usage = Usage {
        input_tokens: count("inputTokens")?,
        output_tokens: count("outputTokens")?,
        cached_input_tokens: count("cachedInputTokens")?,
        reasoning_tokens: count("reasoningTokens")?,
        ..Usage::default()
    };
    let mut amount = |name| fields.optional(name).map(|field| field.amount()).transpose();
    usage.cost_usd = amount("costUsd")?;
    usage.api_equivalent_cost_usd = amount("apiEquivalentCostUsd")?;
    fields.finish()?;
    Ok(usage)
}

fn finish(field: &Field<'_>) -> Result<FinishReason, Error> {
    match field.string()?.as_str() {
        "stop" => Ok(FinishReason::Stop),
        "length" => Ok(FinishReason::Length),
        _ => Err(field.expected("\"stop\" or \"length\"")),
    }
}

fn error(field: Field<'_>) -> Result<ErrorInfo, Error> {
    let mut fields = field.object()?;
    let code = fields.required("code")?;
    let text = code.string()?;
    if text.is_empty() {
        return Err(code.expected("a code"));
    }
    let message = fields.required("message")?.string()?;
    fields.finish()?;
    Ok(ErrorInfo::new(Code::from(text)).with_message(message))
}
