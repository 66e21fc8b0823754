//! What is printed of a run: for a person, or as JSON lines for a program (design 7).

use std::io::{self, IsTerminal, Stdout, Write, stderr, stdin, stdout};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use countersign_approval_core::review::{Decision, Outcome};
use countersign_protocol::code::{ErrorBody, ErrorInfo};
use countersign_protocol::event::{Event, EventBody};

use crate::review::{
    AtomKind, Card, Choices, DIM, ESCAPE, Extent, Line, Prompt, Proposal, Quoting, Screen, atoms, cut,
    inline, json, json_line, word_width,
};

/// Lines of a tool's output that are shown.
const OUTPUT_LINES: usize = 12;
/// Blanks that wait for the word behind them; at the end of a line they are left out.
const MAX_BLANKS: usize = 16;
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// What goes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The run as a person reads it.
    Human,
    /// Events as JSON lines; whatever a person must see goes to standard error.
    Json,
}

impl Format {
    /// Whether a person can be asked: he sees the card, and he can type.
    pub(crate) fn can_ask(self) -> bool {
        let sees = match self {
            Self::Human => stdout().is_terminal(),
            Self::Json => stderr().is_terminal(),
        };
        sees && stdin().is_terminal()
    }
}

/// What is known here of effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effects {
    /// No call ran, and none was approved here.
    None,
    /// A call was proposed, and it may be one that nobody is asked about.
    Proposed,
    /// A call was approved here, or has run.
    Possible,
}

impl Effects {
    /// What is true of them when the run is given up (law 8).
    const fn told(self) -> &'static str {
        match self {
            Self::None => "Nothing was approved by you, and no call is known to have run.",
            Self::Proposed | Self::Possible => "A call that had begun may have had its effect.",
        }
    }
}

/// Prints a run.
pub(crate) struct View {
    /// For people.
    out: Box<dyn Write + Send>,
    /// For programs.
    lines: Option<Stdout>,
    format: Format,
    /// The column in an unfinished line of the agent's text.
    column: Option<usize>,
    /// Blanks of the agent's text that are printed with the word behind them.
    blanks: usize,
    /// What may have had an effect so far.
    pub(crate) effects: Effects,
    /// The text of the current step has been printed while it came.
    streamed: bool,
}

impl View {
    pub(crate) fn new(format: Format) -> Self {
        let (out, lines): (Box<dyn Write + Send>, _) = match format {
            Format::Human => (Box::new(AutoStream::auto(stdout())), None),
            Format::Json => (Box::new(AutoStream::auto(stderr())), Some(stdout())),
        };
        Self { out, lines, format, column: None, blanks: 0, effects: Effects::None, streamed: false }
    }

    /// One event of the run.
    pub(crate) fn event(&mut self, event: &Event) -> io::Result<()> {
        self.effects = match (&event.body, self.effects) {
            (EventBody::ToolCompleted { .. } | EventBody::ToolExecutionRequested { .. }, _)
            | (_, Effects::Possible) => Effects::Possible,
            (EventBody::ApprovalResolved { resolution }, _) if resolution.outcome == Outcome::Approved => {
                Effects::Possible
            }
            (EventBody::ToolCalled { .. }, _) => Effects::Proposed,
            (EventBody::ApprovalRequested { .. }, _) => Effects::None,
            (_, effects) => effects,
        };
        if let Some(lines) = &mut self.lines {
            writeln!(lines, "{}", json_line(&event.to_json()))?;
            return lines.flush();
        }
        match &event.body {
            EventBody::RunStarted { provider, model } => {
                let (provider, model) = (inline(provider.as_str()), inline(model.as_str()));
                self.told(DIM, "", DIM, &format!("run {} with {provider}, {model}", event.run_id))
            }
            EventBody::StepStarted { .. } => {
                self.streamed = false;
                Ok(())
            }
            EventBody::TextDelta { text } => self.text(text),
            EventBody::ToolCalled { call } => {
                self.note(&format!("The agent proposes a call of {}.", call.name))
            }
            // The card says it.
            EventBody::ApprovalRequested { .. } => Ok(()),
            EventBody::ApprovalResolved { resolution } => {
                let (style, what) = match resolution.outcome {
                    Outcome::Approved => (GOOD, "Approved"),
                    Outcome::Denied => (BAD, "Denied"),
                    Outcome::Cancelled => (BAD, "The review was cancelled"),
                    Outcome::Expired => (BAD, "Expired: nobody answered in time"),
                };
                self.told(style, what, DIM, &format!("at {}", resolution.decided_at))
            }
            EventBody::ToolCompleted { output, .. } => {
                self.line("The call has run. It returned:")?;
                let lines = json(output.text(), self.inner_width(), self.screen().charset);
                self.behind(&cut(lines, OUTPUT_LINES).0)
            }
            EventBody::RunCompleted { result } => {
                if !self.streamed && !result.text.is_empty() {
                    self.text(&result.text)?;
                }
                self.told(GOOD, "Completed", DIM, &format!("(model steps: {})", result.steps))
            }
            EventBody::RunFailed { error } => self.failure("Failed:", error),
            EventBody::RunCancelled { error } => self.failure("Cancelled:", error),
            // This program defines no application tools, so that no host asks it for an execution.
            EventBody::ToolExecutionRequested { .. }
            | EventBody::RunProgress { .. }
            | EventBody::UsageReported { .. } => Ok(()),
        }
    }

