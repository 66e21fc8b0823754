//! The functions that a program can reach. Each looks at the guard's flag first: after the end of a run nothing that it
//! does counts, whatever swallowed the error (sandbox spec R1.9).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

use rquickjs::function::Rest;
use rquickjs::{Array, Ctx, Function, Object, Value};

use super::guard::{Guard, Stop};
use super::realm::{Realm, Settle};
use super::walk::{self, NotJson};
use super::world::{NewCall, World};
use super::{ffi, inspect, thrown};
use crate::console::Level;
use crate::limits::Bound;

/// What host functions share.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) guard: Arc<Guard>,
    pub(super) world: Arc<Mutex<World>>,
}

impl Host {
    /// Never held while the program's code can run.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs a host function. A panic of ours must not become an exception that the program catches.
    fn enter<'js, T>(
        &self,
        ctx: &Ctx<'js>,
        run: impl FnOnce() -> rquickjs::Result<T>,
    ) -> rquickjs::Result<T> {
        if self.guard.overdue() {
            return Err(ffi::throw_uncatchable(ctx));
        }
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            self.guard.stop(Stop::Panicked);
            Err(rquickjs::Error::Unknown)
        });
        match self.guard.stopped() {
            true => Err(ffi::throw_uncatchable(ctx)),
            false => result,
        }
    }
}

/// What the prelude gets: the pinned world and the clock of its guards.
pub(super) fn natives<'js>(ctx: &Ctx<'js>, host: &Host) -> rquickjs::Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    let to = host.clone();
    natives.set("tick", Function::new(ctx.clone(), move |ctx: Ctx<'js>| to.enter(&ctx, || Ok(())))?)?;
    let to = host.clone();
    natives.set(
        "now",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| to.enter(&ctx, || Ok(to.world().read_clock())))?,
    )?;
    let to = host.clone();
    natives.set(
        "random",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| to.enter(&ctx, || Ok(to.world().random.number())))?,
    )?;
    let to = host.clone();
    natives.set(
        "log",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, level: String, values: Array<'js>| {
            to.enter(&ctx, || log(&ctx, &to, &level, &values))
        })?,
    )?;
    Ok(natives)
}

fn log<'js>(ctx: &Ctx<'js>, host: &Host, level: &str, values: &Array<'js>) -> rquickjs::Result<()> {
    let Some(realm) = ctx.userdata::<Realm<'js>>() else { return Ok(()) };
    let mut text = String::new();
    let max = host.world().limits.console;
    let mut looks = inspect::MAX_LOOKS;
    for index in 0..values.len() {
        if text.len() > max {
            text.push_str(" …");
            break;
        }
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&inspect::argument(ctx, &realm, &values.get::<Value<'js>>(index)?, &mut looks));
    }
    let level = match level {
        "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" => Level::Warn,
        "error" => Level::Error,
        _ => Level::Log,
    };
    host.world().console.push(level, text);
    Ok(())
}

/// Defines the run's function number `index` as a frozen global.
pub(super) fn install<'js>(
    ctx: &Ctx<'js>,
    host: &Host,
    index: usize,
    name: &str,
    lock: &Function<'js>,
) -> rquickjs::Result<()> {
    let to = host.clone();
    let function = Function::new(ctx.clone(), move |ctx: Ctx<'js>, arguments: Rest<Value<'js>>| {
        to.enter(&ctx, || call(&ctx, &to, index, &arguments.0))
    })?
    .with_name(name)?;
    lock.call::<_, ()>((name, function))
}

/// A call: checked, written down, and answered with a promise. Nothing executes here, in any mode.
fn call<'js>(
    ctx: &Ctx<'js>,
    host: &Host,
    index: usize,
    arguments: &[Value<'js>],
) -> rquickjs::Result<Value<'js>> {
    let stop = |bound| {
        host.guard.stop(Stop::Limit(bound));
        Err(ffi::throw_uncatchable(ctx))
    };
    let (name, max) = {
        let mut world = host.world();
        world.attempts += 1;
        if world.attempts > world.limits.calls {
            drop(world);
            return stop(Bound::Calls);
        }
        let Some(name) = world.functions.get(index).cloned() else {
            return Err(rquickjs::Error::Unknown);
        };
        (name, world.limits.input)
    };
    let Some(realm) = ctx.userdata::<Realm<'js>>() else { return Err(rquickjs::Error::Unknown) };
    let (promise, resolve, reject) = ctx.promise()?;
    // Input problems reject the promise too, so that `.catch` works in all modes alike (sandbox spec 10).
    let refuse = |message: String| reject.call::<_, ()>((realm.type_error(&message)?,));
    let input = match arguments {
        [] => Ok(countersign_approval_core::json::Exact::empty_object()),
        [input] => walk::to_json(ctx, &realm, input, max),
        _ => {
            refuse(format!("{name} takes one input, got {} arguments; pass one object", arguments.len()))?;
            return Ok(promise.into_value());
        }
    };
    let input = match input {
        Ok(input) => input,
        Err(NotJson::TooLong) => return stop(Bound::Input),
        Err(NotJson::Refused { path, why }) => {
            let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
            refuse(format!("the input of {name}{place} is {why}"))?;
            return Ok(promise.into_value());
        }
    };
    let at = thrown::first_frame(&realm.stack(&realm.type_error("")?));
    let number = {
        let mut world = host.world();
        world.number += 1;
        let number = world.number;
        world.calls.push(NewCall { number, function: index, input, at });
        number
    };
    realm.waiting.borrow_mut().insert(number, Settle { resolve, reject });
    Ok(promise.into_value())
}
