//! Readers for one value each. They name the rule that was broken and never the value.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use countersign_approval_core::json::{Members, Node};

use crate::error::InvalidRequest;
use crate::shape::utf16_len;

pub(super) type Read<T> = Result<T, InvalidRequest>;

pub(super) fn fault<T>(rule: impl Into<String>) -> Read<T> {
    Err(InvalidRequest::new(rule))
}

/// The members of an object.
pub(super) fn object<'d>(node: Node<'d>) -> Read<Members<'d>> {
    node.as_object().map_or_else(|| fault("expected an object"), Ok)
}

/// Reads an object member by member. `member` answers `None` for a name that it does not know.
pub(super) fn strict<'d>(
    node: Node<'d>,
    mut member: impl FnMut(&str, Node<'d>) -> Option<Read<()>>,
) -> Read<()> {
    for (name, value) in object(node)? {
        match member(&name, value) {
            Some(read) => read.map_err(|error| error.under(&name))?,
            None => return unknown(&name),
        }
    }
    Ok(())
}

/// The name is shown only if it is one: anything else may be content in the wrong place.
fn unknown<T>(name: &str) -> Read<T> {
    let is_name =
        name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_name && !name.is_empty() {
        fault("unknown member").map_err(|error| error.under(name))
    } else {
        fault("has an unknown member")
    }
}

/// A member that must be there.
pub(super) fn required<T>(value: Option<T>, name: &str) -> Read<T> {
    value.map_or_else(|| fault("is required").map_err(|error| error.under(name)), Ok)
}

/// A string whose length in UTF-16 units lies in `length`.
pub(super) fn text<'d>(node: Node<'d>, length: RangeInclusive<usize>) -> Read<Cow<'d, str>> {
    match node.as_str() {
        Some(text) if length.contains(&utf16_len(&text)) => Ok(text),
        _ => fault(format!(
            "expected a string of {} to {} characters (UTF-16 units)",
            length.start(),
            length.end()
        )),
    }
}

/// A string that matches `^[first][first or rest]{0,}$` with at most `max` characters; `rule` shows the expression.
pub(super) fn pattern(
    node: Node<'_>,
    max: usize,
    first: fn(u8) -> bool,
    rest: &[u8],
    rule: &'static str,
) -> Read<String> {
    match node.as_str() {
        Some(text)
            if text.len() <= max
                && text.bytes().next().is_some_and(first)
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || rest.contains(&b)) =>
        {
            Ok(text.into_owned())
        }
        _ => fault(format!("must match {rule}")),
    }
}

/// An integer by value (`8.0` is one) in `range`.
pub(super) fn integer(node: Node<'_>, range: RangeInclusive<u32>) -> Read<u32> {
    match node.as_integer().and_then(|value| u32::try_from(value).ok()) {
        Some(value) if range.contains(&value) => Ok(value),
        _ => fault(format!("expected an integer from {} to {}", range.start(), range.end())),
    }
}

/// `true` or `false`.
pub(super) fn boolean(node: Node<'_>) -> Read<bool> {
    node.as_bool().map_or_else(|| fault("expected true or false"), Ok)
}

/// One of a few words.
pub(super) fn word<T: Copy>(node: Node<'_>, words: &[(&'static str, T)]) -> Read<T> {
    let text = node.as_str();
    match words.iter().find(|(word, _)| text.as_deref() == Some(word)) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let quoted: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            fault(format!("expected {}", quoted.join(" or ")))
        }
    }
}

/// An array whose length lies in `length`.
pub(super) fn list<'d, T>(
    node: Node<'d>,
    length: RangeInclusive<usize>,
    item: impl Fn(Node<'d>) -> Read<T>,
) -> Read<Vec<T>> {
    let wrong = || format!("expected an array of {} to {} items", length.start(), length.end());
    let Some(elements) = node.as_array() else { return fault(wrong()) };
    let mut items = Vec::new();
    for (index, element) in elements.enumerate() {
        // The bound first: a longer list is not read through.
        if index >= *length.end() {
            return fault(wrong());
        }
        items.push(item(element).map_err(|error| error.under(&format!("[{index}]")))?);
    }
    if items.len() < *length.start() {
        return fault(wrong());
    }
    Ok(items)
}
