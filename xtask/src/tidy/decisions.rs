//! Each third-party dependency is on the page that says why it is there, and nothing else is.

use std::collections::BTreeSet;

use crate::metadata::Metadata;
use crate::tree::File;

const PAGE: &str = "docs/decisions/0003-dependencies.md";
const MANIFEST: &str = "Cargo.toml";

pub(crate) fn check(metadata: &Metadata, files: &[File]) -> Vec<String> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let (Some(page), Some(manifest)) = (text(PAGE), text(MANIFEST)) else {
        return vec![format!("{PAGE} or {MANIFEST} is missing")];
    };
    let ours: BTreeSet<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    let direct = metadata.members().flat_map(|package| &package.dependencies).map(|dep| dep.name.as_str());
    let used: BTreeSet<&str> =
        direct.chain(workspace_dependencies(manifest)).filter(|name| !ours.contains(name)).collect();
    let explained = rows(page);
    let missing =
        used.difference(&explained).map(|name| format!("{PAGE} does not say why `{name}` is there"));
    let stale =
        explained.difference(&used).map(|name| format!("{PAGE} explains `{name}`, which nothing names"));
    missing.chain(stale).collect()
}

/// The keys of the table `[workspace.dependencies]`.
fn workspace_dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|line| line.trim() != "[workspace.dependencies]").skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, _)| key.split('.').next().unwrap_or(key).trim())
}

/// The names in the first column of the page's table: each in back-ticks, several may share a row.
fn rows(page: &str) -> BTreeSet<&str> {
    let cells =
        page.lines().filter_map(|line| line.strip_prefix("| ")).filter_map(|line| line.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Kind, Package};

    const TABLE: &str = "[workspace]\n[workspace.dependencies]\n# x = 1\nours = { path = \"o\" }\nserde.version = \"1\"\nhttp = \"1\"\n[lints]\nno = 1\n";

    fn found(page: &str) -> Vec<String> {
        let package = Package::named("ours").needs("anstyle", Kind::Dev);
        let metadata = Metadata::of(vec![package], &["ours"]);
        check(&metadata, &[File::new(PAGE, page), File::new(MANIFEST, TABLE)])
    }

    #[test]
    fn the_page_names_each_and_no_other() {
        assert!(
            found("| crate | why |\n| --- | --- |\n| `anstyle`, `http` | a `b` |\n| `serde` | c |\n")
                .is_empty()
        );
        assert_eq!(
            found("| `http` | a |\n| `serde`, `old` | b |\n"),
            [
                "docs/decisions/0003-dependencies.md does not say why `anstyle` is there",
                "docs/decisions/0003-dependencies.md explains `old`, which nothing names"
            ]
        );
        assert_eq!(found("").len(), 3);
    }

    #[test]
    fn a_missing_page_is_found() {
        assert_eq!(check(&Metadata::of(Vec::new(), &[]), &[]).len(), 1);
    }
}
