//! The rules beyond syntax, over a scanned tree.

use std::borrow::Cow;

use super::number;
use super::refused::{Refused, RefusedKind, path_of};
use super::string::unescape;
use super::tree::{Escapes, Slot, Token, Tree};
use super::{Gate, Numbers};

/// Deeper gates count as this one: comparison and printing recurse once a level.
const DEEPEST: usize = 128;

/// Objects up to this size compare their keys pair by pair; larger ones sort them, so that no object costs more than
/// n log n.
pub(super) const FEW_KEYS: usize = 8;

impl Gate {
    pub(super) fn depth(self) -> usize {
        self.max_depth.min(DEEPEST)
    }
}

/// What holds everywhere, in envelopes too: strings are Unicode, and keys are unique.
pub(super) fn strings_and_keys(tree: &Tree, text: &str) -> Result<(), Refused> {
    // Before any key is compared: an unpaired surrogate has no characters to compare.
    if let Some(at) = tree.lone_surrogate {
        let what = "an unpaired surrogate";
        return Err(Refused::new(RefusedKind::LoneSurrogate, path_of(tree, text, at as usize), what));
    }
    let mut keys = Vec::new();
    for (at, slot) in tree.slots.iter().enumerate() {
        if slot.token != Token::Object {
            continue;
        }
        keys.clear();
        keys.extend(tree.members(at).map(|(key, _)| key));
        if let Some(second) = repeated(tree, text, &keys) {
            let what = "a repeated key";
            return Err(Refused::new(RefusedKind::DuplicateKey, path_of(tree, text, second), what));
        }
    }
    Ok(())
}

/// What a value must satisfy to be bound: the gate's depth and numbers, and no own key `__proto__` (contract 4.6).
pub(super) fn value(tree: &Tree, text: &str, root: usize, gate: Gate) -> Result<(), Refused> {
    let mut ends: Vec<usize> = Vec::new();
    for at in root..tree.after(root) {
        let slot = tree.slot(at);
        match slot.token {
            Token::Object | Token::Array => {
                while ends.last().is_some_and(|end| *end <= at) {
                    ends.pop();
                }
                ends.push(tree.after(at));
                if ends.len() > gate.depth() {
                    let what = format!("more than {} levels of nesting", gate.depth());
                    return Err(Refused::new(RefusedKind::TooDeep, path_of(tree, text, at), what));
                }
            }
            Token::Key if key_text(slot, text) == "__proto__" => {
                let what = "the key `__proto__`";
                return Err(Refused::new(RefusedKind::ProtoKey, path_of(tree, text, at), what));
            }
            Token::Number if gate.numbers == Numbers::Interoperable => {
                let number = slot.of(text);
                if !number::is_interoperable(number) {
                    return Err(Refused::number(path_of(tree, text, at), number));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The characters of a key or string slot.
pub(super) fn key_text<'t>(slot: Slot, text: &'t str) -> Cow<'t, str> {
    match slot.escapes {
        Escapes::None => Cow::Borrowed(slot.inner(text)),
        _ => unescape(slot.inner(text)),
    }
}

/// The first slot among `keys` whose key stood before.
fn repeated(tree: &Tree, text: &str, keys: &[usize]) -> Option<usize> {
    if keys.len() <= FEW_KEYS {
        let stood_before = |i: usize| keys.iter().take(i).any(|key| same_text(tree, text, *key, keys[i]));
        return (1..keys.len()).find(|i| stood_before(*i)).map(|i| keys[i]);
    }
    let read = |at: &usize| key_text(tree.slot(*at), text);
    let mut sorted: Vec<(Cow<'_, str>, usize)> = keys.iter().map(|at| (read(at), *at)).collect();
    sorted.sort_unstable();
    sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).min()
}

/// Whether two keys or strings of one text have the same characters.
fn same_text(tree: &Tree, text: &str, a: usize, b: usize) -> bool {
    let (a, b) = (tree.slot(a), tree.slot(b));
    if a.escapes == Escapes::None && b.escapes == Escapes::None {
        // Keys that differ mostly differ in length, which costs no look at the text.
        return a.end - a.start == b.end - b.start && a.of(text) == b.of(text);
    }
    key_text(a, text) == key_text(b, text)
}
