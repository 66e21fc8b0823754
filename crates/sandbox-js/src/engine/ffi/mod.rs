//! Everything that the safe interface of rquickjs lacks: the only module of the crate that contains `unsafe`.
//!
//! Each function takes values whose context is entered (the `Ctx` in hand proves it: rquickjs hands one out only under
//! the runtime's lock, after updating the engine's idea of the stack), keeps to the ownership rules that `quickjs.h`
//! states for the call, and never calls a program's code unless its name says so.
#![allow(unsafe_code)]

mod alloc;
mod natives;

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rquickjs::{Context, Ctx, Error, JsLifetime, Runtime, Value, qjs};

use super::guard::Guard;
use super::realm::Realm;

pub(super) use alloc::runtime;
pub(super) use natives::{install as install_guards, retain_globals};

/// `JS_CLASS_OBJECT` of quickjs.c, which is not in its header; [`class_ids_hold`] tests it.
pub(super) const CLASS_OBJECT: u32 = 1;
/// `JS_CLASS_ARRAY`.
pub(super) const CLASS_ARRAY: u32 = 2;

/// Whether bytecode knows the lines of its source. Each context has its own copy, so what nobody looks at is dropped.
#[derive(Clone, Copy)]
pub(super) enum Lines {
    /// For programs.
    Keep,
    /// For the prelude.
    Drop,
}

/// One own property, read without running anything.
pub(super) enum Property<'js> {
    /// A value.
    Data {
        /// What is stored.
        value: Value<'js>,
        /// Whether loops see it.
        enumerable: bool,
    },
    /// A getter or setter, which is not called.
    Accessor,
}

/// More own properties than the caller wanted to see.
pub(super) struct TooMany;

// SAFETY: `Realm<'js>` holds nothing but values of the lifetime `'js`, and `Changed<'to>` is the same type with that
// lifetime replaced, as the trait demands.
unsafe impl<'js> JsLifetime<'js> for Realm<'js> {
    type Changed<'to> = Realm<'to>;
}

/// Throws an error that no `catch` and no `finally` of the program sees. Some natives still swallow it, so it only makes
/// an end quick; the guard's flag is what makes it certain.
pub(super) fn throw_uncatchable(ctx: &Ctx<'_>) -> Error {
    // SAFETY: `JS_NewError` gives an owned value or an exception; `JS_Throw` takes ownership of it.
    unsafe {
        let raw = ctx.as_raw().as_ptr();
        let error = qjs::JS_NewError(raw);
        if !qjs::JS_IsException(error) {
            qjs::JS_SetUncatchableError(raw, error);
            qjs::JS_Throw(raw, error);
        }
    }
    Error::Exception
}

/// The version of the C engine.
pub(super) fn version() -> &'static str {
    // SAFETY: takes nothing and returns a constant text that ends with NUL.
    unsafe { CStr::from_ptr(qjs::JS_GetVersion()) }.to_str().unwrap_or("unknown")
}

/// Compiles a script to bytecode. The context must have the `Eval` intrinsic.
///
/// # Errors
/// `Error::Exception` with the engine's SyntaxError pending.
pub(super) fn compile(
    ctx: &Ctx<'_>,
    source: &CStr,
    file: &CStr,
    line: c_int,
    lines: Lines,
) -> rquickjs::Result<Vec<u8>> {
    let raw = ctx.as_raw().as_ptr();
    let mut options = qjs::JSEvalOptions {
        version: qjs::JS_EVAL_OPTIONS_VERSION as c_int,
        eval_flags: (qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_STRICT | qjs::JS_EVAL_FLAG_COMPILE_ONLY)
            as c_int,
        filename: file.as_ptr(),
        line_num: line,
    };
    // SAFETY: `source` ends with the NUL that the length leaves out; `options` outlives the call. The compiled function
    // is owned by us until it is freed below. `JS_WriteObject` returns memory of the engine's allocator (or null) whose
    // size it stores; it is copied and given back with `js_free`.
    unsafe {
        let function =
            qjs::JS_Eval2(raw, source.as_ptr(), source.to_bytes().len() as qjs::size_t, &mut options);
        if qjs::JS_IsException(function) {
            return Err(Error::Exception);
        }
        let mut size: qjs::size_t = 0;
        let strip = match lines {
            Lines::Keep => qjs::JS_WRITE_OBJ_STRIP_SOURCE,
            Lines::Drop => qjs::JS_WRITE_OBJ_STRIP_SOURCE | qjs::JS_WRITE_OBJ_STRIP_DEBUG,
        };
        let flags = (qjs::JS_WRITE_OBJ_BYTECODE | strip) as c_int;
        let bytes = qjs::JS_WriteObject(raw, &mut size, function, flags);
        qjs::JS_FreeValue(raw, function);
        if bytes.is_null() {
            return Err(Error::Exception);
        }
        let copy = std::slice::from_raw_parts(bytes, size as usize).to_vec();
        qjs::js_free(raw, bytes.cast());
        Ok(copy)
    }
}

