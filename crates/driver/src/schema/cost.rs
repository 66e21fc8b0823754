//! What checking a value by a schema may cost, counted before it is done (law 9).
//!
//! A bound and no forecast: [`Cost`] is what the validator may do for each unit of a value, [`Size`] are the value's units,
//! and their product is never less than the work. Where a way of the validator depends on what it meets, the slow one counts.

use serde_json::{Map, Value};

/// The most work that the check of one value may be. A step (one schema asked about one value, one comparison with an `enum`
/// member, a few states of a pattern for one byte) takes 2 to 20 ns, so a check ends within about a second; the largest
/// answer, 600,000 bytes, has about 70,000 units, which leaves some 700 checks for each.
pub(super) const MAX_WORK: u64 = 50_000_000;

/// Up to so much work, the place of a misfit is looked for. The validator keeps a message of some hundred bytes for each
/// failure on its way, and asks the branches of `anyOf` and `oneOf` once more at each level.
pub(super) const MAX_PLACE_WORK: u64 = 250_000;

/// Text is compared and counted by so many bytes a step.
const TEXT_STEP: usize = 16;
/// Up to so many items the validator's `uniqueItems` compares each with each; then it hashes.
const PAIRED_ITEMS: u64 = 15;
/// Up to so many strings of an `enum` are compared one by one; then they are hashed.
const SCANNED_STRINGS: u64 = 10;
/// Values that one step compares with each other.
const COMPARED: u64 = 4;
/// A search begins with so many steps, however short the text.
const SEARCH_BEGINS: u64 = 8;

/// Steps for each unit of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// For each value, its text included.
    pub(super) checks: u64,
    /// For each byte of text.
    pub(super) search: u64,
    /// For each pair of arrays or objects in one array. Whoever writes a value can make them hash alike.
    pub(super) pairs: u64,
}

impl Cost {
    /// Of a schema without those in it; `search` tells what a pattern costs for each byte of text.
    pub(super) fn of(members: &Map<String, Value>, search: impl Fn(&str) -> u64) -> Self {
        let mut cost = Self { checks: 1, ..Self::default() };
        for (keyword, value) in members {
            cost.checks += match (keyword.as_str(), value) {
                ("enum", Value::Array(options)) => options_cost(options),
                ("properties", Value::Object(named)) => named.len() as u64,
                ("patternProperties", Value::Object(named)) => {
                    cost.search =
                        named.keys().fold(cost.search, |sum, pattern| sum.saturating_add(search(pattern)));
                    named.len() as u64 * (1 + SEARCH_BEGINS)
                }
                ("pattern", Value::String(pattern)) => {
                    cost.search = cost.search.saturating_add(search(pattern));
                    SEARCH_BEGINS
                }
                ("uniqueItems", Value::Bool(true)) => {
                    cost.pairs += 1;
                    PAIRED_ITEMS
                }
                ("const" | "required" | "type" | "dependentRequired" | "dependencies", value) => nodes(value),
                (_, Value::Number(_)) => 1,
                _ => 0,
            };
        }
        cost
    }

    pub(super) fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Of two that never meet the same part of a value.
    pub(super) fn or(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    pub(super) fn times(self, factor: u64) -> Self {
        self.with(Self { checks: factor, search: factor, pairs: factor }, u64::saturating_mul)
    }

    /// The most steps for a value.
    pub(super) fn work(self, size: Size) -> u64 {
        let checks = self.checks.saturating_mul(size.units);
        let search = self.search.saturating_mul(size.text);
        checks.saturating_add(search).saturating_add(self.pairs.saturating_mul(size.pairs))
    }

    fn with(self, other: Self, join: fn(u64, u64) -> u64) -> Self {
        Self {
            checks: join(self.checks, other.checks),
            search: join(self.search, other.search),
            pairs: join(self.pairs, other.pairs),
        }
    }
}

/// How much there is of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Values and names, long texts several times.
    pub(super) units: u64,
    /// Bytes of strings and names.
    pub(super) text: u64,
    /// What comparing each array or object with each other one of its array takes, over all arrays.
    pub(super) pairs: u64,
}

impl Size {
    /// Of a value that passed the gate, which bounds the recursion.
    pub(super) fn of(value: &Value) -> Self {
        let mut size = Self { units: 1, ..Self::default() };
        match value {
            Value::String(text) => size.add_text(text),
            Value::Array(items) => {
                let (mut compared, mut units) = (0u64, 0u64);
                for item in items {
                    let below = Self::of(item);
                    size.add(below);
                    if matches!(item, Value::Array(_) | Value::Object(_)) {
                        compared += 1;
                        units = units.saturating_add(below.units);
                    }
                }
                // Two of them differ at the latest where the smaller one ends, and a step compares a few values.
                let pairs = compared.saturating_sub(1).saturating_mul(units) / 2 / COMPARED;
                size.pairs = size.pairs.saturating_add(pairs);
            }
            Value::Object(members) => {
                for (name, value) in members {
                    size.units += 1;
                    size.add_text(name);
                    size.add(Self::of(value));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        size
    }

    fn add_text(&mut self, text: &str) {
        self.units += (text.len() / TEXT_STEP) as u64;
        self.text += text.len() as u64;
    }

    fn add(&mut self, other: Self) {
        self.units += other.units;
        self.text += other.text;
        self.pairs = self.pairs.saturating_add(other.pairs);
    }
}

/// Comparisons of a value with the options of an `enum`.
fn options_cost(options: &[Value]) -> u64 {
    if options.iter().all(|option| matches!(option, Value::String(_) | Value::Null)) {
        (options.len() as u64).min(SCANNED_STRINGS)
    } else {
        options.iter().map(nodes).sum()
    }
}

/// Values in a value, itself included.
fn nodes(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(members) => members.values().map(nodes).sum(),
        _ => 0,
    }
}