    /// Draws a card; says how many lines are not in it.
    pub(crate) fn card(&mut self, proposal: &Proposal<'_>, extent: Extent) -> io::Result<usize> {
        let card = Card::draw(proposal, self.screen(), extent);
        for line in &card.lines {
            self.line(line)?;
        }
        Ok(card.left_out)
    }

    /// Shows a card that the command line answers; nothing in `--json`, where the events say it.
    pub(crate) fn fixed(&mut self, proposal: &Proposal<'_>, decision: Decision) -> io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        self.card(proposal, Extent::Whole)?;
        let answer = match decision {
            Decision::Approve => "approve",
            Decision::Deny => "deny",
            Decision::Cancel => "cancel the run",
        };
        self.line(&format!("Answered by --decide: {answer}"))
    }

    /// Asks a person about the card that was drawn last.
    pub(crate) fn ask(&mut self, choices: Choices) -> io::Result<Prompt> {
        let width = self.screen().width;
        Prompt::ask(&mut self.out, choices, width)
    }

    /// Asks a person for a text.
    pub(crate) fn ask_for_text(&mut self, question: &str) -> io::Result<Prompt> {
        let width = self.screen().width;
        Prompt::ask_for_text(&mut self.out, question, width)
    }

    /// Ends the line of a question that needs no answer any more.
    pub(crate) fn end_question(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// Ends a line of the agent's text that came no further, so that the next word on the terminal is not taken for his.
    pub(crate) fn end_text(&mut self) -> io::Result<()> {
        self.blanks = 0;
        if self.column.take().is_some() {
            writeln!(self.out)?;
        }
        self.out.flush()
    }

    /// Ctrl-C. It may stand behind an open question or in the middle of the agent's text.
    pub(crate) fn interrupted(&mut self) -> io::Result<()> {
        self.column = None;
        writeln!(self.out)?;
        self.note(&format!("Interrupted: the run is cancelled. {}", self.effects.told()))
    }

    /// A person gave the run up whose reviews he may not decide.
    pub(crate) fn hung_up(&mut self) -> io::Result<()> {
        self.note(&format!("Hung up: the run is cancelled. {}", self.effects.told()))
    }

    /// A remark of ours.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        let plain = Style::new();
        self.told(plain, "", plain, &inline(text))
    }

