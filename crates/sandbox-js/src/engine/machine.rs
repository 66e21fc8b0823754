//! [`Machine`]: one run of one program, as a state machine.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_approval_core::json::Exact;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Object, Promise, Runtime, Value, context::intrinsic};
use serde::{Deserialize, Serialize};

use super::bytecode::{self, Bytecode};
use super::guard::{Guard, Stop};
use super::host::{self, Host};
use super::realm::{ErrorFields, Realm, RejectedFields, Rejection};
use super::thrown::{self, Thrown};
use super::walk::{self, NotJson};
use super::world::{NewCall, Random, World};
use super::{ffi, inspect};
use crate::console::Console;
use crate::function::GLOBALS;
use crate::limits::Limits;

/// What a program gets of the language. Without `Eval` the engine itself refuses `eval` and the function constructors;
/// without `WeakRef` nothing depends on when memory is collected. `Proxy` would make values that look different at every
/// look.
type Offered = (
    intrinsic::Date,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

pub(crate) struct MachineOptions {
    /// Names of the functions.
    pub(crate) functions: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) seed: [u8; 32],
    /// Milliseconds since 1970 that the program's clock shows first.
    pub(crate) clock: i64,
    /// Ends the run from another thread.
    pub(crate) abandoned: Arc<AtomicBool>,
}

/// Why there is no machine.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The guard ended the run before the program began.
    Stopped(Stop),
    /// A text for the log.
    Failed(String),
}

/// What a step came to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// The program waits for calls that are outstanding.
    Idle,
    /// The program's promise is fulfilled, nothing is outstanding and every rejection was handled.
    Done(Result<Exact, NotJson>),
    /// An uncaught error, or a rejection that nobody handled.
    Thrown(Box<Thrown>),
    /// The program waits, but for nothing that could still happen.
    Stalled,
    /// The guard ended the run.
    Stopped(Stop),
}

/// An outcome of a call, to be told to the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settlement {
    /// [`NewCall::number`].
    pub(crate) number: u32,
    pub(crate) outcome: Outcome,
    /// What the clock shows from now on, unless it shows more already.
    pub(crate) clock: i64,
    /// Where the call was made, for the stack of an error: line and byte column.
    pub(crate) at: Option<(u32, u32)>,
}

/// What became of a call. Kept for replays, so what is rare is boxed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Value(Exact),
    Failed(Box<Failure>),
    Rejected(Box<Refusal>),
    /// The input does not fit: a `TypeError` with this message.
    BadInput(Box<str>),
}

impl Outcome {
    /// Bytes of its texts.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Value(value) => value.text().len(),
            Self::Failed(it) => it.name.len() + it.message.len() + it.code.as_ref().map_or(0, String::len),
            Self::Rejected(it) => it.message.len(),
            Self::BadInput(message) => message.len(),
        }
    }
}

/// A function's failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    pub(crate) seq: u32,
    pub(crate) name: String,
    pub(crate) message: String,
    pub(crate) code: Option<String>,
}

/// A call that was not approved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    pub(crate) seq: u32,
    pub(crate) function: String,
    pub(crate) call_id: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Not `Sync`, and used by one thread at a time; any thread may be the next.
pub(crate) struct Machine {
    // Declared first, dropped first.
    context: Context,
    _runtime: Runtime,
    host: Host,
}

impl Machine {
    /// A fresh world with the program loaded and not yet started.
    ///
    /// # Errors
    /// [`NotStarted`]: the limits leave no room for an engine, or there is none.
    pub(crate) fn new(options: MachineOptions) -> Result<Self, NotStarted> {
        let guard = Arc::new(Guard::new(&options.limits, Arc::clone(&options.abandoned)));
        Self::with(options, &guard)
            .map_err(|why| guard.reason().map_or(NotStarted::Failed(why), NotStarted::Stopped))
    }

