//! Ids and names: newtypes, so that one cannot stand where another is meant.
//!
//! Ids that Countersign makes are UUID v4 in canonical lower-case form (contract 4.2); they are parsed only from
//! exactly that form, so that one approval has one spelling. Ids and names that come from outside keep their text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Where new ids come from. Randomness is an effect, so the core only takes what it is handed.
pub trait Ids: Send + Sync {
    /// A new id. It must be unguessable (UUID v4) wherever a stranger could present it.
    fn uuid(&self) -> Uuid;
}

/// The text is not an id or name of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {rule}")]
pub struct InvalidName {
    /// What was being read, such as `tool name`.
    pub what: &'static str,
    /// The rule that the text breaks.
    pub rule: &'static str,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a new UUID.
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Reads the canonical form (36 characters, lower case, hyphens) and no other spelling.
            pub fn parse(text: &str) -> Option<Self> {
                let uuid = Uuid::try_parse(text).ok()?;
                let mut buffer = Uuid::encode_buffer();
                (uuid.hyphenated().encode_lower(&mut buffer) == text).then_some(Self(uuid))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0.as_hyphenated())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut buffer = Uuid::encode_buffer();
                serializer.serialize_str(self.0.hyphenated().encode_lower(&mut buffer))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&text)
                    .ok_or_else(|| serde::de::Error::custom("expected a lower-case UUID with hyphens"))
            }
        }
    };
}

uuid_id! {
    /// One run of the loop (`runId`).
    RunId
}
uuid_id! {
    /// One question put to a person (`approvalId`).
    ApprovalId
}
uuid_id! {
    /// One execution asked of the application (`executionId`, contract 7.6).
    ExecutionId
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text.
            ///
            /// # Errors
            /// [`InvalidName`] with the rule that the text breaks.
            pub fn parse(text: &str) -> Result<Self, InvalidName> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidName { what: $what, rule: $rule })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id! {
    /// A call's id as the provider gave it (`call.id`): 1 to 256 UTF-16 units (contract 4.2).
    CallId, "call id", "must have 1 to 256 characters (UTF-16 units)",
    |text| !text.is_empty() && text.encode_utf16().count() <= 256
}
text_id! {
    /// A tool's name (contract 7.1).
    ToolName, "tool name", "must match ^[a-zA-Z_][a-zA-Z0-9_]{0,63}$",
    |text| text.len() <= 64
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
text_id! {
    /// A provider instance (contract 2, `provider`).
    ProviderId, "provider", "must match ^[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}$",
    |text| text.len() <= 80
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}
text_id! {
    /// A model id (contract 2, `model`).
    ModelId, "model", r"must match ^[a-zA-Z0-9][a-zA-Z0-9._:/\[\]-]{0,199}$",
    |text| text.len() <= 200
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'/' | b'[' | b']' | b'-'))
}
text_id! {
    /// Who is acting, as authentication says it: 1 to 128 UTF-16 units, never taken from a request body (law 4).
    Subject, "subject", "must have 1 to 128 characters (UTF-16 units)",
    |text| !text.is_empty() && text.encode_utf16().count() <= 128
}

impl Subject {
    /// The subject of embedded calls that name none (contract 4.4): `local`.
    pub fn local() -> Self {
        Self("local".into())
    }
}
