//! Asking a vendor's server whether it would serve, before anybody needs it: a wrong key, a wrong model and a host that
//! cannot be reached are three different things to mend.
//!
//! The request is the cheapest one that tells. A vendor that describes a model for nothing is asked for that; if it knows
//! no such description, or cannot be trusted to check the key there, it is asked for one token.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use countersign_approval_core::ids::ModelId;
use reqwest::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use url::Url;

use crate::http::{self, Endpoint};

/// A provider whose server can be asked.
#[async_trait]
pub trait Probe: Send + Sync {
    /// Asks whether the server would serve `model`, for at most `limit`. At most two requests are sent, and no more than
    /// one token is asked for, or as few as the vendor allows.
    async fn probe(&self, model: &ModelId, limit: Duration) -> Verdict;
}

/// What a server's answer means for the configuration. Its `Display` is one line, without the key and without the
/// vendor's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It would serve.
    Good,
    /// It does not accept the key. The number is the HTTP status.
    WrongKey(u16),
    /// The configuration has no key.
    NoKey,
    /// It accepts the key and does not have the model, or not for this key.
    WrongModel(u16),
    /// Something answers, but not in the vendor's form: the base URL leads elsewhere.
    WrongAddress(u16),
    /// No answer came.
    Unreachable(Unreachable),
    /// Too many requests, or none left on the account: key and model may be good.
    Limited,
    /// It answers something else, such as that it is overloaded.
    Refused(u16),
}

/// Why no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// The name has no address.
    Name,
    /// Nobody listens there.
    Refused,
    /// No secure connection: no TLS at all, or a certificate that is not trusted.
    Tls,
    /// The time was over.
    Timeout,
    /// The connection broke, or there is no way to the host.
    Other,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::WrongKey(status) => write!(f, "wrong key: the server does not accept it (HTTP {status})"),
            Self::NoKey => f.write_str("wrong key: it is empty"),
            Self::WrongModel(status) => {
                write!(f, "wrong model: the server does not serve it (HTTP {status})")
            }
            Self::WrongAddress(status) => {
                write!(f, "wrong address: what answers there is not this vendor's API (HTTP {status})")
            }
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::Limited => {
                f.write_str("not known: too many requests, or nothing left on the account (HTTP 429)")
            }
            Self::Refused(status) => write!(f, "not known: the server refuses to answer (HTTP {status})"),
        }
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the host's name has no address",
            Self::Refused => "nobody listens there",
            Self::Tls => "no secure connection (TLS)",
            Self::Timeout => "no answer in time",
            Self::Other => "the connection failed",
        })
    }
}

/// A free request that may be left out, and the one that costs as little as it can.
pub(crate) struct Questions {
    /// Describes the model.
    pub(crate) free: Option<Url>,
    /// Where a turn goes.
    pub(crate) turn: Url,
    /// The least turn.
    pub(crate) body: Vec<u8>,
    /// Members of which every good answer of the vendor has one.
    pub(crate) members: &'static [&'static str],
}

/// What a vendor says of itself in an error beyond the status: for it alone to read.
pub(crate) type Reading = fn(u16, &[u8]) -> Option<Verdict>;

/// Asks `questions` until one of them tells.
pub(crate) async fn ask(
    endpoint: &Endpoint,
    questions: Questions,
    reading: Reading,
    limit: Duration,
) -> Verdict {
    let asked = async {
        let Questions { free, turn, body, members } = questions;
        if let Some(url) = free {
            let verdict = judge(endpoint.describe(url).await, members, reading).await;
            if !matches!(verdict, Verdict::WrongModel(404) | Verdict::WrongAddress(_)) {
                return verdict;
            }
            // A proxy may serve turns and describe nothing.
        }
        judge(endpoint.try_turn(turn, body).await, members, reading).await
    };
    tokio::time::timeout(limit, asked).await.unwrap_or(Verdict::Unreachable(Unreachable::Timeout))
}

async fn judge(answer: Result<Response, Verdict>, members: &[&str], reading: Reading) -> Verdict {
    let response = match answer {
        Ok(response) => response,
        Err(verdict) => return verdict,
    };
    let status = response.status().as_u16();
    let Ok(body) = http::whole(response).await else { return Verdict::Unreachable(Unreachable::Other) };
    if let Some(verdict) = reading(status, &body) {
        return verdict;
    }
    let shape = Shape::of(&body, members);
    match status {
        200..=299 if shape == Shape::Answer => Verdict::Good,
        // Some servers report an error so.
        200..=299 if shape == Shape::Error => Verdict::Refused(status),
        401 | 403 => Verdict::WrongKey(status),
        404 if shape == Shape::Error => Verdict::WrongModel(status),
        200..=399 | 404 | 405 => Verdict::WrongAddress(status),
        429 => Verdict::Limited,
        _ => Verdict::Refused(status),
    }
}

/// What a body looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Answer,
    Error,
    Other,
}

impl Shape {
    fn of(body: &[u8], members: &[&str]) -> Self {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            error: Option<&'a RawValue>,
            #[serde(borrow)]
            object: Option<&'a RawValue>,
        }
        match serde_json::from_slice::<Object<'_>>(body) {
            Ok(object) if object.error.is_some() => Self::Error,
            // The error itself, as some servers write it.
            Ok(object) if object.object.is_some_and(|kind| kind.get() == "\"error\"") => Self::Error,
            Ok(_) if has_one(body, members) => Self::Answer,
            _ => Self::Other,
        }
    }
}

/// Whether a body is an object with one of these members.
fn has_one(body: &[u8], members: &[&str]) -> bool {
    serde_json::from_slice::<BTreeMap<Cow<'_, str>, IgnoredAny>>(body)
        .is_ok_and(|object| members.iter().any(|member| object.contains_key(*member)))
}

/// Why a request got no answer.
pub(crate) fn unreachable(error: &reqwest::Error) -> Verdict {
    let mut why = if error.is_timeout() { Unreachable::Timeout } else { Unreachable::Other };
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = reason(error) {
            why = found;
        }
        cause = error.source();
    }
    Verdict::Unreachable(why)
}

fn reason(error: &(dyn StdError + 'static)) -> Option<Unreachable> {
    if error.is::<rustls::Error>() {
        return Some(Unreachable::Tls);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Unreachable::Refused),
            io::ErrorKind::TimedOut => Some(Unreachable::Timeout),
            // Its source is the source of what it holds.
            _ => error.get_ref().and_then(|inner| reason(inner)),
        };
    }
    // The connectors' own words; they have no types for these that are public.
    let words = error.to_string();
    if words.starts_with("dns error") {
        Some(Unreachable::Name)
    } else if words.starts_with("tls handshake") {
        Some(Unreachable::Tls)
    } else {
        None
    }
}
