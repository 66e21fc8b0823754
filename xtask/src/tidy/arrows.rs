//! Which crate may name which (design 2).

use crate::metadata::{Kind, Metadata, Package};

/// The allowed normal and build dependencies between packages of the workspace.
const ARROWS: &[(&str, &[&str])] = &[
    ("countersign-approval-core", &[]),
    ("countersign-protocol", &["countersign-approval-core"]),
    ("countersign-sandbox-js", &["countersign-approval-core"]),
    ("countersign-driver", &["countersign-approval-core", "countersign-protocol", "countersign-sandbox-js"]),
    ("countersign-providers", &["countersign-approval-core", "countersign-protocol", "countersign-driver"]),
    (
        "countersign-store",
        &[
            "countersign-approval-core",
            "countersign-protocol",
            "countersign-sandbox-js",
            "countersign-driver",
        ],
    ),
    (
        "countersign-host",
        &[
            "countersign-approval-core",
            "countersign-protocol",
            "countersign-driver",
            "countersign-providers",
            "countersign-store",
        ],
    ),
    ("countersign-client", &["countersign-approval-core", "countersign-protocol"]),
    (
        "countersign",
        &[
            "countersign-approval-core",
            "countersign-protocol",
            "countersign-sandbox-js",
            "countersign-driver",
            "countersign-providers",
            "countersign-store",
            "countersign-host",
            "countersign-client",
        ],
    ),
    (TESTKIT, &["countersign-approval-core", "countersign-client"]),
    ("xtask", &[]),
];

const TESTKIT: &str = "countersign-testkit";

/// It has a server on hyper and a program on the bare engine to measure ours by.
const BENCH: &str = "countersign-bench";

/// Outside crates that only some of ours may name (a name that ends with `*` stands for all that begin so). As a
/// development dependency each is free.
const OWNED: &[(&str, &[&str])] = &[
    ("hyper", &["countersign-host", TESTKIT, BENCH]),
    ("hyper-util", &["countersign-host", TESTKIT, BENCH]),
    ("reqwest", &["countersign-client", "countersign-providers"]),
    ("rquickjs*", &["countersign-sandbox-js", BENCH]),
    ("oxc*", &["countersign-sandbox-js"]),
];

/// What a build of `approval-core` may not contain at any depth: it does no I/O and knows no runtime.
const CORE: &str = "countersign-approval-core";
const CORE_NEVER: &[&str] = &["tokio", "hyper", "reqwest", "http", "mio", "socket2", "async-trait"];

pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata.members() {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev) {
            let from = package.name.as_str();
            let to = dependency.name.as_str();
            if metadata.members().any(|member| member.name == to) {
                if !arrow(package, to) {
                    found.push(format!("{from} must not depend on {to} (design 2)"));
                }
            } else if let Some((_, owners)) = OWNED.iter().find(|(pattern, _)| matches(pattern, to))
                && !owners.contains(&from)
            {
                found.push(format!("{from} must not name {to}: only {} may", owners.join(" and ")));
            }
        }
    }
    let core = metadata.members().filter(|package| package.name == CORE).map(|package| package.id.as_str());
    for package in metadata.built_by(core) {
        if CORE_NEVER.contains(&package.name.as_str()) {
            found.push(format!("{CORE} must not be built with {}", package.name));
        }
    }
    found
}

/// Examples and the workspace's tests may use every library; testkit is for tests alone.
fn arrow(from: &Package, to: &str) -> bool {
    match ARROWS.iter().find(|(name, _)| *name == from.name) {
        Some((_, allowed)) => allowed.contains(&to),
        None => !in_crates(from) && to != TESTKIT,
    }
}

fn in_crates(package: &Package) -> bool {
    package.folder().parent().is_some_and(|parent| parent.ends_with("crates"))
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(packages: Vec<Package>) -> Vec<String> {
        let members: Vec<String> = packages.iter().map(|package| package.name.clone()).collect();
        let members: Vec<&str> = members
            .iter()
            .map(String::as_str)
            .filter(|name| name.starts_with("countersign") || *name == "new")
            .collect();
        check(&Metadata::of(packages, &members))
    }

    #[test]
    fn each_wrong_arrow_is_found() {
        let table = [
            ("countersign-approval-core", "countersign-protocol"),
            ("countersign-protocol", "countersign-driver"),
            ("countersign-driver", "countersign-host"),
            ("countersign-client", "countersign-driver"),
            ("countersign-sandbox-js", "countersign-driver"),
            ("countersign", "countersign-testkit"),
            ("new", "countersign-protocol"),
        ];
        for (from, to) in table {
            for kind in [Kind::Normal, Kind::Build] {
                let packages = vec![Package::named(from).needs(to, kind), Package::named(to)];
                assert_eq!(found(packages), [format!("{from} must not depend on {to} (design 2)")]);
            }
            assert!(found(vec![Package::named(from).needs(to, Kind::Dev), Package::named(to)]).is_empty());
        }
    }

    #[test]
    fn outside_crates_have_owners() {
        let table = [
            ("countersign-client", "hyper"),
            ("countersign-driver", "reqwest"),
            ("countersign-driver", "rquickjs-sys"),
            ("countersign", "oxc_parser"),
        ];
        for (from, to) in table {
            let wrong = found(vec![Package::named(from).needs(to, Kind::Normal)]);
            assert!(
                wrong.len() == 1 && wrong[0].starts_with(&format!("{from} must not name {to}")),
                "{wrong:?}"
            );
            assert!(found(vec![Package::named(from).needs(to, Kind::Dev)]).is_empty());
        }
        assert!(found(vec![Package::named("countersign-host").needs("hyper", Kind::Normal)]).is_empty());
    }

    #[test]
    fn the_core_knows_no_runtime_at_any_depth() {
        let packages =
            || vec![Package::named("middle").needs("tokio", Kind::Normal), Package::named("tokio")];
        let core =
            |kind| vec![Package::named(CORE).needs("middle", kind)].into_iter().chain(packages()).collect();
        assert_eq!(found(core(Kind::Normal)), ["countersign-approval-core must not be built with tokio"]);
        assert!(found(core(Kind::Dev)).is_empty());
    }
}
