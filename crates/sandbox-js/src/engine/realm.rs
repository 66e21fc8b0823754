//! [`Realm`]: the JavaScript values that belong to us inside one context.

use std::cell::RefCell;
use std::collections::HashMap;

use rquickjs::function::Constructor;
use rquickjs::{Ctx, Function, Object, Promise, Value};

use super::ffi;

/// Bytes of a stack trace that are looked at: the engine's has ten frames, a program may set another.
const MAX_STACK_TEXT: usize = 16 << 10;

/// Kept in the context's user data, never outside: a value that outlived its runtime would abort the process.
pub(crate) struct Realm<'js> {
    /// The program's own promise.
    pub(super) program: RefCell<Option<Promise<'js>>>,
    /// How to settle the promise of each call that is outstanding, by its number.
    pub(super) waiting: RefCell<HashMap<u32, Settle<'js>>>,
    /// Promises that were rejected and that nobody handles.
    pub(super) unhandled: RefCell<Unhandled<'js>>,
    pub(super) date_prototype: Value<'js>,
    make_error: Function<'js>,
    make_type_error: Function<'js>,
    make_rejected: Function<'js>,
    brand: Function<'js>,
    date: Function<'js>,
    small: Function<'js>,
    stack: Function<'js>,
    type_error: Constructor<'js>,
}

#[derive(Default)]
pub(super) struct Unhandled<'js> {
    pub(super) by_address: HashMap<usize, Rejection<'js>>,
    pub(super) count: u64,
}

pub(super) struct Rejection<'js> {
    pub(super) order: u64,
    /// Keeps the address from being used again.
    pub(super) _promise: Value<'js>,
    pub(super) reason: Value<'js>,
}

impl<'js> Unhandled<'js> {
    /// What the first of them was rejected with.
    pub(super) fn first(&self) -> Option<Value<'js>> {
        self.by_address
            .values()
            .min_by_key(|rejection| rejection.order)
            .map(|rejection| rejection.reason.clone())
    }
}

pub(super) struct Settle<'js> {
    pub(super) resolve: Function<'js>,
    pub(super) reject: Function<'js>,
}

/// What an `ApprovalRejected` says about its call.
pub(super) struct RejectedFields<'a> {
    pub(super) function: &'a str,
    pub(super) seq: u32,
    pub(super) call_id: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) stack: &'a str,
}

/// A failure of a function as the program sees it.
pub(super) struct ErrorFields<'a> {
    pub(super) name: &'a str,
    pub(super) message: &'a str,
    pub(super) code: Option<&'a str>,
    pub(super) seq: u32,
    pub(super) stack: &'a str,
}

impl<'js> Realm<'js> {
    /// From what the prelude answered.
    pub(super) fn new(helpers: &Object<'js>) -> rquickjs::Result<Self> {
        Ok(Self {
            program: RefCell::new(None),
            waiting: RefCell::default(),
            unhandled: RefCell::default(),
            date_prototype: helpers.get("datePrototype")?,
            make_error: helpers.get("makeError")?,
            make_type_error: helpers.get("makeTypeError")?,
            make_rejected: helpers.get("makeRejected")?,
            brand: helpers.get("brand")?,
            date: helpers.get("dateText")?,
            small: helpers.get("isSmall")?,
            stack: helpers.get("stackOf")?,
            type_error: helpers.get("TypeError")?,
        })
    }

    pub(super) fn error(&self, ctx: &Ctx<'js>, fields: &ErrorFields<'_>) -> rquickjs::Result<Value<'js>> {
        let code = match fields.code {
            Some(code) => rquickjs::String::from_str(ctx.clone(), code)?.into_value(),
            None => Value::new_undefined(ctx.clone()),
        };
        self.make_error.call((fields.name, fields.message, code, fields.seq, fields.stack))
    }

    pub(super) fn rejected(&self, fields: &RejectedFields<'_>) -> rquickjs::Result<Value<'js>> {
        self.make_rejected.call((
            fields.function,
            fields.seq,
            fields.call_id,
            fields.reason,
            fields.message,
            fields.stack,
        ))
    }

    /// A `TypeError` about a call that was made earlier.
    pub(super) fn refused(&self, message: &str, stack: &str) -> rquickjs::Result<Value<'js>> {
        self.make_type_error.call((message, stack))
    }

    /// A `TypeError` whose stack trace begins where the program is now. (An error that is thrown from here gets its trace
    /// only when the program sees it, which is too late.)
    pub(super) fn type_error(&self, message: &str) -> rquickjs::Result<Value<'js>> {
        self.type_error.construct((message,))
    }

    /// The call whose failure or rejection an error object is, if we made it.
    pub(super) fn branded(&self, error: &Value<'js>) -> Option<u32> {
        self.brand.call::<_, Option<u32>>((error.clone(),)).ok().flatten()
    }

    /// The stack trace that the engine stored in an error object when it was made, or the one that we gave it.
    pub(super) fn stack(&self, error: &Value<'js>) -> String {
        let stored = ffi::own_property(error.ctx(), error, c"stack");
        let text = match stored {
            Some(ffi::Property::Data { value, .. }) => Some(value),
            Some(ffi::Property::Accessor) => None,
            None => self.stack.call::<_, Value<'js>>((error.clone(),)).ok(),
        };
        let text = text.and_then(|text| ffi::text(error.ctx(), &text, MAX_STACK_TEXT));
        text.map_or_else(String::new, |text| String::from_utf8_lossy(&text.bytes).into_owned())
    }

    /// The ISO text of a valid date, by the engine's own methods.
    pub(super) fn date_text(&self, date: &Value<'js>) -> Option<String> {
        let text: Value<'js> = self.date.call((date.clone(),)).ok()?;
        String::from_utf8(ffi::text(text.ctx(), &text, MAX_STACK_TEXT)?.bytes).ok()
    }

    /// Whether a BigInt lies within ±2^1024, so that printing it is quick.
    pub(super) fn is_small_big_int(&self, value: &Value<'js>) -> bool {
        self.small.call::<_, bool>((value.clone(),)).unwrap_or(false)
    }
}
