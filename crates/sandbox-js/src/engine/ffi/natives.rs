//! Guards before natives of the engine that run long and never look at the interrupt handler. Each is a native too: a
//! closure of JavaScript for each costs ten times the time and three times the memory, in every engine.

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use rquickjs::{Ctx, Exception, JsLifetime, qjs};

use super::{Table, throw_uncatchable};
use crate::engine::guard::Stop;
use crate::engine::host::Host;

/// Elements that a method of arrays takes.
const MAX_LENGTH: f64 = 1e6;
/// Characters of the text that is searched, times characters of the text that is wanted.
const MAX_SEARCH: f64 = 2e8;
/// From this length on, a loop of calls is looked at in each: the interpreter looks only every 10,000 steps.
const LOOK_AT_CLOCK: f64 = 4096.0;

/// What is done before the method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The elements are counted.
    Length,
    /// The elements of a typed array are counted; any number is taken.
    Elements,
    /// The clock is looked at.
    Clock,
    /// The characters are counted; any number is taken.
    Characters,
    /// Both texts are made texts, and counted.
    Search,
    /// The same, unless the wanted one has a method of its own.
    Split,
    Replace,
    /// Nothing: only the name differs from the method's own.
    Nothing,
}

impl Before {
    const ALL: [Self; 8] = [
        Self::Length,
        Self::Elements,
        Self::Clock,
        Self::Characters,
        Self::Search,
        Self::Split,
        Self::Replace,
        Self::Nothing,
    ];
}

/// Names, each with its original's if that differs.
type Names = &'static [(&'static CStr, &'static CStr)];

macro_rules! names {
    ($($name:literal)*) => { &[$(($name, $name)),*] };
}

/// Prototype, or constructor whose `prototype` it is, and the methods there.
const GUARDED: &[(&CStr, Before, Names)] = &[
    (
        c"Array",
        Before::Length,
        names!(c"copyWithin" c"fill" c"includes" c"indexOf" c"join" c"lastIndexOf" c"reverse" c"shift" c"slice" c"sort"
            c"splice" c"toLocaleString" c"toReversed" c"toSorted" c"toSpliced" c"unshift" c"with"),
    ),
    (TYPED, Before::Length, names!(c"join" c"sort" c"toLocaleString" c"toReversed" c"toSorted" c"with")),
    (
        TYPED,
        Before::Elements,
        names!(c"copyWithin" c"fill" c"includes" c"indexOf" c"lastIndexOf" c"reverse" c"set" c"slice"),
    ),
    (c"ArrayBuffer", Before::Clock, names!(c"resize")),
    (c"String", Before::Search, names!(c"indexOf" c"lastIndexOf" c"includes")),
    (c"String", Before::Split, names!(c"split")),
    (c"String", Before::Replace, names!(c"replace" c"replaceAll")),
    (
        c"String",
        Before::Characters,
        names!(c"toLowerCase" c"toUpperCase" c"toLocaleLowerCase" c"toLocaleUpperCase" c"trim" c"trimStart" c"trimEnd"
            c"startsWith" c"endsWith" c"isWellFormed" c"toWellFormed"),
    ),
    // The zone is UTC.
    (
        c"Date",
        Before::Nothing,
        &[
            (c"getFullYear", c"getUTCFullYear"),
            (c"getMonth", c"getUTCMonth"),
            (c"getDate", c"getUTCDate"),
            (c"getDay", c"getUTCDay"),
            (c"getHours", c"getUTCHours"),
            (c"getMinutes", c"getUTCMinutes"),
            (c"getSeconds", c"getUTCSeconds"),
            (c"getMilliseconds", c"getUTCMilliseconds"),
            (c"setFullYear", c"setUTCFullYear"),
            (c"setMonth", c"setUTCMonth"),
            (c"setDate", c"setUTCDate"),
            (c"setHours", c"setUTCHours"),
            (c"setMinutes", c"setUTCMinutes"),
            (c"setSeconds", c"setUTCSeconds"),
            (c"setMilliseconds", c"setUTCMilliseconds"),
        ],
    ),
];

/// What typed arrays have in common has no name of its own.
const TYPED: &CStr = c"Uint8Array";

// SAFETY: `Host` holds no JavaScript values and no lifetime.
unsafe impl<'js> JsLifetime<'js> for Host {
    type Changed<'to> = Self;
}

