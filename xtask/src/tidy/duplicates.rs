//! No package is built twice in versions that do not fit together, and no feature is on that changes JSON for all.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::Metadata;

/// Packages that may be there more than once, and why.
const REASONS: &[(&str, &str)] = &[
    ("getrandom", "ring is at 0.2, jsonschema and ahash at 0.3, uuid at 0.4"),
    ("num-bigint", "jsonschema is at 0.4, oxc at 0.5"),
    ("r-efi", "for UEFI only, below two of the versions of getrandom"),
    ("syn", "tracing and strum are at 2, serde and async-trait at 3; it is in macros only"),
    ("windows-sys", "for Windows only; ring is at 0.52"),
];

/// Features that no crate of ours may bring about for everybody who builds with us, and why.
const FEATURES: &[(&str, &str, &str)] =
    &[("serde_json", "arbitrary_precision", "it breaks flattened, untagged and tagged enums of serde")];

pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    [duplicates(metadata, REASONS), features(metadata)].concat()
}

fn duplicates(metadata: &Metadata, reasons: &[(&str, &str)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in metadata.built_by(metadata.workspace_members.iter().map(String::as_str)) {
        versions.entry(&package.name).or_default().insert(line(&package.version));
    }
    let mut found = Vec::new();
    for (name, lines) in &versions {
        let excused = reasons.iter().any(|(excused, _)| excused == name);
        let lines: Vec<&str> = lines.iter().copied().collect();
        match (lines.len() > 1, excused) {
            (true, false) => found.push(format!("{name} is built in the versions {}", lines.join(" and "))),
            (false, true) => {
                found.push(format!("{name} is built once: take it out of the table of duplicates"))
            }
            _ => {}
        }
    }
    for (name, _) in reasons.iter().filter(|(name, _)| !versions.contains_key(name)) {
        found.push(format!("{name} is not built: take it out of the table of duplicates"));
    }
    found
}

fn features(metadata: &Metadata) -> Vec<String> {
    let on = |name: &str, feature: &str| {
        let ids = metadata.packages.iter().filter(|package| package.name == name).map(|package| &package.id);
        ids.into_iter().any(|id| {
            metadata
                .resolve
                .nodes
                .iter()
                .any(|node| node.id == *id && node.features.iter().any(|on| on == feature))
        })
    };
    FEATURES
        .iter()
        .filter(|(name, feature, _)| on(name, feature))
        .map(|(name, feature, reason)| format!("{name} is built with `{feature}`: {reason}"))
        .collect()
}

/// The part of a version that Cargo takes as "compatible": up to its first number that is not 0.
fn line(version: &str) -> &str {
    let mut end = 0;
    for number in version.split(['-', '+']).next().unwrap_or_default().split('.') {
        end += number.len();
        if number != "0" {
            break;
        }
        end += 1;
    }
    &version[..end.min(version.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Kind, Package};

    fn two(first: &str, second: &str, kind: Kind) -> Metadata {
        let package = |id: &str, version: &str| Package {
            id: id.to_owned(),
            version: version.to_owned(),
            ..Package::named("twin")
        };
        let root = Package::named("root").needs("one", Kind::Normal).needs("two", kind);
        Metadata::of(vec![root, package("one", first), package("two", second)], &["root"])
    }

    #[test]
    fn compatible_lines() {
        for (version, expected) in
            [("1.2.3", "1"), ("0.3.4", "0.3"), ("0.0.7", "0.0.7"), ("2.0.0-rc.1", "2"), ("0.0.0", "0.0.0")]
        {
            assert_eq!(line(version), expected);
        }
    }

    #[test]
    fn two_incompatible_versions_are_found() {
        let expected = ["twin is built in the versions 0.2 and 0.3"];
        assert_eq!(duplicates(&two("0.2.1", "0.3.0", Kind::Normal), &[]), expected);
        assert_eq!(duplicates(&two("0.2.1", "0.3.0", Kind::Build), &[]), expected);
        assert!(duplicates(&two("0.2.1", "0.3.0", Kind::Dev), &[]).is_empty(), "tests may");
        assert!(duplicates(&two("1.2.1", "1.3.0", Kind::Normal), &[]).is_empty(), "compatible");
        assert!(duplicates(&two("0.2.1", "0.3.0", Kind::Normal), &[("twin", "why")]).is_empty(), "excused");
    }

    #[test]
    fn a_stale_excuse_is_found() {
        let once = two("1.0.0", "1.0.0", Kind::Normal);
        assert_eq!(
            duplicates(&once, &[("twin", "")]),
            ["twin is built once: take it out of the table of duplicates"]
        );
        assert_eq!(
            duplicates(&once, &[("gone", "")]),
            ["gone is not built: take it out of the table of duplicates"]
        );
    }

    #[test]
    fn a_harmful_feature_is_found() {
        let mut metadata = Metadata::of(vec![Package::named("serde_json")], &[]);
        assert!(features(&metadata).is_empty());
        metadata.resolve.nodes[0].features.push("arbitrary_precision".to_owned());
        assert!(features(&metadata)[0].starts_with("serde_json is built with `arbitrary_precision`"));
    }
}
