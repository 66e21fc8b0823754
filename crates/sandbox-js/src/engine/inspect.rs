//! What `console.log` prints: structure without running the program's code (sandbox spec R1.7, scenario W52).

use rquickjs::{Ctx, Value};

use super::ffi::{self, Property};
use super::realm::Realm;

const MAX_DEPTH: usize = 4;
const MAX_ENTRIES: usize = 100;
/// Bytes of one value; the console bounds the rest.
const MAX_TEXT: usize = 16 << 10;

/// Properties that one call of a console method looks at. The text alone is no bound: one object whose many properties
/// print nothing can be there thousands of times.
pub(super) const MAX_LOOKS: usize = 100_000;
/// What a refused look at a larger object costs.
const REFUSED_LOOK: usize = 20_000;

/// One argument of a console method, of which all arguments share `looks`.
pub(super) fn argument<'js>(
    ctx: &Ctx<'js>,
    realm: &Realm<'js>,
    value: &Value<'js>,
    looks: &mut usize,
) -> String {
    if ffi::is_string(value) {
        return text(ctx, value);
    }
    inspect_with(ctx, realm, value, looks)
}

/// Any value, strings in quotes.
pub(super) fn inspect<'js>(ctx: &Ctx<'js>, realm: &Realm<'js>, value: &Value<'js>) -> String {
    inspect_with(ctx, realm, value, &mut { MAX_LOOKS })
}

fn inspect_with<'js>(ctx: &Ctx<'js>, realm: &Realm<'js>, value: &Value<'js>, looks: &mut usize) -> String {
    let mut printer = Printer { ctx, realm, out: String::new(), open: Vec::new(), looks };
    printer.value(value);
    cut(printer.out)
}

/// A text, cut with a note of how much is missing.
fn text(ctx: &Ctx<'_>, value: &Value<'_>) -> String {
    let Some(text) = ffi::text(ctx, value, MAX_TEXT) else { return String::new() };
    let mut shown = String::from_utf8_lossy(&text.bytes).into_owned();
    if text.total > text.bytes.len() {
        shown.push_str(&format!("… {} bytes omitted", text.total - text.bytes.len()));
    }
    shown
}

fn cut(mut text: String) -> String {
    // A text that was cut carries a note already.
    if text.len() > 2 * MAX_TEXT {
        text.truncate(text.floor_char_boundary(2 * MAX_TEXT));
        text.push('…');
    }
    text
}

struct Printer<'p, 'js> {
    ctx: &'p Ctx<'js>,
    realm: &'p Realm<'js>,
    out: String,
    open: Vec<usize>,
    /// How many properties may still be looked at.
    looks: &'p mut usize,
}