/// Takes away the globals that are not in `offered`, which is sorted, so that a new version of the engine adds nothing
/// unnoticed.
///
/// # Errors
/// `Error::Exception`, when memory ran out.
pub(in crate::engine) fn retain_globals(ctx: &Ctx<'_>, offered: &[&str]) -> rquickjs::Result<()> {
    let raw = ctx.as_raw().as_ptr();
    let mut table: *mut qjs::JSPropertyEnum = ptr::null_mut();
    let mut count: u32 = 0;
    // SAFETY: the out-pointers are valid, and `Table` gives back what comes. Each text is given back after its use.
    unsafe {
        let global = Owned(raw, qjs::JS_GetGlobalObject(raw));
        let flags = qjs::JS_GPN_STRING_MASK as c_int;
        if qjs::JS_GetOwnPropertyNames(raw, &mut table, &mut count, global.1, flags) < 0 {
            return Err(rquickjs::Error::Exception);
        }
        let names = Table { ctx: raw, table, count };
        for index in 0..count as usize {
            let atom = (*names.table.add(index)).atom;
            let text = qjs::JS_AtomToCStringLen(raw, ptr::null_mut(), atom);
            if text.is_null() {
                return Err(rquickjs::Error::Exception);
            }
            let stays = CStr::from_ptr(text).to_str().is_ok_and(|name| offered.binary_search(&name).is_ok());
            qjs::JS_FreeCString(raw, text);
            if !stays && qjs::JS_DeleteProperty(raw, global.1, atom, 0) < 0 {
                return Err(rquickjs::Error::Exception);
            }
        }
    }
    Ok(())
}

/// Puts the guards into a context whose program has not begun.
///
/// # Errors
/// `Error::Exception`, when memory ran out.
pub(in crate::engine) fn install(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    let raw = ctx.as_raw().as_ptr();
    for (constructor, before, names) in GUARDED {
        // SAFETY: every value that the engine hands out is owned by `Owned`, which gives it back; the context is entered.
        unsafe {
            let global = Owned(raw, qjs::JS_GetGlobalObject(raw));
            let constructor_of = Owned(raw, qjs::JS_GetPropertyStr(raw, global.1, constructor.as_ptr()));
            let own = Owned(raw, qjs::JS_GetPropertyStr(raw, constructor_of.1, c"prototype".as_ptr()));
            let prototype =
                if *constructor == TYPED { Owned(raw, qjs::JS_GetPrototype(raw, own.1)) } else { own };
            for (name, original) in *names {
                guard(raw, prototype.1, *before, name, original)?;
            }
        }
    }
    Ok(())
}

/// # Safety
/// The context is entered, and `prototype` is an object of it.
unsafe fn guard(
    raw: *mut qjs::JSContext,
    prototype: qjs::JSValue,
    before: Before,
    name: &CStr,
    original: &CStr,
) -> rquickjs::Result<()> {
    // SAFETY: as in `install`. The new function keeps a reference of its own to what it is given as data;
    // `JS_DefinePropertyValueStr` takes ownership of the function.
    unsafe {
        let original = Owned(raw, qjs::JS_GetPropertyStr(raw, prototype, original.as_ptr()));
        if !qjs::JS_IsFunction(raw, original.1) {
            return Ok(());
        }
        let mut length = 0;
        if qjs::JS_GetLength(raw, original.1, &mut length) < 0 {
            return Err(rquickjs::Error::Exception);
        }
        let magic = Before::ALL.iter().position(|it| *it == before).unwrap_or_default();
        let global = Owned(raw, qjs::JS_GetGlobalObject(raw));
        let symbols = Owned(raw, qjs::JS_GetPropertyStr(raw, global.1, c"Symbol".as_ptr()));
        let symbol = match before {
            Before::Split => qjs::JS_GetPropertyStr(raw, symbols.1, c"split".as_ptr()),
            Before::Replace => qjs::JS_GetPropertyStr(raw, symbols.1, c"replace".as_ptr()),
            _ => qjs::JS_UNDEFINED,
        };
        let symbol = Owned(raw, symbol);
        let mut data = [original.1, symbol.1];
        let function = qjs::JS_NewCFunctionData2(
            raw,
            Some(guarded),
            name.as_ptr(),
            c_int::try_from(length).unwrap_or_default(),
            c_int::try_from(magic).unwrap_or_default(),
            2,
            data.as_mut_ptr(),
        );
        if qjs::JS_IsException(function) {
            return Err(rquickjs::Error::Exception);
        }
        let flags = (qjs::JS_PROP_CONFIGURABLE | qjs::JS_PROP_WRITABLE) as c_int;
        match qjs::JS_DefinePropertyValueStr(raw, prototype, name.as_ptr(), function, flags) {
            defined if defined < 0 => Err(rquickjs::Error::Exception),
            _ => Ok(()),
        }
    }
}

