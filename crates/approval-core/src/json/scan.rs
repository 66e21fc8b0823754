//! The scanner: RFC 8259 over bytes, into a [`Tree`]. It judges syntax alone and never recurses.
//!
//! A text that is too deep is still read to its end, so that one that is not JSON is told apart from one that is
//! (design 3: the host answers them differently); beyond the limit it keeps no slots.

use super::refused::{Refused, RefusedKind, path_of};
use super::string::hex4;
use super::tree::{Escapes, OPEN, Slot, Spacing, Token, Tree};

/// Scans one JSON value, refusing more than `max_depth` open containers.
pub(super) fn scan(text: &str, max_depth: usize) -> Result<Tree, Refused> {
    if text.len() >= OPEN as usize {
        return Err(Refused::new(RefusedKind::TooLong, String::new(), "a text of 4 GiB or more"));
    }
    let slots = Vec::with_capacity(text.len() / 12 + 4);
    let tree = Tree { slots, spacing: Spacing::Compact, lone_surrogate: None };
    let mut scanner =
        Scanner { bytes: text.as_bytes(), at: 0, max_depth, tree, open: Vec::new(), too_deep: None };
    match scanner.document() {
        Ok(()) => {}
        Err(Expected(expected)) => {
            let path = path_of(&scanner.tree, text, scanner.last_place());
            return Err(Refused::syntax(path, scanner.at, expected));
        }
    }
    match scanner.too_deep {
        Some(path) => {
            let what = format!("more than {max_depth} levels of nesting");
            Err(Refused::new(RefusedKind::TooDeep, path, what))
        }
        None => Ok(scanner.tree),
    }
}

struct Scanner<'t> {
    bytes: &'t [u8],
    at: usize,
    max_depth: usize,
    tree: Tree,
    open: Vec<Open>,
    /// The path of the first container that is too deep.
    too_deep: Option<String>,
}

#[derive(Clone, Copy)]
struct Open {
    slot: u32,
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    Array,
}

