//! Running the binary: plainly, as a host, and in a terminal.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use tempfile::TempDir;

/// No step takes so long unless it never ends.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// What a command that ended left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Standard output as JSON lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The types of the events.
    pub(crate) fn types(&self) -> Vec<String> {
        self.lines().iter().filter_map(|line| Some(line["type"].as_str()?.to_owned())).collect()
    }
}

pub(crate) fn countersign(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.args(args).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

/// Runs it without a terminal.
pub(crate) fn run(args: &[&str]) -> Ended {
    finish(&mut countersign(args))
}

pub(crate) fn finish(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Waits until the check gives something.
pub(crate) fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), signal).unwrap();
}

pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    until("the end of the process", || child.try_wait().unwrap())
}

/// A folder that `init` wrote, on a port that the system chooses.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ended = run(&["init", folder.path().to_str().unwrap()]);
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        let place = Self { folder };
        place.edit(|config| config["listen"]["port"] = 0.into());
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let path = self.path("host.json");
        let mut config = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut config);
        fs::write(path, config.to_string()).unwrap();
    }

    /// The calls that had their effect, of the tool that `init` wrote.
    pub(crate) fn effects(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("proposals.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("audit.jsonl")).unwrap_or_default();
        // A host that runs has room in it for lines to come.
        text.trim_end_matches('\0')
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone())
            .collect()
    }

    pub(crate) fn audited(&self) -> Vec<String> {
        self.audit().iter().map(|record| record["type"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn verify(&self) -> Ended {
        run(&["audit", "verify", &self.arg("audit.jsonl")])
    }
}

/// A running `countersign serve`, killed when it is dropped.
pub(crate) struct Host<'a> {
    pub(crate) place: &'a Place,
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl<'a> Host<'a> {
    pub(crate) fn start(place: &'a Place) -> Self {
        Self::start_with(place, &[])
    }

    pub(crate) fn start_with(place: &'a Place, env: &[(&str, &str)]) -> Self {
        let mut child = countersign(&["serve", "--config", &place.arg("host.json")])
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(File::create(place.path("serve.log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("listening on ");
        let url = url.unwrap_or_else(|| panic!("{line}{}", place.log())).to_owned();
        Self { place, child, url }
    }

    /// `countersign run` at this host.
    pub(crate) fn client(&self, more: &[&str]) -> Command {
        let mut command = countersign(&["run", "--url", &self.url, "--token-file", &self.place.arg("token")]);
        command.args(["--provider", "mock", "--model", "demo", "--tools", "save_proposal"]).args(more);
        command
    }

    pub(crate) fn run(&self, more: &[&str]) -> Ended {
        finish(&mut self.client(more))
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> ExitStatus {
        signal(&self.child, Signal::TERM);
        wait(&mut self.child)
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(wait(&mut self.child).signal(), Some(9));
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }
}

/// A program in a terminal of its own, as a person has it.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// Everything that was printed.
    pub(crate) seen: String,
}

impl Terminal {
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || fs::OpenOptions::new().read(true).write(true).open(Path::new(&name)).unwrap();
        for name in ["LC_ALL", "LC_CTYPE", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command.env("LANG", "C.UTF-8").env("TERM", "xterm");
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        drop(command);
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The other side's end is an error on Linux and an end of file elsewhere.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, screen, seen: String::new() }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until the text stands there, and gives everything up to its end since the last call.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let mut from = 0;
        let mut fresh = std::mem::take(&mut self.seen);
        loop {
            if let Some(at) = fresh[from..].find(text) {
                let end = from + at + text.len();
                self.seen = fresh.split_off(end);
                return fresh;
            }
            from = fresh.len().saturating_sub(text.len());
            while !fresh.is_char_boundary(from) {
                from -= 1;
            }
            match self.screen.recv_timeout(LIMIT) {
                Ok(bytes) => fresh.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} never came; on the screen:\n{fresh}"),
            }
        }
    }

    /// The rest of the screen, and the exit status.
    pub(crate) fn end(mut self) -> (String, Option<i32>) {
        let status = wait(&mut self.child).code();
        let mut rest = std::mem::take(&mut self.seen);
        while let Ok(bytes) = self.screen.recv_timeout(LIMIT) {
            rest.push_str(&String::from_utf8_lossy(&bytes));
        }
        (rest, status)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
