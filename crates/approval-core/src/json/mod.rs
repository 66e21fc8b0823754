//! Exact JSON: one gate for every argument, decision and function input (design 3, law 3).
//!
//! [`Exact`] is JSON text that a person, a client, a tool and a JavaScript program all read as the same value. What
//! cannot be carried so is [`Refused`] before anybody reviews it; nothing is repaired or rounded. [`Document`] is the
//! checked tree of an envelope (a decision body, a run request), whose members become `Exact` values.
//!
//! The scanner is our own, over bytes. serde_json appears only where a type meets serde, so no feature that another
//! crate turns on (`arbitrary_precision`, `preserve_order`) can change an answer of this module.
//!
//! Invariant: an `Exact` holds valid, compact JSON without duplicate keys, lone surrogates or an own key `__proto__`.
//! `docs/exact-json.md` states the rules for other languages, with vectors in `docs/vectors`.

mod canonical;
mod check;
mod digest;
mod document;
mod equal;
mod exact;
mod number;
mod refused;
mod scan;
mod string;
mod tree;

pub use canonical::{canonical_string, canonical_string_len};
pub use digest::{Digest, NotADigest};
pub use document::{Document, Elements, Members, Node};
pub use exact::Exact;
pub use number::number_text;
pub use refused::{Refused, RefusedKind};

/// Open containers allowed in a bound value, counted from the value itself (design 3, design 8).
pub const MAX_DEPTH: usize = 64;

/// Open containers that an envelope may add around a bound value (design 3).
pub const ENVELOPE_DEPTH: usize = 8;

/// What a value must satisfy to become an [`Exact`], beyond the rules that always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Open containers allowed, counted from the value. More than 128 counts as 128, because comparison and printing
    /// recurse once a level.
    pub max_depth: usize,
    /// Which numbers pass.
    pub numbers: Numbers,
}

impl Gate {
    /// For everything that is reviewed, bound or executed: depth 64, interoperable numbers.
    pub const ARGUMENTS: Self = Self { max_depth: MAX_DEPTH, numbers: Numbers::Interoperable };
    /// For tool outputs, which nobody reviews: depth 64, numbers as the tool wrote them.
    pub const OUTPUT: Self = Self { max_depth: MAX_DEPTH, numbers: Numbers::AsWritten };
}

/// Which numbers pass a [`Gate`]. Closed: a third rule would be a new identity of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Printing the nearest IEEE-754 double in its shortest form gives the same decimal value as the text.
    Interoperable,
    /// Every JSON number, carried as text.
    AsWritten,
}

/// The six kinds of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `{}` with its members.
    Object,
    /// `[]` with its elements.
    Array,
    /// A string.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}
