//! `countersign-bench`: starts the product, the bounds and the load client, measures them by turns, and says which
//! targets are met. Start it by `cargo xtask bench approvals` or `cargo xtask bench sandbox`, which build what it starts.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers: printing is what it is for"
)]

mod append;
mod figure;
mod machine;
mod matching;
mod measure;
mod report;
mod sandboxes;
mod servers;
mod targets;
mod walk;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};

use crate::measure::{Bench, Scale};
use crate::report::{Report, Subject};
use crate::sandboxes::Sandboxes;
use crate::targets::{APPROVALS, SANDBOX, Target};

#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    about = "Figures of Countersign beside the least code that does the job"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The review path
    Approvals(Options),
    /// The sandbox, beside the raw engine and two others
    Sandbox(Options),
}

#[derive(clap::Args)]
struct Options {
    /// One short round, to see that everything works; its figures say little
    #[arg(long)]
    quick: bool,
    /// Only these targets, such as P1,P6
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds of a full run
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

const REVIEWS: Subject = Subject {
    title: "Performance",
    command: "approvals",
    intro: "The product is measured beside a *bound*: the least code that does the job, without authentication, audit, \
            expiry or validation. Both run in one minute on one machine, by turns, so the ratio between them says \
            something where absolute times do not. *Least code* is the same ratio for the bound itself, or for a still \
            smaller one.",
    setting: "One worker thread in every server; the load client is a process of its own on the same machine.",
    targets: APPROVALS,
    notes: "benches/notes.md",
    crates: &["hyper", "tokio", "serde_json"],
};

const SANDBOXES: Subject = Subject {
    title: "Performance of the sandbox",
    command: "sandbox",
    intro: "The product is measured beside the raw engine, without limits, guards or a pinned world, and beside two other \
            sandboxes. All run in one minute on one machine, by turns, so the ratio between them says something where \
            absolute times do not.",
    setting: "Each engine is a process of its own; one engine thread, or one worker.",
    targets: SANDBOX,
    notes: "benches/sandbox-notes.md",
    crates: &["rquickjs", "tokio", "oxc_parser"],
};

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Approvals(options) => approvals(&options),
        Command::Sandbox(options) => sandbox(&options),
    }
}

impl Options {
    fn check(&self, targets: &[Target]) -> Result<()> {
        for id in &self.only {
            ensure!(targets.iter().any(|target| target.is_of(id)), "there is no target {id}");
        }
        Ok(())
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds.max(1) }
    }

    /// Writes what was found, under `name` below `place` and, if it says something about the product, to `page`.
    fn finish(&self, report: &Report, place: &Path, name: &str, page: &str) -> Result<()> {
        print!("{}", report.table());
        print!("{}", report.beside());
        report.write_json(&place.join(format!("{name}.json")))?;
        // A part, or a short look, is no statement about the product.
        if !self.quick && self.only.is_empty() {
            report.write_page(&PathBuf::from(page))?;
            println!("wrote {page}");
        } else {
            report.write_page(&place.join(format!("{name}.md")))?;
        }
        Ok(())
    }
}

/// Where figures and files of the benchmark go.
fn place() -> Result<PathBuf> {
    let programs = servers::programs()?;
    Ok(programs.parent().unwrap_or(&programs).join("bench"))
}

fn approvals(options: &Options) -> Result<()> {
    options.check(APPROVALS)?;
    countersign_bench::process::raise_file_limit()?;
    let place = place()?;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let rounds = options.rounds();
    let bench = Bench::new(place.clone(), scale, options.only.clone())?;
    let mut report = Report::begin(&REVIEWS, rounds, options.quick)?;
    for round in 0..rounds {
        let conditions = conditions(bench.folder(), round, rounds)?;
        let figures = bench.round(round)?;
        report.add(conditions, figures, Vec::new());
    }
    options.finish(&report, &place, "approvals", "docs/performance.md")
}

fn sandbox(options: &Options) -> Result<()> {
    options.check(SANDBOX)?;
    let place = place()?;
    std::fs::create_dir_all(&place)?;
    let rounds = options.rounds();
    let mut report = Report::begin(&SANDBOXES, rounds, options.quick)?;
    let mut sandboxes = Sandboxes::start(&place, options.quick, options.only.clone())?;
    for why in &sandboxes.absent {
        println!("not installed: {why}");
        report.absent(why.clone());
    }
    for round in 0..rounds {
        let conditions = conditions(&place, round, rounds)?;
        let (figures, beside) = sandboxes.round(round)?;
        report.add(conditions, figures, beside);
    }
    options.finish(&report, &place, "sandbox", "docs/performance-sandbox.md")
}

/// What the machine does at the beginning of a round.
fn conditions(folder: &Path, round: usize, rounds: usize) -> Result<machine::Conditions> {
    let sync = append::sync_latency(folder, Duration::from_millis(300))?;
    let conditions = machine::Conditions::now(sync)?;
    println!("round {} of {rounds}: {conditions}", round + 1);
    Ok(conditions)
}
