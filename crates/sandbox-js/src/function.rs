//! [`Function`]: what a program can call.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use countersign_approval_core::json::Exact;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::ids::{CallId, RunId};
use crate::value::{Json, Output};

/// A future that a trait object can return.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What executes a call. Closures `|input, call| async { … }` are handlers.
///
/// It runs in a task of its own. A panic is a failure of the call, not of the run.
pub trait Handler: Send + Sync + 'static {
    /// Executes one call.
    fn call(&self, input: Json, call: CallContext) -> BoxFuture<Result<Output, FunctionError>>;
}

impl<F, R, O> Handler for F
where
    F: Fn(Json, CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, FunctionError>> + Send + 'static,
    O: Into<Output>,
{
    fn call(&self, input: Json, call: CallContext) -> BoxFuture<Result<Output, FunctionError>> {
        let work = self(input, call);
        Box::pin(async move { work.await.map(Into::into) })
    }
}

/// What a handler knows about its call.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The run.
    pub run_id: RunId,
    /// The call, and its idempotency key: equal on every attempt of one call, different for any two calls (scenario W36).
    pub call_id: CallId,
    /// From 1. Replays execute nothing, so in `deny` and `pause` it stays 1. It will be more after somebody declared that
    /// an attempt had no effect, which comes with `collect`.
    pub attempt: u32,
    /// Fires when nobody waits for the result any more. The handler's task is dropped five seconds later.
    pub cancellation: CancellationToken,
}

/// A failure that the program sees as an `Error`: name, message and code, and nothing of the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FunctionError {
    /// What went wrong. The agent reads it.
    pub message: String,
    /// The error's `name`; `Error` if there is none.
    pub name: Option<String>,
    /// The error's `code`.
    pub code: Option<String>,
}

impl FunctionError {
    /// A failure with a message only.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), name: None, code: None }
    }
}

/// An input that does not fit, told so that an agent can correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {}: expected {expected}, got {got}", if path.is_empty() { "the top" } else { path })]
pub struct BadInput {
    /// Where: a JSON Pointer, empty for the input itself.
    pub path: String,
    /// What would fit.
    pub expected: String,
    /// What is there.
    pub got: String,
}

/// An input check panicked.
pub(crate) struct Panicked;

type Check = dyn Fn(&Json) -> Result<(), BadInput> + Send + Sync;

/// Whether a person is asked before a call executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marking {
    /// The function never runs by itself.
    RequiresApproval,
    /// It runs when the program calls it.
    Free,
}

/// A function that programs can call under its name. Cloning shares it.
///
/// ```
/// use countersign_sandbox_js::{Function, Json};
/// let read = Function::new("read_file", |input, _call| async move { Ok(input) })
///     .description("Reads a file.")
///     .input_schema(r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#);
/// let delete = Function::new("delete_file", |_input, _call| async move { Ok(Json::null()) }).requires_approval();
/// ```
#[derive(Clone)]
pub struct Function {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    name: String,
    description: String,
    input_schema: Option<String>,
    output_schema: Option<String>,
    marking: Marking,
    version: Option<String>,
    check: Option<Arc<Check>>,
    handler: Arc<dyn Handler>,
}

