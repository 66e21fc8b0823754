//! A worker by itself, for embedders who do not want their own program to be one.

use std::process::ExitCode;

fn main() -> ExitCode {
    countersign_sandbox_js::worker::main()
}
