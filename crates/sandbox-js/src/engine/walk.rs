//! The strict walker: a program's value as exact JSON, or why not (design 3, sandbox spec R2.3).
//!
//! It reads property descriptors and never runs the program's code: no getter, no `toJSON`, no trap. What it cannot carry
//! exactly it refuses, with the path.

use std::fmt::Write as _;

use countersign_approval_core::json::{Exact, MAX_DEPTH, RefusedKind, canonical_string, number_text};
use rquickjs::{Ctx, Value};
use serde::{Deserialize, Serialize};

use super::ffi::{self, Property};
use super::realm::Realm;

/// Values in one input or result: `a = [a, a]` thirty times over is 2^30 of them.
const MAX_NODES: usize = 100_000;
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Why a value is no exact JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NotJson {
    /// Something that cannot be carried, at a JSON Pointer.
    Refused { path: String, why: String },
    /// Its JSON is longer than the bound.
    TooLong,
}

/// The value as JSON of at most `max` bytes.
pub(super) fn to_json<'js>(
    ctx: &Ctx<'js>,
    realm: &Realm<'js>,
    value: &Value<'js>,
    max: usize,
) -> Result<Exact, NotJson> {
    let mut walk = Walk {
        ctx,
        realm,
        object: ffi::class_prototype(ctx, ffi::CLASS_OBJECT),
        array: ffi::class_prototype(ctx, ffi::CLASS_ARRAY),
        out: String::new(),
        max,
        nodes: 0,
        open: Vec::new(),
        path: Vec::new(),
    };
    walk.value(value).map_err(|why| match why {
        Stop::TooLong => NotJson::TooLong,
        Stop::Why(why) => NotJson::Refused { path: walk.pointer(), why },
    })?;
    // The gate that every other value passes, so that there is one meaning of "exact".
    Exact::parse(&walk.out).map_err(|refused| NotJson::Refused {
        path: refused.path().to_owned(),
        why: advice(refused.kind()).to_owned(),
    })
}

fn advice(kind: RefusedKind) -> &'static str {
    match kind {
        RefusedKind::Number => "a number that not every reader keeps exactly; pass it as a string",
        RefusedKind::ProtoKey => "a key `__proto__`, which readers drop",
        _ => "a value that JSON cannot carry exactly",
    }
}

enum Stop {
    TooLong,
    Why(String),
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Why(why.into()))
}

struct Walk<'w, 'js> {
    ctx: &'w Ctx<'js>,
    realm: &'w Realm<'js>,
    object: Value<'js>,
    array: Value<'js>,
    out: String,
    max: usize,
    nodes: usize,
    /// Addresses of the containers around the current value, for cycles.
    open: Vec<usize>,
    path: Vec<String>,
}

