//! `countersign audit`: what an audit file proves, and what it tells (design 7).

mod show;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anstream::AutoStream;
use countersign_approval_core::ids::RunId;
use countersign_store::audit_file::{Anchor, Reader, verify_reader};
use rustix::fs::OFlags;

use crate::error::{Error, Status};
use crate::review::Screen;

pub(crate) use show::show;

/// Check and read audit files
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Check that no line was changed, added, moved or taken out
    ///
    /// Exit status: 0 good, 1 broken, 2 unreadable.
    Verify {
        /// The audit file
        file: PathBuf,
        /// The head that was noted elsewhere, HASH or N:HASH: shows a tail that was cut off or written anew
        #[arg(long)]
        head: Option<Anchor>,
    },
    /// Print who allowed what, and what ran
    ///
    /// Exit status: 0 good, 1 broken, 2 unreadable.
    Show {
        /// The audit file
        file: PathBuf,
        /// Only this run
        #[arg(long, value_parser = run_id)]
        run: Option<RunId>,
    },
}

fn run_id(text: &str) -> Result<RunId, &'static str> {
    RunId::parse(text).ok_or("a run id is a lower-case UUID with hyphens")
}

pub(crate) fn audit(command: &Command) -> Result<Status, Error> {
    let mut out = AutoStream::auto(stdout());
    match command {
        Command::Verify { file, head } => report(&mut out, file, *head),
        Command::Show { file, run } => {
            warn_if_broken(&mut out, file)?;
            show(&mut out, file, *run, Screen::of(stdout()))?;
            Ok(Status::Good)
        }
    }
}

/// Whoever reads the account knows from its first line whether the chain holds, so the file is read twice.
fn warn_if_broken(out: &mut impl Write, file: &Path) -> Result<(), Error> {
    match Reader::new(open(file)?).find_map(Result::err) {
        Some(countersign_store::Error::Broken(broken)) => writeln!(
            out,
            "WARNING: this file is broken. Line {} is the first that does not fit; the lines before it may be the ones \
             that were altered.\n",
            broken.line
        )
        .map_err(Error::io("cannot write")),
        // The account fails at the same place, and says it.
        _ => Ok(()),
    }
}

/// Verifies and says what that means.
pub(crate) fn report(out: &mut impl Write, file: &Path, head: Option<Anchor>) -> Result<Status, Error> {
    let verified =
        verify_reader(open(file)?, head).map_err(|source| Error::InAudit { path: file.into(), source })?;
    let mut text = format!("good: every line is chained to the one before; lines: {}\n", verified.head.n);
    text.push_str(&format!("head {}\n", verified.head));
    match verified.anchored {
        Some(line) if line == verified.head.n => text.push_str("the given head is the last line\n"),
        Some(line) => {
            let after = verified.head.n - line;
            text.push_str(&format!("the given head is line {line}; lines after it, chained but not anchored: {after}\n"));
        }
        None => text.push_str(
            "without --head, a tail that was cut off and a file that was written anew cannot be seen: note the head \
             elsewhere\n",
        ),
    }
    if !verified.open.is_empty() {
        text.push_str(&format!(
            "reviews without an end: {}; they wait now, or their host is gone\n",
            verified.open.len()
        ));
    }
    let screen = Screen::of(stdout());
    for line in text.lines().flat_map(|line| screen.wrap(line)) {
        writeln!(out, "{line}").map_err(Error::io("cannot write"))?;
    }
    Ok(Status::Good)
}

/// Opens a regular file. Anything else is refused: a pipe without a writer would be waited for, for ever.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>, Error> {
    let failed = |source| countersign_store::Error::Io { action: format!("open {}", path.display()), source };
    // Of no meaning to a regular file; it keeps a pipe from blocking before it can be looked at.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")).into());
    }
    Ok(BufReader::with_capacity(1 << 16, file))
}