/// A value that is given back.
struct Owned(*mut qjs::JSContext, qjs::JSValue);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: whoever made it owned the value, and the context lives as long.
        unsafe { qjs::JS_FreeValue(self.0, self.1) }
    }
}

/// Every guard. `data` is the method that it stands for, and the symbol of its argument's own method.
unsafe extern "C" fn guarded(
    raw: *mut qjs::JSContext,
    this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
    magic: c_int,
    data: *mut qjs::JSValue,
) -> qjs::JSValue {
    let Some(context) = NonNull::new(raw) else { return qjs::JS_EXCEPTION };
    // SAFETY: the engine calls with its entered context and with `argc` arguments, all of which live during the call. No
    // panic of ours may unwind through it.
    unsafe {
        let ctx = Ctx::from_raw(context);
        let before = usize::try_from(magic).ok().and_then(|index| Before::ALL.get(index)).copied();
        let count = usize::try_from(argc).unwrap_or_default();
        let arguments: &[qjs::JSValue] =
            if count == 0 { &[] } else { std::slice::from_raw_parts(argv, count) };
        let look = || look(&ctx, before.unwrap_or(Before::Nothing), this, arguments, *data.add(1));
        let looked = catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| {
            if let Some(host) = ctx.userdata::<Host>() {
                host.guard.stop(Stop::Panicked);
            }
            Err(throw_uncatchable(&ctx))
        });
        match looked {
            Err(_) => qjs::JS_EXCEPTION,
            Ok(Looked { this: None, wanted: None }) => qjs::JS_Call(raw, *data, this, argc, argv),
            Ok(Looked { this: text, wanted }) => {
                let mut arguments = arguments.to_vec();
                if let (Some(first), Some(wanted)) = (arguments.first_mut(), &wanted) {
                    *first = wanted.1;
                }
                let this = text.as_ref().map_or(this, |text| text.1);
                qjs::JS_Call(raw, *data, this, argc, arguments.as_mut_ptr())
            }
        }
    }
}

/// What the method gets in place of what was given.
#[derive(Default)]
struct Looked {
    this: Option<Owned>,
    wanted: Option<Owned>,
}

/// # Safety
/// The context is entered, and the values are of it.
unsafe fn look(
    ctx: &Ctx<'_>,
    before: Before,
    this: qjs::JSValue,
    arguments: &[qjs::JSValue],
    symbol: qjs::JSValue,
) -> rquickjs::Result<Looked> {
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: the caller's promise.
    unsafe {
        let length = match before {
            Before::Nothing => return Ok(Looked::default()),
            Before::Clock => f64::INFINITY,
            Before::Elements => typed_length(raw, this).unwrap_or_default(),
            Before::Characters => match qjs::JS_IsString(this) {
                true => text_length(raw, this)?,
                false => 0.0,
            },
            Before::Length => {
                let length = length(ctx, this)?;
                if length > MAX_LENGTH {
                    let message =
                        format!("this method takes at most {MAX_LENGTH} elements here, not {length}");
                    return Err(Exception::throw_range(ctx, &message));
                }
                length
            }
            Before::Search | Before::Split | Before::Replace => {
                return search(ctx, this, arguments, symbol);
            }
        };
        if length > LOOK_AT_CLOCK {
            tick(ctx)?;
        }
        Ok(Looked::default())
    }
}

fn tick(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    match ctx.userdata::<Host>() {
        Some(host) if !host.guard.overdue() => Ok(()),
        _ => Err(throw_uncatchable(ctx)),
    }
}

/// # Safety
/// As for [`look`], and `text` is a string.
unsafe fn text_length(raw: *mut qjs::JSContext, text: qjs::JSValue) -> rquickjs::Result<f64> {
    let mut length = 0;
    // SAFETY: the caller's promise; a string has its length itself, and nothing of the program runs.
    match unsafe { qjs::JS_GetLength(raw, text, &mut length) } {
        failed if failed < 0 => Err(rquickjs::Error::Exception),
        _ => Ok(length as f64),
    }
}

/// The elements of a typed array; none of one whose buffer shrank.
///
/// # Safety
/// As for [`look`].
unsafe fn typed_length(raw: *mut qjs::JSContext, value: qjs::JSValue) -> Option<f64> {
    let (mut bytes, mut each) = (0, 1);
    // SAFETY: the caller's promise; only for a typed array the buffer is asked for, and given back.
    unsafe {
        if qjs::JS_GetTypedArrayType(value) < 0 {
            return None;
        }
        let buffer =
            Owned(raw, qjs::JS_GetTypedArrayBuffer(raw, value, ptr::null_mut(), &mut bytes, &mut each));
        if qjs::JS_IsException(buffer.1) {
            drop(Owned(raw, qjs::JS_GetException(raw)));
            return Some(0.0);
        }
    }
    Some(bytes as f64 / each.max(1) as f64)
}

