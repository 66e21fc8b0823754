//! Compilation, outside the runtime that is limited: running out of memory inside the compiler is what crashed the engine.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::OnceLock;

use countersign_approval_core::json::Digest;
use rquickjs::{Context, Runtime, context::intrinsic};
use serde::{Deserialize, Serialize};

use super::ffi::Lines;
use super::{ffi, inspect};

/// The name of the program's file in stack traces.
pub(crate) const FILE: &str = "program";

/// What the compiler needs: literals of regular expressions are compiled with the source.
type Compiler = (intrinsic::Eval, intrinsic::RegExpCompiler, intrinsic::RegExp);

/// Compiled code of this process, for this engine.
#[derive(Clone, Debug)]
pub(crate) struct Bytecode(std::sync::Arc<[u8]>);

/// The engine's compiler refused.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotCompiled {
    pub(crate) message: String,
    /// Line and column of the first character, in bytes, from 1.
    pub(crate) at: Option<(u32, u32)>,
}

impl Bytecode {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Makes what is made once in a process, for a process that soon may not do as much.
///
/// # Errors
/// A text for the log.
pub(crate) fn warm_up() -> Result<(), String> {
    prelude().map(drop).map_err(|refused| refused.message)
}

/// The engine's version and what we put before every program: what a replay depends on (sandbox spec R5.1).
pub(crate) fn engine_version() -> String {
    format!("quickjs-ng {}, prelude {}", ffi::version(), Digest::of(PRELUDE))
}

/// Compiles `source`, whose third line is line 1: the lines of the program follow two opening lines of ours. (The engine
/// takes 0 for "unsaid", so the first line is -1.)
pub(crate) fn compile(source: &str, stack: usize) -> Result<Bytecode, NotCompiled> {
    compile_as(source, FILE, -1, stack, Lines::Keep)
}

const PRELUDE: &str = concat!("(\n", include_str!("prelude.js"), "\n)");

/// The bytecode of the prelude, compiled once in a process.
pub(super) fn prelude() -> Result<Bytecode, NotCompiled> {
    static COMPILED: OnceLock<Bytecode> = OnceLock::new();
    if let Some(done) = COMPILED.get() {
        return Ok(done.clone());
    }
    let done = compile_as(PRELUDE, "sandbox", 1, 1 << 20, Lines::Drop)?;
    Ok(COMPILED.get_or_init(|| done).clone())
}

fn compile_as(
    source: &str,
    file: &str,
    line: i32,
    stack: usize,
    lines: Lines,
) -> Result<Bytecode, NotCompiled> {
    let failed = |message: &str| NotCompiled { message: message.to_owned(), at: None };
    let source = CString::new(source).map_err(|_| failed("the source contains the character U+0000"))?;
    let file = CString::new(file).map_err(|_| failed("no file name"))?;
    let mut kept = match KEPT.take() {
        Some(kept) => kept,
        None => Kept::new().map_err(|_| failed("the engine could not start"))?,
    };
    kept.runtime.set_max_stack_size(stack);
    let done = kept.context.with(|ctx| match ffi::compile(&ctx, &source, &file, line, lines) {
        Ok(bytes) => Ok(Bytecode(bytes.into())),
        Err(_) => {
            let error = ctx.catch();
            let message = inspect::data_text(&ctx, &error, c"message");
            // No code but the engine's own has run in this context.
            let stack =
                error.as_object().and_then(|error| error.get::<_, String>("stack").ok()).unwrap_or_default();
            Err(NotCompiled {
                message: message.unwrap_or_else(|| "the source could not be compiled".to_owned()),
                at: super::thrown::first_frame(&stack),
            })
        }
    });
    kept.uses += 1;
    if kept.uses < MAX_USES && source.count_bytes() <= MAX_KEPT_SOURCE {
        KEPT.set(Some(kept));
    }
    done
}

/// A compiler of the current thread. It compiles and runs nothing, so no program leaves anything in it.
struct Kept {
    // Declared first, dropped first.
    context: Context,
    runtime: Runtime,
    uses: u32,
}

impl Kept {
    fn new() -> rquickjs::Result<Self> {
        let runtime = Runtime::new()?;
        Ok(Self { context: Context::custom::<Compiler>(&runtime)?, runtime, uses: 0 })
    }
}

/// After that many sources there is a new one: its tables grow, and never shrink.
const MAX_USES: u32 = 256;
/// A larger source may have made them large.
const MAX_KEPT_SOURCE: usize = 16 << 10;

thread_local! {
    static KEPT: Cell<Option<Kept>> = const { Cell::new(None) };
}