impl<'js> Walk<'_, 'js> {
    fn count(&mut self) -> Result<(), Stop> {
        self.nodes += 1;
        match self.nodes > MAX_NODES {
            true => refuse(format!("more than {MAX_NODES} values")),
            false => Ok(()),
        }
    }

    fn value(&mut self, value: &Value<'js>) -> Result<(), Stop> {
        self.count()?;
        if self.out.len() > self.max {
            return Err(Stop::TooLong);
        }
        if value.is_null() {
            self.out.push_str("null");
        } else if let Some(flag) = value.as_bool() {
            self.out.push_str(if flag { "true" } else { "false" });
        } else if let Some(number) = value.as_number() {
            self.number(number)?;
        } else if ffi::is_string(value) {
            let text = self.text(value)?;
            self.string(&text)?;
        } else if ffi::is_big_int(value) {
            self.big_int(value)?;
        } else if value.is_undefined() {
            return refuse("undefined, which JSON does not have; use null");
        } else if value.is_symbol() {
            return refuse("a symbol");
        } else if value.is_object() {
            self.container(value)?;
        } else {
            return refuse("a value of an unknown type");
        }
        if self.out.len() > self.max { Err(Stop::TooLong) } else { Ok(()) }
    }

    fn number(&mut self, number: f64) -> Result<(), Stop> {
        if number == 0.0 {
            self.out.push_str(if number.is_sign_negative() { "-0" } else { "0" });
            return Ok(());
        }
        if number.fract() == 0.0 && number.abs() > MAX_SAFE {
            return refuse(
                "an integer beyond 9007199254740991, which JavaScript may have rounded; use a BigInt or a string",
            );
        }
        match number_text(number) {
            Some(text) => self.out.push_str(&text),
            None => return refuse(format!("{number}, which JSON does not have")),
        }
        Ok(())
    }

    fn big_int(&mut self, value: &Value<'js>) -> Result<(), Stop> {
        // A BigInt of a million bits takes seconds to print, and no double reaches 2^1024.
        if !self.realm.is_small_big_int(value) {
            return refuse("a BigInt that not every reader keeps exactly; pass it as a string");
        }
        let digits = self.text(value)?;
        if Exact::parse(&digits).is_err() {
            return refuse("a BigInt that not every reader keeps exactly; pass it as a string");
        }
        self.out.push_str(&digits);
        Ok(())
    }

    fn container(&mut self, value: &Value<'js>) -> Result<(), Stop> {
        let class = ffi::class_id(value);
        if class != ffi::CLASS_OBJECT && class != ffi::CLASS_ARRAY {
            return self.other_class(value);
        }
        let address = ffi::address(value);
        if self.open.contains(&address) {
            return refuse("a cycle");
        }
        if self.open.len() >= MAX_DEPTH {
            return refuse(format!("more than {MAX_DEPTH} levels of nesting"));
        }
        let prototype = ffi::prototype(self.ctx, value);
        let plain = if class == ffi::CLASS_ARRAY { &self.array } else { &self.object };
        let bare = class == ffi::CLASS_OBJECT && prototype.is_null();
        if !bare && !ffi::same_object(&prototype, plain) {
            return refuse("an instance of a class; pass a plain object");
        }
        let left = MAX_NODES - self.nodes;
        let properties = match ffi::own_properties(self.ctx, value, left.saturating_add(1)) {
            Ok(Ok(properties)) => properties,
            Ok(Err(ffi::TooMany)) => return refuse(format!("more than {MAX_NODES} values")),
            Err(_) => {
                drop(self.ctx.catch());
                return refuse("a value that could not be read");
            }
        };
        self.open.push(address);
        match class == ffi::CLASS_ARRAY {
            true => self.elements(&properties)?,
            false => self.members(&properties)?,
        }
        self.open.pop();
        Ok(())
    }

    fn elements(&mut self, properties: &[(Value<'js>, Property<'js>)]) -> Result<(), Stop> {
        // Indices come first and in order, then `length`, then other strings, then symbols.
        let mut length = None;
        let mut count = 0_usize;
        self.out.push('[');
        for (key, property) in properties {
            if ffi::is_string(key) {
                let name = self.text(key)?;
                if name == "length" {
                    if let Property::Data { value, .. } = property {
                        length = value.as_number();
                    }
                    continue;
                }
                if name != count.to_string() {
                    let is_index = name.bytes().all(|byte| byte.is_ascii_digit());
                    return refuse(if is_index {
                        "an array with a hole"
                    } else {
                        "an array with a named property"
                    });
                }
                self.path.push(name);
                if count > 0 {
                    self.out.push(',');
                }
                match property {
                    Property::Data { value, enumerable: true } => self.value(value)?,
                    Property::Data { .. } => return refuse("a property that is not enumerable"),
                    Property::Accessor => {
                        return refuse("a getter or setter, which could answer differently later");
                    }
                }
                self.path.pop();
                count += 1;
            } else {
                return refuse("a symbol as key");
            }
        }
        if length != Some(count as f64) {
            return refuse("an array with a hole");
        }
        self.out.push(']');
        Ok(())
    }

    fn members(&mut self, properties: &[(Value<'js>, Property<'js>)]) -> Result<(), Stop> {
        let mut first = true;
        self.out.push('{');
        for (key, property) in properties {
            if !ffi::is_string(key) {
                return refuse("a symbol as key");
            }
            // The same as absent in every JSON reader, and what agents write: `{limit: undefined}`. It was looked at, so it
            // counts: one object of them can be there ten thousand times.
            if matches!(property, Property::Data { value, enumerable: true } if value.is_undefined()) {
                self.count()?;
                continue;
            }
            let name = self.text(key)?;
            self.path.push(name);
            let value = match property {
                Property::Data { value, enumerable: true } => value,
                Property::Data { .. } => return refuse("a property that is not enumerable"),
                Property::Accessor => {
                    return refuse("a getter or setter, which could answer differently later");
                }
            };
            let name = self.path.last().cloned().unwrap_or_default();
            if name == "__proto__" {
                return refuse(advice(RefusedKind::ProtoKey));
            }
            if !first {
                self.out.push(',');
            }
            first = false;
            self.string(&name)?;
            self.out.push(':');
            self.value(value)?;
            self.path.pop();
        }
        self.out.push('}');
        Ok(())
    }

    fn other_class(&mut self, value: &Value<'js>) -> Result<(), Stop> {
        if ffi::is_proxy(value) {
            return refuse("a Proxy");
        }
        if ffi::is_date(value) {
            // A subclass or own properties would be lost.
            let plain = ffi::same_object(&ffi::prototype(self.ctx, value), &self.realm.date_prototype);
            let own = ffi::own_properties(self.ctx, value, 0);
            if !plain || !matches!(own, Ok(Ok(_))) {
                return refuse("a Date with something added; pass .toISOString()");
            }
            return match self.realm.date_text(value) {
                Some(text) => self.string(&text),
                None => refuse("an invalid Date"),
            };
        }
        if ffi::is_promise(value) {
            return refuse("a promise; did you forget `await`?");
        }
        if value.is_function() {
            return refuse("a function");
        }
        if ffi::is_error(value) {
            return refuse("an Error; pass its message");
        }
        refuse("an object that is no plain object or array (Map, Set, RegExp, typed array, ...)")
    }

    fn text(&self, value: &Value<'js>) -> Result<String, Stop> {
        let Some(text) = ffi::text(self.ctx, value, self.max) else {
            return refuse("a text that could not be read");
        };
        if text.total > self.max {
            return Err(Stop::TooLong);
        }
        String::from_utf8(text.bytes)
            .or_else(|_| refuse("a text with half of a surrogate pair, which is not Unicode"))
    }

    fn string(&mut self, text: &str) -> Result<(), Stop> {
        canonical_string(text, &mut self.out);
        Ok(())
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for segment in &self.path {
            // Writing to a String cannot fail.
            let _ = write!(pointer, "/{}", segment.replace('~', "~0").replace('/', "~1"));
        }
        pointer.chars().take(200).collect()
    }
}
