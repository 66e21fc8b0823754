//! The rules of the tree that no compiler checks. Each check takes data and answers with what it found.

mod arrows;
mod code;
mod decisions;
mod duplicates;
mod licences;
mod paths;
mod source;

use anyhow::{Result, bail};
use xshell::Shell;

use crate::metadata::Metadata;
use crate::{docs, tree};

/// Runs every check and prints all that they found.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    let metadata = Metadata::read(sh)?;
    let files = tree::text_files(&sh.current_dir())?;
    let found = [
        arrows::check(&metadata),
        licences::check(&metadata),
        duplicates::check(&metadata),
        source::check(&files),
        paths::check(&files),
        decisions::check(&metadata, &files),
        docs::broken_links(&sh.current_dir(), &files),
    ]
    .concat();
    for finding in &found {
        eprintln!("tidy: {finding}");
    }
    match found.len() {
        0 => Ok(()),
        count => bail!("{count} findings"),
    }
}
