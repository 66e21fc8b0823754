//! The files of the checkout.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "__pycache__"];

/// A text file of the tree, named relative to the root with `/`.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The workspace root: the folder above this package. Cargo names it at each run; the folder of the build may be another
/// checkout's that shares the target directory.
pub(crate) fn root() -> Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().map(Path::to_owned).context("xtask has no parent folder")
}

/// Every text file below `root`, sorted by path. A file that is not UTF-8 is not text.
pub(crate) fn text_files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.iter().any(|&name| entry.file_name() == name) {
                open.push(entry.path());
            } else if kind.is_file()
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                let path = entry.path().strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }
}
