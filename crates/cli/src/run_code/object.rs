//! The one JSON object that `run-code` prints for programs (design 7).

use std::io;

use countersign_sandbox_js::{Console, Ending, Failed, Json, Position, Row, RowState, RunOutcome};
use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "status", rename_all = "camelCase")]
enum Object<'a> {
    Completed {
        value: &'a Json,
        #[serde(flatten)]
        common: Common<'a>,
    },
    Failed {
        error: Error<'a>,
        #[serde(flatten)]
        common: Common<'a>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Common<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    console: Vec<Line<'a>>,
    /// Bytes that are missing in the middle of the console.
    #[serde(skip_serializing_if = "is_zero")]
    console_omitted_bytes: usize,
    report: Vec<Reported<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    level: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reported<'a> {
    call_id: &'a str,
    seq: u32,
    #[serde(rename = "fn")]
    function: &'a str,
    input: &'a Json,
    state: &'static str,
    /// Of a call that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(flatten)]
    place: Place,
}

#[derive(Default, Serialize)]
struct Place {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
}

impl From<Option<Position>> for Place {
    fn from(position: Option<Position>) -> Self {
        Self { line: position.map(|at| at.line), column: position.map(|at| at.column) }
    }
}

#[derive(Serialize)]
struct Error<'a> {
    kind: &'static str,
    message: &'a str,
    #[serde(flatten)]
    place: Place,
    #[serde(flatten)]
    more: More<'a>,
}

/// What only some endings say.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct More<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u32>,
    #[serde(rename = "fn", skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    nearest: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    causes: &'a [String],
    /// The name of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
}

/// How a run ended.
pub(crate) fn of(outcome: &RunOutcome) -> io::Result<String> {
    let object = match outcome {
        RunOutcome::Completed(it) => Object::Completed {
            value: &it.value,
            common: common(it.run_id.to_string(), &it.console, &it.report),
        },
        RunOutcome::Failed(it) => Object::Failed {
            error: error(it),
            common: common(it.run_id.to_string(), &it.console, &it.report),
        },
        // There is no other ending of `deny` and `pause`.
        _ => return Err(io::Error::other("an ending that this version does not know")),
    };
    Ok(serde_json::to_string(&object)?)
}

/// No engine could be started. Nothing ran.
pub(crate) fn no_engine(why: &str) -> String {
    let error = Error { kind: "WorkerLost", message: why, place: Place::default(), more: More::default() };
    let common = Common { run_id: None, console: Vec::new(), console_omitted_bytes: 0, report: Vec::new() };
    serde_json::to_string(&Object::Failed { error, common }).unwrap_or_default()
}

fn common<'a>(run_id: String, console: &'a Console, report: &'a [Row]) -> Common<'a> {
    Common {
        run_id: Some(run_id),
        console: console.lines().map(|line| Line { level: line.level.name(), text: &line.text }).collect(),
        console_omitted_bytes: console.omitted_bytes(),
        report: report.iter().map(reported).collect(),
    }
}

fn reported(row: &Row) -> Reported<'_> {
    Reported {
        call_id: row.call_id.as_str(),
        seq: row.seq,
        function: &row.function,
        input: &row.input,
        state: row.state.as_str(),
        message: match &row.state {
            RowState::Failed { message } => Some(message),
            _ => None,
        },
        place: row.position.into(),
    }
}

fn error(failed: &Failed) -> Error<'_> {
    let none = More::default();
    let more = match &failed.ending {
        Ending::UnknownFunction { name, nearest } => More { name: Some(name), nearest, ..none },
        Ending::ApprovalRejected { call_id, seq, function, reason } => More {
            call_id: Some(call_id.as_str()),
            seq: Some(*seq),
            function: Some(function),
            reason: Some(reason.as_str()),
            ..none
        },
        Ending::Thrown { name, call_id, causes } => {
            More { name: Some(name), call_id: call_id.as_ref().map(|id| id.as_str()), causes, ..none }
        }
        Ending::LimitExceeded(bound) => More { limit: Some(bound.name()), ..none },
        Ending::ResultRefused { call_id } => More { call_id: call_id.as_ref().map(|id| id.as_str()), ..none },
        Ending::ApprovalHookFailed { call_id } => More { call_id: Some(call_id.as_str()), ..none },
        _ => none,
    };
    Error { kind: failed.ending.kind(), message: &failed.message, place: failed.position.into(), more }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}
