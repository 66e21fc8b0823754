//! The benchmarks: built in release mode, then started. What is measured, and how, is the package `benches`'.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::outside::outside;
use crate::tree;

/// Builds the product and the programs of the benchmark, and starts it with `args`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let sh = Shell::new()?;
    let root = tree::root()?;
    sh.change_dir(&root);
    outside(cmd!(sh, "cargo build --release --locked -p countersign -p countersign-bench")).run()?;
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let program = target.join("release/countersign-bench");
    outside(cmd!(sh, "{program} {args...}")).run()?;
    Ok(())
}
