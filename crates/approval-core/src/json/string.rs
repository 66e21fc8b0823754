//! Strings: escapes in, RFC 8785 escapes out, and the orders of keys.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The characters that a string's inner text stands for. Lone surrogates, which the gate refuses, become U+FFFD here:
/// only the path of a refusal ever shows one.
pub(super) fn unescape(inner: &str) -> Cow<'_, str> {
    let Some(first) = inner.find('\\') else {
        return Cow::Borrowed(inner);
    };
    let (plain, mut rest) = inner.split_at(first);
    let mut out = String::with_capacity(inner.len());
    out.push_str(plain);
    while let Some(escaped) = rest.strip_prefix('\\') {
        let (c, length) = escape(escaped.as_bytes());
        out.push(c);
        let after = escaped.get(length..).unwrap_or("");
        let (plain, next) = after.split_at(after.find('\\').unwrap_or(after.len()));
        out.push_str(plain);
        rest = next;
    }
    Cow::Owned(out)
}

/// The character of one escape and the bytes that it takes after its backslash.
fn escape(bytes: &[u8]) -> (char, usize) {
    let simple = match bytes.first() {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes),
        Some(&c) => char::from(c),
        None => char::REPLACEMENT_CHARACTER,
    };
    (simple, 1)
}

fn unicode_escape(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| bytes.get(at..at + 4).and_then(hex4);
    match unit(1) {
        Some(high @ 0xd800..=0xdbff) => match (bytes.get(5..7), unit(7)) {
            (Some(b"\\u"), Some(low @ 0xdc00..=0xdfff)) => {
                let c = 0x10000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                (char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER), 11)
            }
            _ => (char::REPLACEMENT_CHARACTER, 5),
        },
        Some(unit) => (char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER), 5),
        None => (char::REPLACEMENT_CHARACTER, 5),
    }
}

/// Four hexadecimal digits of either case.
pub(super) fn hex4(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |unit, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(unit << 4 | digit as u16)
    })
}

/// Writes `value` as RFC 8785 prints strings: quotes, the short escapes, `\u00xx` in lower case for the other control
/// characters, everything else as it is.
pub(super) fn write_canonical(value: &str, out: &mut dyn fmt::Write) -> fmt::Result {
    out.write_char('"')?;
    let mut plain = 0;
    for (i, byte) in value.bytes().enumerate() {
        let Some(escape) = canonical_escape(byte) else { continue };
        out.write_str(value.get(plain..i).unwrap_or(""))?;
        match escape {
            Escape::Short(c) => {
                out.write_char('\\')?;
                out.write_char(char::from(c))?;
            }
            Escape::Unicode => write!(out, "\\u{byte:04x}")?,
        }
        plain = i + 1;
    }
    out.write_str(value.get(plain..).unwrap_or(""))?;
    out.write_char('"')
}

/// The bytes that [`write_canonical`] writes.
pub(super) fn canonical_len(value: &str) -> usize {
    let grown = value.bytes().map(|byte| match canonical_escape(byte) {
        None => 1,
        Some(Escape::Short(_)) => 2,
        Some(Escape::Unicode) => 6,
    });
    grown.sum::<usize>() + 2
}

enum Escape {
    Short(u8),
    Unicode,
}

fn canonical_escape(byte: u8) -> Option<Escape> {
    match byte {
        b'"' | b'\\' => Some(Escape::Short(byte)),
        0x08 => Some(Escape::Short(b'b')),
        0x09 => Some(Escape::Short(b't')),
        0x0a => Some(Escape::Short(b'n')),
        0x0c => Some(Escape::Short(b'f')),
        0x0d => Some(Escape::Short(b'r')),
        0x00..=0x1f => Some(Escape::Unicode),
        _ => None,
    }
}

/// The order of two keys by UTF-16 code units, which RFC 8785 sorts by.
///
/// It differs from the order of the UTF-8 bytes in one place: characters from U+10000 are surrogates in UTF-16 and so
/// come before U+E000 to U+FFFF. Where two UTF-8 strings first differ, their lead bytes tell.
pub(super) fn cmp_utf16(a: &str, b: &str) -> Ordering {
    let differ = a.bytes().zip(b.bytes()).find(|(x, y)| x != y);
    match differ {
        Some((x, y)) => utf16_rank(x).cmp(&utf16_rank(y)),
        None => a.len().cmp(&b.len()),
    }
}

/// Lead bytes 0xF0 and above (U+10000 on) rank between 0xED (to U+D7FF) and 0xEE (from U+E000).
fn utf16_rank(byte: u8) -> u16 {
    if byte >= 0xf0 { (0xed << 8) | u16::from(byte) } else { u16::from(byte) << 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8785 3.2.3: keys sort by UTF-16 code units; our byte trick must agree with the plain definition.
    #[test]
    fn utf16_order_is_that_of_the_code_units() {
        let parts =
            ["", "a", "\u{7f}", "\u{80}", "é", "\u{7ff}", "\u{800}", "\u{d7ff}", "\u{e000}", "\u{fb33}"];
        let more = ["\u{ffff}", "\u{10000}", "😀", "\u{10ffff}", "aa", "a\u{10000}", "a\u{ffff}"];
        let all: Vec<&str> = parts.into_iter().chain(more).collect();
        for a in &all {
            for b in &all {
                assert_eq!(cmp_utf16(a, b), a.encode_utf16().cmp(b.encode_utf16()), "{a:?} {b:?}");
            }
        }
    }
}