/// A syntax error: what should have stood at the scanner's position.
struct Expected(&'static str);

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Expected> {
        loop {
            self.value()?;
            if !self.up_to_next_value()? {
                return Ok(());
            }
        }
    }

    /// Reads a scalar, or opens containers down to the first scalar or empty container.
    fn value(&mut self) -> Result<(), Expected> {
        loop {
            self.space();
            let start = self.at;
            match self.peek() {
                Some(b'{') => {
                    self.open(Shape::Object);
                    self.space();
                    if self.peek() == Some(b'}') {
                        return Ok(());
                    }
                    self.key()?;
                }
                Some(b'[') => {
                    self.open(Shape::Array);
                    self.space();
                    if self.peek() == Some(b']') {
                        return Ok(());
                    }
                }
                Some(b'"') => return self.string(Token::String),
                Some(b't') => return self.word(b"true", Token::True),
                Some(b'f') => return self.word(b"false", Token::False),
                Some(b'n') => return self.word(b"null", Token::Null),
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                    self.push(start, Token::Number, Escapes::None);
                    return Ok(());
                }
                _ => return Err(Expected("a value")),
            }
        }
    }

    /// After a value: closes what ends here. True if another value follows.
    fn up_to_next_value(&mut self) -> Result<bool, Expected> {
        loop {
            self.space();
            let Some(open) = self.open.last().copied() else {
                return if self.at == self.bytes.len() { Ok(false) } else { Err(Expected("the end")) };
            };
            match (open.shape, self.peek()) {
                (Shape::Object, Some(b'}')) | (Shape::Array, Some(b']')) => self.close(),
                (Shape::Object, Some(b',')) => {
                    self.at += 1;
                    self.space();
                    self.key()?;
                    return Ok(true);
                }
                (Shape::Array, Some(b',')) => {
                    self.at += 1;
                    return Ok(true);
                }
                (Shape::Object, _) => return Err(Expected("`,` or `}`")),
                (Shape::Array, _) => return Err(Expected("`,` or `]`")),
            }
        }
    }

    fn key(&mut self) -> Result<(), Expected> {
        if self.peek() != Some(b'"') {
            return Err(Expected("a key"));
        }
        self.string(Token::Key)?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(Expected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn open(&mut self, shape: Shape) {
        let slot = self.tree.slots.len() as u32;
        self.open.push(Open { slot, shape });
        let token = if shape == Shape::Object { Token::Object } else { Token::Array };
        if self.open.len() > self.max_depth && self.too_deep.is_none() {
            self.push(self.at, token, Escapes::None);
            self.too_deep = Some(self.path_of_last());
        }
        if self.too_deep.is_none() {
            self.tree.slots.push(Slot {
                start: self.at as u32,
                end: OPEN,
                next: OPEN,
                token,
                escapes: Escapes::None,
            });
        }
        self.at += 1;
    }

    fn close(&mut self) {
        self.at += 1;
        let next = self.tree.slots.len() as u32;
        let Some(open) = self.open.pop() else { return };
        if self.too_deep.is_none()
            && let Some(slot) = self.tree.slots.get_mut(open.slot as usize)
        {
            slot.end = self.at as u32;
            slot.next = next;
        }
    }

    fn push(&mut self, start: usize, token: Token, escapes: Escapes) {
        if self.too_deep.is_none() {
            let next = self.tree.slots.len() as u32 + 1;
            self.tree.slots.push(Slot { start: start as u32, end: self.at as u32, next, token, escapes });
        }
    }

    fn string(&mut self, token: Token) -> Result<(), Expected> {
        let start = self.at;
        let mut escapes = Escapes::None;
        self.at += 1;
        loop {
            self.at += plain_length(self.bytes.get(self.at..).unwrap_or(&[]));
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => escapes = escapes.max(self.escape()?),
                Some(_) => return Err(Expected("an escape instead of a control character")),
                None => return Err(Expected("`\"`")),
            }
        }
        self.at += 1;
        if escapes == Escapes::LoneSurrogate && self.too_deep.is_none() {
            self.tree.lone_surrogate.get_or_insert(self.tree.slots.len() as u32);
        }
        self.push(start, token, escapes);
        Ok(())
    }

    fn escape(&mut self) -> Result<Escapes, Expected> {
        let unit = match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                return Ok(Escapes::Some);
            }
            Some(b'u') => self.hex_at(self.at + 2).ok_or(Expected("four hexadecimal digits"))?,
            _ => return Err(Expected("an escape")),
        };
        self.at += 6;
        match unit {
            0xd800..=0xdbff => {
                let follows = self.bytes.get(self.at..self.at + 2) == Some(b"\\u");
                match self.hex_at(self.at + 2) {
                    Some(0xdc00..=0xdfff) if follows => {
                        self.at += 6;
                        Ok(Escapes::Some)
                    }
                    // What follows is read on its own, so that a bad escape there is still a syntax error.
                    _ => Ok(Escapes::LoneSurrogate),
                }
            }
            0xdc00..=0xdfff => Ok(Escapes::LoneSurrogate),
            _ => Ok(Escapes::Some),
        }
    }

    fn hex_at(&self, at: usize) -> Option<u16> {
        self.bytes.get(at..at + 4).and_then(hex4)
    }

    fn number(&mut self) -> Result<(), Expected> {
        self.skip(b'-');
        if !self.skip(b'0') {
            self.digits()?;
        }
        if self.skip(b'.') {
            self.digits()?;
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _ = self.skip(b'+') || self.skip(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Expected> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == from { Err(Expected("a digit")) } else { Ok(()) }
    }

    fn word(&mut self, word: &[u8], token: Token) -> Result<(), Expected> {
        let start = self.at;
        if self.bytes.get(start..start + word.len()) != Some(word) {
            return Err(Expected("a value"));
        }
        self.at += word.len();
        self.push(start, token, Escapes::None);
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.tree.spacing = Spacing::Spaced;
            self.at += 1;
        }
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The slot that a syntax error is nearest to: a key whose value is missing, or the innermost open container.
    fn last_place(&self) -> usize {
        let last = self.tree.slots.len().saturating_sub(1);
        let kept = self.open.iter().rev().map(|open| open.slot as usize).find(|slot| *slot <= last);
        match self.tree.slots.last() {
            Some(slot) if slot.token == Token::Key => last,
            _ => kept.unwrap_or(0),
        }
    }

    fn path_of_last(&self) -> String {
        let text = std::str::from_utf8(self.bytes).unwrap_or("");
        path_of(&self.tree, text, self.tree.slots.len().saturating_sub(1))
    }
}

/// The bytes before the next quote, backslash or control character, eight at a time.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let mut length = 0;
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        // Sets the high bit of each byte that is zero; borrows only disturb bytes above the first hit.
        let zero = |w: u64| w.wrapping_sub(ONES) & !w & HIGH;
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let hit = control | zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
        if hit != 0 {
            return length + (hit.trailing_zeros() / 8) as usize;
        }
        length += 8;
        rest = after;
    }
    length + rest.iter().take_while(|&&b| b != b'"' && b != b'\\' && b >= 0x20).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Law 3: the word-at-a-time search must stop exactly where the plain one does.
    #[test]
    fn plain_length_agrees_with_its_definition() {
        for byte in 0..=255u8 {
            for at in 0..20 {
                for after in [0u8, b' ', b'!', b'"', b'#', 0x7f, 0x80, 0xff] {
                    let mut bytes = vec![b'a'; 20];
                    bytes[at] = byte;
                    if at + 1 < 20 {
                        bytes[at + 1] = after;
                    }
                    let plain = bytes.iter().take_while(|&&b| b != b'"' && b != b'\\' && b >= 0x20).count();
                    assert_eq!(plain_length(&bytes), plain, "{byte} {after} at {at}");
                }
            }
        }
    }
}
