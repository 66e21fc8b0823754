//! What holds for every provider (contract 2.2 and 6.1).

#[cfg(feature = "http")]
use countersign_protocol::provider_info::Capabilities;

#[cfg(any(feature = "openai-chat", feature = "gemini"))]
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use crate::error::Error;

/// The largest count that a usage report carries (2^53 - 1, contract 2.2).
pub(crate) const MAX_COUNT: u64 = 9_007_199_254_740_991;

/// The most models that an instance may list (contract 6.1).
const MAX_MODELS: usize = 1_000;

/// The longest name in UTF-16 units (contract 6.1).
const MAX_NAME: usize = 100;

pub(crate) fn check_models(path: &str, count: usize) -> Result<(), Error> {
    if (1..=MAX_MODELS).contains(&count) {
        Ok(())
    } else {
        Err(Error::config(path, format!("expected 1 to {MAX_MODELS} models")))
    }
}

pub(crate) fn check_name(path: &str, name: &str) -> Result<(), Error> {
    if (1..=MAX_NAME).contains(&name.encode_utf16().count()) {
        Ok(())
    } else {
        Err(Error::config(path, format!("expected 1 to {MAX_NAME} characters")))
    }
}

/// How a vendor is asked to answer.
#[cfg(feature = "http")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Piece by piece, as server-sent events.
    #[default]
    Streamed,
    /// In one object at the end. Nothing is heard meanwhile, so an idle clock runs through the whole turn.
    Whole,
}

#[cfg(feature = "http")]
impl Delivery {
    /// What the `Accept` header says.
    #[cfg(any(feature = "openai-chat", feature = "openai-responses"))]
    pub(crate) const fn accept(self) -> &'static str {
        match self {
            Self::Streamed => "text/event-stream",
            Self::Whole => "application/json",
        }
    }
}

/// What every adapter over HTTP can do (contract 11).
#[cfg(feature = "http")]
#[cfg_attr(
    not(any(
        feature = "openai-chat",
        feature = "openai-responses",
        feature = "anthropic",
        feature = "gemini"
    )),
    expect(dead_code, reason = "no adapter is built")
)]
pub(crate) fn capabilities(delivery: Delivery) -> Capabilities {
    Capabilities {
        tools: true,
        text_streaming: delivery == Delivery::Streamed,
        others: [("safeRetries".to_owned(), true)].into(),
    }
}

/// An array of at most `N` elements. An element can be two bytes of an answer and two hundred of memory, so that the
/// bound on bytes alone would not bound what an answer costs (law 9).
#[cfg(any(feature = "openai-chat", feature = "gemini"))]
pub(crate) struct UpTo<const N: usize, T>(pub(crate) Vec<T>);

#[cfg(any(feature = "openai-chat", feature = "gemini"))]
impl<'de, const N: usize, T: Deserialize<'de>> Deserialize<'de> for UpTo<N, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<const N: usize, T>(std::marker::PhantomData<T>);

        impl<'de, const N: usize, T: Deserialize<'de>> Visitor<'de> for Elements<N, T> {
            type Value = UpTo<N, T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "an array of at most {N} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if elements.len() == N {
                        return Err(A::Error::invalid_length(N + 1, &self));
                    }
                    elements.push(element);
                }
                Ok(UpTo(elements))
            }
        }

        deserializer.deserialize_seq(Elements(std::marker::PhantomData))
    }
}
