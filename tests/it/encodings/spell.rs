//! JSON as the encoders of other languages write it, with their habits of numbers, escapes and order.

use serde_json::{Number, Value};

/// A habit of writing JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `1.0` is `1`; nothing is escaped that need not be.
    JavaScript,
    /// `1.0` stays, `1e-07` has two digits; everything beyond ASCII is escaped.
    Python,
    /// Every number is a double and HTML is escaped, with the line separators.
    Go,
    /// As a careful encoder for any channel: every character of every string is `\uXXXX`, keys too.
    EveryCharacter,
    /// Keys in the opposite order at every depth, and white space wherever it may be.
    ReversedAndSpaced,
    /// Numbers always with an exponent or a fraction.
    Scientific,
}

impl Spelling {
    pub(crate) const ALL: [Self; 6] = [
        Self::JavaScript,
        Self::Python,
        Self::Go,
        Self::EveryCharacter,
        Self::ReversedAndSpaced,
        Self::Scientific,
    ];

    fn escapes(self, c: char) -> bool {
        match self {
            Self::JavaScript | Self::ReversedAndSpaced | Self::Scientific => false,
            Self::Python => !c.is_ascii(),
            Self::Go => matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'),
            Self::EveryCharacter => true,
        }
    }
}

pub(crate) fn spell(value: &Value, spelling: Spelling) -> String {
    let mut out = String::new();
    write(value, spelling, &mut out);
    out
}

fn write(value: &Value, spelling: Spelling, out: &mut String) {
    let space = if spelling == Spelling::ReversedAndSpaced { " \n\t\r" } else { "" };
    out.push_str(space);
    match value {
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
        Value::Number(number) => out.push_str(&self::number(number, spelling)),
        Value::String(text) => string(text, spelling, out),
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write(element, spelling, out);
            }
            out.push_str(space);
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if spelling == Spelling::ReversedAndSpaced {
                members.reverse();
            }
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(space);
                string(key, spelling, out);
                out.push_str(space);
                out.push(':');
                write(member, spelling, out);
            }
            out.push_str(space);
            out.push('}');
        }
    }
    out.push_str(space);
}

fn string(text: &str, spelling: Spelling, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if spelling.escapes(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            // One character, as serde_json writes it, without its quotes.
            let plain = serde_json::to_string(&c).unwrap();
            out.push_str(&plain[1..plain.len() - 1]);
        }
    }
    out.push('"');
}

fn number(number: &Number, spelling: Spelling) -> String {
    let value = number.as_f64().unwrap();
    // Rust prints the shortest digits that round-trip, as all of them do; they differ in the layout.
    let scientific = format!("{value:e}");
    let exponent: i32 = scientific.split_once('e').unwrap().1.parse().unwrap();
    let plain = (-7..21).contains(&exponent);
    let signed = |width: usize| {
        let (digits, _) = scientific.split_once('e').unwrap();
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:0width$}", exponent.abs())
    };
    match spelling {
        Spelling::Scientific => scientific,
        // `JSON.stringify(-0)` is `0`.
        Spelling::JavaScript | Spelling::ReversedAndSpaced if value == 0.0 => "0".into(),
        Spelling::JavaScript | Spelling::ReversedAndSpaced if plain => format!("{value}"),
        Spelling::Go | Spelling::EveryCharacter if plain => format!("{value}"),
        Spelling::JavaScript | Spelling::ReversedAndSpaced | Spelling::Go | Spelling::EveryCharacter => {
            signed(1)
        }
        // Python keeps integers apart from floats.
        Spelling::Python if !number.is_f64() => number.to_string(),
        Spelling::Python if (-5..16).contains(&exponent) => format!("{value:?}"),
        Spelling::Python => signed(2),
    }
}
