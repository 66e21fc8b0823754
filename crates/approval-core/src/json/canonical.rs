//! The canonical form: RFC 8785 over text that passed the gate, so that it separates exactly what equality separates.

use std::fmt::{self, Write as _};

use super::check::key_text;
use super::number;
use super::string::{canonical_len, cmp_utf16, write_canonical as write_string};
use super::tree::{Escapes, Slot, Token, Tree};

/// Appends `value` as a JSON string in RFC 8785 form, quotes included.
pub fn canonical_string(value: &str, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write_string(value, out);
}

/// The bytes that [`canonical_string`] appends for `value`.
pub fn canonical_string_len(value: &str) -> usize {
    canonical_len(value)
}

/// Writes the canonical form of the value at `at`. Recursion is bounded by the gate's depth.
pub(super) fn write(tree: &Tree, text: &str, at: usize, out: &mut String) -> fmt::Result {
    let slot = tree.slot(at);
    match slot.token {
        Token::Object => write_object(tree, text, at, out),
        Token::Array => {
            for (i, element) in tree.elements(at).enumerate() {
                out.write_char(if i == 0 { '[' } else { ',' })?;
                write(tree, text, element, out)?;
            }
            out.write_str(if tree.after(at) == at + 1 { "[]" } else { "]" })
        }
        Token::String | Token::Key => write_text(slot, text, out),
        Token::Number => number::write_canonical(slot.of(text), out),
        Token::True | Token::False | Token::Null => out.write_str(slot.of(text)),
    }
}

/// The length of the canonical form. Order does not change it, so nothing is sorted.
pub(super) fn len(tree: &Tree, text: &str) -> usize {
    let mut total = Count(0);
    let mut containers = 0;
    for slot in &tree.slots {
        match slot.token {
            Token::Object | Token::Array => containers += 1,
            Token::Key | Token::String if slot.escapes == Escapes::None => total.0 += slot.of(text).len(),
            Token::Key | Token::String => total.0 += canonical_len(&key_text(*slot, text)),
            Token::Number => {
                // Counting cannot fail.
                let _ = number::write_canonical(slot.of(text), &mut total);
            }
            Token::True | Token::False | Token::Null => total.0 += slot.of(text).len(),
        }
    }
    let keys = tree.slots.iter().filter(|slot| slot.token == Token::Key).count();
    let values = tree.slots.len() - keys;
    // Brackets; a colon a key; and a comma between the children of a container, of which there are as many as values
    // below the top, less one for each container that is not empty.
    let filled = (0..tree.slots.len())
        .filter(|at| matches!(tree.slot(*at).token, Token::Object | Token::Array) && tree.after(*at) > at + 1)
        .count();
    total.0 + 2 * containers + keys + (values - 1 - filled)
}

fn write_object(tree: &Tree, text: &str, at: usize, out: &mut String) -> fmt::Result {
    let mut members: Vec<_> = tree
        .members(at)
        .map(|(key, value)| (key_text(tree.slot(key), text), tree.slot(key), value))
        .collect();
    // Keys are unique, so stability is immaterial. Only beside a character of four UTF-8 bytes does the order of
    // UTF-16 differ from that of the bytes, which is faster to compare.
    if members.iter().any(|member| member.0.bytes().any(|byte| byte >= 0xf0)) {
        members.sort_unstable_by(|a, b| cmp_utf16(&a.0, &b.0));
    } else {
        members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    }
    out.write_char('{')?;
    for (i, (_, key, value)) in members.iter().enumerate() {
        if i > 0 {
            out.write_char(',')?;
        }
        write_text(*key, text, out)?;
        out.write_char(':')?;
        write(tree, text, *value, out)?;
    }
    out.write_char('}')
}

fn write_text(slot: Slot, text: &str, out: &mut String) -> fmt::Result {
    match slot.escapes {
        // Without escapes a JSON string holds nothing that RFC 8785 would escape.
        Escapes::None => out.write_str(slot.of(text)),
        _ => write_string(&key_text(slot, text), out),
    }
}

struct Count(usize);

impl fmt::Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}
