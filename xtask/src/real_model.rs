//! A real, very small language model on this machine, for the one test that needs a model's own words.
//!
//! It is SmolLM2-135M-Instruct on llama.cpp's HTTP server, both from PyPI with fixed hashes (`xtask/real-model/`). Its
//! chat template steers it to propose a call on a person's turn and to speak after a result; that steering is the
//! template's, not the model's judgement. What it says is nonsense: a test may look at shapes only.

mod child;
mod http;
mod probe;
mod review;
mod server;

use anyhow::Result;
use clap::Subcommand;
use xshell::Shell;

use crate::tree;
use server::{Place, Server};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Install the model if it is not there, start its server and say where it listens
    Up,
    /// Stop the server
    Down,
    /// Probe the server, then review the model's own proposals through each adapter that it understands, streamed and
    /// buffered: approve, deny, cancel, interrupt; then deny with a reason that the model is told
    Test,
}

pub(crate) fn run(command: Command) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(tree::root()?);
    let place = Place::new(&sh);
    match command {
        Command::Up => {
            let server = Server::up(&sh, &place)?;
            println!(
                "baseUrl {}  model {}  key in {}",
                server.base_url(),
                server::MODEL,
                place.key_file().display()
            );
            Ok(())
        }
        Command::Down => server::down(&place),
        Command::Test => {
            // A server that was up before stays up.
            let ours = Server::find(&place)?.is_none();
            let server = Server::up(&sh, &place)?;
            let result = review::run(&sh, &place, &server);
            if ours {
                server::down(&place)?;
            }
            result
        }
    }
}
