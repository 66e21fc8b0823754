//! The bound of the sandbox: QuickJS through rquickjs, with nothing around it. No limits, no guards, no pinned world.

use anyhow::{Result, ensure};
use countersign_bench::sandbox::{Ask, Told, laps, serve, sum};
use rquickjs::context::intrinsic;
use rquickjs::{Context, Function, Runtime};
use serde_json::{Value, json};

/// What a program needs at least.
type Lean = (
    intrinsic::Eval,
    intrinsic::Json,
    intrinsic::Promise,
    intrinsic::MapSet,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Date,
);

fn main() -> Result<()> {
    serve(|ask| match ask {
        Ask::Trivial { count } => laps(count, || {
            let runtime = Runtime::new()?;
            add(&Context::full(&runtime)?)
        }),
        Ask::Lean { count } => laps(count, || {
            let runtime = Runtime::new()?;
            add(&Context::custom::<Lean>(&runtime)?)
        }),
        Ask::Calls { calls, count } => laps(count, || call(calls)),
        Ask::Hot { from, to } => hot(from, to),
        _ => Ok(Told::Unsupported),
    })
}

fn add(context: &Context) -> Result<()> {
    let two: i32 = context.with(|ctx| ctx.eval("1+1"))?;
    ensure!(two == 2);
    Ok(())
}

/// Values cross the border as JSON text.
fn call(calls: usize) -> Result<()> {
    let runtime = Runtime::new()?;
    let context = Context::full(&runtime)?;
    let code = format!(
        "let s = 0; for (let i = 0; i < {calls}; i++) {{ const r = JSON.parse(call('read', JSON.stringify({{ path: '/a/' + i, n: i }}))); s += r.n }} s"
    );
    let total: f64 = context.with(|ctx| {
        let read = |_: String, input: String| -> String {
            let input: Value = serde_json::from_str(&input).unwrap_or_default();
            json!({"n": input["n"]}).to_string()
        };
        ctx.globals().set("call", Function::new(ctx.clone(), read)?)?;
        ctx.eval(code)
    })?;
    ensure!(total == sum(calls) as f64);
    Ok(())
}

/// A runtime that has run something, and lives.
fn hot(from: usize, to: usize) -> Result<Told> {
    let mut living = Vec::new();
    let mut grow = |to: usize| -> Result<f64> {
        while living.len() < to {
            let runtime = Runtime::new()?;
            let context = Context::full(&runtime)?;
            add(&context)?;
            living.push((context, runtime));
        }
        countersign_bench::process::resident_bytes(std::process::id())
    };
    let (before, after) = (grow(from)?, grow(to)?);
    Ok(Told::Bytes((after - before) / (to - from) as f64))
}