impl<'js> Printer<'_, 'js> {
    fn value(&mut self, value: &Value<'js>) {
        if self.out.len() > MAX_TEXT {
            return;
        }
        if ffi::is_string(value) {
            let text = format!("{:?}", text(self.ctx, value));
            self.out.push_str(&text);
        } else if let Some(number) = value.as_number() {
            self.out.push_str(&number_text(number));
        } else if ffi::is_big_int(value) {
            let digits = match self.realm.is_small_big_int(value) {
                true => text(self.ctx, value),
                false => "[large BigInt] ".to_owned(),
            };
            self.out.push_str(&digits);
            self.out.push('n');
        } else if let Some(flag) = value.as_bool() {
            self.out.push_str(if flag { "true" } else { "false" });
        } else if value.is_null() {
            self.out.push_str("null");
        } else if value.is_undefined() {
            self.out.push_str("undefined");
        } else if value.is_symbol() {
            self.out.push_str("Symbol()");
        } else {
            self.object(value);
        }
    }

    fn object(&mut self, value: &Value<'js>) {
        let class = ffi::class_id(value);
        let address = ffi::address(value);
        if self.open.contains(&address) {
            self.out.push_str("[cycle]");
        } else if ffi::is_error(value) {
            let text = error_text(self.ctx, value);
            self.out.push_str(&text);
        } else if class == ffi::CLASS_OBJECT || class == ffi::CLASS_ARRAY {
            self.open.push(address);
            self.container(value, class == ffi::CLASS_ARRAY);
            self.open.pop();
        } else if ffi::is_date(value) {
            let text = self.realm.date_text(value).unwrap_or_else(|| "Invalid Date".to_owned());
            self.out.push_str(&text);
        } else {
            self.out.push_str(other(value));
        }
    }

    fn container(&mut self, value: &Value<'js>, is_array: bool) {
        let (open, close) = if is_array { ("[", "]") } else { ("{", "}") };
        if self.open.len() > MAX_DEPTH || *self.looks == 0 {
            self.out.push_str(if is_array { "[…]" } else { "{…}" });
            return;
        }
        let properties = match ffi::own_properties(self.ctx, value, *self.looks) {
            Ok(Ok(properties)) => {
                *self.looks -= properties.len().min(*self.looks);
                properties
            }
            Ok(Err(ffi::TooMany)) => {
                *self.looks = self.looks.saturating_sub(REFUSED_LOOK);
                self.out.push_str(if is_array { "[a large array]" } else { "{a large object}" });
                return;
            }
            Err(_) => {
                drop(self.ctx.catch());
                self.out.push_str("[unreadable]");
                return;
            }
        };
        self.out.push_str(open);
        let mut shown = 0;
        let shows = |property: &Property<'js>| {
            matches!(property, Property::Accessor | Property::Data { enumerable: true, .. })
        };
        let total = properties.iter().filter(|(_, property)| shows(property)).count();
        for (key, property) in properties.iter().filter(|(_, property)| shows(property)).take(MAX_ENTRIES) {
            if shown > 0 {
                self.out.push_str(", ");
            }
            shown += 1;
            if !is_array {
                let name = if key.is_symbol() { "[symbol]".to_owned() } else { text(self.ctx, key) };
                self.out.push_str(&name);
                self.out.push_str(": ");
            }
            match property {
                Property::Data { value, .. } => self.value(value),
                Property::Accessor => self.out.push_str("[accessor]"),
            }
        }
        if total > shown {
            self.out.push_str(&format!(", … {} more", total - shown));
        }
        self.out.push_str(close);
    }
}

fn other(value: &Value<'_>) -> &'static str {
    match () {
        () if ffi::is_promise(value) => "[promise]",
        () if value.is_function() => "[function]",
        () if ffi::is_proxy(value) => "[proxy]",
        () => "[object]",
    }
}

fn number_text(number: f64) -> String {
    match countersign_approval_core::json::number_text(number) {
        Some(_) if number == 0.0 && number.is_sign_negative() => "-0".to_owned(),
        Some(text) => text,
        None if number.is_nan() => "NaN".to_owned(),
        None => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
    }
}

/// `name: message` of an error object.
pub(super) fn error_text<'js>(ctx: &Ctx<'js>, error: &Value<'js>) -> String {
    let name = data_text(ctx, error, c"name").unwrap_or_else(|| "Error".to_owned());
    match data_text(ctx, error, c"message") {
        Some(message) if !message.is_empty() => format!("{name}: {message}"),
        _ => name,
    }
}

/// A text property of an object or of its prototypes, if it is stored and not computed.
pub(super) fn data_text<'js>(ctx: &Ctx<'js>, object: &Value<'js>, name: &std::ffi::CStr) -> Option<String> {
    let mut at = object.clone();
    // Classes of errors nest a few levels; a program may build longer chains, which say nothing.
    for _ in 0..16 {
        match ffi::own_property(ctx, &at, name) {
            Some(Property::Data { value, .. }) if ffi::is_string(&value) => {
                return Some(text(ctx, &value));
            }
            Some(_) => return None,
            None if at.is_object() && !ffi::is_proxy(&at) => at = ffi::prototype(ctx, &at),
            None => return None,
        }
    }
    None
}
