//! The product: a host with a scripted model that proposes one gated call, a tool without effect, and an audit in
//! memory or in a file. It answers `pending` on its standard input with the number of open reviews.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::Parser;
use countersign_approval_core::audit::{AuditRecord, AuditSink, BoxError};
use countersign_approval_core::registry::Limits;
use countersign_bench::peer::{SCHEMA, TOKEN, TOOL, arguments};
use countersign_driver::system::SystemClock;
use countersign_driver::{ApprovalSettings, Driver, Output, ToolSpec, tool};
use countersign_host::{Concurrency, Options, Token, serve};
use countersign_providers::{Scripted, Step};
use countersign_store::audit_file::AuditFile;
use secrecy::SecretString;

/// More runs at once than any scenario has.
const MANY: u32 = 100_000;
/// When the audit in memory begins anew.
const KEPT_BYTES: usize = 1 << 20;

#[derive(Parser)]
struct Args {
    /// Bytes of the proposed mail's body
    #[arg(long, default_value_t = 160)]
    bytes: usize,
    /// Threads that run tasks; the bounds have one
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Where to keep the audit; in memory without it
    #[arg(long)]
    audit: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    countersign_bench::process::raise_file_limit()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.workers).enable_all().build()?;
    let driver = driver(&args)?;
    let host = runtime.block_on(serve(driver.clone(), options()))?;
    println!("listening on {}", host.local_addr());
    for line in std::io::stdin().lock().lines() {
        if line? == "pending" {
            println!("{}", driver.pending_approvals());
        }
    }
    Ok(())
}

fn driver(args: &Args) -> Result<Driver> {
    let sink: Arc<dyn AuditSink> = match &args.audit {
        None => Arc::new(InMemory::default()),
        Some(path) => {
            let (file, _recovery) = AuditFile::open(path, Arc::new(SystemClock::new()))?;
            Arc::new(file)
        }
    };
    let model = Scripted::builder("bench")
        .models(["bench"])
        .default_script([Step::call("call-1", TOOL, arguments(args.bytes)), Step::text("Sent.")])
        .build()?;
    let spec = ToolSpec::new(TOOL, "Sends a mail.", SCHEMA)?.requires_approval();
    let limits = Limits { max_pending: MANY as usize, ..Limits::default() };
    Driver::builder()
        .provider(Arc::new(model))
        .tool(tool(spec, |_input, _context| async { Ok(Output::from_text(r#"{"sent":true}"#)?) }))
        .approvals(ApprovalSettings { limits, sink: Some(sink), ..ApprovalSettings::default() })
        .build()
        .context("the driver")
}

fn options() -> Options {
    Options {
        port: 0,
        tokens: vec![Token {
            token: SecretString::from(TOKEN),
            subject: "bench".into(),
            providers: vec!["bench".into()],
            tools: vec![TOOL.into()],
            approve_tools: vec![TOOL.into()],
            application_tools: Vec::new(),
        }],
        concurrency: Concurrency { total: MANY, per_subject: MANY, ..Concurrency::default() },
        max_connections: 2 * MANY as usize,
        ..Options::default()
    }
}

/// Writes each record as the file would and keeps the last of them. Its memory is there from the start, so that it is
/// not taken for the runs'.
struct InMemory(Mutex<Vec<u8>>);

impl Default for InMemory {
    fn default() -> Self {
        let mut kept = vec![b' '; 2 * KEPT_BYTES];
        kept.clear();
        Self(Mutex::new(kept))
    }
}

impl AuditSink for InMemory {
    fn record(&self, record: &AuditRecord) -> Result<(), BoxError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > KEPT_BYTES {
            kept.clear();
        }
        serde_json::to_writer(&mut *kept, record)?;
        kept.push(b'\n');
        Ok(())
    }
}
