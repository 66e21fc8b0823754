//! Bearer tokens: who calls, and what he may do (contract 1.2 step 6, 6.2; law 4).

use std::collections::HashSet;
use std::sync::Arc;

use countersign_approval_core::grants::{Allow, Grants, Principal};
use countersign_approval_core::ids::Subject;
use countersign_driver::Review;
use countersign_protocol::code::Code;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::error::StartError;
use crate::options::Token;

/// The fewest characters of a token.
pub(crate) const MIN_TOKEN_CHARS: usize = 32;
/// The most characters of a presented credential.
pub(crate) const MAX_TOKEN_CHARS: usize = 4096;
/// The most names in one grant list given in code.
const MAX_GRANT_NAMES: usize = 256;

/// The tokens of a host: digests only, so that a memory image holds no credential.
pub(crate) struct Tokens(Vec<Entry>);

struct Entry {
    digest: [u8; 32],
    principal: Arc<Principal>,
}

impl Tokens {
    /// Checks and keeps the tokens. The errors name the token by its place, never by its value.
    pub(crate) fn new(tokens: &[Token]) -> Result<Self, StartError> {
        if tokens.is_empty() {
            return Err(StartError::invalid("tokens", "at least one token is needed"));
        }
        let mut seen = HashSet::new();
        let mut entries = Vec::with_capacity(tokens.len());
        for (index, token) in tokens.iter().enumerate() {
            let field = format!("tokens[{index}]");
            let secret = token.token.expose_secret();
            check_token(&format!("{field}.token"), secret)?;
            let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
            if !seen.insert(digest) {
                return Err(StartError::invalid(format!("{field}.token"), "two tokens have the same value"));
            }
            entries.push(Entry { digest, principal: Arc::new(principal(&field, token)?) });
        }
        Ok(Self(entries))
    }

    /// Whether one of them has this digest; for checks at start.
    pub(crate) fn holds(&self, digest: &[u8; 32]) -> bool {
        self.0.iter().any(|entry| entry.digest == *digest)
    }

    /// Whom an `Authorization` header identifies.
    ///
    /// Every stored digest is compared, whatever was found before, so that the time taken says nothing about which
    /// token came close.
    pub(crate) fn authenticate(&self, authorization: Option<&[u8]>) -> Option<Arc<Principal>> {
        let presented = bearer(authorization)?;
        let digest: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        let mut found = Choice::from(0);
        let mut place = 0_u32;
        for (index, entry) in (0_u32..).zip(&self.0) {
            let equal = entry.digest.ct_eq(&digest);
            place = u32::conditional_select(&place, &index, equal);
            found |= equal;
        }
        if !bool::from(found) {
            return None;
        }
        self.0.get(usize::try_from(place).ok()?).map(|entry| Arc::clone(&entry.principal))
    }
}

/// What an `Authorization` header presents, if it is a credential.
pub(crate) fn bearer(authorization: Option<&[u8]>) -> Option<&str> {
    let presented = authorization?.strip_prefix(b"Bearer ")?;
    std::str::from_utf8(presented).ok().filter(|value| is_presentable(value))
}

/// Refuses a token that could not be presented, or could be guessed.
pub(crate) fn check_token(field: &str, value: &str) -> Result<(), StartError> {
    let chars = value.chars().count();
    if !(MIN_TOKEN_CHARS..=MAX_TOKEN_CHARS).contains(&chars) {
        return Err(StartError::with(
            Code::AUTH_REQUIRED,
            field,
            format!("a token has {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} characters; this one has {chars}"),
        ));
    }
    if !is_presentable(value) {
        return Err(StartError::with(
            Code::AUTH_REQUIRED,
            field,
            "a token is one line of visible ASCII characters, without white space",
        ));
    }
    Ok(())
}

/// What a header can carry as one credential: anything else could never match.
fn is_presentable(value: &str) -> bool {
    (1..=MAX_TOKEN_CHARS).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_graphic())
}

fn principal(field: &str, token: &Token) -> Result<Principal, StartError> {
    let subject = Subject::parse(&token.subject)
        .map_err(|invalid| StartError::invalid(format!("{field}.subject"), invalid.rule))?;
    let grants = Grants {
        providers: allow(&format!("{field}.providers"), &token.providers)?,
        tools: allow(&format!("{field}.tools"), &token.tools)?,
        approve_tools: allow(&format!("{field}.approveTools"), &token.approve_tools)?,
        application_tools: application_tools(&format!("{field}.applicationTools"), token)?,
        unreviewed_application_tools: Allow::only(
            token
                .application_tools
                .iter()
                .filter(|grant| grant.review == Review::NotRequired)
                .map(|grant| grant.name.as_str()),
        ),
    };
    Ok(Principal { subject, grants })
}

