//! What a schema that a request brings may cost (law 9): its references stay inside it, no loop of them stands still, and
//! following them multiplies nothing.
//!
//! The validator remembers what it found only for references that come back to themselves, so everything else is counted
//! here, before it is compiled. Where a reference could mean several places, all of them count.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::cost::Cost;

/// Schemas that one value may meet, with every reference followed until it comes back to itself.
const MAX_EXPANDED: u32 = 10_000;
/// Schemas one inside another, with references followed. The validator recurses as deep for each level of a value.
const MAX_NESTED: usize = 64;
/// Regular expressions of a request, each of which takes time to compile.
pub(super) const MAX_PATTERNS: usize = 64;
/// `$id` members: places that a relative reference could start from.
const MAX_IDS: usize = 32;
/// Places with one anchor: one for each `$id`, and the whole schema.
const MAX_ANCHORED: usize = MAX_IDS + 1;
/// The validator remembers what a reference that comes back found about a value if so many more were followed for it.
const FORGOTTEN_VISITS: u64 = 16;

/// What was found out about a schema that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) shape: Shape,
    /// What it costs to check a value, with every reference followed.
    pub(super) cost: Cost,
    /// How many different regular expressions it has.
    pub(super) patterns: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Every way through it ends.
    Finite,
    /// It refers to itself.
    Recursive,
}

/// Checks a schema, whose dialect has the URI `dialect` if it names one, and which may have so many `patterns`. What a
/// pattern costs for each byte of text is asked of `search`.
pub(super) fn check(
    schema: &Value,
    dialect: Option<&str>,
    patterns: usize,
    search: impl Fn(&str) -> u64,
) -> Result<Found, String> {
    let mut index =
        Index { dialect, most: patterns, ids: Vec::new(), anchors: HashMap::new(), patterns: HashSet::new() };
    index.visit(schema)?;
    let patterns = index.patterns.len();
    let search = index.patterns.iter().map(|pattern| (*pattern, search(pattern))).collect();
    let mut walk = Walk {
        root: schema,
        index,
        search,
        counted: HashMap::new(),
        open: Vec::new(),
        moving: HashMap::new(),
        meant: HashMap::new(),
        shape: Shape::Finite,
    };
    let all = walk.count(schema)?;
    let cost = match walk.shape {
        Shape::Finite => all.cost,
        // For each array or object and each reference that comes back to itself, the validator goes its way once, and
        // from there each of these references some times more before it remembers. Parts of a value that are apart on
        // one way need not be on another one, which starts further up or down.
        Shape::Recursive => {
            let again = all.returns.saturating_mul(FORGOTTEN_VISITS).saturating_add(1);
            all.cost.times(again.saturating_mul(all.nested as u64))
        }
    };
    Ok(Found { shape: walk.shape, cost, patterns })
}

/// What the value of a keyword is.
enum Holds {
    /// A schema, or several, for the same value.
    Here,
    /// Schemas by name, for the same value.
    HereByName,
    /// A schema, or several, for parts of the value.
    Below,
    /// Schemas by name, for parts of the value.
    BelowByName,
    /// Schemas by name, used only where something refers to them.
    Definitions,
    /// Where a schema for the same value stands.
    Reference,
    /// No schema.
    Data,
    /// Nobody knows; a reference may lead into it.
    Unknown,
}

fn holds(keyword: &str) -> Holds {
    match keyword {
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => Holds::Here,
        "dependentSchemas" | "dependencies" => Holds::HereByName,
        "items"
        | "prefixItems"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "propertyNames"
        | "additionalProperties"
        | "unevaluatedProperties" => Holds::Below,
        "properties" | "patternProperties" => Holds::BelowByName,
        "$defs" | "definitions" => Holds::Definitions,
        "$ref" | "$dynamicRef" => Holds::Reference,
        "enum" | "const" | "default" | "examples" => Holds::Data,
        _ => Holds::Unknown,
    }
}

/// What the whole schema says about itself, wherever it stands.
struct Index<'v> {
    dialect: Option<&'v str>,
    /// How many patterns it may have.
    most: usize,
    /// With the last segment of their `$id`.
    ids: Vec<(&'v str, &'v Value)>,
    anchors: HashMap<&'v str, Vec<&'v Value>>,
    patterns: HashSet<&'v str>,
}