/// Runs bytecode that [`compile`] of this process made, and gives the script's completion value. Works in a context
/// without `Eval`. Bytecode from elsewhere must never come here: the engine does not verify it.
///
/// # Errors
/// `Error::Exception`, with what the script threw pending.
pub(super) fn load<'js>(ctx: &Ctx<'js>, bytecode: &[u8]) -> rquickjs::Result<Value<'js>> {
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: the bytes come from `compile`, with the same engine. `JS_EvalFunction` takes ownership of the function and
    // returns an owned value.
    unsafe {
        let flags = qjs::JS_READ_OBJ_BYTECODE as c_int;
        let function = qjs::JS_ReadObject(raw, bytecode.as_ptr(), bytecode.len() as qjs::size_t, flags);
        if qjs::JS_IsException(function) {
            return Err(Error::Exception);
        }
        let value = qjs::JS_EvalFunction(raw, function);
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// All own properties of an ordinary object, array, error or function, in the language's order; keys are strings or
/// symbols. Must not be called on a Proxy, whose traps would run; [`class_id`] tells.
pub(super) fn own_properties<'js>(
    ctx: &Ctx<'js>,
    object: &Value<'js>,
    max: usize,
) -> rquickjs::Result<Result<Vec<(Value<'js>, Property<'js>)>, TooMany>> {
    let raw = ctx.as_raw().as_ptr();
    let mut table: *mut qjs::JSPropertyEnum = ptr::null_mut();
    let mut count: u32 = 0;
    // SAFETY: the out-pointers are valid. On success the engine hands over a table of `count` atoms, which the drop of
    // `Table` gives back on every way out.
    let names = unsafe {
        let flags = (qjs::JS_GPN_STRING_MASK | qjs::JS_GPN_SYMBOL_MASK) as c_int;
        if qjs::JS_GetOwnPropertyNames(raw, &mut table, &mut count, object.as_raw(), flags) < 0 {
            return Err(Error::Exception);
        }
        Table { ctx: raw, table, count }
    };
    if count as usize > max {
        return Ok(Err(TooMany));
    }
    let mut found = Vec::with_capacity(count as usize);
    for index in 0..count as usize {
        // SAFETY: `index` is below the count that came with the table, and the atom lives as long as the table.
        // `JS_AtomToValue` returns an owned value; a descriptor's three values are owned by us.
        unsafe {
            let atom = (*names.table.add(index)).atom;
            let mut descriptor = qjs::JSPropertyDescriptor {
                flags: 0,
                value: qjs::JS_UNDEFINED,
                getter: qjs::JS_UNDEFINED,
                setter: qjs::JS_UNDEFINED,
            };
            match qjs::JS_GetOwnProperty(raw, &mut descriptor, object.as_raw(), atom) {
                0 => continue,
                there if there < 0 => return Err(Error::Exception),
                _ => {}
            }
            qjs::JS_FreeValue(raw, descriptor.getter);
            qjs::JS_FreeValue(raw, descriptor.setter);
            let value = Value::from_raw(ctx.clone(), descriptor.value);
            let key = qjs::JS_AtomToValue(raw, atom);
            if qjs::JS_IsException(key) {
                return Err(Error::Exception);
            }
            let key = Value::from_raw(ctx.clone(), key);
            let flags = descriptor.flags as u32;
            let property = match flags & qjs::JS_PROP_GETSET {
                0 => Property::Data { value, enumerable: flags & qjs::JS_PROP_ENUMERABLE != 0 },
                _ => Property::Accessor,
            };
            found.push((key, property));
        }
    }
    Ok(Ok(found))
}

