//! Validation of arguments against a tool's JSON Schema (contract 7.3, 7.5), of what a program gives a function, and of what
//! a request wants checked by a schema of its own. It never fills defaults or coerces.

mod bounds;
mod misfit;
mod request;

use countersign_approval_core::json::{Document, Exact, Kind, Node};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Number, Value};

use bounds::Shape;
pub use misfit::Misfit;
pub(crate) use request::RequestSchema;

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
        if let Some(dialect) = value.get("$schema")
            && !dialect.as_str().is_some_and(|dialect| DRAFT_07.contains(&dialect))
        {
            return Err("$schema: a host tool's schema is read as draft-07; leave $schema out".into());
        }
        if value.get("$async").is_some_and(|value| *value == Value::Bool(true)) {
            return Err("$async: asynchronous schemas are not supported".into());
        }
        let validator = build(value, Draft::Draft7, PATTERN_BYTES)?;
        // Whoever has the host's tools may have more than a request; what is not bounded counts as recursive.
        let shape = bounds::check(value, None).unwrap_or(Shape::Recursive);
        Ok(Self(Judge { validator, shape }))
    }

    /// Checks arguments. The message names the path and what was expected, and repeats no value.
    pub(crate) fn check(&self, arguments: &Exact) -> Result<(), String> {
        let value = value_of(arguments.text()).ok_or("the arguments are not readable")?;
        self.0.check(&value).map_err(|(path, what)| {
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
        let Judge { validator, shape } = &self.0;
        match shape {
            _ if validator.is_valid(&value) => Ok(()),
            Shape::Recursive => Err(Misfit::somewhere(&value)),
            Shape::Finite => {
                let first = validator.iter_errors(&value).take(MISFITS).min_by_key(Misfit::rank);
                first.map_or(Ok(()), |error| Err(Misfit::of(&error)))
            }
        }
    }
}

/// A compiled schema, and how it may be asked.
#[derive(Debug)]
struct Judge {
    validator: Validator,
    shape: Shape,
}

impl Judge {
    /// Gives the place that does not fit, and why, without the value.
    fn check(&self, value: &Value) -> Result<(), (String, String)> {
        // Of the validator's ways to check, only this one remembers what it saw of a schema that refers to itself. The
        // others go every way again, and there can be twice as many at each level of the value.
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let error = match self.shape {
            Shape::Finite => self.validator.validate(value).err(),
            Shape::Recursive => None,
        };
        Err(error.map_or_else(
            || (String::new(), "does not fit the schema".into()),
            |error| (error.instance_path().to_string(), error.masked().to_string()),
        ))
    }
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
