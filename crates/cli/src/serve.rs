//! `countersign serve`: the host of a configuration file (design 7, contract 6).

mod files;
mod probe;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_approval_core::audit::AuditSink;
use countersign_driver::operation::{MemoryOperationStore, OperationStore};
use countersign_driver::system::SystemClock;
use countersign_driver::{Driver, Review, Tool};
use countersign_host::{Extras, HostConfig, StartError, configured_driver};
use countersign_protocol::code::Code;
use countersign_protocol::version::feature;
use countersign_store::audit_file::{AuditFile, verify_reader};
use countersign_store::{Broken, Error as StoreError, Why};
use rustix::fs::{Access, access};

use crate::error::{Error, Status};
use crate::review::inline;
use crate::signals::Interrupts;
use crate::{audit, tools};

/// Serve the agents, tools and tokens of a configuration file
///
/// Prints `listening on URL` when it is ready. Ctrl-C or a TERM signal ends it: nothing new is taken, runs are
/// cancelled, and what waits for a person is settled. The log goes to standard error; RUST_LOG filters it. The file, its
/// secrets and its certificate are read once: a change needs a restart.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and end: 0 if a host would start with it, else 2
    ///
    /// Checked are the file, the secrets and programs that it names, and the audit file, which is read and
    /// not changed. Not checked is whether the address is free, or whether another host writes the audit file now.
    #[arg(long)]
    check: bool,
    /// After the check, ask the server of each provider whether it would serve: 0 if all would, else 1
    ///
    /// Prints a line for each provider, which tells a wrong key, a wrong model and a host that cannot be reached apart.
    /// It takes at most 10 seconds. What is asked costs nothing, or one token for each model where a server tells for no
    /// less.
    #[arg(long, requires = "check")]
    probe: bool,
}

