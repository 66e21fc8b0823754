//! The documentation is true: its marked shell blocks run, and its relative links lead somewhere.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::outside::outside;
use crate::tree::{self, File};

/// Runs each block whose info string starts with `sh ci`, in README.md and docs/*.md, from the workspace root.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    let files = tree::text_files(&sh.current_dir())?;
    let broken = broken_links(&sh.current_dir(), &files);
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    let mut count = 0;
    for file in files.iter().filter(|file| has_commands(&file.path)) {
        for block in blocks(&file.text) {
            let Block { line, text } = &block;
            eprintln!("--- {}:{line}\n{text}", file.path);
            outside(cmd!(sh, "bash -eu -o pipefail -c {text}"))
                .quiet()
                .stdin("")
                .run()
                .with_context(|| format!("{}:{line}: the block failed", file.path))?;
            count += 1;
        }
    }
    eprintln!("{count} blocks ran");
    Ok(())
}

/// Each relative link of a Markdown file to a file or folder that is not there.
pub(crate) fn broken_links(root: &Path, files: &[File]) -> Vec<String> {
    let markdown = files.iter().filter(|file| file.path.ends_with(".md"));
    markdown
        .flat_map(|file| {
            let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
            links(&file.text)
                .into_iter()
                .filter(move |(_, target)| !root.join(folder).join(target).exists())
                .map(|(line, target)| {
                    format!("{}:{line}: link to `{target}`, which does not exist", file.path)
                })
        })
        .collect()
}

#[derive(Debug, PartialEq)]
struct Block {
    /// The line of the opening fence, from 1.
    line: usize,
    text: String,
}

fn has_commands(path: &str) -> bool {
    let in_docs = path.strip_prefix("docs/").is_some_and(|rest| !rest.contains('/') && rest.ends_with(".md"));
    path == "README.md" || in_docs
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(fence) = fence(line) else { continue };
        let info = line.trim_start()[fence.len()..].trim();
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !closes(line, fence)).collect();
        if info == "sh ci" || info.starts_with("sh ci ") {
            found.push(Block { line: number + 1, text: body.join("\n") });
        }
    }
    found
}

/// The relative targets of inline links and images outside code, without fragment, with their lines.
fn links(markdown: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<&str> = None;
    for (number, line) in markdown.lines().enumerate() {
        match open {
            Some(mark) if closes(line, mark) => open = None,
            Some(_) => {}
            None if fence(line).is_some() => open = fence(line),
            None => {
                // Every second piece between back-ticks is code.
                let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
                for piece in prose.split("](").skip(1) {
                    let target = piece.split([')', ' ', '#']).next().unwrap_or_default();
                    if !target.is_empty() && !target.contains(':') {
                        found.push((number + 1, target.to_owned()));
                    }
                }
            }
        }
    }
    found
}

fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let length = line.len() - line.trim_start_matches('`').len();
    (length >= 3).then(|| &line[..length])
}

fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim();
    line.len() >= fence.len() && line.bytes().all(|byte| byte == b'`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_only_the_marked_blocks() {
        let text = "a\n```sh ci\none\ntwo\n```\n```sh\nno\n```\n````sh ci isolated\n```\n````\n```sh cinema\nno\n```\n";
        let expected = [Block { line: 2, text: "one\ntwo".into() }, Block { line: 9, text: "```".into() }];
        assert_eq!(blocks(text), expected);
        assert!(has_commands("README.md") && has_commands("docs/a.md"));
        assert!(!has_commands("docs/decisions/0001.md") && !has_commands("crates/a/README.md"));
    }

    #[test]
    fn a_failing_block_fails_the_step() {
        let sh = Shell::new().unwrap();
        let folder = sh.create_temp_dir().unwrap();
        sh.change_dir(folder.path());
        sh.write_file("README.md", "```sh ci\ntest -f made && false\n```\n").unwrap();
        let error = run(&sh).unwrap_err();
        assert!(format!("{error:#}").contains("README.md:1: the block failed"), "{error:#}");
        sh.write_file("README.md", "```sh ci\ntouch made\n```\n").unwrap();
        run(&sh).unwrap();
        assert!(sh.path_exists("made"), "the block ran in the root");
    }

    #[test]
    fn finds_broken_links() {
        let root = tree::root().unwrap();
        let text = "[a](../Cargo.toml#x) [b](https://x.y) [c](#here) `[d](no.md)`\n```\n[e](no.md)\n```\n![f](no.png)";
        let files = [File::new("docs/a.md", text), File::new("a.rs", "//! [x](no.md)")];
        assert_eq!(broken_links(&root, &files), ["docs/a.md:5: link to `no.png`, which does not exist"]);
    }
}
