//! How a run ended, for the person at the terminal. What the program wrote stands behind the bar.

use std::io;

use anstyle::Style;
use countersign_sandbox_js::{Console, Ending, Failed, Level, Position, Row, RowState, RunOutcome};

use crate::review::{DIM, Line, cut, excerpt, inline, json, text};
use crate::view::{BAD, GOOD, View};

/// Lines of each input that are shown, and of it with the error of its call.
const INPUT_LINES: usize = 6;
const ROW_LINES: usize = 12;
/// Lines of an error's message that are shown.
const MESSAGE_LINES: usize = 12;
/// Lines of the result that are shown.
const VALUE_LINES: usize = 40;

pub(crate) fn outcome(view: &mut View, file: &str, code: &str, outcome: &RunOutcome) -> io::Result<()> {
    printed(view, outcome.console())?;
    report(view, outcome.report())?;
    match outcome {
        RunOutcome::Completed(it) => {
            view.line("The program returned:")?;
            let lines = json(it.value.text(), view.inner_width(), view.screen().charset);
            view.behind(&cut(lines, VALUE_LINES).0)?;
            view.told(GOOD, "Completed", DIM, &format!("run {}", it.run_id))
        }
        RunOutcome::Failed(it) => failed(view, file, code, it),
        // There is no other ending of `deny` and `pause`.
        _ => Ok(()),
    }
}

fn printed(view: &mut View, console: &Console) -> io::Result<()> {
    if console.lines().next().is_none() {
        return Ok(());
    }
    view.line("The program printed:")?;
    let (width, charset) = (view.inner_width(), view.screen().charset);
    for (at, line) in console.lines().enumerate() {
        if at == console.head().len() && console.omitted_bytes() > 0 {
            view.told(DIM, "", DIM, &format!("  [{} bytes left out]", console.omitted_bytes()))?;
        }
        let level = match line.level {
            Level::Log => String::new(),
            level => format!("{}: ", level.name()),
        };
        view.behind(&text(&format!("{level}{}", line.text), width, charset))?;
    }
    Ok(())
}

fn report(view: &mut View, rows: &[Row]) -> io::Result<()> {
    match rows.len() {
        0 => return view.line("The program made no calls."),
        1 => view.line("The program made 1 call:")?,
        count => view.line(&format!("The program made {count} calls:"))?,
    }
    let (width, charset) = (view.inner_width(), view.screen().charset);
    for row in rows {
        let style = match row.state {
            RowState::Executed => GOOD,
            RowState::Discarded => Style::new(),
            _ => BAD,
        };
        let line = row.position.map_or_else(String::new, |at| format!(", line {}", at.line));
        view.told(style, &state(row), Style::new(), &format!("call {}, {}{line}", row.seq, row.function))?;
        let mut lines = cut(text(row.input.text(), width, charset), INPUT_LINES).0;
        if let RowState::Failed { message } = &row.state {
            lines.extend(text(&format!("error: {message}"), width, charset));
        }
        view.behind(&cut(lines, ROW_LINES).0)?;
    }
    let uncertain = rows.iter().filter(|row| row.state == RowState::Uncertain).count();
    if uncertain > 0 {
        let which = if uncertain == 1 { "1 call".to_owned() } else { format!("{uncertain} calls") };
        view.note(&format!(
            "It cannot be known whether {which} had an effect. Look before anything is repeated."
        ))?;
    }
    Ok(())
}

/// What became of a call, as the beginning of a sentence of ours.
fn state(row: &Row) -> String {
    let word = match row.state {
        RowState::Discarded => "not executed",
        ref state => state.as_str(),
    };
    format!("  {word}")
}

fn failed(view: &mut View, file: &str, code: &str, failed: &Failed) -> io::Result<()> {
    let place = match failed.position {
        Some(at) => inline(&format!(", at line {}, column {} of {file}", at.line, at.column)),
        None => String::new(),
    };
    let what = match failed.ending {
        Ending::Cancelled => "Cancelled",
        _ => "Failed:",
    };
    let kind = match failed.ending {
        Ending::Cancelled => format!("run {}", failed.run_id),
        ref ending => ending.kind().to_owned(),
    };
    view.told(BAD, what, Style::new(), &format!("{kind}{place}"))?;
    if failed.ending == Ending::Cancelled {
        return Ok(());
    }
    let (width, charset) = (view.inner_width(), view.screen().charset);
    let mut message = failed.message.clone();
    if let Ending::Thrown { causes, .. } = &failed.ending {
        for cause in causes {
            message.push_str(&format!("\ncaused by {cause}"));
        }
    }
    view.behind(&cut(text(&message, width, charset), MESSAGE_LINES).0)?;
    let source = failed.position.and_then(|at| quoted(code, at, width, charset));
    view.behind(&source.unwrap_or_default())
}

/// The line of the program that is spoken of.
fn quoted(code: &str, at: Position, width: usize, charset: crate::review::Charset) -> Option<Vec<Line>> {
    let line = code.split('\n').nth(usize::try_from(at.line).ok()?.checked_sub(1)?)?;
    let line = line.strip_suffix('\r').unwrap_or(line);
    let column = usize::try_from(at.column).ok()?;
    Some(excerpt(&format!("{}: ", at.line), line, column, width, charset))
}
