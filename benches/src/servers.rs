//! The processes under load, and the client that loads them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use countersign_bench::job::Job;
use countersign_bench::peer::{Dialect, Peer};
use serde::de::DeserializeOwned;

/// A server in a process of its own. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) peer: Peer,
}

impl Server {
    /// The bound on hyper.
    pub(crate) fn floor(programs: &Path) -> Result<Self> {
        Self::start(Command::new(programs.join("bench-floor")), Dialect::Bound)
    }

    /// The bound on bare sockets.
    pub(crate) fn lean(programs: &Path) -> Result<Self> {
        Self::start(Command::new(programs.join("bench-lean")), Dialect::Bound)
    }

    /// The product, with calls of `bytes`, and an audit file if one is named.
    pub(crate) fn product(programs: &Path, bytes: usize, audit: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(programs.join("bench-host"));
        command.args(["--bytes", &bytes.to_string()]);
        if let Some(path) = audit {
            command.arg("--audit").arg(path);
        }
        Self::start(command, Dialect::Product)
    }

    /// Starts a program that says `listening on ADDRESS` in its first line.
    pub(crate) fn start(mut command: Command, dialect: Dialect) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let input = child.stdin.take().context("no standard input")?;
        let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .map(|address| address.trim_start_matches("http://"))
            .and_then(|address| address.parse().ok());
        let pid = child.id();
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            anyhow::bail!("{command:?} does not listen: {line:?}");
        };
        Ok(Self { child, input, output, peer: Peer { address, dialect, pid } })
    }

    /// How many reviews of the product are open.
    pub(crate) fn pending(&mut self) -> Result<usize> {
        writeln!(self.input, "pending")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("not a number: {line:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; either way nothing stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has the load client do a job.
pub(crate) fn load<T: DeserializeOwned>(programs: &Path, job: &Job) -> Result<T> {
    let text = serde_json::to_string(job)?;
    let output = Command::new(programs.join("bench-load")).arg(&text).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the load client failed in {text}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The folder of the programs: this one's.
pub(crate) fn programs() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.parent().context("no folder")?.to_owned())
}
