//! Each crate by itself: default features off, each feature alone, all together.

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::metadata::{Metadata, Package};
use crate::outside::outside;

/// Features of serde_json that another crate of a user's build may switch on for everybody. Exact JSON (law 3) must
/// not change its answers with them. (Cargo takes features of a direct dependency on the command line, so no manifest has
/// to name them.)
const SERDE_JSON: &str = "serde_json/arbitrary_precision,serde_json/preserve_order,serde_json/float_roundtrip,serde_json/unbounded_depth";

pub(crate) fn run(sh: &Shell, metadata: &Metadata) -> Result<()> {
    let crates = sh.current_dir().join("crates");
    let mut checked = 0;
    for package in metadata.members().filter(|package| package.folder().starts_with(&crates)) {
        for set in feature_sets(package) {
            let (name, flags) = (&package.name, &set);
            outside(cmd!(sh, "cargo check --quiet --locked -p {name} {flags...}"))
                .run()
                .with_context(|| format!("{name} with {}", set.join(" ")))?;
        }
        checked += 1;
    }
    ensure!(checked > 0, "no package in crates/");
    outside(cmd!(sh, "cargo test --quiet --locked -p countersign-approval-core --features {SERDE_JSON}"))
        .run()
        .context("approval-core with all features of serde_json")
}

/// The flags of each check. `default` is the set that every other step builds.
fn feature_sets(package: &Package) -> Vec<Vec<String>> {
    let flag = |text: &str| text.to_owned();
    let mut sets = vec![vec![flag("--no-default-features")]];
    let features: Vec<&String> = package.features.keys().filter(|name| *name != "default").collect();
    for feature in &features {
        sets.push(vec![flag("--no-default-features"), flag("--features"), (*feature).clone()]);
    }
    // With one feature, all of them is that one.
    if features.len() > 1 {
        sets.push(vec![flag("--all-features")]);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_each_and_all() {
        let package = Package {
            features: ["default", "a", "b"].map(|name| (name.to_owned(), Vec::new())).into(),
            ..Package::named("x")
        };
        let sets: Vec<String> = feature_sets(&package).iter().map(|set| set.join(" ")).collect();
        assert_eq!(
            sets,
            [
                "--no-default-features",
                "--no-default-features --features a",
                "--no-default-features --features b",
                "--all-features"
            ]
        );
        assert_eq!(feature_sets(&Package::named("x")).len(), 1);
    }
}
