//! [`Json`]: a value on its way into or out of a program.

use std::fmt;

use countersign_approval_core::json::{Document, Exact, Gate, Kind, Node};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// JSON text that every reader keeps exactly (design 3). Inputs, results and what a person is shown are this one text.
///
/// `==` compares values: `1` is `1.0`, and the order of keys does not matter. `Debug` shows only the length, because
/// values may be private.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Exact);

/// A text or value that is not exact JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotExact(String);

impl Json {
    /// `null`, the result of a function that has none.
    pub fn null() -> Self {
        Self::parse("null").unwrap_or_else(|_| Self(Exact::empty_object()))
    }

    /// Takes a text through the gate.
    ///
    /// # Errors
    /// [`NotExact`], with the place and what to do about it.
    pub fn parse(text: &str) -> Result<Self, NotExact> {
        Exact::parse(text).map(Self).map_err(|refused| NotExact(refused.to_string()))
    }

    /// Writes a value as JSON and takes it through the gate.
    ///
    /// # Errors
    /// [`NotExact`] if the value has no JSON, or none that is exact.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, NotExact> {
        let text = serde_json::to_string(value).map_err(|error| NotExact(error.to_string()))?;
        Self::parse(&text)
    }

    /// The compact text.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    /// serde_json's, when the value does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.0.decode()
    }

    pub(crate) fn of_exact(exact: Exact) -> Self {
        Self(exact)
    }

    pub(crate) fn into_exact(self) -> Exact {
        self.0
    }

    /// Where a JavaScript program would read another value: an integer beyond ±(2^53-1).
    pub(crate) fn beyond_javascript(&self) -> Option<String> {
        let document = Document::parse(self.text()).ok()?;
        let mut open = vec![document.root()];
        while let Some(node) = open.pop() {
            match node.kind() {
                Kind::Number if is_large_integer(&node) => return Some(node.path()),
                Kind::Object => open.extend(node.as_object().into_iter().flatten().map(|(_, value)| value)),
                Kind::Array => open.extend(node.as_array().into_iter().flatten()),
                _ => {}
            }
        }
        None
    }
}

/// What a function gives back: JSON that has not passed the gate yet. Whether it does is judged after the effect, so a
/// refusal can say that the call was executed (sandbox spec R8.6).
#[derive(Clone, Debug)]
pub struct Output(Result<String, String>);

impl Output {
    /// A JSON text. Empty text is `null`.
    pub fn json(text: impl Into<String>) -> Self {
        Self(Ok(text.into()))
    }

    /// A value, written as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::to_string(value).map_err(|error| error.to_string()))
    }

    /// `null`.
    pub fn null() -> Self {
        Self::json("null")
    }

    /// The value for the program, at most `max` bytes of it, or what is wrong with it.
    pub(crate) fn judge(self, max: usize) -> Result<Json, String> {
        let text = self.0?;
        if text.len() > max {
            return Err(format!("it has {} bytes, more than {max}", text.len()));
        }
        let text = if text.trim().is_empty() { "null" } else { &text };
        let json = Json::parse(text).map_err(|refused| refused.to_string())?;
        match json.beyond_javascript() {
            Some(path) => {
                Err(format!("{path} is an integer that JavaScript cannot hold; return it as a string"))
            }
            None => Ok(json),
        }
    }
}

impl From<Json> for Output {
    fn from(json: Json) -> Self {
        Self::json(json.text())
    }
}

fn is_large_integer(node: &Node<'_>) -> bool {
    // What passed the gate means its nearest double.
    let Ok(Ok(number)) = node.to_exact(Gate::ARGUMENTS).map(|exact| exact.decode::<f64>()) else {
        return true;
    };
    number.fract() == 0.0 && number.abs() > 9_007_199_254_740_991.0
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.text().len())
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
