//! Checks and chores of the workspace: `cargo xtask ci`, each of its steps alone, and the real language model.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers: printing is what it is for"
)]

mod bench;
mod ci;
mod docs;
mod metadata;
mod outside;
mod real_model;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::ci::Step;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks and chores of the Countersign workspace")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every step in order; stops at the first that fails
    Ci {
        /// A step to leave out (may be given several times)
        #[arg(long, value_enum)]
        skip: Vec<Step>,
    },
    /// The formatting is rustfmt's
    Fmt,
    /// No warning from clippy in any target
    Clippy,
    /// All tests of the workspace
    Test,
    /// Seeded random histories of the core, the audit file, the driver and the whole stack
    Histories {
        /// How long each suite runs; CI takes 20
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// The API documentation builds without a warning
    Doc,
    /// Each crate alone: default features off, each feature, all
    Features,
    /// The rules of the tree: arrows, licences, duplicates, modules, links
    Tidy,
    /// The published vectors, read by Python and by Node
    Vectors,
    /// Each package in examples/ runs to its end
    Examples,
    /// Each `sh ci` block of the documentation runs
    Docs,
    /// Figures beside the least code that does the job, such as `bench approvals`
    Bench {
        /// What to measure, and how; see `bench help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// A small language model on this machine
    RealModel {
        #[command(subcommand)]
        command: real_model::Command,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let step = match command {
        Command::Ci { skip } => return ci::run(&ci::all_but(&skip)),
        Command::Bench { args } => return bench::run(&args),
        Command::RealModel { command } => return real_model::run(command),
        Command::Histories { seconds } => return ci::histories_of(seconds),
        Command::Fmt => Step::Fmt,
        Command::Clippy => Step::Clippy,
        Command::Test => Step::Test,
        Command::Doc => Step::Doc,
        Command::Features => Step::Features,
        Command::Tidy => Step::Tidy,
        Command::Vectors => Step::Vectors,
        Command::Examples => Step::Examples,
        Command::Docs => Step::Docs,
    };
    ci::run(&[step])
}