impl<'v> Index<'v> {
    /// Visits a schema or an array of them. Recursion is bounded by the gate.
    fn visit(&mut self, value: &'v Value) -> Result<(), String> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.visit(item)),
            Value::Object(members) => self.schema(value, members),
            _ => Ok(()),
        }
    }

    fn schema(&mut self, value: &'v Value, members: &'v Map<String, Value>) -> Result<(), String> {
        if members.get("$async") == Some(&Value::Bool(true)) {
            return Err("$async: asynchronous schemas are not supported".into());
        }
        if let Some(Value::String(id)) = members.get("$id") {
            if members.get("$schema").and_then(Value::as_str).is_some_and(|uri| Some(uri) != self.dialect) {
                return Err("$schema: a schema inside another one must be of its dialect".into());
            }
            self.ids.push((last_segment(id.split('#').next().unwrap_or_default()), value));
            if self.ids.len() > MAX_IDS {
                return Err(format!("more than {MAX_IDS} `$id` members"));
            }
            if let Some((_, name)) = id.split_once('#') {
                self.anchor(name, value)?;
            }
        }
        for name in ["$anchor", "$dynamicAnchor"] {
            if let Some(Value::String(name)) = members.get(name) {
                self.anchor(name, value)?;
            }
        }
        if let Some(Value::String(pattern)) = members.get("pattern") {
            self.patterns.insert(pattern);
        }
        if let Some(Value::Object(by_pattern)) = members.get("patternProperties") {
            self.patterns.extend(by_pattern.keys().map(String::as_str));
        }
        if self.patterns.len() > self.most {
            return Err(format!("more than {MAX_PATTERNS} regular expressions in the schemas of a request"));
        }
        for (keyword, value) in members {
            match (holds(keyword), value) {
                (Holds::Data, _) => {}
                (Holds::HereByName | Holds::BelowByName | Holds::Definitions, Value::Object(named)) => {
                    named.values().try_for_each(|schema| self.visit(schema))?;
                }
                _ => self.visit(value)?,
            }
        }
        Ok(())
    }

    fn anchor(&mut self, name: &'v str, schema: &'v Value) -> Result<(), String> {
        let places = self.anchors.entry(name).or_default();
        places.push(schema);
        if places.len() > MAX_ANCHORED {
            return Err(format!("more than {MAX_ANCHORED} places with the same anchor"));
        }
        Ok(())
    }
}

/// A way down through the schemas that a value meets.
struct Walk<'v> {
    root: &'v Value,
    index: Index<'v>,
    /// What each pattern costs for a byte of text.
    search: HashMap<&'v str, u64>,
    /// What was counted, by the schema's place in memory.
    counted: HashMap<*const Value, Counted>,
    /// The schemas above.
    open: Vec<&'v Value>,
    /// Schemas of which it is known whether they come back to themselves for the same value.
    moving: HashMap<*const Value, Moving>,
    /// What each reference could mean.
    meant: HashMap<&'v str, Places<'v>>,
    shape: Shape,
}

/// What lies below a schema, itself included, with each reference followed until it comes back to an open one.
#[derive(Debug, Clone, Copy)]
struct Counted {
    schemas: u32,
    nested: usize,
    /// References that come back to an open schema.
    returns: u64,
    cost: Cost,
    /// What it costs to find out which parts of a value were looked at, for an `unevaluated…` above.
    marking: Cost,
}

impl Counted {
    fn one(cost: Cost, returns: u64) -> Self {
        Self { schemas: 1, nested: 1, returns, cost, marking: cost }
    }

    /// Of a reference that could lead to either.
    fn or(self, other: Self) -> Self {
        Self {
            schemas: self.schemas.max(other.schemas),
            nested: self.nested.max(other.nested),
            returns: self.returns.max(other.returns),
            cost: self.cost.or(other.cost),
            marking: self.marking.or(other.marking),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moving {
    Asked,
    Yes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    SameValue,
    Part,
    /// A part that none beside it meets.
    PartByName,
}

type Places<'v> = Rc<[&'v Value]>;

/// Schemas that one keyword leads to: one of several for a reference that could mean any of them.
type Edge<'v> = (Step, Places<'v>);

impl<'v> Walk<'v> {
    fn count(&mut self, schema: &'v Value) -> Result<Counted, String> {
        let Value::Object(members) = schema else {
            return Ok(Counted::one(Cost { checks: 1, ..Cost::default() }, 0));
        };
        if self.open.iter().any(|above| std::ptr::eq(*above, schema)) {
            self.shape = Shape::Recursive;
            return Ok(Counted::one(Cost { checks: 1, ..Cost::default() }, 1));
        }
        let known = self.counted.get(&std::ptr::from_ref(schema)).copied();
        if self.open.len() + known.map_or(1, |known| known.nested) > MAX_NESTED {
            return Err(format!("more than {MAX_NESTED} schemas one inside another, references followed"));
        }
        if let Some(known) = known {
            return Ok(known);
        }
        self.must_move(schema, 0)?;
        self.open.push(schema);
        let own = Cost::of(members, |pattern| self.search.get(pattern).copied().unwrap_or(u64::MAX));
        let mut all = Counted::one(own, 0);
        let (mut apart, mut marking) = (Cost::default(), Cost::default());
        for (step, targets) in self.edges(members)? {
            let mut most: Option<Counted> = None;
            for target in targets.iter() {
                let below = self.count(target)?;
                most = Some(most.map_or(below, |most| most.or(below)));
            }
            let Some(below) = most else { continue };
            all.nested = all.nested.max(below.nested + 1);
            all.schemas = all.schemas.saturating_add(below.schemas);
            all.returns = all.returns.saturating_add(below.returns);
            match step {
                Step::SameValue => {
                    all.cost = all.cost.and(below.cost);
                    marking = marking.and(below.marking);
                }
                Step::Part => all.cost = all.cost.and(below.cost),
                Step::PartByName => apart = apart.or(below.cost),
            }
        }
        self.open.pop();
        if all.schemas > MAX_EXPANDED {
            return Err(format!(
                "references that lead to more than {MAX_EXPANDED} schemas when they are followed"
            ));
        }
        all.cost = all.cost.and(apart);
        // Marking asks the schemas for the same value again, and theirs once more at each level.
        all.marking = all.cost.and(marking);
        if members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems") {
            all.cost = all.cost.and(all.marking);
            all.marking = all.cost.and(marking);
        }
        self.counted.insert(std::ptr::from_ref(schema), all);
        Ok(all)
    }

