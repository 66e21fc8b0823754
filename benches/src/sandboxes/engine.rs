//! One engine in a process of its own, and how those of others are installed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use countersign_bench::sandbox::{Ask, Told};

/// It is killed when this is dropped.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Engine {
    pub(crate) fn start(name: &'static str, program: &Path, arguments: &[&str]) -> Result<Self> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut child = Command::new(program)
            .args(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { name, program: program.to_owned(), arguments, child, input, output })
    }

    /// Another process of the same kind.
    pub(crate) fn again(&self) -> Result<Self> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Self::start(self.name, &self.program, &arguments)
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<Told> {
        writeln!(self.input, "{}", serde_json::to_string(ask)?)?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{} answers {ask:?} by {line:?}", self.name))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended already; either way nothing stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// quickjs-emscripten below `peers`, from npm.
pub(crate) fn emscripten(name: &'static str, peers: &Path) -> Result<Engine> {
    let folder = peers.join("node");
    if !folder.join("node_modules/quickjs-emscripten").exists() {
        fs::create_dir_all(&folder)?;
        let package = name.replace(' ', "@");
        done(
            Command::new("npm")
                .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                .args([folder.as_os_str(), package.as_ref()]),
        )?;
    }
    Engine::start(name, Path::new("node"), &["benches/peers/quickjs.mjs", &folder.to_string_lossy()])
}

/// pydantic-monty below `peers`, from PyPI.
pub(crate) fn monty(name: &'static str, peers: &Path) -> Result<Engine> {
    let folder = peers.join("python");
    let python = folder.join("bin/python");
    let import = |python: &Path| done(Command::new(python).args(["-c", "import pydantic_monty"]));
    if import(&python).is_err() {
        fs::create_dir_all(&folder)?;
        done(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let package = name.replace(' ', "==");
        done(Command::new(&python).args(["-m", "pip", "install", "--quiet", &package]))?;
        import(&python)?;
    }
    Engine::start(name, &python, &["benches/peers/monty.py"])
}

/// Runs a command of an installation.
fn done(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    ensure!(output.status.success(), "{:?}: {}: {last}", command.get_program(), output.status);
    Ok(())
}