/// The length that a native is going to see, without running anything of the program.
///
/// # Safety
/// As for [`look`].
unsafe fn length(ctx: &Ctx<'_>, this: qjs::JSValue) -> rquickjs::Result<f64> {
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: the caller's promise. What the engine hands out is owned by `Owned`. A number, a text and nothing are all that
    // is converted. There is no Proxy.
    unsafe {
        if qjs::JS_IsString(this) || qjs::JS_IsArray(this) {
            return text_length(raw, this);
        }
        if !qjs::JS_IsObject(this) {
            return Ok(0.0);
        }
        if let Some(length) = typed_length(raw, this) {
            return Ok(length);
        }
        let name = c"length";
        let atom = qjs::JS_NewAtomLen(raw, name.as_ptr(), name.to_bytes().len() as qjs::size_t);
        let mut at = Owned(raw, qjs::JS_DupValue(raw, this));
        let found = loop {
            let mut it = qjs::JSPropertyDescriptor {
                flags: 0,
                value: qjs::JS_UNDEFINED,
                getter: qjs::JS_UNDEFINED,
                setter: qjs::JS_UNDEFINED,
            };
            match qjs::JS_GetOwnProperty(raw, &mut it, at.1, atom) {
                failed if failed < 0 => break Err(rquickjs::Error::Exception),
                0 => {}
                _ => {
                    drop((Owned(raw, it.getter), Owned(raw, it.setter)));
                    break Ok(Some((Owned(raw, it.value), it.flags as u32 & qjs::JS_PROP_GETSET != 0)));
                }
            }
            at = Owned(raw, qjs::JS_GetPrototype(raw, at.1));
            if !qjs::JS_IsObject(at.1) {
                break Ok(None);
            }
        };
        qjs::JS_FreeAtom(raw, atom);
        let Some((value, is_computed)) = found? else { return Ok(0.0) };
        if is_computed || qjs::JS_IsObject(value.1) {
            let message = "array methods take no object whose length is computed here";
            return Err(Exception::throw_type(ctx, message));
        }
        let mut length = 0.0;
        if qjs::JS_ToFloat64(raw, &mut length, value.1) < 0 {
            return Err(rquickjs::Error::Exception);
        }
        Ok(if length.is_nan() { 0.0 } else { length })
    }
}

/// Runs the conversions of the program that the method would run, once, so that what is counted is what is searched.
///
/// # Safety
/// As for [`look`].
unsafe fn search(
    ctx: &Ctx<'_>,
    this: qjs::JSValue,
    arguments: &[qjs::JSValue],
    symbol: qjs::JSValue,
) -> rquickjs::Result<Looked> {
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: the caller's promise. Texts are owned by `Owned` and handed to the caller.
    unsafe {
        let text = |value| {
            let text = Owned(raw, qjs::JS_ToString(raw, value));
            if qjs::JS_IsException(text.1) { Err(rquickjs::Error::Exception) } else { Ok(text) }
        };
        let mut looked = Looked::default();
        let nothing = |value| qjs::JS_IsUndefined(value) || qjs::JS_IsNull(value);
        if !nothing(this) && !qjs::JS_IsString(this) {
            looked.this = Some(text(this)?);
        }
        let wanted = arguments.first().copied();
        if let Some(wanted) = wanted
            && qjs::JS_IsObject(wanted)
        {
            let mut is_text = true;
            if !qjs::JS_IsUndefined(symbol) {
                let atom = qjs::JS_ValueToAtom(raw, symbol);
                let own = Owned(raw, qjs::JS_GetProperty(raw, wanted, atom));
                qjs::JS_FreeAtom(raw, atom);
                if qjs::JS_IsException(own.1) {
                    return Err(rquickjs::Error::Exception);
                }
                is_text = nothing(own.1);
            }
            if is_text {
                looked.wanted = Some(text(wanted)?);
            }
        }
        let this = looked.this.as_ref().map_or(this, |text| text.1);
        let wanted = looked.wanted.as_ref().map(|text| text.1).or(wanted);
        let searched = if qjs::JS_IsString(this) { text_length(raw, this)? } else { 0.0 };
        if searched > LOOK_AT_CLOCK {
            if let Some(wanted) = wanted
                && qjs::JS_IsString(wanted)
                && searched * text_length(raw, wanted)? > MAX_SEARCH
            {
                let message = "the searched and the wanted text are too long here";
                return Err(Exception::throw_range(ctx, message));
            }
            tick(ctx)?;
        }
        Ok(looked)
    }
}
