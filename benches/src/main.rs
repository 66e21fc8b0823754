//! `countersign-bench`: starts the product, the bounds and the load client, measures them by turns, and says which
//! targets are met. Start it by `cargo xtask bench approvals`, which builds what it starts.
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
mod servers;
mod targets;
mod walk;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};

use crate::measure::{Bench, Scale};
use crate::report::Report;
use crate::targets::TARGETS;

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
    Approvals(Approvals),
}

#[derive(clap::Args)]
struct Approvals {
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

fn main() -> Result<()> {
    let Command::Approvals(args) = Args::parse().command;
    for id in &args.only {
        ensure!(TARGETS.iter().any(|target| target.is_of(id)), "there is no target {id}");
    }
    countersign_bench::process::raise_file_limit()?;
    let programs = servers::programs()?;
    let place = programs.parent().unwrap_or(&programs).join("bench");
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let rounds = if args.quick { 1 } else { args.rounds.max(1) };
    let bench = Bench::new(place.clone(), scale, args.only.clone())?;
    let mut report = Report::begin(rounds, args.quick)?;
    for round in 0..rounds {
        let sync = append::sync_latency(bench.folder(), Duration::from_millis(300))?;
        let conditions = machine::Conditions::now(sync)?;
        println!("round {} of {rounds}: {conditions}", round + 1);
        let figures = bench.round(round)?;
        report.add(conditions, figures);
    }
    print!("{}", report.table());
    report.write_json(&place.join("approvals.json"))?;
    // A part, or a short look, is no statement about the product.
    if !args.quick && args.only.is_empty() {
        report.write_page(&PathBuf::from("docs/performance.md"))?;
        println!("wrote docs/performance.md");
    } else {
        report.write_page(&place.join("performance.md"))?;
    }
    Ok(())
}
