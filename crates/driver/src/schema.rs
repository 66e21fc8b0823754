//! Validation of arguments against a tool's JSON Schema (contract 7.3, 7.5), of what a program gives a function, and of what
//! a request wants checked by a schema of its own. It never fills defaults or coerces.

mod bounds;
mod cost;
mod misfit;
mod request;

use countersign_approval_core::json::{Document, Exact, Kind, Node};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Number, Value};

use bounds::{Found, Shape};
use cost::{MAX_PLACE_WORK, MAX_WORK, Size};
pub use misfit::Misfit;
pub(crate) use request::{Budget, RequestSchema, Room};

/// A compiled input schema. Draft-07, no references outside the schema, patterns of linear time only.
///
/// The driver judges the arguments of its tools by it. It is public for functions of a sandboxed program:
///
/// ```
/// use countersign_approval_core::json::Exact;
/// use countersign_driver::InputSchema;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
/// let schema = InputSchema::compile(&Exact::parse(schema)?)?;
/// let misfit = schema.explain(r#"{"path":7}"#).unwrap_err();
/// assert_eq!(misfit.to_string(), "at /path: expected a string, got the number 7");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct InputSchema(Judge);

/// A schema that cannot be used; says what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSchema(String);

/// The most characters of a validator's message that are passed on.
const MESSAGE_CHARS: usize = 300;

/// Of so many misfits the most telling one is told.
const MISFITS: usize = 16;

/// A compiled pattern may take this much memory.
const PATTERN_BYTES: usize = 1 << 20;

/// How a schema may say that it is of draft-07.
const DRAFT_07: [&str; 2] =
    ["http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-07/schema#"];

impl InputSchema {
    /// Compiles the schema of a tool, whose arguments are an object.
    pub(crate) fn of_tool(schema: &Exact) -> Result<Self, String> {
        let value = value_of(schema.text()).ok_or("the schema is not readable")?;
        let object = match value.get("type") {
            Some(Value::String(word)) => word == "object",
            Some(Value::Array(words)) => words.iter().any(|word| word == "object"),
            // Absent, or for the compiler to refuse.
            _ => true,
        };
        if !object {
            return Err("type: must allow \"object\", as the arguments of a call are one".into());
        }
        Self::of_value(&value)
    }

    /// Compiles a schema of any values.
    ///
    /// # Errors
    /// [`InvalidSchema`].
    pub fn compile(schema: &Exact) -> Result<Self, InvalidSchema> {
        let value = value_of(schema.text()).ok_or_else(|| InvalidSchema("it is not readable".into()))?;
        Self::of_value(&value).map_err(InvalidSchema)
    }

    fn of_value(value: &Value) -> Result<Self, String> {
        let dialect = value.get("$schema");
        if dialect.is_some_and(|dialect| !dialect.as_str().is_some_and(|uri| DRAFT_07.contains(&uri))) {
            return Err("$schema: a host tool's schema is read as draft-07; leave $schema out".into());
        }
        if value.get("$async").is_some_and(|value| *value == Value::Bool(true)) {
            return Err("$async: asynchronous schemas are not supported".into());
        }
        let validator = build(value, Draft::Draft7, PATTERN_BYTES)?;
        // Whoever has the host's tools may have more than a request; what is not bounded counts as recursive.
        let search = |pattern: &str| search_cost(pattern, PATTERN_BYTES);
        let found = bounds::check(value, None, bounds::MAX_PATTERNS, search).ok();
        Ok(Self(Judge { validator, found }))
    }

    /// Checks arguments. The message names the path and what was expected, and repeats no value.
    pub(crate) fn check(&self, arguments: &Exact) -> Result<(), String> {
        let value = value_of(arguments.text()).ok_or("the arguments are not readable")?;
        self.0.check(&value, self.0.work(&value)).map_err(|(path, what)| {
            let path = if path.is_empty() { "the arguments" } else { &path };
            shorten(&format!("{path}: {what}"))
        })
    }

