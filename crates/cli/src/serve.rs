//! `countersign serve`: the host of a configuration file (design 7, contract 6).

use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_approval_core::audit::AuditSink;
use countersign_driver::Tool;
use countersign_driver::system::SystemClock;
use countersign_host::{Extras, HostConfig, StartError, configured_driver};
use countersign_protocol::code::Code;
use countersign_store::audit_file::AuditFile;
use tracing_subscriber::EnvFilter;

use crate::error::{Error, Status};
use crate::review::inline;
use crate::signals::Interrupts;
use crate::tools;

/// Serve the agents, tools and tokens of a configuration file
///
/// Prints `listening on URL` when it is ready. Ctrl-C or a TERM signal ends it: nothing new is taken, runs are
/// cancelled, and what waits for a person is settled. The log goes to standard error; RUST_LOG filters it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and end: 0 if a host would start with it, else 2
    #[arg(long)]
    check: bool,
}

pub(crate) fn serve(args: &Args) -> Result<Status, Error> {
    let file = std::path::absolute(&args.config).map_err(Error::io("cannot find the working directory"))?;
    let configured = Configured::read(&file)?;
    if args.check {
        configured.driver(None)?;
        writeln!(stdout(), "{}: good", inline(&args.config.display().to_string()))
            .map_err(Error::io("cannot write"))?;
        return Ok(Status::Good);
    }
    log();
    crate::runtime()?.block_on(configured.serve())
}

/// What a configuration file says, before anything is opened or bound.
struct Configured {
    config: HostConfig,
    tools: Vec<Arc<dyn Tool>>,
    audit: Option<PathBuf>,
}

impl Configured {
    fn read(file: &Path) -> Result<Self, StartError> {
        let base = file.parent().unwrap_or(Path::new("/"));
        let (config, extensions) = HostConfig::load_with_extensions(file, &["tools", "audit"])?;
        let tools = match extensions.get("tools") {
            Some(value) => tools::tools(value, base)?,
            None => Vec::new(),
        };
        let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
        let audit = extensions.get("audit").map(|value| tools::audit(value, base)).transpose()?;
        Ok(Self { config, tools, audit })
    }

    fn driver(&self, sink: Option<Arc<dyn AuditSink>>) -> Result<countersign_driver::Driver, StartError> {
        let extras = Extras { tools: self.tools.clone(), on_approval_audit: sink, ..Extras::default() };
        configured_driver(&self.config, extras)
    }

    async fn serve(self) -> Result<Status, Error> {
        // From here on a signal ends the host in order, even if it comes before the host is ready.
        let mut interrupts = Interrupts::new()?;
        let sink = match &self.audit {
            Some(path) => Some(open(path)?),
            None => None,
        };
        let driver = self.driver(sink)?;
        let host = countersign_host::serve(driver, self.config.options()).await?;
        writeln!(stdout(), "listening on {}", host.url()).map_err(Error::io("cannot write"))?;
        stdout().flush().map_err(Error::io("cannot write"))?;
        interrupts.next().await;
        tracing::info!("closing");
        tokio::select! {
            () = host.close() => Ok(Status::Good),
            // Whoever asks twice does not want to wait.
            () = interrupts.next() => Ok(Status::Failed),
        }
    }
}

/// The audit file, of which this process is the only writer.
fn open(path: &Path) -> Result<Arc<dyn AuditSink>, StartError> {
    let (audit, _) =
        AuditFile::open(path, Arc::new(SystemClock::new())).map_err(|error| StartError::Field {
            code: Code::INVALID_CONFIG,
            field: "audit.file".into(),
            reason: Error::from(error).to_string(),
        })?;
    warn_if_shared(path);
    Ok(Arc::new(audit))
}

/// A file that we make is its owner's only; one that was there before may not be.
fn warn_if_shared(path: &Path) {
    let mode = path.metadata().map_or(0, |metadata| metadata.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        tracing::warn!(
            "others than its owner have rights on the audit file {} (mode {mode:03o}); it holds arguments, which may be \
             private: give it mode 600",
            inline(&path.display().to_string())
        );
    }
}

fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
}
