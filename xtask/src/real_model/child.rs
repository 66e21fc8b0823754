//! A program under test: its lines as they come, an end to waiting, and nothing left behind.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
    name: String,
}

impl Program {
    /// Starts `command` with nothing on its standard input and its standard error in `log`.
    pub(crate) fn start(mut command: Command, log: &Path, limit: Duration) -> Result<Self> {
        let name = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut child = command.spawn().with_context(|| name.clone())?;
        let stdout = child.stdout.take().context("no standard output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines, deadline: Instant::now() + limit, name })
    }

    /// The next line of standard output; `None` at its end.
    pub(crate) fn line(&mut self) -> Result<Option<String>> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("{} took too long", self.name),
        }
    }

    /// Waits for the end and gives the exit status.
    pub(crate) fn status(mut self) -> Result<i32> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return status.code().with_context(|| format!("{}: {status}", self.name));
            }
            ensure!(Instant::now() < self.deadline, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn interrupt(&self) -> Result<()> {
        signal("INT", self.child.id())
    }

    pub(crate) fn terminate(&self) -> Result<()> {
        signal("TERM", self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already; either way nothing stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by the shell's own `kill`: the program of that name is not on every bare machine.
pub(crate) fn signal(name: &str, pid: u32) -> Result<()> {
    let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()]).status()?;
    ensure!(status.success(), "kill -s {name} {pid}: {status}");
    Ok(())
}
