//! From what an agent wrote to what the engine compiles (design 5): TypeScript erased in place, so that lines and columns
//! stay; what is not offered refused with its position.

mod callees;
mod check;
mod erase;
mod position;

use std::collections::HashMap;

use oxc_allocator::Allocator;
use oxc_ast_visit::Visit as _;
use oxc_parser::{ParseOptions, Parser};
use oxc_span::{SourceType, Span};

use crate::engine::{self, Bytecode};
use crate::limits::{Bound, Limits};

pub(crate) use position::Lines;
pub use position::Position;

/// A program that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) bytecode: Bytecode,
    pub(crate) lines: Lines,
    /// Names in call position, by where they stand: line and byte column.
    pub(crate) callees: HashMap<(u32, u32), String>,
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
/// Nesting beyond this is refused before the parser sees it.
const MAX_NESTING: usize = 1_000;
/// More of these are refused: the parser tries each as the beginning of type arguments, and `A<A<A<…` costs the square.
const MAX_LESS_THAN: usize = 2_000;

/// Prepares and compiles `code`.
pub(crate) fn prepare(code: &str, limits: &Limits) -> Result<Program, NotAProgram> {
    if code.len() > limits.source {
        return Err(NotAProgram::Limit(Bound::Source));
    }
    let lines = Lines::new(code);
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
    let wrapped = format!("{OPEN}{text}{CLOSE}");
    let bytecode = engine::compile(&wrapped, limits.stack).map_err(|refused| NotAProgram::Syntax {
        message: refused.message,
        at: refused.at.and_then(|at| lines.position_of(at)),
    })?;
    let callees =
        callees.into_iter().filter_map(|(offset, name)| Some((lines.line_and_byte(offset)?, name))).collect();
    Ok(Program { bytecode, lines, callees })
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

/// Runs `work` on a thread with that much stack. Only what is used of it is backed by memory.
fn on_stack<T: Send>(size: usize, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("countersign-parse".to_owned())
            .stack_size(size)
            .spawn_scoped(scope, work)
            .map_err(|error| error.to_string())?;
        thread.join().map_err(|_| "the parser panicked".to_owned())
    })
}
