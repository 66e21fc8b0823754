//! Why a text was refused, told without its private values.

use std::fmt::Write as _;

use super::string::unescape;
use super::tree::{Token, Tree};

const SHOWN_SEGMENTS: usize = 8;
const SHOWN_CHARS: usize = 64;
const SHOWN_NUMBER: usize = 40;

/// A text that is not exact JSON: what is wrong, where, and what to do about it.
///
/// Display is one sentence. Of the text it shows the path (keys cut to 64 characters, 8 levels) and, of a refused
/// number, the first 40 characters; no other value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at {}; {}", self.place(), self.kind.advice())]
pub struct Refused {
    kind: RefusedKind,
    path: String,
    what: String,
    /// Of a syntax error: the byte, and what should have stood there.
    expected: Option<(usize, &'static str)>,
}

/// The rule that a refused text breaks. A text that is not JSON is always `Utf8`, `TooLong` or `Syntax`, whatever else
/// is wrong with it, because the host answers such a body differently (design 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedKind {
    /// Not JSON (RFC 8259).
    Syntax,
    /// Not UTF-8.
    Utf8,
    /// One object has two members with the same key, as written or by escapes.
    DuplicateKey,
    /// A string or key has an escaped surrogate without its partner.
    LoneSurrogate,
    /// A member is called `__proto__`, which JavaScript readers drop.
    ProtoKey,
    /// More open containers than the gate allows.
    TooDeep,
    /// A number that not every reader can carry exactly.
    Number,
    /// 4 GiB of text or more.
    TooLong,
}

impl Refused {
    /// The rule that was broken.
    pub fn kind(&self) -> RefusedKind {
        self.kind
    }

    /// Where: a JSON Pointer (RFC 6901) from the text's top, empty for the top itself. Keys longer than 64 characters
    /// and paths of more than 8 levels end in `…`; control and direction characters are written `\u{..}`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Of a syntax error ([`RefusedKind::Syntax`]): its byte offset in the text, and what should have stood there, such
    /// as `a key`. For readers of files, who want a line and a column.
    pub const fn expected(&self) -> Option<(usize, &'static str)> {
        self.expected
    }

    pub(super) fn new(kind: RefusedKind, path: String, what: impl Into<String>) -> Self {
        Self { kind, path, what: what.into(), expected: None }
    }

    pub(super) fn syntax(path: String, offset: usize, expected: &'static str) -> Self {
        let what = format!("not JSON: expected {expected} at byte {offset}");
        Self { expected: Some((offset, expected)), ..Self::new(RefusedKind::Syntax, path, what) }
    }

    pub(super) fn number(path: String, number: &str) -> Self {
        let shown: String = number.chars().take(SHOWN_NUMBER).collect();
        let more = if shown.len() < number.len() { "…" } else { "" };
        Self::new(RefusedKind::Number, path, format!("the number {shown}{more}"))
    }

    fn place(&self) -> &str {
        if self.path.is_empty() { "the top" } else { &self.path }
    }
}

impl RefusedKind {
    fn advice(self) -> &'static str {
        match self {
            Self::Syntax => "send one JSON value",
            Self::Utf8 => "send UTF-8",
            Self::DuplicateKey => "name each member once",
            Self::LoneSurrogate => "send both halves of the pair or neither",
            Self::ProtoKey => "choose another key, as JavaScript readers drop this one",
            Self::TooDeep => "flatten the value",
            Self::Number => "not every reader keeps its exact value, so declare such a value as a string",
            Self::TooLong => "send less than 4 GiB",
        }
    }
}

/// The JSON Pointer of the slot `target`, which may be a key or lie in a container that is still open.
pub(super) fn path_of(tree: &Tree, text: &str, target: usize) -> String {
    let mut path = String::new();
    let mut segments = 0;
    let mut at = 0;
    while at < target {
        let (segment, child) = match tree.slot(at).token {
            Token::Object => {
                let Some((key, value)) = tree.members(at).find(|m| target == m.0 || target < tree.after(m.1))
                else {
                    break;
                };
                let name = unescape(tree.slot(key).inner(text)).into_owned();
                (name, if target == key { target } else { value })
            }
            Token::Array => {
                let Some((index, element)) = tree.elements(at).enumerate().find(|e| target < tree.after(e.1))
                else {
                    break;
                };
                (index.to_string(), element)
            }
            _ => break,
        };
        segments += 1;
        if segments > SHOWN_SEGMENTS {
            path.push_str("/…");
            break;
        }
        push_segment(&mut path, &segment);
        at = child;
    }
    path
}

fn push_segment(path: &mut String, segment: &str) {
    path.push('/');
    for (i, c) in segment.chars().enumerate() {
        match c {
            _ if i == SHOWN_CHARS => {
                path.push('…');
                break;
            }
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            // A path is shown in logs and terminals, where these would change what a person sees.
            c if c.is_control() || is_direction_or_invisible(c) => {
                let _ = write!(path, "\\u{{{:x}}}", u32::from(c));
            }
            c => path.push(c),
        }
    }
}

fn is_direction_or_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
