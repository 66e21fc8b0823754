//! `tokens`: who may call, and for what (contract 6.2).

use std::collections::BTreeSet;

use countersign_approval_core::ids::{ProviderId, Subject, ToolName};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::providers::ProviderConfig;
use super::reader::{Field, Object};
use super::secrets::Secrets;
use crate::auth::check_token;
use crate::error::StartError;
use crate::options::{ApplicationToolGrant, Token};

/// The most tokens.
const MAX_TOKENS: usize = 100;
/// The most names in one grant list of a configuration.
const MAX_NAMES: usize = 32;

pub(super) fn read(
    field: &Field<'_>,
    providers: &[ProviderConfig],
    secrets: &Secrets<'_>,
) -> Result<Vec<Token>, StartError> {
    let (mut ids, mut values) = (BTreeSet::new(), BTreeSet::new());
    let mut tokens = Vec::new();
    for field in field.array(1..=MAX_TOKENS)? {
        let mut members = field.object()?;
        let id = members.required("id")?;
        // Ids of tokens follow the rule of provider ids.
        let text = ProviderId::parse(&id.string(1..=80)?).map_err(|invalid| id.invalid(invalid.rule))?;
        if !ids.insert(text) {
            return Err(id.invalid("another token has this id"));
        }
        if let Some(inline) = members.optional("token") {
            return Err(inline.invalid("a token's value is named by reference, in tokenRef"));
        }
        members.refuse(&["sessions", "jobs", "retrieval", "manageProviders"])?;
        let subject = members.required("subject")?;
        Subject::parse(&subject.string(1..=128)?).map_err(|invalid| subject.invalid(invalid.rule))?;
        let reference = members.required("tokenRef")?;
        let token = secrets.resolve(&reference)?;
        check_token(reference.path(), token.expose_secret())?;
        if !values.insert(<[u8; 32]>::from(Sha256::digest(token.expose_secret().as_bytes()))) {
            return Err(reference.invalid("another token has the same value"));
        }
        tokens.push(Token {
            token,
            subject: subject.string(1..=128)?,
            providers: names(&mut members, "providers", |name| configured(name, providers))?,
            tools: names(&mut members, "tools", tool)?,
            approve_tools: names(&mut members, "approveTools", tool)?,
            application_tools: grants(&mut members)?,
        });
        members.finish()?;
    }
    Ok(tokens)
}

/// A list of names; none if it is absent.
fn names(
    members: &mut Object<'_>,
    name: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Vec<String>, StartError> {
    let Some(field) = members.optional(name) else { return Ok(Vec::new()) };
    let read = |field: Field<'_>| {
        let text = field.string(1..=256)?;
        check(&text).map_err(|reason| field.invalid(reason))?;
        Ok(text)
    };
    field.array(0..=MAX_NAMES)?.into_iter().map(read).collect()
}

/// `applicationTools`: names, and whether their calls are reviewed (contract 6.2).
fn grants(members: &mut Object<'_>) -> Result<Vec<ApplicationToolGrant>, StartError> {
    let Some(field) = members.optional("applicationTools") else { return Ok(Vec::new()) };
    let mut granted = BTreeSet::new();
    let mut grants = Vec::new();
    for field in field.array(0..=MAX_NAMES)? {
        let mut members = field.object()?;
        let name = members.required("name")?;
        let text = name.string(1..=256)?;
        tool(&text).map_err(|reason| name.invalid(reason))?;
        if !granted.insert(text.clone()) {
            return Err(name.invalid("the tool is granted twice"));
        }
        let review = members.optional("requiresApproval").map(|field| field.boolean()).transpose()?;
        members.finish()?;
        grants.push(match review {
            Some(false) => ApplicationToolGrant::unreviewed(text),
            Some(true) | None => ApplicationToolGrant::reviewed(text),
        });
    }
    Ok(grants)
}

fn configured(name: &str, providers: &[ProviderConfig]) -> Result<(), String> {
    if providers.iter().any(|provider| provider.id().as_str() == name) {
        return Ok(());
    }
    Err("no provider with this id is configured".into())
}

/// Tools are registered in code, so only the form of a name can be checked here.
fn tool(name: &str) -> Result<(), String> {
    ToolName::parse(name).map(drop).map_err(|invalid| invalid.rule.into())
}