    fn with(options: MachineOptions, guard: &Arc<Guard>) -> Result<Self, String> {
        let names = options.functions.clone();
        let runtime = ffi::runtime(guard).map_err(|error| error.to_string())?;
        runtime.set_max_stack_size(options.limits.stack);
        let context = Context::custom::<Offered>(&runtime).map_err(|error| error.to_string())?;
        let world = World {
            clock: options.clock,
            random: Random::new(options.seed),
            console: Console::new(options.limits.console),
            functions: options.functions,
            limits: options.limits,
            attempts: 0,
            number: 0,
            calls: Vec::new(),
        };
        let host = Host { guard: Arc::clone(guard), world: Arc::new(Mutex::new(world)) };
        let prelude = bytecode::prelude().map_err(|refused| format!("prelude: {}", refused.message))?;
        ffi::install_guard(&runtime, &context, Arc::clone(&host.guard)).map_err(|error| error.to_string())?;
        context.with(|ctx| furnish(&ctx, &host, &prelude, &names).map_err(|error| explain(&ctx, &error)))?;
        runtime.set_host_promise_rejection_tracker(Some(Box::new(|ctx, promise, reason, handled| {
            note_rejection(&ctx, promise, reason, handled);
        })));
        Ok(Self { context, _runtime: runtime, host })
    }

    /// Starts the program and runs until it waits.
    pub(crate) fn start(&mut self, program: &Bytecode) -> Step {
        let guard = Arc::clone(&self.host.guard);
        self.enter(|ctx, realm| {
            let body: Function<'_> = ffi::load(ctx, program.bytes())?.get()?;
            guard.arm();
            if guard.stopped() {
                return Ok(());
            }
            let promise: Promise<'_> = body.call(())?;
            *realm.program.borrow_mut() = Some(promise);
            Ok(())
        })
    }

    /// Tells the program one outcome and runs until it waits again.
    pub(crate) fn settle(&mut self, settlement: Settlement) -> Step {
        {
            let mut world = self.host.world();
            world.clock = world.clock.max(settlement.clock);
        }
        self.enter(|ctx, realm| {
            let Some(settle) = realm.waiting.borrow_mut().remove(&settlement.number) else { return Ok(()) };
            let stack = settlement.at.map_or_else(String::new, |(line, column)| {
                format!("    at <anonymous> ({}:{line}:{column})\n", bytecode::FILE)
            });
            match &settlement.outcome {
                Outcome::Value(value) => settle.resolve.call((ctx.json_parse(value.text())?,)),
                Outcome::Failed(failure) => {
                    let Failure { seq, name, message, code } = &**failure;
                    let fields =
                        ErrorFields { name, message, code: code.as_deref(), seq: *seq, stack: &stack };
                    settle.reject.call((realm.error(ctx, &fields)?,))
                }
                Outcome::Rejected(refusal) => {
                    let Refusal { seq, function, call_id, reason, message } = &**refusal;
                    let fields =
                        RejectedFields { function, seq: *seq, call_id, reason, message, stack: &stack };
                    settle.reject.call((realm.rejected(&fields)?,))
                }
                Outcome::BadInput(message) => settle.reject.call((realm.refused(message, &stack)?,)),
            }
        })
    }

    /// The calls of the last step, in the order in which the program made them.
    pub(crate) fn take_calls(&mut self) -> Vec<NewCall> {
        std::mem::take(&mut self.host.world().calls)
    }

    /// What the program printed in the last step.
    pub(crate) fn take_console(&mut self) -> Console {
        let mut world = self.host.world();
        let empty = Console::new(world.limits.console);
        std::mem::replace(&mut world.console, empty)
    }

    /// Engine time used so far.
    pub(crate) fn spent(&self) -> Duration {
        self.host.guard.spent()
    }

