//! The flat tree that the scanner builds: one slot a token, in text order, with spans into the text.

use super::Kind;

/// The `end` and `next` of a container whose closing bracket has not been read.
pub(super) const OPEN: u32 = u32::MAX;

/// What a slot stands for. A member is a `Key` slot followed by the slots of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Object,
    Array,
    Key,
    String,
    Number,
    True,
    False,
    Null,
}

/// What the scanner saw inside a string, ordered by how much work it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Escapes {
    /// The characters stand in the text as they are.
    None,
    /// At least one backslash escape.
    Some,
    /// An escaped surrogate without its partner: no Unicode string has this value.
    LoneSurrogate,
}

/// One token. 16 bytes, because a hostile body is mostly slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// First byte, quotes and brackets included.
    pub(super) start: u32,
    /// One past the last byte; [`OPEN`] in a container that is not closed yet.
    pub(super) end: u32,
    /// Index of the first slot after this one and all it contains; [`OPEN`] as above.
    pub(super) next: u32,
    pub(super) token: Token,
    pub(super) escapes: Escapes,
}

impl Slot {
    /// The slot's bytes in `text`.
    pub(super) fn of<'t>(&self, text: &'t str) -> &'t str {
        // A scanned slot lies within the text at character borders; `get` keeps a wrong pairing from panicking.
        text.get(self.start as usize..self.end as usize).unwrap_or("")
    }

    /// The characters between the quotes of a string or key, escapes as written.
    pub(super) fn inner<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start as usize + 1..(self.end as usize).saturating_sub(1)).unwrap_or("")
    }
}

/// A scanned text. Slot 0 is the value itself; there is always one.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) slots: Vec<Slot>,
    /// Whether white space stands outside strings.
    pub(super) spacing: Spacing,
    /// The first slot with [`Escapes::LoneSurrogate`].
    pub(super) lone_surrogate: Option<u32>,
}

/// Whether a text has insignificant white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    Compact,
    Spaced,
}

impl Tree {
    pub(super) fn slot(&self, at: usize) -> Slot {
        self.slots.get(at).copied().unwrap_or(NULL)
    }

    pub(super) fn kind(&self, at: usize) -> Kind {
        match self.slot(at).token {
            Token::Object => Kind::Object,
            Token::Array => Kind::Array,
            Token::String | Token::Key => Kind::String,
            Token::Number => Kind::Number,
            Token::True | Token::False => Kind::Bool,
            Token::Null => Kind::Null,
        }
    }

    /// One past the last slot below `at`.
    pub(super) fn after(&self, at: usize) -> usize {
        (self.slot(at).next as usize).min(self.slots.len())
    }

    /// The members of the object at `at`, as slot indexes `(key, value)`. An unfinished last member is included.
    pub(super) fn members(&self, at: usize) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
        let end = self.after(at);
        let mut key = at + 1;
        std::iter::from_fn(move || {
            if key >= end {
                return None;
            }
            let member = (key, key + 1);
            key = if key + 1 < end { self.after(key + 1) } else { end };
            Some(member)
        })
    }

    /// The elements of the array at `at`, as slot indexes.
    pub(super) fn elements(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.after(at);
        let mut element = at + 1;
        std::iter::from_fn(move || {
            if element >= end {
                return None;
            }
            let this = element;
            element = self.after(element);
            Some(this)
        })
    }

    /// Appends the value at `at` without insignificant white space.
    pub(super) fn write_compact(&self, text: &str, at: usize, out: &mut String) {
        let whole = self.slot(at);
        let mut from = whole.start as usize;
        for slot in self.slots.get(at..self.after(at)).unwrap_or(&[]) {
            if matches!(slot.token, Token::Object | Token::Array) {
                continue;
            }
            push_punctuation(text, from..slot.start as usize, out);
            out.push_str(slot.of(text));
            from = slot.end as usize;
        }
        push_punctuation(text, from..whole.end as usize, out);
    }
}

const NULL: Slot = Slot { start: 0, end: 0, next: OPEN, token: Token::Null, escapes: Escapes::None };

/// Appends a stretch between scalars, which holds only punctuation and white space, without the white space.
fn push_punctuation(text: &str, span: std::ops::Range<usize>, out: &mut String) {
    for byte in text.get(span).unwrap_or("").bytes() {
        // Of these bytes, exactly the white space is not above the space character.
        if byte > b' ' {
            out.push(char::from(byte));
        }
    }
}
