//! The account of an audit file for a reader: one paragraph a review, in the order in which they ended; those without
//! an end come last, in the order in which they began.
//!
//! Everything in it came from outside once, so everything is escaped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::RunId;
use countersign_store::audit_file::{Entry, Reader};

use super::open;
use crate::error::Error;
use crate::review::{Screen, inline, json};

/// Prints the records of a file, of one run if it is given.
///
/// # Errors
/// The first bad line, after everything before it was printed; a failure to read or write.
pub(crate) fn show(
    out: &mut impl Write,
    file: &Path,
    run: Option<RunId>,
    screen: Screen,
) -> Result<(), Error> {
    let run = run.map(|run| run.to_string());
    let mut accounts = Accounts { open: BTreeMap::new(), screen };
    let mut write = |text: String| out.write_all(text.as_bytes()).map_err(Error::io("cannot write"));
    let mut reader = Reader::new(open(file)?);
    let mut found = false;
    let broken = loop {
        match reader.next() {
            Some(Ok(entry)) if run.is_some() && entry.run_id != run && !accounts.names_open(&entry) => {}
            Some(Ok(entry)) => {
                found = true;
                write(accounts.take(&entry))?;
            }
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    let end = match &broken {
        None => End::Whole,
        Some(_) => End::Broken { line: reader.head().n + 1 },
    };
    let mut open: Vec<Account> = accounts.open.into_values().collect();
    open.sort_by_key(|account| account.n);
    for account in open {
        write(account.finish(end))?;
    }
    if run.is_some() && !found {
        write(match end {
            End::Whole => "no record of this run\n".to_owned(),
            End::Broken { line } => format!("no record of this run before line {line}\n"),
        })?;
    }
    match broken {
        Some(source) => Err(Error::InAudit { path: file.into(), source }),
        None => Ok(()),
    }
}

/// How far the file can be told.
#[derive(Debug, Clone, Copy)]
enum End {
    Whole,
    /// From this line on nobody knows what was recorded.
    Broken {
        line: u64,
    },
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
                before.map(|account| account.finish(End::Whole)).unwrap_or_default()
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
            ("approval.rejected", Some(key)) if self.open.contains_key(&key) => {
                if let Some(account) = self.open.get_mut(&key) {
                    account.refused(entry);
                }
                String::new()
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

    /// A refused decision about a review that is told now, whatever run its caller named.
    fn names_open(&self, entry: &Entry) -> bool {
        let approval = entry.approval_id.as_ref().filter(|_| entry.kind == "approval.rejected");
        approval.is_some_and(|approval| self.open.contains_key(approval))
    }

    fn close(&mut self, key: &str) -> String {
        self.open.remove(key).map(|account| account.finish(End::Whole)).unwrap_or_default()
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
    /// The line of its first record.
    n: u64,
    screen: Screen,
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
        let mut account = Self { n: entry.n, screen, text: String::new(), state: State::Waiting };
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
                // It is laid out already.
                let _ = writeln!(account.text, "  {gutter}{}", line.text);
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
        if let Some(reason) = &entry.reason {
            self.line(format_args!("  reason given: {}", inline(reason)));
        }
        self.state = match entry.outcome.as_deref() {
            Some("approved") => State::Approved,
            _ => State::Ended,
        };
        if matches!(self.state, State::Ended) {
            self.line(format_args!("  nothing ran"));
        }
    }

    fn refused(&mut self, entry: &Entry) {
        let (who, why) = (text(entry.subject.as_deref()), text(entry.code.as_deref()));
        self.line(format_args!("  {} a decision of {who} was refused: {why}", entry.at));
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

    fn finish(mut self, end: End) -> String {
        match (&self.state, end) {
            (State::Ended, _) => {}
            (_, End::Broken { line }) => self.line(format_args!(
                "  UNKNOWN: the file is broken from line {line} on, so what followed is unknown"
            )),
            (State::Waiting, End::Whole) => {
                self.line(format_args!("  not answered: it waits now, or its host is gone; nothing ran"))
            }
            (State::Approved, End::Whole) => {
                self.line(format_args!("  no record that it started: the run ended first, or goes on now"))
            }
            (State::Started, End::Whole) => {
                self.line(format_args!("  UNCERTAIN: no record of its end; it runs now, or its host is gone"))
            }
        }
        self.text.push('\n');
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        for line in self.screen.wrap(&line.to_string()) {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "{line}");
        }
    }
}

fn text(value: Option<&str>) -> String {
    value.map_or_else(|| "(not recorded)".to_owned(), inline)
}
