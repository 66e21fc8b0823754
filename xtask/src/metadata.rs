//! What `cargo metadata` says about the workspace, as far as we ask.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::outside::outside;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) resolve: Resolve,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// A dependency as its manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Normal,
    Build,
    Dev,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<NodeDep>,
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct NodeDep {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DepKind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DepKind {
    #[serde(default)]
    pub(crate) kind: Kind,
}

impl Metadata {
    pub(crate) fn read(sh: &Shell) -> Result<Self> {
        let text = outside(cmd!(sh, "cargo metadata --format-version 1 --locked")).quiet().read()?;
        serde_json::from_str(&text).context("output of cargo metadata")
    }

    /// The packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// What is compiled into a user's program when he builds the packages `from`: normal and build dependencies,
    /// themselves included.
    pub(crate) fn built_by<'a>(&'a self, from: impl Iterator<Item = &'a str>) -> Vec<&'a Package> {
        let nodes: HashMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let mut seen: Vec<&str> = Vec::new();
        let mut open: Vec<&str> = from.collect();
        while let Some(id) = open.pop() {
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let deps = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
            open.extend(deps.iter().filter(|dep| dep.is_built()).map(|dep| dep.pkg.as_str()));
        }
        self.packages.iter().filter(|package| seen.contains(&package.id.as_str())).collect()
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

impl NodeDep {
    fn is_built(&self) -> bool {
        self.dep_kinds.iter().any(|dep| dep.kind != Kind::Dev)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None => Ok(Self::Normal),
            Some("build") => Ok(Self::Build),
            Some("dev") => Ok(Self::Dev),
            Some(other) => Err(serde::de::Error::custom(format!("unknown kind of dependency `{other}`"))),
        }
    }
}

#[cfg(test)]
impl Package {
    /// A package 1.0.0 under MIT, whose id is its name.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT".to_owned()),
            manifest_path: PathBuf::from(format!("/w/crates/{name}/Cargo.toml")),
            dependencies: Vec::new(),
            features: BTreeMap::new(),
        }
    }

    pub(crate) fn needs(mut self, name: &str, kind: Kind) -> Self {
        self.dependencies.push(Dependency { name: name.to_owned(), kind });
        self
    }
}

#[cfg(test)]
impl Metadata {
    /// A workspace in which each dependency resolves to the package of that name.
    pub(crate) fn of(packages: Vec<Package>, members: &[&str]) -> Self {
        let deps = |package: &Package| {
            let dep = |dep: &Dependency| NodeDep {
                pkg: dep.name.clone(),
                dep_kinds: vec![DepKind { kind: dep.kind }],
            };
            package.dependencies.iter().map(dep).collect()
        };
        let node =
            |package: &Package| Node { id: package.id.clone(), deps: deps(package), features: Vec::new() };
        Self {
            resolve: Resolve { nodes: packages.iter().map(node).collect() },
            workspace_members: members.iter().map(|&name| name.to_owned()).collect(),
            packages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_cargo_writes() {
        let text = r#"{"packages":[{"id":"a","name":"a","version":"1.0.0","license":null,"manifest_path":"/a/Cargo.toml",
            "dependencies":[{"name":"b","kind":null},{"name":"c","kind":"dev"}],"features":{}}],
            "workspace_members":["a"],"resolve":{"nodes":[{"id":"a","deps":[{"pkg":"b","dep_kinds":[{"kind":"build"}]}]}]}}"#;
        let metadata: Metadata = serde_json::from_str(text).unwrap();
        let package = metadata.members().next().unwrap();
        assert_eq!(package.dependencies[0].kind, Kind::Normal);
        assert_eq!(package.dependencies[1].kind, Kind::Dev);
        assert_eq!(metadata.resolve.nodes[0].deps[0].dep_kinds[0].kind, Kind::Build);
    }

    #[test]
    fn a_dev_dependency_is_not_built() {
        let packages = vec![
            Package::named("a").needs("b", Kind::Normal).needs("d", Kind::Dev),
            Package::named("b").needs("c", Kind::Build),
            Package::named("c"),
            Package::named("d"),
        ];
        let metadata = Metadata::of(packages, &["a"]);
        let names: Vec<&str> =
            metadata.built_by(["a"].into_iter()).iter().map(|package| &*package.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