    /// Checks a JSON text that passed a gate, for whoever wrote the value: the answer names a place that does not fit, what
    /// was expected there and what it got, which shows some of the value.
    ///
    /// # Errors
    /// [`Misfit`].
    pub fn explain(&self, text: &str) -> Result<(), Misfit> {
        let value = value_of(text).ok_or_else(Misfit::unreadable)?;
        let validator = &self.0.validator;
        if validator.is_valid(&value) {
            Ok(())
        } else if self.0.tells_places(self.0.work(&value)) {
            let first = validator.iter_errors(&value).take(MISFITS).min_by_key(Misfit::rank);
            first.map_or(Ok(()), |error| Err(Misfit::of(&error)))
        } else {
            Err(Misfit::somewhere(&value))
        }
    }
}

/// A compiled schema, and how it may be asked.
#[derive(Debug)]
struct Judge {
    validator: Validator,
    /// None for a schema beyond the bounds of a request's.
    found: Option<Found>,
}

impl Judge {
    /// The most that a check of this value takes.
    fn work(&self, value: &Value) -> u64 {
        self.found.map_or(u64::MAX, |found| found.cost.work(Size::of(value)))
    }

    /// Whether a misfit's place may be looked for.
    fn tells_places(&self, work: u64) -> bool {
        work <= MAX_PLACE_WORK && self.found.is_some_and(|found| found.shape == Shape::Finite)
    }

    /// Gives the place that does not fit, and why, without the value.
    fn check(&self, value: &Value, work: u64) -> Result<(), (String, String)> {
        // Of the validator's ways to check, only this one remembers what it saw of a schema that refers to itself. The
        // others go every way again, and there can be twice as many at each level of the value.
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let error = if self.tells_places(work) { self.validator.validate(value).err() } else { None };
        Err(error.map_or_else(
            || (String::new(), "does not fit the schema".into()),
            |error| (error.instance_path().to_string(), error.masked().to_string()),
        ))
    }
}

/// What searching for a pattern costs for each byte of text: by the least room, of a few, that it compiles in, as the
/// search may go through all of its states for each byte, at some 64 bytes a step.
fn search_cost(pattern: &str, most: usize) -> u64 {
    let schema = Value::Object(Map::from_iter([("pattern".to_owned(), pattern.into())]));
    let small = [1 << 10, 1 << 12, 1 << 14];
    let fits = small.into_iter().find(|bytes| build(&schema, Draft::Draft7, *bytes).is_ok());
    fits.unwrap_or(most) as u64 / 64
}

/// Compiles a schema: nothing is fetched, patterns take linear time, and annotations (`format`, `content…`) assert nothing.
fn build(value: &Value, draft: Draft, pattern_bytes: usize) -> Result<Validator, String> {
    let mut options = jsonschema::options()
        .with_draft(draft)
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(pattern_bytes))
        .should_validate_formats(false)
        .without_content_media_type_support("application/json");
    for encoding in ["base64", "base64url", "base32", "base32hex", "base16"] {
        options = options.without_content_encoding_support(encoding);
    }
    options.build(value).map_err(|error| shorten(&error.to_string()))
}

fn shorten(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

/// The value for the validator, which reads `serde_json::Value`. It is built from our own tree, because serde_json
/// takes objects with certain keys for something else; it is thrown away after the check and never executed.
fn value_of(text: &str) -> Option<Value> {
    let document = Document::parse(text).ok()?;
    convert(document.root())
}

/// Recursion is bounded by the gate, which every document passes.
fn convert(node: Node<'_>) -> Option<Value> {
    Some(match node.kind() {
        Kind::Null => Value::Null,
        Kind::Bool => Value::Bool(node.as_bool()?),
        Kind::String => Value::String(node.as_str()?.into_owned()),
        Kind::Number => match node.as_integer() {
            Some(integer) => Value::Number(integer.into()),
            None => Value::Number(number(node.raw())?),
        },
        Kind::Array => Value::Array(node.as_array()?.map(convert).collect::<Option<_>>()?),
        Kind::Object => {
            let mut members = Map::new();
            for (name, value) in node.as_object()? {
                members.insert(name.into_owned(), convert(value)?);
            }
            Value::Object(members)
        }
    })
}

fn number(text: &str) -> Option<Number> {
    match text.parse::<u64>() {
        Ok(unsigned) => Some(unsigned.into()),
        Err(_) => Number::from_f64(text.parse().ok()?),
    }
}