    fn enter(
        &mut self,
        begin: impl for<'a, 'js> FnOnce(&Ctx<'js>, &'a Realm<'js>) -> rquickjs::Result<()>,
    ) -> Step {
        let guard = Arc::clone(&self.host.guard);
        let _timed = guard.enter();
        self.context.with(|ctx| {
            let stopped = || Step::Stopped(guard.reason().unwrap_or(Stop::Panicked));
            let Some(realm) = ctx.userdata::<Realm<'_>>() else { return stopped() };
            if begin(&ctx, &realm).is_err() {
                let error = ctx.catch();
                if guard.stopped() {
                    return stopped();
                }
                // A resolver throws only if the engine could not go on; an async body never does.
                return Step::Thrown(Box::new(thrown::describe(&ctx, &realm, &error)));
            }
            // The flag is looked at after every job: other jobs would go on after an uncatchable error in one.
            while !guard.overdue() && ctx.execute_pending_job() {}
            if guard.stopped() {
                return stopped();
            }
            let step = settled(&ctx, &realm, self.host.world().limits.result);
            if guard.stopped() { stopped() } else { step }
        })
    }
}

/// How things stand when no job is left.
fn settled<'js>(ctx: &Ctx<'js>, realm: &Realm<'js>, max: usize) -> Step {
    let Some(program) = realm.program.borrow().clone() else { return Step::Stalled };
    let outstanding = !realm.waiting.borrow().is_empty();
    let state = program.state();
    if state == PromiseState::Rejected {
        // Throws the reason, which is taken back at once.
        let _ = program.result::<Value<'js>>();
        return Step::Thrown(Box::new(thrown::describe(ctx, realm, &ctx.catch())));
    }
    if outstanding {
        return Step::Idle;
    }
    let unhandled = realm.unhandled.borrow().first();
    if let Some(reason) = unhandled {
        return Step::Thrown(Box::new(thrown::describe(ctx, realm, &reason)));
    }
    match program.result::<Value<'js>>() {
        Some(Ok(value)) if value.is_undefined() => {
            Step::Done(Exact::parse("null").map_err(|_| NotJson::TooLong))
        }
        Some(Ok(value)) => Step::Done(walk::to_json(ctx, realm, &value, max)),
        _ => Step::Stalled,
    }
}

/// The prelude, the realm and the functions.
fn furnish(ctx: &Ctx<'_>, host: &Host, prelude: &Bytecode, names: &[String]) -> rquickjs::Result<()> {
    ctx.store_userdata(host.clone()).map_err(|_| rquickjs::Error::Unknown)?;
    ffi::retain_globals(ctx, GLOBALS)?;
    ffi::install_guards(ctx)?;
    let prelude: Function<'_> = ffi::load(ctx, prelude.bytes())?.get()?;
    let helpers: Object<'_> = prelude.call((host::natives(ctx, host)?,))?;
    let lock: Function<'_> = helpers.get("lock")?;
    for (index, name) in names.iter().enumerate() {
        host::install(ctx, host, index, name, &lock)?;
    }
    ctx.store_userdata(Realm::new(&helpers)?).map_err(|_| rquickjs::Error::Unknown)?;
    Ok(())
}

fn explain(ctx: &Ctx<'_>, error: &rquickjs::Error) -> String {
    match error {
        rquickjs::Error::Exception => {
            let thrown = ctx.catch();
            let stack = inspect::data_text(ctx, &thrown, c"stack").unwrap_or_default();
            format!("{}\n{stack}", inspect::error_text(ctx, &thrown))
        }
        other => other.to_string(),
    }
}

