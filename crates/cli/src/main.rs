//! The binary `countersign`: agents propose, a person decides, and exactly that happens (design 7).
//!
//! One module a command: `demo`, `init`, `serve`, `run`, `run_code`, `audit`. `follow` and `view` are shared by the commands that
//! follow a run; `review` is the card in the terminal. Nothing here is logic that a user of the libraries would miss.

#[cfg(not(unix))]
compile_error!("the binary needs process groups and POSIX terminals; the library crates build elsewhere");

mod audit;
mod command;
mod command_tool;
mod demo;
mod error;
mod follow;
mod init;
mod review;
mod run;
mod run_code;
mod serve;
mod signals;
mod tools;
mod view;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::{Error, Status};
use crate::review::inline;

/// Let software agents act, and decide which of their actions happen.
///
/// Exit status: 0 completed, 1 failed, 2 usage or configuration, 3 denied, 4 cancelled or expired.
#[derive(Debug, Parser)]
#[command(name = "countersign", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Init(init::Args),
    Serve(serve::Args),
    Run(run::Args),
    RunCode(run_code::Args),
    #[command(subcommand)]
    Audit(audit::Command),
}

fn main() -> ExitCode {
    // Before anything else: a worker gives up its rights first.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == run_code::WORKER) {
        return countersign_sandbox_js::worker::main();
    }
    let ended = match Cli::parse().command {
        Command::Demo(args) => demo::demo(&args),
        Command::Init(args) => init::init(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Run(args) => run::run(&args),
        Command::RunCode(args) => run_code::run_code(&args),
        Command::Audit(command) => audit::audit(&command),
    };
    match ended {
        Ok(status) => status.into(),
        Err(error) => complain(&error).into(),
    }
}

/// Says why on standard error; a start-up error as it is, with its code in front (design 7).
fn complain(error: &Error) -> Status {
    let text = inline(&error.to_string());
    let said = match error {
        Error::Config(_) => writeln!(io::stderr(), "{text}"),
        _ => writeln!(io::stderr(), "countersign: {text}"),
    };
    // If even that cannot be written, the exit status still says it.
    let _ = said;
    error.status()
}

/// How long the end waits for threads that are still busy, with a name to look up or a value to check. What must be
/// durable was waited for before.
const LAST_THREADS: Duration = Duration::from_secs(2);

/// Runs a command that talks. It ends even if a thread does not, which cannot be stopped.
fn block_on<T>(command: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = runtime()?;
    let ended = runtime.block_on(command);
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}

/// The runtime of the commands that talk.
fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::io("cannot start"))
}

/// The log of a command that is quiet unless RUST_LOG is set.
fn log_if_asked() {
    if std::env::var_os(LOG_FILTER).is_some() {
        log();
    }
}

/// Names what the log shows: `LEVEL` or `TARGET=LEVEL`, separated by commas.
const LOG_FILTER: &str = "RUST_LOG";

/// The log, on standard error; from `info` on unless [`LOG_FILTER`] says otherwise.
fn log() {
    let asked = std::env::var(LOG_FILTER).ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry().with(lines).with(filter).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