struct Table {
    ctx: *mut qjs::JSContext,
    table: *mut qjs::JSPropertyEnum,
    count: u32,
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: `table` and `count` are as the engine gave them, and this is the only place that frees them.
        unsafe { qjs::JS_FreePropertyEnum(self.ctx, self.table, self.count) }
    }
}

/// The own property `name`, read without running anything. `None` for values that are no ordinary objects.
pub(super) fn own_property<'js>(ctx: &Ctx<'js>, object: &Value<'js>, name: &CStr) -> Option<Property<'js>> {
    if !object.is_object() || is_proxy(object) {
        return None;
    }
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: as in `own_properties`; the atom is ours and is freed after its last use. A failed look-up leaves an
    // exception, which is taken away.
    unsafe {
        let atom = qjs::JS_NewAtomLen(raw, name.as_ptr(), name.to_bytes().len() as qjs::size_t);
        let mut descriptor = qjs::JSPropertyDescriptor {
            flags: 0,
            value: qjs::JS_UNDEFINED,
            getter: qjs::JS_UNDEFINED,
            setter: qjs::JS_UNDEFINED,
        };
        let there = qjs::JS_GetOwnProperty(raw, &mut descriptor, object.as_raw(), atom);
        qjs::JS_FreeAtom(raw, atom);
        if there < 0 {
            drop(ctx.catch());
        }
        if there <= 0 {
            return None;
        }
        qjs::JS_FreeValue(raw, descriptor.getter);
        qjs::JS_FreeValue(raw, descriptor.setter);
        let value = Value::from_raw(ctx.clone(), descriptor.value);
        let flags = descriptor.flags as u32;
        Some(match flags & qjs::JS_PROP_GETSET {
            0 => Property::Data { value, enumerable: flags & qjs::JS_PROP_ENUMERABLE != 0 },
            _ => Property::Accessor,
        })
    }
}

/// The prototype of an object that is no Proxy: an object or null.
pub(super) fn prototype<'js>(ctx: &Ctx<'js>, object: &Value<'js>) -> Value<'js> {
    // SAFETY: returns an owned value; for anything but a Proxy nothing of the program runs and nothing is thrown.
    unsafe { Value::from_raw(ctx.clone(), qjs::JS_GetPrototype(ctx.as_raw().as_ptr(), object.as_raw())) }
}

/// The original prototype of a built-in class, whatever the program did to the constructor.
pub(super) fn class_prototype<'js>(ctx: &Ctx<'js>, class: u32) -> Value<'js> {
    // SAFETY: returns an owned value.
    unsafe { Value::from_raw(ctx.clone(), qjs::JS_GetClassProto(ctx.as_raw().as_ptr(), class)) }
}

/// The engine's class of an object, 0 for anything else.
pub(super) fn class_id(value: &Value<'_>) -> u32 {
    // SAFETY: reads the value's tag and class.
    unsafe { qjs::JS_GetClassID(value.as_raw()) }
}

/// Whether two values are the same object.
pub(super) fn same_object(a: &Value<'_>, b: &Value<'_>) -> bool {
    // SAFETY: the pointers are compared, not followed.
    unsafe {
        a.is_object()
            && b.is_object()
            && qjs::JS_VALUE_GET_PTR(a.as_raw()) == qjs::JS_VALUE_GET_PTR(b.as_raw())
    }
}

/// A number that stands for an object while it lives, for finding cycles.
pub(super) fn address(value: &Value<'_>) -> usize {
    // SAFETY: the pointer is used as a number only.
    unsafe { qjs::JS_VALUE_GET_PTR(value.as_raw()) as usize }
}

/// Whether a value is a Proxy.
pub(super) fn is_proxy(value: &Value<'_>) -> bool {
    // SAFETY: reads the value's tag and class.
    unsafe { qjs::JS_IsProxy(value.as_raw()) }
}

/// Whether a value is a promise.
pub(super) fn is_promise(value: &Value<'_>) -> bool {
    // SAFETY: reads the value's tag and class.
    unsafe { qjs::JS_IsPromise(value.as_raw()) }
}

/// Whether a value is a built-in date.
pub(super) fn is_date(value: &Value<'_>) -> bool {
    // SAFETY: reads the value's tag and class.
    unsafe { qjs::JS_IsDate(value.as_raw()) }
}