pub(crate) fn serve(args: &Args) -> Result<Status, Error> {
    let file = std::path::absolute(&args.config).map_err(Error::io("cannot find the working directory"))?;
    let configured = Configured::read(&file)?;
    if args.check {
        configured.config.check_operations()?;
        // Stands for the store, which is not opened to be looked at.
        let driver = configured.driver(None, Some(Arc::new(MemoryOperationStore::default())))?;
        if let Some(path) = &configured.audit {
            examine(path)?;
        }
        if let Some(warning) = configured.unreviewable(&driver) {
            writeln!(stderr(), "warning: {}", inline(&warning)).map_err(Error::io("cannot write"))?;
        }
        writeln!(stdout(), "{}: good", inline(&args.config.display().to_string()))
            .map_err(Error::io("cannot write"))?;
        return match args.probe {
            true => probe::probe(&configured.config),
            false => Ok(Status::Good),
        };
    }
    crate::log();
    crate::block_on(configured.serve())
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
        let configured = Self { config, tools, audit };
        configured.check_grants()?;
        Ok(configured)
    }

    /// Here all tools are known, so that a wrong name shows before a person is asked about a call in vain (law 7).
    fn check_grants(&self) -> Result<(), StartError> {
        let tokens = &self.config.options().tokens;
        let configured: Vec<&str> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        // Requests bring these; who may bring which is all that the file says of them.
        let brought =
            tokens.iter().flat_map(|token| token.application_tools.iter().map(|grant| &*grant.name));
        let decidable: Vec<&str> = configured.iter().copied().chain(brought).collect();
        for (token, granted) in tokens.iter().enumerate() {
            for (member, names, known) in
                [("tools", &granted.tools, &configured), ("approveTools", &granted.approve_tools, &decidable)]
            {
                let unknown = names.iter().enumerate().find(|(_, name)| !known.contains(&name.as_str()));
                if let Some((at, name)) = unknown {
                    let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    return Err(StartError::Field {
                        code: Code::INVALID_CONFIG,
                        field: format!("tokens[{token}].{member}[{at}]"),
                        reason: format!("no tool {name:?} is configured (there are: {there})"),
                    });
                }
            }
        }
        Ok(())
    }

    /// Tools that can never run, for nobody could approve their calls.
    fn unreviewable(&self, driver: &Driver) -> Option<String> {
        let gated: Vec<&str> = (self.tools.iter().map(|tool| tool.spec()))
            .filter(|spec| spec.review == Review::Required)
            .map(|spec| spec.name.as_str())
            .collect();
        if !driver.features().contains(&feature::INTERACTIVE_APPROVALS) {
            let names = (!gated.is_empty()).then(|| gated.join(", "))?;
            return Some(format!(
                "the file has no `approvals`, so nobody can approve a call of these tools, and none will run: {names}"
            ));
        }
        let tokens = &self.config.options().tokens;
        let mut names = BTreeSet::new();
        for token in tokens {
            // Only the subject of a run may decide about its calls.
            let decided = |name: &str| {
                let same = tokens.iter().filter(|other| other.subject == token.subject);
                same.flat_map(|other| &other.approve_tools).any(|approved| approved == name)
            };
            let own = token.tools.iter().map(|name| &**name).filter(|name| gated.contains(name));
            let brought = token.application_tools.iter().filter(|grant| grant.review == Review::Required);
            names.extend(own.chain(brought.map(|grant| &*grant.name)).filter(|name| !decided(name)));
        }
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| {
            format!(
                "these tools stand in no `approveTools` of the subject that may use them, so nobody can approve a call, \
                 and none will run: {names}"
            )
        })
    }

    fn driver(
        &self,
        sink: Option<Arc<dyn AuditSink>>,
        operations: Option<Arc<dyn OperationStore>>,
    ) -> Result<Driver, StartError> {
        let tools = self.tools.clone();
        let extras = Extras { tools, on_approval_audit: sink, operations, ..Extras::default() };
        configured_driver(&self.config, extras)
    }

    async fn serve(self) -> Result<Status, Error> {
        // From here on a signal ends the host in order, even if it comes before the host is ready.
        let mut interrupts = Interrupts::new()?;
        let sink = match &self.audit {
            Some(path) => Some(open(path)?),
            None => None,
        };
        let driver = self.driver(sink, self.config.open_operations()?)?;
        if let Some(warning) = self.unreviewable(&driver) {
            tracing::warn!("{}", inline(&warning));
        }
        tracing::info!("the configuration and what it names were read once: a change of it needs a restart");
        let host = countersign_host::serve(driver, files::fit(self.config.options())).await?;
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
    let (audit, _) = AuditFile::open(path, Arc::new(SystemClock::new())).map_err(|source| match source {
        // It names the file.
        StoreError::Io { .. } | StoreError::Locked { .. } => unusable(&Error::from(source)),
        source => unusable(&Error::InAudit { path: path.into(), source }),
    })?;
    warn_if_shared(path);
    Ok(Arc::new(audit))
}

/// Finds what [`open`] would refuse, and changes nothing. It takes no lock, as a host may be at work: then the last line
/// may be half written, and so it may be after a crash, which a start mends.
fn examine(path: &Path) -> Result<(), StartError> {
    match path.metadata() {
        Ok(_) => match verify_reader(audit::open(path).map_err(|error| unusable(&error))?, None) {
            Ok(_) => may(path, Access::WRITE_OK),
            Err(StoreError::Broken(Broken { why: Why::Torn { .. }, .. })) => may(path, Access::WRITE_OK),
            Err(source) => Err(unusable(&Error::InAudit { path: path.into(), source })),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            may(folder, Access::WRITE_OK | Access::EXEC_OK)
        }
        Err(source) => Err(cannot("open", path, source)),
    }
}

/// Whether this process may use the path so.
fn may(path: &Path, how: Access) -> Result<(), StartError> {
    access(path, how).map_err(|error| cannot("write to", path, error.into()))
}

fn cannot(action: &str, path: &Path, source: io::Error) -> StartError {
    let action = format!("{action} {}", path.display());
    unusable(&Error::from(StoreError::Io { action, source }))
}

fn unusable(error: &Error) -> StartError {
    StartError::Field { code: Code::INVALID_CONFIG, field: "audit.file".into(), reason: error.to_string() }
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
