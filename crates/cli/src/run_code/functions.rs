//! The functions file: what a program can call, as commands (design 7). Strict, as the configuration of a host.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_approval_core::ids::Subject;
use countersign_approval_core::json::{Exact, Gate};
use countersign_driver::InputSchema;
use countersign_host::StartError;
use countersign_protocol::code::Code;
use countersign_sandbox_js::{
    BadInput, CallContext, CallId, Function, FunctionError, Json, Output, RowState, RunOutcome,
};

use crate::command::{Call, Failure, Program};
use crate::error::Error;
use crate::tools::{Command, Entry, MAX_DESCRIPTION, MAX_TOOLS, document};

/// More than any functions file needs.
const MAX_FILE: u64 = 1 << 20;

/// What a functions file declares.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) list: Vec<Function>,
    pub(crate) ended: Ended,
}

/// The calls whose commands did not end by themselves with a status: we ended them, or lost sight of them. Whether they
/// had their effect nobody knows (law 8).
#[derive(Debug, Default, Clone)]
pub(crate) struct Ended(Arc<Mutex<HashSet<CallId>>>);

impl Ended {
    fn note(&self, call: CallId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(call);
    }

    /// Says of these calls that they are uncertain: that their commands failed at our signal, or that their output was
    /// no text, tells nothing.
    pub(crate) fn mark(&self, outcome: &mut RunOutcome) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = match outcome {
            RunOutcome::Completed(it) => &mut it.report,
            RunOutcome::Failed(it) => &mut it.report,
            _ => return,
        };
        for row in rows.iter_mut().filter(|row| ended.contains(&row.call_id)) {
            row.state = RowState::Uncertain;
        }
    }
}

impl Functions {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let refused = |reason: String| StartError::File { path: path.display().to_string(), reason };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
        read.map_err(|error| refused(error.to_string()))?;
        if text.len() as u64 > MAX_FILE {
            return Err(refused(format!("more than {MAX_FILE} bytes")).into());
        }
        let value = Exact::parse_with(&text, Gate::OUTPUT).map_err(|error| refused(error.to_string()))?;
        let absolute = std::path::absolute(path).map_err(Error::io("cannot find the working directory"))?;
        Ok(Self::of(&value, absolute.parent().unwrap_or(Path::new("/")))?)
    }

    fn of(value: &Exact, base: &Path) -> Result<Self, StartError> {
        let document = document(value, "functions file")?;
        if document.root().as_object().is_none() {
            let (code, field) = (Code::INVALID_CONFIG, "functions file".to_owned());
            return Err(StartError::Field { code, field, reason: "expected an object".to_owned() });
        }
        let mut top = Entry::new(document.root(), String::new())?;
        let entries = top.required("functions")?;
        top.finish()?;
        let members = entries.node.as_object().ok_or_else(|| entries.invalid("expected an object"))?;
        let mut functions = Self { list: Vec::new(), ended: Ended::default() };
        for (name, node) in members {
            if functions.list.len() == MAX_TOOLS {
                return Err(entries.invalid(format!("more than {MAX_TOOLS}")));
            }
            let path = format!("functions.{name}");
            let function = function(&name, Entry::new(node, path)?, base, functions.ended.clone())?;
            functions.list.push(function);
        }
        Ok(functions)
    }
}

fn function(name: &str, mut entry: Entry<'_>, base: &Path, ended: Ended) -> Result<Function, StartError> {
    let description = entry.optional("description");
    let schema = entry.optional("inputSchema");
    let approval = entry.optional("approval");
    let command = Command::of(&mut entry)?;
    entry.finish()?;
    let program = Arc::new(command.program(name, base)?);
    let mut function = Function::new(name, move |input: Json, call: CallContext| {
        let (program, ended) = (Arc::clone(&program), ended.clone());
        async move { execute(&program, &input, &call, &ended).await }
    });
    if let Some(field) = description {
        function = function.description(field.string(0..=MAX_DESCRIPTION)?);
    }
    if let Some(field) = schema {
        let exact = field.node.to_exact(Gate::OUTPUT).map_err(|error| field.invalid(error.to_string()))?;
        let schema = InputSchema::compile(&exact).map_err(|error| field.invalid(error.to_string()))?;
        function = function.input_schema(exact.text()).check(move |input| {
            schema.explain(input.text()).map_err(|misfit| BadInput {
                path: misfit.path,
                expected: misfit.expected,
                got: misfit.got,
            })
        });
    }
    match approval.map(|field| (field.node.as_bool(), field)) {
        None | Some((Some(false), _)) => Ok(function),
        Some((Some(true), _)) => Ok(function.requires_approval()),
        Some((None, field)) => Err(field.invalid("expected true or false")),
    }
}

async fn execute(
    program: &Program,
    input: &Json,
    call: &CallContext,
    ended: &Ended,
) -> Result<Output, FunctionError> {
    let subject = Subject::local();
    let told = Call {
        run_id: call.run_id.to_string(),
        call_id: call.call_id.as_str(),
        attempt: call.attempt,
        subject: subject.as_str(),
        cancellation: &call.cancellation,
    };
    match program.run(input.text(), &told).await {
        Ok(text) => Ok(Output::json(text)),
        Err(Failure::Ended { last_line: Some(line), .. }) => Err(FunctionError::new(line)),
        Err(failure @ (Failure::Start(_) | Failure::NotStarted | Failure::Ended { .. })) => {
            Err(FunctionError::new(failure.to_string()))
        }
        Err(failure) => {
            ended.note(call.call_id.clone());
            Err(FunctionError::new(format!("{failure}; it may have had its effect")))
        }
    }
}
