//! A tool that is a command (design 7): arguments on standard input, the result on standard output.
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

use async_trait::async_trait;
use countersign_approval_core::audit::BoxError;
use countersign_driver::{Input, MAX_OUTPUT_BYTES, Output, Tool, ToolContext, ToolSpec};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
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

/// One entry of `tools`.
pub(crate) struct CommandTool {
    pub(crate) spec: ToolSpec,
    /// An absolute path.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Where it runs.
    pub(crate) folder: PathBuf,
    pub(crate) timeout: Option<Duration>,
    /// The entry's own environment.
    pub(crate) extra: BTreeMap<String, String>,
}

/// Why a call of a command has no result. The text goes to the log.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the command could not be started: {0}")]
    Start(#[source] io::Error),
    #[error("the run ended before the command was started; nothing ran")]
    NotStarted,
    #[error("the command cannot be watched: {0}")]
    Watch(#[source] io::Error),
    #[error("the command ended with {0}")]
    Ended(String),
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

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn execute(&self, input: Input, context: ToolContext) -> Result<Output, BoxError> {
        let text = input.text().to_owned();
        let stdin = tokio::task::spawn_blocking(move || filled(&text)).await?.map_err(Failure::Start)?;
        // The disk may have been slow. Nothing waits between here and the start.
        if context.cancellation.is_cancelled() {
            return Err(Failure::NotStarted.into());
        }
        let mut group =
            Group::start(self.command(&context, stdin), self.spec.name.as_str()).map_err(Failure::Start)?;
        let bytes = self.result(&mut group, &context).await?;
        let text = String::from_utf8(bytes).map_err(|_| Failure::NotUtf8)?;
        let text = text.trim_ascii();
        Ok(Output::from_text(if text.is_empty() { "null" } else { text })?)
    }
}

impl CommandTool {
    fn command(&self, context: &ToolContext, stdin: File) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).env_clear().process_group(0);
        command.envs(INHERITED.into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(&self.extra);
        command
            .env("COUNTERSIGN_RUN_ID", context.run_id.to_string())
            .env("COUNTERSIGN_CALL_ID", without_nul(context.call_id.as_str()))
            // Nothing here repeats a call.
            .env("COUNTERSIGN_ATTEMPT", "1")
            .env("COUNTERSIGN_SUBJECT", without_nul(context.subject.as_str()));
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the command wrote, once it has ended well.
    async fn result(&self, group: &mut Group, context: &ToolContext) -> Result<Vec<u8>, Failure> {
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
                () = context.cancellation.cancelled() => {
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
            return Err(Failure::Ended(told(status)));
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
    _gone: oneshot::Sender<Infallible>,
}

impl Group {
    /// Starts it; what it writes to standard error goes to the log under the tool's name.
    fn start(mut command: Command, tool: &str) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (sender, gone) = oneshot::channel();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log_of_group(tool.to_owned(), stderr, gone));
        }
        Ok(Self { child, leader, _gone: sender })
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
/// may hold it open for ever (law 9).
async fn log_of_group(tool: String, stderr: impl AsyncRead + Unpin, gone: oneshot::Receiver<Infallible>) {
    let lines = log(&tool, stderr);
    tokio::pin!(lines);
    tokio::select! {
        () = &mut lines => {}
        // Nothing is ever sent: the sender is dropped with the group.
        _ = gone => drop(timeout(DRAIN, lines).await),
    }
}

/// Standard error goes to the log, bounded; the rest is read and dropped, so that the command never waits for us.
async fn log(tool: &str, stderr: impl AsyncRead + Unpin) {
    let mut stderr = BufReader::new(stderr);
    let mut lines = 0;
    loop {
        let mut line = Vec::new();
        match (&mut stderr).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => lines += 1,
        }
        if lines <= MAX_LOG_LINES {
            let line = inline(String::from_utf8_lossy(&line).trim_end());
            tracing::info!(tool, "{line}");
        } else if lines == MAX_LOG_LINES + 1 {
            tracing::info!(tool, "more lines are not logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_approval_core::ids::{CallId, RunId, Subject};
    use countersign_approval_core::json::Exact;

    use super::*;

    // Law 5: a run that ended while the input was written starts nothing.
    #[tokio::test]
    async fn a_run_that_has_ended_starts_no_command() {
        let folder = tempfile::tempdir().unwrap();
        let tool = CommandTool {
            spec: ToolSpec::new("touch", "", "{}").unwrap(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "trap '' TERM; echo > ran".into()],
            folder: folder.path().to_owned(),
            timeout: None,
            extra: BTreeMap::new(),
        };
        let run_id = RunId::parse("7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11").unwrap();
        let context = ToolContext::detached(run_id, CallId::parse("call-1").unwrap(), Subject::local());
        context.cancellation.cancel();
        let error = tool.execute(Input::new(Exact::parse("{}").unwrap()), context).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Failure::NotStarted)), "{error}");
        assert!(!folder.path().join("ran").exists());
    }
}
