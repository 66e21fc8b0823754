//! The steps of `cargo xtask ci`, run in order until one fails.

mod features;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use xshell::{Shell, cmd};

use crate::metadata::Metadata;
use crate::outside::outside;
use crate::{docs, tidy, tree};

/// One step; the order here is the order of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    Fmt,
    Clippy,
    Test,
    Histories,
    Doc,
    Features,
    Tidy,
    Vectors,
    Examples,
    Docs,
}

/// All steps but `skip`, in order.
pub(crate) fn all_but(skip: &[Step]) -> Vec<Step> {
    Step::value_variants().iter().copied().filter(|step| !skip.contains(step)).collect()
}

/// Runs `steps`, stops at the first failure, and prints what each took.
pub(crate) fn run(steps: &[Step]) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(tree::root()?);
    // A snapshot that differs is a failure here, never a new file.
    sh.set_var("INSTA_UPDATE", "no");
    in_order(steps, |step| one(&sh, step))
}

/// The histories alone, for as long as one likes.
pub(crate) fn histories_of(seconds: u32) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(tree::root()?);
    histories(&sh, seconds)
}

fn in_order(steps: &[Step], mut one: impl FnMut(Step) -> Result<()>) -> Result<()> {
    let mut times: Vec<(Step, Duration)> = Vec::new();
    let mut failure = None;
    for &step in steps {
        eprintln!("==> {}", name(step));
        let start = Instant::now();
        let result = one(step);
        times.push((step, start.elapsed()));
        if let Err(error) = result {
            failure = Some((step, error));
            break;
        }
    }
    for (step, time) in &times {
        let state = if failure.as_ref().is_some_and(|(failed, _)| failed == step) { "FAILED" } else { "ok" };
        eprintln!("{:<10}{:>8.1} s  {state}", name(*step), time.as_secs_f64());
    }
    match failure {
        None => Ok(()),
        Some((step, error)) => Err(error.context(format!("step `{}` failed", name(step)))),
    }
}

fn one(sh: &Shell, step: Step) -> Result<()> {
    match step {
        Step::Fmt => outside(cmd!(sh, "cargo fmt --all --check")).run()?,
        Step::Clippy => {
            outside(cmd!(sh, "cargo clippy --workspace --all-targets --locked -- -D warnings")).run()?
        }
        Step::Test => outside(cmd!(sh, "cargo test --workspace --locked")).run()?,
        Step::Histories => histories(sh, CI_SECONDS)?,
        Step::Doc => {
            outside(cmd!(sh, "cargo doc --workspace --no-deps --locked"))
                .env("RUSTDOCFLAGS", "-D warnings")
                .run()?;
        }
        Step::Features => features::run(sh, &Metadata::read(sh)?)?,
        Step::Tidy => tidy::run(sh)?,
        Step::Vectors => vectors(sh)?,
        Step::Examples => examples(sh, &Metadata::read(sh)?)?,
        Step::Docs => docs::run(sh)?,
    }
    Ok(())
}

/// How long each suite of random histories runs in CI.
const CI_SECONDS: u32 = 20;

/// Seeded random histories of the core, the audit file, the driver and the whole stack, each suite for so many seconds.
/// They print their seed and how many they tried. The whole workspace is named, because one package alone would be built
/// again with other features.
fn histories(sh: &Shell, seconds: u32) -> Result<()> {
    outside(cmd!(sh, "cargo test --workspace --locked --test it histories -- --nocapture --test-threads 1"))
        .env("COUNTERSIGN_SECONDS", seconds.to_string())
        .run()?;
    Ok(())
}

/// Two readers that share no code with us must agree with the published vectors.
fn vectors(sh: &Shell) -> Result<()> {
    for (program, script) in [("python3", "docs/vectors/check.py"), ("node", "docs/vectors/check.mjs")] {
        ensure!(sh.path_exists(script), "{script} is missing");
        cmd!(sh, "{program} {script}").run()?;
    }
    Ok(())
}

/// What an example is given that would else ask a person.
const ANSWERS: [(&str, &[&str]); 1] = [("embedded-review", &["--decide", "approve"])];

/// Runs every example with no terminal and nothing on its standard input.
fn examples(sh: &Shell, metadata: &Metadata) -> Result<()> {
    let folder = sh.current_dir().join("examples");
    let members: Vec<_> =
        metadata.members().filter(|package| package.folder().starts_with(&folder)).collect();
    for manifest in manifests(&folder)? {
        if !members.iter().any(|package| package.manifest_path == manifest) {
            bail!("{} is not a member of the workspace", manifest.display());
        }
    }
    for package in members {
        let name = &package.name;
        let arguments = ANSWERS.iter().find(|(asking, _)| asking == name).map_or(&[][..], |(_, given)| given);
        outside(cmd!(sh, "cargo run --locked --quiet -p {name} -- {arguments...}"))
            .stdin("")
            .run()
            .with_context(|| format!("example {name}"))?;
    }
    Ok(())
}

fn manifests(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    if !folder.exists() {
        eprintln!("no examples/ folder: nothing to run");
        return Ok(found);
    }
    for entry in std::fs::read_dir(folder)? {
        let manifest = entry?.path().join("Cargo.toml");
        if manifest.exists() {
            found.push(manifest);
        }
    }
    Ok(found)
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_first_failure_and_names_it() {
        let mut seen = Vec::new();
        let result = in_order(&[Step::Fmt, Step::Test, Step::Docs], |step| {
            seen.push(step);
            if step == Step::Test {
                bail!("boom")
            }
            Ok(())
        });
        assert_eq!(seen, [Step::Fmt, Step::Test]);
        assert_eq!(format!("{:#}", result.unwrap_err()), "step `test` failed: boom");
    }

    #[test]
    fn skips_only_what_is_named() {
        let steps = all_but(&[Step::Test, Step::Fmt]);
        assert_eq!(steps.first(), Some(&Step::Clippy));
        assert!(!steps.contains(&Step::Test) && steps.contains(&Step::Docs));
        assert_eq!(steps.len(), Step::value_variants().len() - 2);
    }
}