fn note_rejection<'js>(ctx: &Ctx<'js>, promise: Value<'js>, reason: Value<'js>, handled: bool) {
    let Some(realm) = ctx.userdata::<Realm<'js>>() else { return };
    let mut unhandled = realm.unhandled.borrow_mut();
    // The map holds the promise, so its address stands for no other.
    let address = ffi::address(&promise);
    if handled {
        unhandled.by_address.remove(&address);
    } else {
        unhandled.count += 1;
        let order = unhandled.count;
        unhandled.by_address.insert(address, Rejection { order, _promise: promise, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::compile;

    fn machine(limits: Limits) -> Machine {
        let functions = vec!["get".to_owned()];
        let options =
            MachineOptions { functions, limits, seed: [1; 32], clock: 0, abandoned: Arc::default() };
        match Machine::new(options) {
            Ok(machine) => machine,
            Err(why) => panic!("{why:?}"),
        }
    }

    fn program(body: &str) -> Bytecode {
        compile(&format!("(async () => {{\n\n{body}\n}})"), 1 << 20).unwrap()
    }

    fn value(number: u32, text: &str) -> Settlement {
        let outcome = Outcome::Value(Exact::parse(text).unwrap());
        Settlement { number, outcome, clock: 0, at: None }
    }

    // Law 6: between steps a machine is a value; any thread may take the next.
    #[test]
    fn a_machine_moves_between_threads() {
        let mut waiting = machine(Limits::default());
        let program = program("return [await get({ a: 1 }), await get({ a: 2 })]");
        assert!(matches!(waiting.start(&program), Step::Idle));
        for seq in 1..=2_u32 {
            let calls = waiting.take_calls();
            assert_eq!(calls.len(), 1);
            assert_eq!(calls[0].input.text(), format!("{{\"a\":{seq}}}"));
            let (moved, step) = std::thread::spawn(move || {
                let step = waiting.settle(value(seq, &seq.to_string()));
                (waiting, step)
            })
            .join()
            .unwrap();
            waiting = moved;
            match step {
                Step::Idle => assert_eq!(seq, 1),
                Step::Done(result) => assert_eq!((seq, result.unwrap().text()), (2, "[1,2]")),
                other => panic!("{other:?}"),
            }
        }
    }

    // Every way out frees what it took: a leak would abort in the engine's own check.
    #[test]
    fn machines_are_torn_down_in_every_state() {
        for body in [
            "",
            "await get({})",
            "get({}); get({}); await new Promise(() => {})",
            "throw new Error('x')",
            "Promise.reject(1)",
            "await get(() => 1)",
            "while (true) {}",
            "const a = []; while (true) a.push(new Array(100))",
            "const f = () => f(); f()",
            "await get({ get a() { return 1 } })",
            "globalThis.kept = { get, cycle: null }; kept.cycle = kept; await get({})",
        ] {
            let limits = Limits { memory: 4 << 20, polls: 20, ..Limits::default() };
            let mut one = machine(limits);
            drop(one.start(&program(body)));
            drop(one.take_calls());
            drop(one.settle(value(1, "{\"a\":[1,2]}")));
        }
    }

    // Replays reuse the bytecode; it must not change by being run.
    #[test]
    fn bytecode_runs_again() {
        let program = program("let n = 0; for (let i = 0; i < 3; i++) n += i; return n");
        for _ in 0..3 {
            let Step::Done(Ok(result)) = machine(Limits::default()).start(&program) else {
                panic!("not done")
            };
            assert_eq!(result.text(), "3");
        }
    }

    // Law 9: limits that leave no room for an engine end the run like any other limit.
    #[test]
    fn no_room_for_an_engine() {
        for limits in [
            Limits { memory: 1_000, ..Limits::default() },
            Limits { memory: 60_000, ..Limits::default() },
            Limits { polls: 0, ..Limits::default() },
        ] {
            let options = MachineOptions {
                functions: Vec::new(),
                limits,
                seed: [1; 32],
                clock: 0,
                abandoned: Arc::default(),
            };
            let stopped = match Machine::new(options) {
                Err(NotStarted::Stopped(_)) => true,
                Err(NotStarted::Failed(why)) => panic!("{why}"),
                Ok(mut machine) => matches!(machine.start(&program("for (;;) {}")), Step::Stopped(_)),
            };
            assert!(stopped);
        }
    }
}
