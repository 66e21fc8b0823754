//! A command (design 7): its input on standard input, its result on standard output.
//!
//! The whole input is there before the command starts, so a host that dies never leaves a command running on half of
//! it. The command is a process group of its own; whatever ends the call, nothing of the group outlives it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::env;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use countersign_driver::MAX_OUTPUT_BYTES;
use countersign_sandbox_js::CancellationToken;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::review::inline;

/// What a command inherits; the rest of the host's environment may hold secrets.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
/// Between asking a command to end and ending it.
const GRACE: Duration = Duration::from_secs(2);
/// How long after its end output may still come: it is in the pipe already, unless a process that left the group
/// holds it open.
const DRAIN: Duration = Duration::from_secs(1);
/// Lines of standard error that go to the log for one call, and the longest of them in bytes.
const MAX_LOG_LINES: usize = 100;
const MAX_LOG_LINE: u64 = 2_000;

/// What is started for each call.
#[derive(Debug)]
pub(crate) struct Program {
    /// What the log calls it.
    pub(crate) name: String,
    /// An absolute path.
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Where it runs.
    pub(crate) folder: PathBuf,
    pub(crate) timeout: Option<Duration>,
    /// The entry's own environment.
    pub(crate) extra: BTreeMap<String, String>,
}

/// What a command is told of the call, and who ends it.
pub(crate) struct Call<'a> {
    pub(crate) run_id: String,
    pub(crate) call_id: &'a str,
    pub(crate) attempt: u32,
    pub(crate) subject: &'a str,
    pub(crate) cancellation: &'a CancellationToken,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the command could not be started: {0}")]
    Start(#[source] io::Error),
    #[error("the run ended before the command was started; nothing ran")]
    NotStarted,
    #[error("the command cannot be watched: {0}")]
    Watch(#[source] io::Error),
    #[error("the command ended with {status}")]
    Ended {
        /// Its exit status or signal.
        status: String,
        /// The last line that it wrote to standard error.
        last_line: Option<String>,
    },
    #[error("the command took longer than {0:?} and was ended")]
    TimedOut(Duration),
    #[error("the run ended, and the command was ended with it")]
    Cancelled,
    #[error("the command wrote more than {MAX_OUTPUT_BYTES} bytes and was ended")]
    TooMuch,
    #[error("the command's output cannot be read: {0}")]
    Output(#[source] io::Error),
    #[error("the command's output is not UTF-8")]
    NotUtf8,
}

impl Program {
    /// Runs it to its end with `input` as one line, and gives what it wrote: JSON, if it is as it should be; `null` for
    /// nothing.
    ///
    /// # Errors
    /// [`Failure`]. Only after `Start` and `NotStarted` is it known that nothing happened.
    pub(crate) async fn run(&self, input: &str, call: &Call<'_>) -> Result<String, Failure> {
        let text = input.to_owned();
        let stdin = tokio::task::spawn_blocking(move || filled(&text))
            .await
            .map_err(|error| Failure::Start(io::Error::other(error)))?
            .map_err(Failure::Start)?;
        // The disk may have been slow. Nothing waits between here and the start.
        if call.cancellation.is_cancelled() {
            return Err(Failure::NotStarted);
        }
        let mut group = Group::start(self.command(call, stdin), &self.name).map_err(Failure::Start)?;
        let bytes = self.result(&mut group, call).await?;
        let text = String::from_utf8(bytes).map_err(|_| Failure::NotUtf8)?;
        let text = text.trim_ascii();
        Ok(if text.is_empty() { "null" } else { text }.to_owned())
    }

    fn command(&self, call: &Call<'_>, stdin: File) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).current_dir(&self.folder).env_clear().process_group(0);
        command.envs(INHERITED.into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(&self.extra);
        command
            .env("COUNTERSIGN_RUN_ID", &call.run_id)
            .env("COUNTERSIGN_CALL_ID", without_nul(call.call_id))
            .env("COUNTERSIGN_ATTEMPT", call.attempt.to_string())
            .env("COUNTERSIGN_SUBJECT", without_nul(call.subject));
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the command wrote, once it has ended well.
    async fn result(&self, group: &mut Group, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let stdout = group.child.stdout.take();
        let output = async {
            let mut bytes = Vec::new();
            if let Some(stdout) = stdout {
                let limit = MAX_OUTPUT_BYTES as u64 + 1;
                stdout.take(limit).read_to_end(&mut bytes).await.map_err(Failure::Output)?;
            }
            if bytes.len() > MAX_OUTPUT_BYTES { Err(Failure::TooMuch) } else { Ok(bytes) }
        };
        tokio::pin!(output);
        let mut read = None;
        let limit = async {
            match self.timeout {
                Some(limit) => {
                    sleep(limit).await;
                    limit
                }
                None => std::future::pending().await,
            }
        };
        tokio::pin!(limit);
        let status = loop {
            tokio::select! {
                biased;
                bytes = &mut output, if read.is_none() => match bytes {
                    Ok(bytes) => read = Some(bytes),
                    Err(failure) => {
                        group.kill();
                        return Err(failure);
                    }
                },
                status = group.ended() => break status.map_err(Failure::Watch)?,
                () = call.cancellation.cancelled() => {
                    group.terminate().await;
                    return Err(Failure::Cancelled);
                }
                limit = &mut limit => {
                    group.terminate().await;
                    return Err(Failure::TimedOut(limit));
                }
            }
        };
        if !status.success() {
            return Err(Failure::Ended { status: told(status), last_line: group.last_line().await });
        }
        match read {
            Some(bytes) => Ok(bytes),
            None => match timeout(DRAIN, output).await {
                Ok(bytes) => bytes,
                Err(_) => Err(Failure::Output(io::ErrorKind::TimedOut.into())),
            },
        }
    }
}

/// The process group of one command. When it goes, so does every process in it.
struct Group {
    child: Child,
    /// The leader's process id, which is the group's, until the leader is waited for. Only until then may signals be
    /// sent: the system gives the number to nobody else.
    leader: Option<Pid>,
    /// Tells the log that the group has gone.
    gone: Option<oneshot::Sender<Infallible>>,
    /// Its end gives the last line of standard error.
    log: Option<JoinHandle<Option<String>>>,
}

impl Group {
    /// Starts it; what it writes to standard error goes to the log under the tool's name.
    fn start(mut command: Command, tool: &str) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (sender, gone) = oneshot::channel();
        let stderr = child.stderr.take();
        let log = stderr.map(|stderr| tokio::spawn(log_of_group(tool.to_owned(), stderr, gone)));
        Ok(Self { child, leader, gone: Some(sender), log })
    }

    /// What a command that has ended said last on standard error.
    async fn last_line(&mut self) -> Option<String> {
        self.gone = None;
        self.log.take()?.await.ok().flatten()
    }

    /// Waits for the leader's end, then ends what is left of the group. May be dropped and called again.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut children = signal(SignalKind::child())?;
        if let Some(leader) = self.leader {
            // The leader stays a zombie meanwhile, so its number still means this group.
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(leader), look)?.is_none() {
                children.recv().await;
            }
        }
        self.kill();
        self.leader = None;
        self.child.wait().await
    }

    /// TERM, and KILL after the grace, whoever has ended by then.
    async fn terminate(&mut self) {
        self.send(Signal::TERM);
        if timeout(GRACE, self.ended()).await.is_err() {
            self.kill();
            // At once, unless the system itself holds the process.
            let _ = timeout(DRAIN, self.ended()).await;
        }
    }

    fn kill(&self) {
        self.send(Signal::KILL);
    }

    fn send(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // It fails only if the group is gone.
            let _ = kill_process_group(leader, signal);
        }
    }
}

