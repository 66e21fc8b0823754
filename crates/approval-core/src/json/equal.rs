//! Equality of values: numbers by decimal value, strings by code points, arrays in order, objects in any order.

use std::borrow::Cow;

use super::check::{FEW_KEYS, key_text};
use super::number;
use super::tree::{Escapes, Token, Tree};

/// One side of a comparison.
#[derive(Clone, Copy)]
pub(super) struct Side<'t> {
    pub(super) tree: &'t Tree,
    pub(super) text: &'t str,
}

/// Whether the values at `i` of `a` and at `j` of `b` are the same. Recursion is bounded by the gate's depth.
pub(super) fn equal(a: Side<'_>, i: usize, b: Side<'_>, j: usize) -> bool {
    let (x, y) = (a.tree.slot(i), b.tree.slot(j));
    if x.token != y.token {
        return false;
    }
    match x.token {
        Token::Object => equal_objects(a, i, b, j),
        Token::Array => {
            let (mut left, mut right) = (a.tree.elements(i), b.tree.elements(j));
            loop {
                match (left.next(), right.next()) {
                    (Some(i), Some(j)) if equal(a, i, b, j) => {}
                    (None, None) => return true,
                    _ => return false,
                }
            }
        }
        Token::String | Token::Key => equal_strings(a, i, b, j),
        Token::Number => number::equal(x.of(a.text), y.of(b.text)),
        Token::True | Token::False | Token::Null => true,
    }
}

fn equal_objects(a: Side<'_>, i: usize, b: Side<'_>, j: usize) -> bool {
    let (mut left, mut right) = (a.tree.members(i), b.tree.members(j));
    // Most echoes keep the order. From the first key that is elsewhere on, partners are searched; in large objects
    // both sides are sorted, so that no object costs more than n log n.
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if equal_strings(a, x.0, b, y.0) => {
                if !equal(a, x.1, b, y.1) {
                    return false;
                }
            }
            (Some(x), Some(y)) => {
                if a.tree.members(i).take(FEW_KEYS + 1).count() <= FEW_KEYS {
                    // Keys are unique on both sides, so as many members with a partner each are all of them.
                    return a.tree.members(i).count() == b.tree.members(j).count()
                        && std::iter::once(x).chain(left).all(|x| {
                            let mut partners = std::iter::once(y).chain(right.clone());
                            partners
                                .find(|y| equal_strings(a, x.0, b, y.0))
                                .is_some_and(|y| equal(a, x.1, b, y.1))
                        });
                }
                let (xs, ys) = (sorted(a, x, left), sorted(b, y, right));
                return xs.len() == ys.len()
                    && xs.iter().zip(&ys).all(|(x, y)| x.0 == y.0)
                    && xs.iter().zip(&ys).all(|(x, y)| equal(a, x.1, b, y.1));
            }
            _ => return false,
        }
    }
}

/// Members by key, with the slots of their values.
fn sorted<'t>(
    side: Side<'t>,
    first: (usize, usize),
    rest: impl Iterator<Item = (usize, usize)>,
) -> Vec<(Cow<'t, str>, usize)> {
    let read = |(key, value)| (key_text(side.tree.slot(key), side.text), value);
    let mut members: Vec<_> = std::iter::once(first).chain(rest).map(read).collect();
    members.sort_unstable();
    members
}

fn equal_strings(a: Side<'_>, i: usize, b: Side<'_>, j: usize) -> bool {
    let (x, y) = (a.tree.slot(i), b.tree.slot(j));
    if x.of(a.text) == y.of(b.text) {
        return true;
    }
    // Two spellings of one string differ by escapes.
    (x.escapes, y.escapes) != (Escapes::None, Escapes::None) && key_text(x, a.text) == key_text(y, b.text)
}
