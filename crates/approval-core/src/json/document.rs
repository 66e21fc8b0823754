//! [`Document`]: the checked tree of an envelope, whose members become [`Exact`] values.

use std::borrow::Cow;
use std::fmt;

use super::check::{self, key_text};
use super::exact::utf8;
use super::number::Decimal;
use super::refused::{Refused, path_of};
use super::scan::scan;
use super::tree::{Token, Tree};
use super::{ENVELOPE_DEPTH, Exact, Gate, Kind, MAX_DEPTH};

/// An envelope text (a decision body, a run request) as a tree over the text, for decoders that must know every member
/// (design 3).
///
/// Parsing checks syntax, duplicate keys, lone surrogates and a depth of 72. The key `__proto__` and numbers are judged
/// only when a member is made an [`Exact`], by [`Node::to_exact`].
///
/// ```
/// use countersign_approval_core::json::{Document, Gate};
/// let body = Document::parse(r#"{"runId":"r1","call":{"arguments":{"n":1.0}}}"#)?;
/// let root = body.root();
/// assert_eq!(root.get("runId").and_then(|n| n.as_str()).as_deref(), Some("r1"));
/// let call = root.get("call").and_then(|call| call.get("arguments")).unwrap();
/// assert_eq!(call.path(), "/call/arguments");
/// assert_eq!(call.to_exact(Gate::ARGUMENTS)?.text(), r#"{"n":1.0}"#);
/// # Ok::<(), countersign_approval_core::json::Refused>(())
/// ```
pub struct Document<'a> {
    text: &'a str,
    tree: Tree,
}

impl<'a> Document<'a> {
    /// Scans and checks an envelope. A byte order mark is a syntax error; a caller who allows one removes it first.
    pub fn parse(text: &'a str) -> Result<Self, Refused> {
        let tree = scan(text, MAX_DEPTH + ENVELOPE_DEPTH)?;
        check::strings_and_keys(&tree, text)?;
        Ok(Self { text, tree })
    }

    /// As [`Document::parse`], for bytes: those that are not UTF-8 are refused.
    pub fn parse_bytes(bytes: &'a [u8]) -> Result<Self, Refused> {
        Self::parse(utf8(bytes)?)
    }

    /// The whole value.
    pub fn root(&self) -> Node<'_> {
        Node { text: self.text, tree: &self.tree, at: 0 }
    }
}

/// Shows only the length: a body may be private.
impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.text.len())
    }
}

/// One value of a [`Document`]. Accessors answer `None` where the value is of another kind; nothing is coerced.
#[derive(Clone, Copy)]
pub struct Node<'d> {
    text: &'d str,
    tree: &'d Tree,
    at: usize,
}

impl<'d> Node<'d> {
    /// What kind of value this is.
    pub fn kind(&self) -> Kind {
        self.tree.kind(self.at)
    }

    /// The value's bytes in the source, white space and spelling as they came.
    pub fn raw(&self) -> &'d str {
        self.tree.slot(self.at).of(self.text)
    }

    /// The byte of the source at which the value starts.
    pub(crate) fn start(&self) -> usize {
        self.tree.slot(self.at).start as usize
    }

    /// Where the value stands: a JSON Pointer from the top, cut as [`Refused::path`] is. It is searched from the top, so
    /// ask for it only where a message needs it.
    pub fn path(&self) -> String {
        path_of(self.tree, self.text, self.at)
    }

    /// The members of an object, in order.
    pub fn as_object(&self) -> Option<Members<'d>> {
        let (tree, text) = (self.tree, self.text);
        (self.kind() == Kind::Object).then(|| Members {
            text,
            tree,
            next: self.at + 1,
            end: tree.after(self.at),
        })
    }

    /// The elements of an array, in order.
    pub fn as_array(&self) -> Option<Elements<'d>> {
        let (tree, text) = (self.tree, self.text);
        (self.kind() == Kind::Array).then(|| Elements {
            text,
            tree,
            next: self.at + 1,
            end: tree.after(self.at),
        })
    }

    /// The member `key` of an object.
    pub fn get(&self, key: &str) -> Option<Node<'d>> {
        self.as_object()?.find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The characters of a string.
    pub fn as_str(&self) -> Option<Cow<'d, str>> {
        (self.kind() == Kind::String).then(|| key_text(self.tree.slot(self.at), self.text))
    }

    /// A number that is an integer by value (`8.0` is 8) and fits, exactly.
    pub fn as_integer(&self) -> Option<i64> {
        if self.kind() != Kind::Number {
            return None;
        }
        Decimal::read(self.raw())?.as_integer()
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.tree.slot(self.at).token {
            Token::True => Some(true),
            Token::False => Some(false),
            _ => None,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// Takes the value through `gate`. Depth counts from this value; the path of a refusal from the document's top.
    pub fn to_exact(&self, gate: Gate) -> Result<Exact, Refused> {
        check::value(self.tree, self.text, self.at, gate)?;
        Ok(Exact::compact(self.tree, self.text, self.at))
    }
}

/// Shows kind and length only.
impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({:?}, {} bytes)", self.kind(), self.raw().len())
    }
}

/// The members of an object: [`Node::as_object`].
#[derive(Clone)]
pub struct Members<'d> {
    text: &'d str,
    tree: &'d Tree,
    next: usize,
    end: usize,
}

impl<'d> Iterator for Members<'d> {
    type Item = (Cow<'d, str>, Node<'d>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let (key, at) = (self.next, self.next + 1);
        self.next = self.tree.after(at);
        Some((key_text(self.tree.slot(key), self.text), Node { text: self.text, tree: self.tree, at }))
    }
}

/// The elements of an array: [`Node::as_array`].
#[derive(Clone)]
pub struct Elements<'d> {
    text: &'d str,
    tree: &'d Tree,
    next: usize,
    end: usize,
}

impl<'d> Iterator for Elements<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let at = self.next;
        self.next = self.tree.after(at);
        Some(Node { text: self.text, tree: self.tree, at })
    }
}