/// The names that are granted, each once: two entries for one tool could disagree (contract 6.3).
fn application_tools(field: &str, token: &Token) -> Result<Allow, StartError> {
    let names: Vec<String> = token.application_tools.iter().map(|grant| grant.name.clone()).collect();
    let granted = allow(field, &names)?;
    let mut seen = HashSet::new();
    match names.iter().position(|name| !seen.insert(name)) {
        Some(index) => {
            Err(StartError::invalid(format!("{field}[{index}].name"), "the tool is granted twice"))
        }
        None => Ok(granted),
    }
}

fn allow(field: &str, names: &[String]) -> Result<Allow, StartError> {
    if names.len() > MAX_GRANT_NAMES {
        return Err(StartError::invalid(field, format!("at most {MAX_GRANT_NAMES} names")));
    }
    for (index, name) in names.iter().enumerate() {
        if !(1..=256).contains(&name.encode_utf16().count()) {
            return Err(StartError::invalid(format!("{field}[{index}]"), "expected 1 to 256 characters"));
        }
    }
    Ok(Allow::only(names.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn token(value: &str, subject: &str) -> Token {
        Token {
            token: SecretString::from(value),
            subject: subject.into(),
            providers: vec!["mock".into()],
            tools: Vec::new(),
            approve_tools: Vec::new(),
            application_tools: Vec::new(),
        }
    }

    fn refused(tokens: &[Token]) -> String {
        Tokens::new(tokens).err().map(|error| error.to_string()).unwrap_or_default()
    }

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    // Law 4: identity comes from the credential, and only from exactly it.
    #[test]
    fn a_header_identifies_the_owner_of_exactly_that_token() {
        let tokens = Tokens::new(&[token(A, "ann"), token(B, "bob")]).unwrap();
        let who = |header: &str| {
            tokens.authenticate(Some(header.as_bytes())).map(|found| found.subject.as_str().to_owned())
        };
        assert_eq!(who(&format!("Bearer {A}")).as_deref(), Some("ann"));
        assert_eq!(who(&format!("Bearer {B}")).as_deref(), Some("bob"));
        for header in [
            String::new(),
            "Bearer ".into(),
            A.into(),
            format!("bearer {A}"),
            format!("Bearer  {A}"),
            format!("Bearer {A} "),
            format!("Bearer {A}\t"),
            format!("Bearer {}", &A[1..]),
            format!("Bearer {A}a"),
            format!("Basic {A}"),
            format!("Bearer {}", "a".repeat(MAX_TOKEN_CHARS + 1)),
        ] {
            assert_eq!(who(&header), None, "{header:?}");
        }
        assert!(tokens.authenticate(Some(b"Bearer \xff")).is_none());
        assert!(tokens.authenticate(None).is_none());
    }

    // Contract 6.3: start-up errors.
    #[test]
    fn unusable_tokens_are_refused_by_place_and_never_shown() {
        let cases = [
            (vec![], "INVALID_CONFIG: tokens: at least one token is needed"),
            (
                vec![token(&A[1..], "ann")],
                "AUTH_REQUIRED: tokens[0].token: a token has 32 to 4096 characters; this one has 31",
            ),
            (
                vec![token(A, "ann"), token(&format!("{A} {A}"), "bob")],
                "AUTH_REQUIRED: tokens[1].token: a token is one line of visible ASCII characters, without white space",
            ),
            (
                vec![token(A, "ann"), token(A, "bob")],
                "INVALID_CONFIG: tokens[1].token: two tokens have the same value",
            ),
            (
                vec![token(A, "")],
                "INVALID_CONFIG: tokens[0].subject: must have 1 to 128 characters (UTF-16 units)",
            ),
            (
                vec![token(A, &"x".repeat(129))],
                "INVALID_CONFIG: tokens[0].subject: must have 1 to 128 characters (UTF-16 units)",
            ),
        ];
        for (tokens, expected) in cases {
            assert_eq!(refused(&tokens), expected);
        }
        assert!(!format!("{:?}", token(A, "ann")).contains(A), "Debug shows no secret");
    }
}
