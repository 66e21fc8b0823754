//! [`declarations`]: TypeScript for the model's prompt, from the functions' schemas.

use std::cell::Cell;
use std::collections::HashSet;

use countersign_approval_core::json::{Document, Node, canonical_string};

use crate::function::{Function, Marking};

/// `$ref` and nesting are followed this deep; below, a type is `unknown`.
const MAX_DEPTH: usize = 12;
/// Schemas that make up one type.
const MAX_NODES: usize = 1_000;
/// Characters of one type; a larger one is `unknown`, because a prompt is no place for it.
const MAX_TYPE: usize = 8_000;

/// A declaration of each function, in the order given.
///
/// What a schema says beyond TypeScript's types is left out; where it cannot be read as a type, the type is `unknown`.
///
/// ```
/// use countersign_sandbox_js::{Function, Output, declarations};
/// let delete = Function::new("delete_file", |_, _| async { Ok(Output::null()) })
///     .description("Deletes a file.")
///     .input_schema(r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#)
///     .requires_approval();
/// assert_eq!(
///     declarations(&[delete]),
///     "/** Deletes a file. A person is asked before it runs. */\n\
///      declare function delete_file(input: { path: string }): Promise<unknown>;\n"
/// );
/// ```
pub fn declarations(functions: &[Function]) -> String {
    let mut out = String::new();
    for function in functions {
        let (input, output) = function.schemas();
        let asks = match function.marking() {
            Marking::RequiresApproval => "A person is asked before it runs.",
            Marking::Free => "",
        };
        let text = [function.described().trim(), asks].join(" ");
        if !text.trim().is_empty() {
            out.push_str(&format!("/** {} */\n", comment(text.trim())));
        }
        let input = input.map_or_else(|| "object".to_owned(), type_of);
        let output = output.map_or_else(|| "unknown".to_owned(), type_of);
        out.push_str(&format!("declare function {}(input: {input}): Promise<{output}>;\n", function.name()));
    }
    out
}

/// Text that cannot end its comment.
fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace(['\r', '\n'], " ")
}

fn type_of(schema: &str) -> String {
    let Ok(document) = Document::parse(schema) else { return "unknown".to_owned() };
    let root = document.root();
    let text = Schema { root: &root, left: Cell::new(MAX_NODES) }.read(&root, 0, &mut HashSet::new());
    if text.chars().count() > MAX_TYPE { "unknown".to_owned() } else { text }
}

struct Schema<'d> {
    root: &'d Node<'d>,
    /// Schemas that may still be read: references multiply.
    left: Cell<usize>,
}