/// The runtime waits for the dropped child, so no zombie stays.
impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file without a name that holds the line.
fn filled(line: &str) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(line.as_bytes())?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file)
}

/// An environment cannot hold a NUL, and ids and subjects come from outside.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Logs until standard error ends, but no longer than [`DRAIN`] after the group has gone: a process that left the group
/// may hold it open for ever (law 9). Gives the last line that is not blank.
async fn log_of_group(
    tool: String,
    stderr: impl AsyncRead + Unpin,
    gone: oneshot::Receiver<Infallible>,
) -> Option<String> {
    let mut last = None;
    {
        let lines = log(&tool, stderr, &mut last);
        tokio::pin!(lines);
        tokio::select! {
            () = &mut lines => {}
            // Nothing is ever sent: the sender is dropped with the group.
            _ = gone => drop(timeout(DRAIN, lines).await),
        }
    }
    last
}

/// Standard error goes to the log, bounded; the rest is read and dropped, so that the command never waits for us.
async fn log(tool: &str, stderr: impl AsyncRead + Unpin, last: &mut Option<String>) {
    let mut stderr = BufReader::new(stderr);
    let mut lines = 0;
    loop {
        let mut line = Vec::new();
        match (&mut stderr).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => lines += 1,
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if lines <= MAX_LOG_LINES {
            tracing::info!(tool, "{}", inline(text));
        } else if lines == MAX_LOG_LINES + 1 {
            tracing::info!(tool, "more lines are not logged");
        }
        if !text.is_empty() {
            *last = Some(text.to_owned());
        }
    }
}
