//! [`Misfit`]: what is wrong with a value, told to whoever wrote it.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::shorten;

/// Members or options that are listed by name.
const NAMED: usize = 8;
/// Characters of a scalar that are shown.
const SHOWN: usize = 60;

/// The first place of a value that a schema does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {}: expected {expected}, got {got}", if path.is_empty() { "the top" } else { path })]
pub struct Misfit {
    /// Where: a JSON Pointer, empty for the value itself.
    pub path: String,
    /// What would fit.
    pub expected: String,
    /// What is there.
    pub got: String,
}

impl Misfit {
    pub(super) fn unreadable() -> Self {
        Self { path: String::new(), expected: "JSON".into(), got: "something else".into() }
    }

    /// The place was not looked for.
    pub(super) fn somewhere(value: &Value) -> Self {
        Self {
            path: String::new(),
            expected: "what the schema allows, in all its parts".into(),
            got: got(value),
        }
    }

    /// The smaller, the more it tells: a name that is missing says more than the one that stands there in its place.
    pub(super) fn rank(error: &ValidationError<'_>) -> u8 {
        match error.kind() {
            Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => 1,
            _ => 0,
        }
    }

    pub(super) fn of(error: &ValidationError<'_>) -> Self {
        let instance = error.instance();
        let got = match error.kind() {
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                members("", unexpected.iter().map(String::as_str))
            }
            Kind::MinLength { .. } | Kind::MaxLength { .. } => {
                let count = instance.as_str().map_or(0, |text| text.chars().count());
                format!("{count} characters")
            }
            _ => got(instance),
        };
        Self {
            path: error.instance_path().to_string(),
            expected: shorten(&expected(error)),
            got: shorten(&got),
        }
    }
}

fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind: TypeKind::Single(one) } => with_article(*one).to_owned(),
        Kind::Type { kind: TypeKind::Multiple(several) } => {
            several.iter().map(with_article).collect::<Vec<_>>().join(" or ")
        }
        Kind::Required { property } => format!("the member {property}"),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "no member that the schema does not name".into()
        }
        Kind::Enum { options } => match options.as_array() {
            Some(options) => format!("one of {}", listed(options.iter().map(Value::to_string))),
            None => format!("one of {options}"),
        },
        Kind::Constant { expected_value } => expected_value.to_string(),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} elements"),
        Kind::MaxItems { limit } => format!("at most {limit} elements"),
        Kind::AdditionalItems { limit } => format!("at most {limit} elements"),
        Kind::MinProperties { limit } => format!("at least {limit} members"),
        Kind::MaxProperties { limit } => format!("at most {limit} members"),
        Kind::UniqueItems => "elements that all differ".into(),
        Kind::Pattern { pattern } => format!("text that matches {pattern}"),
        Kind::FalseSchema => "nothing here".into(),
        // Schemas of schemas: the validator's own words, without the value.
        _ => format!("what the schema allows ({})", error.masked()),
    }
}

const fn with_article(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "an array",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn got(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => {
            let shown: String = text.chars().take(SHOWN).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            format!("the string {}{more}", Value::String(shown))
        }
        Value::Array(elements) => format!("an array of {}", count(elements.len(), "element")),
        Value::Object(object) => members("an object with ", object.keys().map(String::as_str)),
    }
}

fn members<'a>(lead: &str, names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let which = match names.len() {
        0 => return format!("{lead}no members"),
        1 => "the member",
        _ => "the members",
    };
    format!("{lead}{which} {}", listed(names.map(|name| Value::from(name).to_string())))
}

fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(NAMED);
    let mut text = items.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use countersign_approval_core::json::Exact;

    use super::super::InputSchema;

    // Path, expected, got: what an agent needs to correct its call.
    #[test]
    fn a_misfit_says_where_and_what() {
        for (schema, value, told) in [
            (r#"{"type":"string"}"#, "7", "at the top: expected a string, got the number 7"),
            (
                r#"{"type":["integer","null"]}"#,
                r#""x""#,
                r#"at the top: expected null or an integer, got the string "x""#,
            ),
            (
                r#"{"required":["path"]}"#,
                r#"{"pth":"/a"}"#,
                r#"at the top: expected the member "path", got an object with the member "pth""#,
            ),
            (
                r#"{"properties":{"path":{}},"required":["path"],"additionalProperties":false}"#,
                r#"{"pth":"/a"}"#,
                r#"at the top: expected the member "path", got an object with the member "pth""#,
            ),
            (
                r#"{"required":["path"]}"#,
                "{}",
                r#"at the top: expected the member "path", got an object with no members"#,
            ),
            (
                r#"{"properties":{"a":{}},"additionalProperties":false}"#,
                r#"{"a":1,"b":2,"c":3}"#,
                r#"at the top: expected no member that the schema does not name, got the members "b", "c""#,
            ),
            (
                r#"{"properties":{"n":{"enum":["a","b"]}}}"#,
                r#"{"n":"c"}"#,
                r#"at /n: expected one of "a", "b", got the string "c""#,
            ),
            (r#"{"items":{"minimum":3}}"#, "[4,2]", "at /1: expected at least 3, got the number 2"),
            (r#"{"maxLength":2}"#, r#""abc""#, "at the top: expected at most 2 characters, got 3 characters"),
            (
                r#"{"pattern":"^/"}"#,
                r#""a""#,
                r#"at the top: expected text that matches ^/, got the string "a""#,
            ),
            (
                r#"{"minItems":2}"#,
                "[[]]",
                "at the top: expected at least 2 elements, got an array of 1 element",
            ),
        ] {
            let schema = InputSchema::compile(&Exact::parse(schema).unwrap()).unwrap();
            assert_eq!(schema.explain(value).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn what_is_long_is_cut() {
        let schema = InputSchema::compile(&Exact::parse(r#"{"type":"null"}"#).unwrap()).unwrap();
        let names: Vec<String> = (0..20).map(|n| format!("\"n{n:02}\":1")).collect();
        let told = schema.explain(&format!("{{{}}}", names.join(","))).unwrap_err().got;
        assert!(told.ends_with(r#""n07" and 12 more"#), "{told}");
        let told = schema.explain(&format!("{:?}", "x".repeat(100))).unwrap_err().got;
        assert_eq!(told, format!("the string {:?}…", "x".repeat(60)));
    }
}