/// Whether a value is an error object of the engine (its class, not its prototype).
pub(super) fn is_error(value: &Value<'_>) -> bool {
    // SAFETY: reads the value's tag and class.
    unsafe { qjs::JS_IsError(value.as_raw()) }
}

/// Whether a value is a BigInt of either representation.
pub(super) fn is_big_int(value: &Value<'_>) -> bool {
    // SAFETY: reads the value's tag.
    unsafe { qjs::JS_IsBigInt(value.as_raw()) }
}

/// Whether a value is a string, a rope included.
pub(super) fn is_string(value: &Value<'_>) -> bool {
    // SAFETY: reads the value's tag.
    unsafe { qjs::JS_IsString(value.as_raw()) }
}

/// The beginning of a text, and how long it is.
pub(super) struct Text {
    /// UTF-8, with lone surrogates as three bytes that are not; cut anywhere.
    pub(super) bytes: Vec<u8>,
    /// Bytes of the whole.
    pub(super) total: usize,
}

/// At most `max` bytes of a string or BigInt. `None` when memory ran out, or for any other type, whose conversion could
/// run the program's code.
pub(super) fn text(ctx: &Ctx<'_>, value: &Value<'_>, max: usize) -> Option<Text> {
    if !is_string(value) && !is_big_int(value) {
        return None;
    }
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: for a primitive the conversion runs no code of the program. The returned text has `length` bytes, of which
    // some are copied, and is given back.
    unsafe {
        let mut length: qjs::size_t = 0;
        let text = qjs::JS_ToCStringLen2(raw, &mut length, value.as_raw(), false);
        if text.is_null() {
            drop(ctx.catch());
            return None;
        }
        let total = length as usize;
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), total.min(max)).to_vec();
        qjs::JS_FreeCString(raw, text);
        Some(Text { bytes, total })
    }
}

/// Puts the guard into the runtime: from now on it is asked at every 10,000th step of the interpreter. Takes the runtime's
/// lock, so the context must not be entered.
pub(super) fn install_guard(runtime: &Runtime, context: &Context, guard: Arc<Guard>) -> rquickjs::Result<()> {
    let raw = context.with(|ctx| {
        // SAFETY: only reads the context's runtime.
        let raw = unsafe { qjs::JS_GetRuntime(ctx.as_raw().as_ptr()) };
        NonNull::new(raw).map(RuntimePointer)
    });
    let raw = raw.ok_or(Error::Unknown)?;
    runtime.set_interrupt_handler(Some(Box::new(move || {
        // Captures the whole wrapper, not its field, which is not Send.
        let pointer = &raw;
        if guard.poll() {
            // An uncatchable error can be swallowed by a native that calls the program. Without room for a further
            // frame it cannot go on after that.
            // SAFETY: the handler belongs to this runtime and is called only while it lives and is entered. The call
            // writes two fields and returns; it takes no lock.
            unsafe { qjs::JS_SetMaxStackSize(pointer.0.as_ptr(), 1) };
            return true;
        }
        false
    })));
    Ok(())
}

struct RuntimePointer(NonNull<qjs::JSRuntime>);

// SAFETY: the pointer is used only inside the interrupt handler, that is on the thread that holds the runtime's lock.
unsafe impl Send for RuntimePointer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_ids_hold() {
        let runtime = Runtime::new().unwrap();
        let context = Context::full(&runtime).unwrap();
        context.with(|ctx| {
            for (source, class) in [("({})", CLASS_OBJECT), ("[]", CLASS_ARRAY)] {
                let value: Value<'_> = ctx.eval(source).unwrap();
                assert_eq!(class_id(&value), class, "{source}");
                assert!(same_object(&prototype(&ctx, &value), &class_prototype(&ctx, class)), "{source}");
            }
            for source in [
                "new Proxy({}, {})",
                "new Proxy([], {})",
                "new Date()",
                "new Map()",
                "/a/",
                "(() => 1)",
                "new Error()",
            ] {
                let value: Value<'_> = ctx.eval(source).unwrap();
                assert!(![CLASS_OBJECT, CLASS_ARRAY].contains(&class_id(&value)), "{source}");
            }
            for source in ["1", "'x'", "null", "undefined", "1n", "true"] {
                let value: Value<'_> = ctx.eval(source).unwrap();
                assert_eq!(class_id(&value), 0, "{source}");
            }
        });
    }
}