    /// Refuses a schema that, for one and the same value, asks for itself.
    fn must_move(&mut self, schema: &'v Value, depth: usize) -> Result<(), String> {
        let Value::Object(members) = schema else { return Ok(()) };
        match self.moving.get(&std::ptr::from_ref(schema)) {
            Some(Moving::Yes) => return Ok(()),
            Some(Moving::Asked) => return Err("a reference that asks for itself without end".into()),
            None if depth >= MAX_NESTED => {
                return Err(format!("more than {MAX_NESTED} references one after another"));
            }
            None => {}
        }
        self.moving.insert(std::ptr::from_ref(schema), Moving::Asked);
        for (step, targets) in self.edges(members)? {
            if step == Step::SameValue {
                targets.iter().try_for_each(|target| self.must_move(target, depth + 1))?;
            }
        }
        self.moving.insert(std::ptr::from_ref(schema), Moving::Yes);
        Ok(())
    }

    fn edges(&mut self, members: &'v Map<String, Value>) -> Result<Vec<Edge<'v>>, String> {
        let mut edges = Vec::new();
        let mut lead = |step, schemas: &mut dyn Iterator<Item = &'v Value>| {
            edges.extend(schemas.map(|schema| (step, Rc::from([schema]))));
        };
        let mut references = Vec::new();
        for (keyword, value) in members {
            match (holds(keyword), value) {
                (Holds::Here, _) => lead(Step::SameValue, &mut each(value)),
                (Holds::Below, _) => lead(Step::Part, &mut each(value)),
                (Holds::HereByName, Value::Object(named)) => lead(Step::SameValue, &mut named.values()),
                (Holds::BelowByName, Value::Object(named)) => {
                    let apart = keyword == "properties";
                    lead(if apart { Step::PartByName } else { Step::Part }, &mut named.values());
                }
                (Holds::Reference, Value::String(reference)) => references.push((keyword, reference)),
                _ => {}
            }
        }
        for (keyword, reference) in references {
            let targets = self.targets(reference);
            if targets.is_empty() {
                return Err(format!("{keyword}: it leads to nothing inside the schema"));
            }
            edges.push((Step::SameValue, targets));
        }
        Ok(edges)
    }

    /// All places that a reference could mean. Many references may be the same one.
    fn targets(&mut self, reference: &'v str) -> Places<'v> {
        if let Some(known) = self.meant.get(reference) {
            return Rc::clone(known);
        }
        let places = Places::from(self.places(reference));
        self.meant.insert(reference, Rc::clone(&places));
        places
    }

    fn places(&self, reference: &str) -> Vec<&'v Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let named = self.index.ids.iter().filter(|(id, _)| base.is_empty() || *id == last_segment(base));
        let mut bases: Vec<&Value> = named.map(|(_, schema)| *schema).collect();
        if base.is_empty() {
            bases.push(self.root);
        }
        let fragment = percent_decoded(fragment);
        if fragment.is_empty() {
            bases
        } else if fragment.starts_with('/') {
            bases.into_iter().filter_map(|base| base.pointer(&fragment)).collect()
        } else if base.is_empty() || !bases.is_empty() {
            self.index.anchors.get(fragment.as_str()).cloned().unwrap_or_default()
        } else {
            Vec::new()
        }
    }
}

/// A schema, or those of an array.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let (one, many) = match value {
        Value::Array(items) => (None, items.as_slice()),
        _ => (Some(value), [].as_slice()),
    };
    one.into_iter().chain(many)
}

fn last_segment(uri: &str) -> &str {
    uri.rsplit(['/', ':']).next().unwrap_or(uri)
}

/// A fragment without its `%` escapes; bytes that are no text stay away from every name.
fn percent_decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
