//! The account of an audit file for a reader: one paragraph a review, in the order in which they ended.
//!
//! Everything in it came from outside once, so everything is escaped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Write};

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::RunId;
use countersign_store::audit_file::{Entry, Reader};

use crate::error::Error;
use crate::review::{Screen, inline, json};

/// Prints the records of a file, of one run if it is given. Reviews that have not ended come last.
///
/// # Errors
/// The first bad line, after everything before it was printed; a failure to read or write.
pub(crate) fn show<R: BufRead>(
    out: &mut impl Write,
    mut reader: Reader<R>,
    run: Option<RunId>,
    screen: Screen,
) -> Result<(), Error> {
    let run = run.map(|run| run.to_string());
    let mut accounts = Accounts { open: BTreeMap::new(), screen };
    let mut write = |text: String| out.write_all(text.as_bytes()).map_err(Error::io("cannot write"));
    let broken = loop {
        match reader.next() {
            Some(Ok(entry)) if run.is_some() && entry.run_id != run => {}
            Some(Ok(entry)) => write(accounts.take(&entry))?,
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    for (_, open) in accounts.open {
        write(open.finish())?;
    }
    match broken {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// The reviews and executions that may still get records.
struct Accounts {
    /// By approval, or by run and call where nobody was asked.
    open: BTreeMap<String, Account>,
    screen: Screen,
}

impl Accounts {
    /// What can be told after this entry.
    fn take(&mut self, entry: &Entry) -> String {
        match (entry.kind.as_str(), key(entry)) {
            ("approval.requested", Some(key)) => {
                // The same id again would be a forgery; both are told.
                let before = self.open.insert(key, Account::begin(entry, self.screen));
                before.map(Account::finish).unwrap_or_default()
            }
            ("approval.resolved", Some(key)) => {
                let account =
                    self.open.entry(key.clone()).or_insert_with(|| Account::begin(entry, self.screen));
                account.resolved(entry);
                if entry.outcome.as_deref() == Some("approved") { String::new() } else { self.close(&key) }
            }
            ("approval.abandoned", Some(key)) => {
                let account =
                    self.open.entry(key.clone()).or_insert_with(|| Account::begin(entry, self.screen));
                account.abandoned(entry.at);
                self.close(&key)
            }
            ("execution.started", Some(key)) => {
                self.open.entry(key).or_insert_with(|| Account::begin(entry, self.screen)).started(entry);
                String::new()
            }
            ("execution.finished", Some(key)) => {
                self.open
                    .entry(key.clone())
                    .or_insert_with(|| Account::begin(entry, self.screen))
                    .finished(entry);
                self.close(&key)
            }
            ("approval.rejected", _) => {
                let named = entry.approval_id.as_deref().unwrap_or("no approval that can be named");
                format!(
                    "{} a decision of {} was refused: {} (for {})\n\n",
                    entry.at,
                    text(entry.subject.as_deref()),
                    text(entry.code.as_deref()),
                    inline(named)
                )
            }
            ("recovered", _) => format!(
                "{} the host began anew and found a torn last line; it stands in the file that this record names\n\n",
                entry.at
            ),
            (kind, _) => {
                format!("{} {}: a record that this version does not know\n\n", entry.at, inline(kind))
            }
        }
    }

    fn close(&mut self, key: &str) -> String {
        self.open.remove(key).map(Account::finish).unwrap_or_default()
    }
}

fn key(entry: &Entry) -> Option<String> {
    match &entry.approval_id {
        Some(approval) => Some(approval.clone()),
        None => Some(format!("{}/{}", entry.run_id.as_deref()?, entry.call_id.as_deref()?)),
    }
}

/// One review, or one execution that needed none.
struct Account {
    text: String,
    state: State,
}

enum State {
    /// Asked and not answered.
    Waiting,
    /// Approved, and nothing has begun.
    Approved,
    /// Begun, and its end is not recorded.
    Started,
    Ended,
}

impl Account {
    fn begin(entry: &Entry, screen: Screen) -> Self {
        let mut account = Self { text: String::new(), state: State::Waiting };
        let tool = entry.tool.as_deref().map_or_else(|| "a call".to_owned(), inline);
        account.line(format_args!("{} {tool}, in a run of {}", entry.at, text(entry.subject.as_deref())));
        for (name, value) in [
            ("run", &entry.run_id),
            ("approval", &entry.approval_id),
            ("call", &entry.call_id),
            ("provider", &entry.provider),
        ] {
            if let Some(value) = value {
                account.line(format_args!("  {name:<9} {}", inline(value)));
            }
        }
        if let Some(digest) = &entry.digest {
            account.line(format_args!("  {}", inline(digest)));
        }
        if let Some(arguments) = &entry.arguments {
            let gutter = screen.gutter();
            for line in json(arguments, screen.width.saturating_sub(5), screen.charset) {
                account.line(format_args!("  {gutter}{}", line.text));
            }
        }
        account
    }

    fn resolved(&mut self, entry: &Entry) {
        let who = text(entry.subject.as_deref());
        let how = match entry.outcome.as_deref() {
            Some("approved") => format!("approved by {who}"),
            Some("denied") => format!("denied by {who}"),
            // By a person or by the end of the run: the record does not tell which.
            Some("cancelled") => "cancelled".to_owned(),
            Some("expired") => "expired: nobody answered in time".to_owned(),
            other => format!("ended: {}", text(other)),
        };
        self.line(format_args!("  {} {how}", entry.at));
        self.state = match entry.outcome.as_deref() {
            Some("approved") => State::Approved,
            _ => State::Ended,
        };
        if matches!(self.state, State::Ended) {
            self.line(format_args!("  nothing ran"));
        }
    }

    fn abandoned(&mut self, at: Timestamp) {
        self.line(format_args!("  {at} abandoned: its host ended before anybody answered; nothing ran"));
        self.state = State::Ended;
    }

    fn started(&mut self, entry: &Entry) {
        let why = if entry.approval_id.is_some() { "" } else { ", allowed by the host's own rule" };
        self.line(format_args!("  {} started{why}", entry.at));
        self.state = State::Started;
    }

    fn finished(&mut self, entry: &Entry) {
        let how = match entry.outcome.as_deref() {
            Some("completed") => "completed".to_owned(),
            Some("not-started") => "was not started after all: nothing ran".to_owned(),
            Some("uncertain") => "UNCERTAIN: it began, and its effect cannot be known".to_owned(),
            other => format!("ended: {}", text(other)),
        };
        self.line(format_args!("  {} {how}", entry.at));
        self.state = State::Ended;
    }

    fn finish(mut self) -> String {
        match self.state {
            State::Waiting => {
                self.line(format_args!("  not answered: it waits now, or its host is gone; nothing ran"))
            }
            State::Approved => {
                self.line(format_args!("  no record that it started: the run ended first, or goes on now"))
            }
            State::Started => {
                self.line(format_args!(
                    "  UNCERTAIN: no record of its end; it runs now, or its host is gone"
                ));
            }
            State::Ended => {}
        }
        self.text.push('\n');
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

fn text(value: Option<&str>) -> String {
    value.map_or_else(|| "(not recorded)".to_owned(), inline)
}
