//! What a program threw, described without running any more of it.

use rquickjs::{Ctx, Value};
use serde::{Deserialize, Serialize};

use super::ffi::{self, Property};
use super::inspect::{data_text, inspect};
use super::realm::Realm;

/// `cause` is followed this far.
const MAX_CAUSES: usize = 4;

/// An uncaught value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Thrown {
    pub(crate) name: String,
    pub(crate) message: String,
    /// Line and byte column in the program, from 1.
    pub(crate) at: Option<(u32, u32)>,
    /// `seq` of the call whose rejection or failure this very object is.
    pub(crate) call: Option<u32>,
    /// `name: message` of each `cause`, outermost first.
    pub(crate) causes: Vec<String>,
    pub(crate) kind: ThrownKind,
}

/// How the engine, not the program, classifies an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ThrownKind {
    /// Anything else.
    Other,
    /// A name that is not defined.
    Undefined(String),
    /// The stack bound.
    Stack,
}

pub(super) fn describe<'js>(ctx: &Ctx<'js>, realm: &Realm<'js>, value: &Value<'js>) -> Thrown {
    if !ffi::is_error(value) {
        let message = inspect(ctx, realm, value);
        return Thrown {
            name: "thrown value".to_owned(),
            message,
            at: None,
            call: None,
            causes: Vec::new(),
            kind: ThrownKind::Other,
        };
    }
    let name = data_text(ctx, value, c"name").unwrap_or_else(|| "Error".to_owned());
    let message = data_text(ctx, value, c"message").unwrap_or_default();
    let stack = realm.stack(value);
    let kind = match name.as_str() {
        "ReferenceError" => match message.strip_suffix(" is not defined") {
            Some(name) => ThrownKind::Undefined(name.trim_matches(['\'', '`']).to_owned()),
            None => ThrownKind::Other,
        },
        "RangeError" if message == "Maximum call stack size exceeded" => ThrownKind::Stack,
        _ => ThrownKind::Other,
    };
    Thrown {
        at: first_frame(&stack),
        call: realm.branded(value),
        causes: causes(ctx, realm, value),
        name,
        message,
        kind,
    }
}

fn causes<'js>(ctx: &Ctx<'js>, realm: &Realm<'js>, value: &Value<'js>) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = value.clone();
    while found.len() < MAX_CAUSES
        && let Some(Property::Data { value: cause, .. }) = ffi::own_property(ctx, &at, c"cause")
        && !cause.is_undefined()
    {
        found.push(inspect(ctx, realm, &cause));
        at = cause;
    }
    found
}

/// [`FILE`](super::bytecode::FILE) before a line.
const MARKER: &str = "program:";

/// Where in the program a stack trace begins: the first frame of its file.
pub(super) fn first_frame(stack: &str) -> Option<(u32, u32)> {
    stack.lines().find_map(|line| {
        let line = line.trim_end().trim_end_matches(')');
        let at = line.rfind(MARKER)?;
        // `(program:3:7)` or `at program:3:7`.
        if !line[..at].ends_with(['(', ' ']) {
            return None;
        }
        let (line, column) = line[at + MARKER.len()..].split_once(':')?;
        Some((line.parse().ok()?, column.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::first_frame;

    #[test]
    fn frames() {
        for (stack, expected) in [
            ("    at f (program:3:7)\n    at <anonymous> (program:9:1)\n", Some((3, 7))),
            ("    at map (native)\n    at <anonymous> (program:9:1)\n", Some((9, 1))),
            ("    at program:2:5\n", Some((2, 5))),
            ("    at method (sandbox:2:5)\n", None),
            ("    at myprogram:2:5\n", None),
            ("    at (program:x:5)\n", None),
            ("", None),
        ] {
            assert_eq!(first_frame(stack), expected, "{stack}");
        }
    }
}