impl Schema<'_> {
    fn read(&self, node: &Node<'_>, depth: usize, open: &mut HashSet<String>) -> String {
        let unknown = || "unknown".to_owned();
        if depth > MAX_DEPTH || self.left.get() == 0 {
            return unknown();
        }
        self.left.set(self.left.get() - 1);
        if node.as_bool() == Some(false) {
            return "never".to_owned();
        }
        if let Some(reference) = node.get("$ref").and_then(|it| it.as_str().map(|text| text.into_owned())) {
            return self.reference(&reference, depth, open);
        }
        if let Some(value) = node.get("const") {
            return literal(&value);
        }
        if let Some(values) = node.get("enum").and_then(|it| it.as_array()) {
            return union(values.map(|value| literal(&value)));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(options) = node.get(key).and_then(|it| it.as_array()) {
                return union(options.map(|option| self.read(&option, depth + 1, open)));
            }
        }
        if let Some(parts) = node.get("allOf").and_then(|it| it.as_array()) {
            let parts: Vec<String> =
                parts.map(|part| parenthesized(self.read(&part, depth + 1, open))).collect();
            return if parts.is_empty() { unknown() } else { parts.join(" & ") };
        }
        match node.get("type") {
            Some(kinds) if kinds.as_array().is_some() => {
                let kinds = kinds.as_array().into_iter().flatten();
                union(kinds.map(|kind| self.kind(node, kind.as_str().as_deref(), depth, open)))
            }
            Some(kind) => self.kind(node, kind.as_str().as_deref(), depth, open),
            None if node.get("properties").is_some() => self.object(node, depth, open),
            None => unknown(),
        }
    }

    fn kind(&self, node: &Node<'_>, kind: Option<&str>, depth: usize, open: &mut HashSet<String>) -> String {
        match kind {
            Some("string") => "string".to_owned(),
            Some("number" | "integer") => "number".to_owned(),
            Some("boolean") => "boolean".to_owned(),
            Some("null") => "null".to_owned(),
            Some("array") => match node.get("items") {
                Some(items) => format!("{}[]", parenthesized(self.read(&items, depth + 1, open))),
                None => "unknown[]".to_owned(),
            },
            Some("object") => self.object(node, depth, open),
            _ => "unknown".to_owned(),
        }
    }

    fn object(&self, node: &Node<'_>, depth: usize, open: &mut HashSet<String>) -> String {
        let required: HashSet<String> = node
            .get("required")
            .and_then(|it| it.as_array())
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(|name| name.into_owned()))
            .collect();
        let mut members: Vec<String> = Vec::new();
        for (name, schema) in node.get("properties").and_then(|it| it.as_object()).into_iter().flatten() {
            let mark = if required.contains(name.as_ref()) { "" } else { "?" };
            let about = match schema.get("description").and_then(|it| it.as_str().map(|text| comment(&text)))
            {
                Some(text) if !text.is_empty() => format!("/** {text} */ "),
                _ => String::new(),
            };
            members.push(format!("{about}{}{mark}: {}", key(&name), self.read(&schema, depth + 1, open)));
        }
        match node.get("additionalProperties") {
            Some(more) if more.as_object().is_some() => {
                members.push(format!("[key: string]: {}", self.read(&more, depth + 1, open)));
            }
            None if members.is_empty() => return "object".to_owned(),
            _ => {}
        }
        if members.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", members.join("; ")) }
    }

    /// A reference into the schema itself; no other is followed, and none into itself.
    fn reference(&self, reference: &str, depth: usize, open: &mut HashSet<String>) -> String {
        let unknown = || "unknown".to_owned();
        let Some(pointer) = reference.strip_prefix('#') else { return unknown() };
        if !open.insert(reference.to_owned()) {
            return unknown();
        }
        let mut at = *self.root;
        let mut found = true;
        for segment in pointer.split('/').skip(1) {
            match at.get(&segment.replace("~1", "/").replace("~0", "~")) {
                Some(next) => at = next,
                None => found = false,
            }
        }
        let text = if found { self.read(&at, depth + 1, open) } else { unknown() };
        open.remove(reference);
        text
    }
}

fn union(options: impl Iterator<Item = String>) -> String {
    let mut kept: Vec<String> = Vec::new();
    for option in options {
        if !kept.contains(&option) {
            kept.push(option);
        }
    }
    if kept.is_empty() { "never".to_owned() } else { kept.join(" | ") }
}

fn parenthesized(text: String) -> String {
    if text.contains([' ', '|', '&']) && !text.starts_with('{') { format!("({text})") } else { text }
}

fn literal(value: &Node<'_>) -> String {
    match value.as_str() {
        Some(text) => quoted(&text),
        None if value.as_object().is_some() || value.as_array().is_some() => "unknown".to_owned(),
        None => value.raw().to_owned(),
    }
}

fn key(name: &str) -> String {
    let plain = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if plain { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    canonical_string(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::type_of;

    #[test]
    fn types() {
        for (schema, expected) in [
            (r#"{"type":"string"}"#, "string"),
            (r#"{"type":["string","null"]}"#, "string | null"),
            (r#"{"enum":["a",1,null]}"#, r#""a" | 1 | null"#),
            (r#"{"type":"array","items":{"type":["string","null"]}}"#, "(string | null)[]"),
            (r#"{"type":"object"}"#, "object"),
            (r#"{"type":"object","properties":{}, "additionalProperties":false}"#, "{}"),
            (
                r#"{"type":"object","properties":{"a b":{"type":"integer","description":"how */ many"}},"required":[]}"#,
                r#"{ /** how * / many */ "a b"?: number }"#,
            ),
            (r#"{"type":"object","additionalProperties":{"type":"boolean"}}"#, "{ [key: string]: boolean }"),
            (r##"{"$ref":"#/$defs/x","$defs":{"x":{"type":"number"}}}"##, "number"),
            (r##"{"$ref":"#"}"##, "unknown"),
            (r#"{"$ref":"https://example.org/x"}"#, "unknown"),
            (r#"{"anyOf":[{"type":"string"},{"const":false}]}"#, "string | false"),
            (
                r#"{"allOf":[{"type":"string"},{"anyOf":[{"type":"null"},{"type":"number"}]}]}"#,
                "string & (null | number)",
            ),
            ("true", "unknown"),
            ("false", "never"),
            ("{", "unknown"),
        ] {
            assert_eq!(type_of(schema), expected, "{schema}");
        }
    }
}
