//! `countersign init`: a configuration that serves and runs as it is (design 7).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write, stdout};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Status};
use crate::review::inline;

const CONFIG: &str = include_str!("init/host.json");
const README: &str = include_str!("init/README.txt");
const URL: &str = "http://127.0.0.1:7433";

/// Write a working configuration with a token into a folder
///
/// The folder is made if it is not there. Nothing is overwritten.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder
    dir: PathBuf,
}

pub(crate) fn init(args: &Args) -> Result<Status, Error> {
    let folder = &args.dir;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(wrong(folder, &error)),
        _ => {}
    }
    let token = format!("{}\n", secret()?);
    let files =
        [("host.json", CONFIG, 0o600), ("token", token.as_str(), 0o600), ("README.txt", README, 0o644)];
    // All of it or nothing; that nobody is overwritten between is seen to below.
    for (name, _, _) in &files {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(Error::Usage(format!("{} is there already; nothing was written", path.display())));
        }
    }
    for (name, text, mode) in files {
        let path = folder.join(name);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| wrong(&path, &error))?;
    }
    tell(folder).map_err(Error::io("cannot write"))?;
    Ok(Status::Good)
}

/// 32 random bytes in hex.
pub(crate) fn secret() -> Result<String, Error> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(Error::io("the system gives no random bytes"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn tell(folder: &Path) -> io::Result<()> {
    let path = |name| word(&folder.join(name).display().to_string());
    let mut out = stdout();
    writeln!(out, "Wrote host.json, token and README.txt in {}.", inline(&folder.display().to_string()))?;
    writeln!(out, "Serve it in one terminal:\n")?;
    writeln!(out, "  countersign serve --config {}\n", path("host.json"))?;
    writeln!(out, "Run the agent in another; it asks before it saves:\n")?;
    writeln!(
        out,
        "  countersign run --url {URL} --token-file {} --provider mock --model demo --tools save_proposal \
         'Propose a brand direction'",
        path("token")
    )
}

/// As a shell reads it back.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn wrong(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_word_of_the_shell() {
        for (path, expected) in [
            ("/srv/agents/host.json", "/srv/agents/host.json"),
            ("my agents/token", "'my agents/token'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
        ] {
            assert_eq!(word(path), expected);
        }
    }

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (one, other) = (secret().unwrap(), secret().unwrap());
        assert!(one.len() == 64 && one != other);
    }
}
