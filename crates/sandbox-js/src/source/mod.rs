//! From what an agent wrote to what the engine compiles (design 5): TypeScript erased in place, so that lines and columns
//! stay; what is not offered refused with its position.

mod callees;
mod check;
mod erase;
mod position;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use oxc_allocator::Allocator;
use oxc_ast_visit::Visit as _;
use oxc_parser::{ParseOptions, Parser};
use oxc_span::{SourceType, Span};

use crate::engine::{self, Bytecode, NotCompiled};
use crate::limits::{Bound, Limits};
use crate::pool::STACK;

pub(crate) use position::Lines;
pub use position::Position;

/// A program that was read.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) code: Code,
    pub(crate) lines: Lines,
    /// Names in call position, by where they stand: line and byte column.
    pub(crate) callees: HashMap<(u32, u32), String>,
}

/// What an engine is given.
#[derive(Clone, Debug)]
pub(crate) enum Code {
    /// For a compiler elsewhere: types erased, and wrapped in the async function whose body it is.
    Text(Box<str>),
    /// For this process only: nobody verifies bytecode.
    Compiled(Bytecode),
}

/// Why a source is no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAProgram {
    Syntax {
        message: String,
        at: Option<Position>,
    },
    Limit(Bound),
    /// The machine could not give the parser its stack.
    NoThread(String),
}

/// Something in the source, and what is wrong with it.
#[derive(Debug)]
struct Problem {
    span: Span,
    message: String,
}

/// The opening of the async function whose body the program is, on the lines -1 and 0 (see [`engine::compile`]).
const OPEN: &str = "(async () => {\n\n";
const CLOSE: &str = "\n})";

/// Stack that the parser needs for each byte that can open a level of nesting: measured in debug builds at less than 3 KiB a
/// level with an optimised parser, and taken many times over. It recurses without
/// a bound of its own.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) { 32 << 10 } else { 8 << 10 };
const STACK_BASE: usize = 1 << 20;
/// Stack that a thread of the pool has left when it reads a source: a thread for each would cost more than the parser
/// takes for most.
const HERE: usize = STACK - (2 << 20);
/// Nesting beyond this is refused before the parser sees it.
const MAX_NESTING: usize = 1_000;
/// More of these are refused: the parser tries each as the beginning of type arguments, and `A<A<A<…` costs the square.
const MAX_LESS_THAN: usize = 2_000;

/// Reads `code`, on a thread of the pool. The engine's compiler, which is C, has not seen it yet.
pub(crate) fn read(code: &Arc<str>, limits: &Limits) -> Result<Program, NotAProgram> {
    if code.len() > limits.source {
        return Err(NotAProgram::Limit(Bound::Source));
    }
    let lines = Lines::new(Arc::clone(code));
    let syntax = |message: String, offset: usize| NotAProgram::Syntax { message, at: lines.position(offset) };
    if let Some(offset) = code.find('\0') {
        return Err(syntax("the source contains the character U+0000".to_owned(), offset));
    }
    if let Some((offset, _)) = code.match_indices('<').nth(MAX_LESS_THAN) {
        return Err(syntax(format!("more than {MAX_LESS_THAN} times the character <"), offset));
    }
    if let Some(offset) = too_nested(code) {
        return Err(syntax(format!("more than {MAX_NESTING} levels of nesting"), offset));
    }
    let parsed = on_stack(parser_stack(code), || parse(code)).map_err(NotAProgram::NoThread)?;
    let Parsed { text, callees } =
        parsed.map_err(|problem| syntax(problem.message, problem.span.start as usize))?;
    let callees =
        callees.into_iter().filter_map(|(offset, name)| Some((lines.line_and_byte(offset)?, name))).collect();
    Ok(Program { code: Code::Text(format!("{OPEN}{text}{CLOSE}").into()), lines, callees })
}

impl Program {
    /// Compiles a program that was read, for this process.
    pub(crate) fn compile(mut self, limits: &Limits) -> Result<Self, NotAProgram> {
        if let Code::Text(text) = &self.code {
            let compiled = engine::compile(text, limits.stack);
            self.code = Code::Compiled(compiled.map_err(|refused| self.refused(refused))?);
        }
        Ok(self)
    }

    /// What the engine's compiler refused, with its place in the source as it was written.
    pub(crate) fn refused(&self, why: NotCompiled) -> NotAProgram {
        let at = why.at.and_then(|at| self.lines.position_of(at));
        NotAProgram::Syntax { message: why.message, at }
    }
}

struct Parsed {
    text: String,
    callees: Vec<(usize, String)>,
}

fn parse(code: &str) -> Result<Parsed, Problem> {
    let allocator = Allocator::default();
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let parsed =
        Parser::new(&allocator, code, SourceType::ts().with_module(true)).with_options(options).parse();
    if let Some(error) = parsed.diagnostics.errors().next() {
        let start = error.labels.iter().next().map_or(0, |label| label.offset());
        return Err(Problem { span: Span::new(start, start), message: error.message.to_string() });
    }
    let mut check = check::Check::new(code);
    check.visit_program(&parsed.program);
    check.finish(&parsed.program)?;
    let mut callees = callees::Callees::default();
    callees.visit_program(&parsed.program);
    let mut erase = erase::Erase::new(code);
    erase.visit_program(&parsed.program);
    Ok(Parsed { text: erase.finish()?, callees: callees.found })
}

/// A stack that the parser and the walks of its tree cannot use up. Each level of nesting costs at least one character of
/// punctuation or one word; closing brackets, commas and quotes open none.
fn parser_stack(code: &str) -> usize {
    let marks =
        code.bytes().filter(|byte| byte.is_ascii_punctuation() && !b")]};,'\"_$".contains(byte)).count();
    let words = code.split_ascii_whitespace().count();
    STACK_BASE + (marks + words).saturating_mul(STACK_PER_LEVEL)
}

/// Where brackets nest deeper than the bound, strings and comments counted as code. This only refuses the plain attacks
/// cheaply; what makes the parser safe is the size of its stack.
fn too_nested(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Some(offset);
        }
    }
    None
}

/// Runs `work` with that much stack: here if there is as much, otherwise on a thread of its own. Only what is used of it is
/// backed by memory.
fn on_stack<T: Send>(size: usize, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    if size <= HERE {
        return catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the parser panicked".to_owned());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("countersign-parse".to_owned())
            .stack_size(size)
            .spawn_scoped(scope, work)
            .map_err(|error| error.to_string())?;
        thread.join().map_err(|_| "the parser panicked".to_owned())
    })
}
