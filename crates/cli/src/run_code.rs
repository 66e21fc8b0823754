//! `countersign run-code`: a program of an agent in the sandbox, its functions commands (design 7).
//!
//! `functions` reads what the program can call, `ask` puts marked calls before a person, `show` and `object` tell how it
//! ended: to a person, or as the one JSON object for a program.

mod ask;
mod functions;
mod object;
mod show;

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Read, stdout};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use countersign_sandbox_js::{
    Approval, Backend, CancellationToken, Config, Error as SandboxError, Limits, RunOptions, RunOutcome,
    Sandbox, WorkerCommand,
};

use crate::error::{Error, Status};
use crate::run_code::ask::Review;
use crate::run_code::functions::Functions;
use crate::signals::Interrupts;
use crate::view::{Format, View};

/// Run a program of an agent in the sandbox; its functions are commands
///
/// FILE is the body of an async function, in JavaScript or TypeScript: `await` and `return` at the top. The functions
/// file declares what it can call: {"functions": {"NAME": {"description"?, "inputSchema"?, "approval"?, "command":
/// [PROGRAM, ARGUMENT...], "timeoutMs"?, "env"?}}}. A command gets the input as one JSON line on its standard input; its
/// standard output is the result, as JSON.
///
/// Exit status: 0 the program came to its end, 1 it did not, 2 usage; then nothing ran.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program
    file: PathBuf,
    /// What it can call
    #[arg(long, value_name = "FILE")]
    functions: PathBuf,
    /// What happens when it calls a function that is marked with "approval": true
    #[arg(long, value_enum)]
    approval: Mode,
    /// Print one JSON object, as is done without a terminal; questions go to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The call throws ApprovalRejected into the program, and does not run
    Deny,
    /// You are asked about each call, while the program waits
    Pause,
    /// Not built yet
    #[value(hide = true)]
    Collect,
}

pub(crate) fn run_code(args: &Args) -> Result<Status, Error> {
    let format = if args.json || !stdout().is_terminal() { Format::Json } else { Format::Human };
    match args.approval {
        Mode::Deny => {}
        Mode::Pause if format.can_ask() => {}
        Mode::Pause => {
            let why = "there is no terminal to ask a person at, so --approval pause cannot work: run it in one, or use \
                       --approval deny";
            return Err(Error::Usage(why.into()));
        }
        Mode::Collect => {
            let why = "--approval collect is not built yet; there are deny and pause";
            return Err(Error::Usage(why.into()));
        }
    }
    let functions = Functions::read(&args.functions)?;
    let code = source(&args.file)?;
    crate::log_if_asked();
    crate::block_on(Job { code, functions, mode: args.approval, format, args }.run())
}

struct Job<'a> {
    code: String,
    functions: Functions,
    mode: Mode,
    format: Format,
    args: &'a Args,
}

impl Job<'_> {
    async fn run(self) -> Result<Status, Error> {
        let mut interrupts = Interrupts::with_hangup()?;
        let sandbox = Sandbox::new(config()?).map_err(|error| Error::Usage(error.to_string()))?;
        let cancellation = CancellationToken::new();
        let (hook, mut questions) = ask::channel();
        let mut options = RunOptions::new(self.code.clone(), self.functions.list);
        options.cancellation = cancellation.clone();
        if self.mode == Mode::Pause {
            options.approval = Approval::pause(hook);
        }
        let name = self.args.file.display().to_string();
        let mut view = View::new(self.format);
        let mut review: Option<Review> = None;
        let running = sandbox.run(options);
        tokio::pin!(running);
        let outcome = loop {
            tokio::select! {
                biased;
                () = interrupts.next(), if !cancellation.is_cancelled() => {
                    review = None;
                    // The terminal has echoed the key, perhaps behind the question.
                    view.end_question().map_err(shown)?;
                    view.note("Interrupted: the run is cancelled; commands that run are ended.").map_err(shown)?;
                    cancellation.cancel();
                }
                outcome = &mut running => break outcome,
                Some(asked) = questions.recv() => {
                    review = Some(Review::begin(asked, &name, &mut view).map_err(shown)?);
                }
                progress = Review::progress(review.as_mut()) => {
                    let Some(open) = review.take() else { continue };
                    review = open.advance(progress, &cancellation, &mut view).map_err(shown)?;
                }
            }
        };
        if review.is_some() {
            view.end_question().map_err(shown)?;
            view.note("The run ended before you answered.").map_err(shown)?;
        }
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(SandboxError::Engine(why)) => {
                view.object(&object::no_engine(&why)).map_err(shown)?;
                return Err(Error::Sandbox(why));
            }
            Err(error) => return Err(Error::Usage(error.to_string())),
        };
        self.functions.ended.mark(&mut outcome);
        if !view.object(&object::of(&outcome).map_err(shown)?).map_err(shown)? {
            show::outcome(&mut view, &name, &self.code, &outcome).map_err(shown)?;
        }
        Ok(match outcome {
            RunOutcome::Completed(_) => Status::Good,
            _ => Status::Failed,
        })
    }
}

/// The hidden argument by which this binary is a worker of the sandbox.
pub(crate) const WORKER: &str = "__sandbox-worker";

/// The program runs in a process of its own, which is this binary again.
fn config() -> Result<Config, Error> {
    let itself = env::current_exe().map_err(Error::io("cannot find the own binary"))?;
    let backend = Backend::Worker(WorkerCommand::new(itself).arg(WORKER));
    Ok(Config { backend, threads: 1, ..Config::default() })
}

/// The program's text. One that is too long comes as far as shows that it is: the sandbox says so.
fn source(path: &Path) -> Result<String, Error> {
    let wrong = |reason: &dyn std::fmt::Display| Error::Usage(format!("{}: {reason}", path.display()));
    let limit = Limits::default().source;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| wrong(&error))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.as_bytes().len() > limit => Ok(String::from_utf8_lossy(error.as_bytes()).into()),
        Err(error) => Err(wrong(&format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))),
    }
}

fn shown(source: io::Error) -> Error {
    Error::io("cannot write what is to be shown")(source)
}