    /// The last line of `--json`; nothing for people, who have been told.
    pub(crate) fn last_line(&mut self, error: &ErrorInfo) -> io::Result<()> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        let line = serde_json::to_string(&ErrorBody::from(error.clone()))?;
        writeln!(lines, "{}", json_line(&line))?;
        lines.flush()
    }

    /// The one JSON object of a command that prints one; whether this format has it.
    pub(crate) fn object(&mut self, text: &str) -> io::Result<bool> {
        let Some(lines) = &mut self.lines else { return Ok(false) };
        writeln!(lines, "{}", json_line(text))?;
        lines.flush()?;
        Ok(true)
    }

    /// Lines of what the agent wrote, behind the bar.
    pub(crate) fn behind(&mut self, lines: &[Line]) -> io::Result<()> {
        let gutter = self.screen().gutter();
        lines.iter().try_for_each(|line| self.line(&line.behind(gutter)))
    }

    /// Columns for what stands behind the bar.
    pub(crate) fn inner_width(&self) -> usize {
        let screen = self.screen();
        screen.width.saturating_sub(screen.gutter().chars().count() + 3)
    }

    /// A run that did not complete.
    fn failure(&mut self, what: &str, error: &ErrorInfo) -> io::Result<()> {
        self.told(BAD, what, Style::new(), &reason(error))?;
        if error.outcome.is_some() {
            self.note("The call may have had its effect or not. Look before anything is repeated.")?;
        }
        Ok(())
    }

    /// Text of the agent as it comes, behind the gutter.
    fn text(&mut self, text: &str) -> io::Result<()> {
        let screen = self.screen();
        let gutter = screen.gutter();
        let left = gutter.chars().count();
        self.streamed = true;
        let atoms = atoms(text, Quoting::Bare, screen.charset);
        for (at, atom) in atoms.iter().enumerate() {
            if atom.kind == AtomKind::Shown && atom.text == " " && self.blanks < MAX_BLANKS {
                self.blanks += 1;
                continue;
            }
            let ends = atom.kind == AtomKind::Break && atom.text == "\\n";
            let word = if self.blanks > 0 { word_width(&atoms[at..]) } else { 0 };
            let needed = if word <= screen.width / 2 { word.max(atom.width) } else { atom.width };
            let blanks = std::mem::take(&mut self.blanks);
            let wraps = self.column.is_some_and(|column| !ends && column + blanks + needed >= screen.width);
            // The end of the line stands for the blanks before it.
            let blanks = if wraps || ends { 0 } else { blanks };
            if wraps {
                writeln!(self.out)?;
                self.column = None;
            }
            let column = match self.column {
                Some(column) => column,
                None => {
                    write!(self.out, "{DIM}{gutter}{DIM:#}")?;
                    left
                }
            };
            write!(self.out, "{:blanks$}", "")?;
            let column = column + blanks;
            self.column = match atom.kind {
                _ if ends => {
                    writeln!(self.out)?;
                    None
                }
                AtomKind::Shown => {
                    write!(self.out, "{}", atom.text)?;
                    Some(column + atom.width)
                }
                AtomKind::Escape | AtomKind::Break => {
                    write!(self.out, "{ESCAPE}{}{ESCAPE:#}", atom.text)?;
                    Some(column + atom.width)
                }
            };
        }
        self.out.flush()
    }

    /// A line of ours, apart from text of the agent.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// A sentence of ours that begins with the word that counts, broken between words in a window.
    pub(crate) fn told(&mut self, style: Style, what: &str, rest_style: Style, rest: &str) -> io::Result<()> {
        let text = if what.is_empty() { rest.to_owned() } else { format!("{what} {rest}") };
        for (at, line) in self.screen().wrap(&text).iter().enumerate() {
            match line.strip_prefix(what) {
                Some(rest) if at == 0 && !what.is_empty() => {
                    self.line(&format!("{style}{what}{style:#}{rest_style}{rest}{rest_style:#}"))?;
                }
                _ => self.line(&format!("{rest_style}{line}{rest_style:#}"))?,
            }
        }
        Ok(())
    }

    pub(crate) fn screen(&self) -> Screen {
        match self.format {
            Format::Human => Screen::of(stdout()),
            Format::Json => Screen::of(stderr()),
        }
    }
}

/// Why a run did not complete, as the rest of a sentence, with its code behind it.
fn reason(error: &ErrorInfo) -> String {
    let known = error.code.message();
    let text = if error.message.is_empty() { known } else { &error.message };
    let mut chars = text.strip_suffix('.').unwrap_or(text).chars();
    let begin = match chars.next() {
        // Any other text may begin with a name.
        Some(first) if text == known => first.to_ascii_lowercase().to_string(),
        first => first.map(String::from).unwrap_or_default(),
    };
    inline(&format!("{begin}{} ({})", chars.as_str(), error.code))
}

#[cfg(test)]
mod tests {
    use countersign_protocol::code::Code;

    use super::*;

    #[test]
    fn a_reason_is_the_rest_of_a_sentence() {
        let code = |code: &str| Code::from(code.to_owned());
        for (error, text) in [
            (ErrorInfo::new(Code::CANCELLED), "the run was cancelled (CANCELLED)"),
            (ErrorInfo::new(Code::APPROVAL_DENIED), "a person refused the call (APPROVAL_DENIED)"),
            (ErrorInfo::new(Code::CANCELLED).with_message("Ämter. Bye."), "Ämter. Bye (CANCELLED)"),
            (ErrorInfo::new(code("NEW")).with_message("OpenAI is away"), "OpenAI is away (NEW)"),
            (ErrorInfo::new(code("NEW")).with_message(""), "the request failed (NEW)"),
            (ErrorInfo::new(code("N\u{9b}W")).with_message("a\u{1b}b"), r"a\u{1b}b (N\u{9b}W)"),
        ] {
            assert_eq!(reason(&error), text);
        }
    }
}
