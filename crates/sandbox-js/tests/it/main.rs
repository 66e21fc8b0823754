//! The sandbox through its public API. Each test names the law, the scenario or the rule that it serves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may stop at what it does not expect, and prints for whoever looks"
)]
#![allow(clippy::duplicate_mod, reason = "the same tests run on each backend")]

use countersign_sandbox_js::{Backend, WorkerCommand};

mod backends;
mod memory;
mod workers;

/// The same tests, on each backend.
macro_rules! on_backend {
    ($name:ident, $config:expr) => {
        #[path = "."]
        mod $name {
            use countersign_sandbox_js::Config;

            pub(crate) fn config() -> Config {
                $config
            }

            #[path = "carried.rs"]
            mod carried;
            #[path = "console.rs"]
            mod console;
            #[path = "deny.rs"]
            mod deny;
            #[path = "determinism.rs"]
            pub(crate) mod determinism;
            #[path = "errors.rs"]
            mod errors;
            #[path = "harness.rs"]
            pub(crate) mod harness;
            #[path = "hostile.rs"]
            mod hostile;
            #[path = "limits.rs"]
            mod limits;
            #[path = "pause.rs"]
            mod pause;
            #[path = "source.rs"]
            mod source;
            #[path = "walker.rs"]
            mod walker;
        }
    };
}

on_backend!(in_process, Config::default());
on_backend!(in_worker, Config { backend: crate::worker(), ..Config::default() });

/// The crate's own worker.
pub(crate) fn worker() -> Backend {
    Backend::Worker(WorkerCommand::new(env!("CARGO_BIN_EXE_countersign-sandbox-worker")))
}
