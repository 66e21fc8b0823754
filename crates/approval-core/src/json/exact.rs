//! [`Exact`]: one value, its text shared.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::equal::{Side, equal};
use super::refused::{Refused, RefusedKind};
use super::scan::scan;
use super::tree::{Spacing, Tree};
use super::{Digest, Gate, Kind, canonical, check};

/// JSON text that every reader can carry exactly: the author's tokens without insignificant white space (design 3).
///
/// Number and string spellings are kept (`1e0`, `\u0041`). Cloning shares the text. `==` compares values: numbers by
/// decimal value, keys in any order. `Debug` shows only the length, because arguments may be private.
///
/// ```
/// use countersign_approval_core::json::Exact;
/// let reviewed = Exact::parse(r#"{ "to": "ann", "amount": 1.0 }"#)?;
/// assert_eq!(reviewed.text(), r#"{"to":"ann","amount":1.0}"#);
/// assert_eq!(reviewed, Exact::parse(r#"{"amount":1,"to":"\u0061nn"}"#)?);
/// assert!(Exact::parse(r#"{"amount":9007199254740993}"#).is_err());
/// # Ok::<(), countersign_approval_core::json::Refused>(())
/// ```
#[derive(Clone)]
pub struct Exact(Arc<str>);

impl Exact {
    /// Takes `text` through [`Gate::ARGUMENTS`].
    pub fn parse(text: &str) -> Result<Self, Refused> {
        Self::parse_with(text, Gate::ARGUMENTS)
    }

    /// As [`Exact::parse`], for bytes: those that are not UTF-8 are refused. A byte order mark is a syntax error.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Refused> {
        Self::parse(utf8(bytes)?)
    }

    /// Takes `text` through `gate`.
    pub fn parse_with(text: &str, gate: Gate) -> Result<Self, Refused> {
        let tree = scan(text, gate.depth())?;
        check::strings_and_keys(&tree, text)?;
        check::value(&tree, text, 0, gate)?;
        Ok(Self::compact(&tree, text, 0))
    }

    /// `{}`, the arguments of a call that gives none.
    pub fn empty_object() -> Self {
        Self(Arc::from("{}"))
    }

    /// The compact text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What kind of value this is.
    pub fn kind(&self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// The canonical form, RFC 8785. Numbers that passed only [`super::Numbers::AsWritten`] keep all their digits in
    /// the same layout.
    pub fn canonical(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        self.write_canonical(&mut out);
        out
    }

    /// Appends the canonical form, for a caller who builds a larger one.
    pub fn write_canonical(&self, out: &mut String) {
        match self.tree() {
            // Writing to a String cannot fail.
            Some(tree) => drop(canonical::write(&tree, &self.0, 0, out)),
            None => out.push_str(&self.0),
        }
    }

    /// As [`write_canonical`](Self::write_canonical), and whether the value passes `gate`: it may have come through a
    /// weaker one.
    pub(crate) fn write_canonical_through(&self, gate: Gate, out: &mut String) -> bool {
        let Some(tree) = self.tree() else {
            out.push_str(&self.0);
            return false;
        };
        // Writing to a String cannot fail.
        let _ = canonical::write(&tree, &self.0, 0, out);
        check::value(&tree, &self.0, 0, gate).is_ok()
    }

    /// The bytes of the canonical form, without building it.
    pub fn canonical_len(&self) -> usize {
        self.tree().map_or(self.0.len(), |tree| canonical::len(&tree, &self.0))
    }

    /// SHA-256 of the canonical form. Equal values have equal digests.
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical())
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    /// serde_json's, when the value does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The value at slot `at` of a text that passed the gate.
    pub(super) fn compact(tree: &Tree, text: &str, at: usize) -> Self {
        let span = tree.slot(at).of(text);
        if tree.spacing == Spacing::Compact {
            return Self(Arc::from(span));
        }
        let mut out = String::with_capacity(span.len());
        tree.write_compact(text, at, &mut out);
        Self(Arc::from(out))
    }

    /// Always there, because the text passed a gate of at most this depth. Callers still say what its absence means,
    /// so that a mistake of ours could only separate values.
    fn tree(&self) -> Option<Tree> {
        scan(&self.0, usize::MAX).ok()
    }
}

impl PartialEq for Exact {
    fn eq(&self, other: &Self) -> bool {
        if self.0 == other.0 {
            return true;
        }
        let (Some(left), Some(right)) = (self.tree(), other.tree()) else { return false };
        equal(Side { tree: &left, text: &self.0 }, 0, Side { tree: &right, text: &other.0 }, 0)
    }
}

impl Eq for Exact {}

impl fmt::Debug for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exact({} bytes)", self.0.len())
    }
}

/// Emits the text verbatim inside serde_json.
impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Takes raw text through [`Gate::ARGUMENTS`]; only serde_json's text readers carry raw text.
impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(D::Error::custom)
    }
}

/// Bytes as text.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, Refused> {
    std::str::from_utf8(bytes).map_err(|error| {
        let what = format!("not UTF-8: byte {}", error.valid_up_to());
        Refused::new(RefusedKind::Utf8, String::new(), what)
    })
}