impl Function {
    /// A free function.
    pub fn new(name: impl Into<String>, handler: impl Handler) -> Self {
        let inner = Inner {
            name: name.into(),
            description: String::new(),
            input_schema: None,
            output_schema: None,
            marking: Marking::Free,
            version: None,
            check: None,
            handler: Arc::new(handler),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Says what the function does, for the model.
    #[must_use]
    pub fn description(self, text: impl Into<String>) -> Self {
        self.with(|inner| inner.description = text.into())
    }

    /// The JSON Schema of the input, for the model's declarations. It is not validated here: see [`Function::check`].
    #[must_use]
    pub fn input_schema(self, json: impl Into<String>) -> Self {
        self.with(|inner| inner.input_schema = Some(json.into()))
    }

    /// The JSON Schema of the result, for the model's declarations.
    #[must_use]
    pub fn output_schema(self, json: impl Into<String>) -> Self {
        self.with(|inner| inner.output_schema = Some(json.into()))
    }

    /// Marks the function: it never runs by itself.
    #[must_use]
    pub fn requires_approval(self) -> Self {
        self.with(|inner| inner.marking = Marking::RequiresApproval)
    }

    /// A version of the handler's behaviour, which nothing else can show. (It is compared when a run is resumed, which
    /// comes with `collect`.)
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        self.with(|inner| inner.version = Some(version.into()))
    }

    /// Judges each input before the approval decision, on the text that a person would be shown, without changing it
    /// (sandbox spec R2.5). A refusal is a `TypeError` in the program. This is where a schema validator belongs; it runs
    /// on the task of the run and should not take long.
    #[must_use]
    pub fn check(self, check: impl Fn(&Json) -> Result<(), BadInput> + Send + Sync + 'static) -> Self {
        self.with(|inner| inner.check = Some(Arc::new(check)))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Whether a person is asked.
    pub fn marking(&self) -> Marking {
        self.inner.marking
    }

    /// What was given to [`Function::version`].
    pub fn declared_version(&self) -> Option<&str> {
        self.inner.version.as_deref()
    }

    pub(crate) fn described(&self) -> &str {
        &self.inner.description
    }

    pub(crate) fn schemas(&self) -> (Option<&str>, Option<&str>) {
        (self.inner.input_schema.as_deref(), self.inner.output_schema.as_deref())
    }

    pub(crate) fn check_input(&self, input: &Exact) -> Result<Result<(), BadInput>, Panicked> {
        let Some(check) = &self.inner.check else { return Ok(Ok(())) };
        let input = Json::of_exact(input.clone());
        catch_unwind(AssertUnwindSafe(|| check(&input))).map_err(|_| Panicked)
    }

    pub(crate) fn call(&self, input: Json, call: CallContext) -> BoxFuture<Result<Output, FunctionError>> {
        self.inner.handler.call(input, call)
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("name", &self.inner.name)
            .field("marking", &self.inner.marking)
            .field("version", &self.inner.version)
            .finish_non_exhaustive()
    }
}

/// Checks what a run is given.
pub(crate) fn check_all(functions: &[Function]) -> Result<(), Error> {
    let mut names = std::collections::HashSet::new();
    for function in functions {
        let name = function.name();
        let refuse = |why| Err(Error::FunctionName { name: name.to_owned(), why });
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        if name.is_empty()
            || name.len() > 64
            || !name.chars().all(letters)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return refuse("must be an identifier of 1 to 64 ASCII letters, digits, _ and $");
        }
        if RESERVED.contains(&name) {
            return refuse("is reserved by the language");
        }
        if GLOBALS.contains(&name) {
            return refuse("is a global that programs rely on");
        }
        if !names.insert(name) {
            return Err(Error::DuplicateFunction(name.to_owned()));
        }
        let (input, output) = function.schemas();
        for (which, schema) in [("input", input), ("output", output)] {
            if let Some(Err(why)) = schema.map(Json::parse) {
                return Err(Error::Schema { function: name.to_owned(), which, why: why.to_string() });
            }
        }
    }
    Ok(())
}

const RESERVED: &[&str] = &[
    "__proto__",
    "arguments",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// The globals of a run; the engine's tests compare the list with what a program finds.
pub(crate) const GLOBALS: &[&str] = &[
    "AggregateError",
    "ApprovalRejected",
    "Array",
    "ArrayBuffer",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "Float16Array",
    "Float32Array",
    "Float64Array",
    "Function",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "InternalError",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "SuppressedError",
    "Symbol",
    "SyntaxError",
    "TypeError",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakSet",
    "console",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "escape",
    "globalThis",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "queueMicrotask",
    "undefined",
    "unescape",
];
